"""What the map key `__proto__` does, for whoever reads messages in JavaScript.

The original decodes a map by assigning its entries, one by one, to an object. Assigning to `__proto__` sets the
object's prototype: the entry is gone, but what the object inherits can make a later assignment or the encoder throw,
and then the message is refused. Others must refuse the same messages, so this module keeps track of the prototype
chain. A chain ends in one of four ways, which is all that matters of it:

- `OBJECT`, as for any object: nothing happens.
- `NULL`: after null, or an object whose own chain ends so, `__proto__` is an entry like any other, once. When the
  original then copies the map, to encode it, that entry sets the copy's prototype, and is gone as well.
- bytes: the object passes for bytes, and cannot be encoded. Until another `__proto__` replaces the chain, its read-only
  properties cannot be assigned, and keys that are numbers but no index of it vanish.
- a link: its properties without a setter cannot be assigned.

Left out, where the original's verdict is an accident of an accident: a map that passes for bytes and has a `length` of
its own; an index of such bytes that is given an integer of 2^53 or more, or a list or map; and in dag-json a `version`
of its own in a map that is written as the link that it inherits from.

Source: wire format, "The map key `__proto__`"; cborg's `tokenToMap`, multiformats' `CID`, and ECMAScript 2023,
10.4.5.5 (assignment to typed arrays).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Literal

from gossiplog.reference.number import format_number

PROTO: Final = "__proto__"
_LINK_GETTERS: Final = frozenset({"asCID", "byteLength", "byteOffset"})
_BYTES_READ_ONLY: Final = frozenset({"BYTES_PER_ELEMENT", "buffer", "byteLength", "byteOffset", "length"})
_INDEX: Final = re.compile(r"0|[1-9][0-9]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Chain:
    """How a prototype chain ends; `length` is that of the bytes it ends in."""

    end: Literal["object", "null", "bytes", "link"]
    length: int = 0

    def blocks(self, key: str) -> bool:
        """Whether assigning to `key` throws."""
        return key in (_LINK_GETTERS if self.end == "link" else _BYTES_READ_ONLY if self.end == "bytes" else ())

    def swallows(self, key: str) -> bool:
        """Whether assigning to `key` does nothing."""
        if self.end != "bytes" or not _is_canonical_number(key):
            return False
        return not (_INDEX.fullmatch(key) and len(key) <= 10 and int(key) < self.length)


OBJECT: Final = Chain("object")
NULL: Final = Chain("null")


def _is_canonical_number(key: str) -> bool:
    if key in ("-0", "NaN", "Infinity", "-Infinity"):
        return True
    if not key[:1] or key[0] not in "-0123456789" or len(key) > 30:
        return False
    try:
        number = float(key)
    except ValueError:
        return False
    # Python reads "-inf", too, which is no number in JavaScript.
    return math.isfinite(number) and format_number(number) == key
