"""What the map key `__proto__` does, for programs that read messages in JavaScript.

The JavaScript implementation, canvas-js, decodes a map by assigning its entries, one by one, to an object. Assigning to
`__proto__` sets the object's prototype: the entry is gone, but what the object inherits can make a later assignment or
the encoder throw, and then the message is refused. Others must refuse the same messages, so this module keeps track of
the prototype chain. How a chain ends is most of what matters of it:

- "object", as for any object: nothing happens.
- "list": nothing happens, unless a conversion to a number or string asks for the list's elements.
- "null": after null, or an object whose own chain ends so, `__proto__` is an entry like any other, once. When canvas-js
  then copies the map, to encode it, that entry sets the copy's prototype, and is gone as well.
- "bytes": the object passes for bytes (see `passing`). Until another `__proto__` replaces the chain, the read-only
  properties of bytes cannot be assigned, and keys that are numbers but no index of it vanish.
- "link": its properties without a setter cannot be assigned.

A key of a map further down the chain hides what the chain ends in: it can be assigned again.

Source: wire format, "The map key `__proto__`"; cborg's `tokenToMap`, multiformats' `CID`, and ECMAScript 2023, 7.1
(conversions), 10.4.5.5 (assignment to typed arrays) and 23.1.3.18 (`join`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from gossiplog.reference.limits import MAX_CLOCK
from gossiplog.reference.multiformats import CID, base58_encode
from gossiplog.reference.values import format_number

_LINK_GETTERS: Final = frozenset({"asCID", "byteLength", "byteOffset"})
_BYTES_READ_ONLY: Final = frozenset({"BYTES_PER_ELEMENT", "buffer", "byteLength", "byteOffset", "length"})
_NAMES: Final = _LINK_GETTERS | _BYTES_READ_ONLY | {"/", "bytes", "version", "join", "toString"}
_NUMBERS: Final = frozenset("-0123456789IN")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_SPACE: Final = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NUMERAL: Final = re.compile(
    rf"[{_SPACE}]*(?:(?P<decimal>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<infinite>[+-]?Infinity)"
    rf"|(?P<whole>0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)))?[{_SPACE}]*",
    re.ASCII,
)
_INFINITY: Final = ("-Infinity", "Infinity")
#: A list this long is joined by nobody in time, and a link this long has no text here.
_MAX_JOINED: Final = 2**20
_MAX_LINK: Final = 64

#: What a conversion to a primitive value gives; an integer of 2^53 or more, on either side of 0, is a BigInt.
Primitive: TypeAlias = bool | int | float | str | None


class JavaScriptError(Exception):
    """canvas-js throws here."""


@dataclass(slots=True, eq=False)
class Seen:
    """A value as JavaScript sees it.

    Attributes:
        value: normalised; of a map only that it is one.
        chain: None for booleans, numbers and strings, which cannot be prototypes.
        joined: what a list is as text, or why it is none; None for what is no list and inherits from none.
    """

    value: Any
    chain: Chain | None = None
    joined: str | JavaScriptError | None = None

    @property
    def is_bytes(self) -> bool:
        """Whether these are bytes, and not a map that passes for them."""
        return isinstance(self.value, bytes)

    def check_text(self) -> None:
        """Fail where `primitive` would, at less cost.

        Raises:
            JavaScriptError: it throws.
        """
        if isinstance(self.value, CID) and len(bytes(self.value)) <= _MAX_LINK:
            return
        self.primitive()

    def primitive(self) -> Primitive:
        """Return what it is converted to where JavaScript needs a number or a string.

        Raises:
            JavaScriptError: it throws.
        """
        if isinstance(self.joined, JavaScriptError):
            raise self.joined
        if self.joined is not None:
            return self.joined
        if self.chain is None or self.value is None:
            primitive: Primitive = self.value
            return primitive
        return self.chain.primitive(is_bytes=self.is_bytes)


@dataclass(slots=True, eq=False)
class Chain:
    """An object, as far as conversions and objects that inherit from it are concerned.

    Attributes:
        end: how its prototype chain ends.
        keys: the entries that matter of the maps on the way there, the nearest of each name.
        data: the bytes or link that the chain ends in.
        length: of the bytes or list that the chain ends in.
        first: what that list begins with, as text.
        throwing: which elements of that list have no text.
        is_version_0: whether that link is of version 0.
    """

    end: Literal["object", "list", "null", "bytes", "link"]
    keys: dict[str, Seen] = field(default_factory=dict)
    data: bytes | CID = b""
    length: int = 0
    first: str = ""
    throwing: tuple[int, ...] = ()
    is_version_0: bool = False

    def blocks(self, key: str) -> bool:
        """Return whether assigning to `key` throws."""
        read_only = _LINK_GETTERS if self.end == "link" else _BYTES_READ_ONLY if self.end == "bytes" else ()
        return key in read_only and key not in self.keys

    def swallows(self, key: str) -> bool:
        """Return whether assigning to `key` does nothing but convert the value to a number, which may throw."""
        if self.end != "bytes" or not _is_canonical_number(key) or key in self.keys:
            return False
        return not (_INDEX.fullmatch(key) and int(key) < self.length)

    def extend(self, keys: dict[str, Seen]) -> Chain:
        """Return the chain of a map with these entries that inherits from this object.

        Nothing else uses this object afterwards.
        """
        if not keys:
            return self
        self.keys |= keys
        return replace(self)

    def indices(self, count: int) -> dict[int, Seen]:
        """Return the entries whose keys are indices below `count`."""
        return {int(key): seen for key, seen in self.keys.items() if _INDEX.fullmatch(key) and int(key) < count}

    def join(self) -> str:
        """Return what JavaScript's `join` makes of a list, or of a map that inherits from one.

        Of several elements the result shows only that it is no number.

        Raises:
            JavaScriptError: it throws.
        """
        length = self.length
        if "length" in self.keys:
            number = to_number(self.keys["length"].primitive())
            length = 0 if math.isnan(number) else int(min(max(number, 0), 2.0**53))
        if length > _MAX_JOINED:
            raise JavaScriptError("a list that is too long to join")
        own = {index: element_text(seen) for index, seen in self.indices(length).items()}
        if any(index < length and index not in own for index in self.throwing):
            raise JavaScriptError("an element without text")
        return "," if length > 1 else own.get(0, self.first) if length else ""

    def primitive(self, *, is_bytes: bool) -> Primitive:
        """Return what the object is converted to, unless it ends in a list.

        Raises:
            JavaScriptError: it throws.
        """
        if self.end == "null" or "toString" in self.keys:
            raise JavaScriptError("an object that cannot be converted")
        if self.end == "link":
            return self.link_text()
        if self.end == "object" or "join" in self.keys:
            return "[object Object]"
        if not is_bytes or not isinstance(self.data, bytes):
            raise JavaScriptError("a map that passes for bytes cannot be joined")
        return "," if len(self.data) > 1 else "".join(map(str, self.data))

    def link_data(self) -> bytes:
        """Return the bytes that a link, or a map that passes for one, is written from as text.

        Raises:
            JavaScriptError: it has none, or its text cannot be asked for.
        """
        # What is no link, but has the fields of one, is made one first.
        if self.end == "link" and "toString" in self.keys:
            raise JavaScriptError("a link with a `toString` of its own")
        if "bytes" not in self.keys:
            return bytes(self.data)
        if not self.keys["bytes"].is_bytes:
            raise JavaScriptError("a link without bytes")
        return bytes(self.keys["bytes"].value)

    def has_version_0(self) -> bool:
        """Return whether the text of a link, or of a map that passes for one, is that of a version 0."""
        return same_number(self.keys["version"].value, 0) if "version" in self.keys else self.is_version_0

    def link_text(self) -> str:
        """Return the text of a link, or of a map that passes for one; of version 1 only how it begins.

        Raises:
            JavaScriptError: it has none, or too long a one.
        """
        data = self.link_data()
        if not self.has_version_0():
            return "b"
        if len(data) > _MAX_LINK:
            raise JavaScriptError("a link that is too long for its text")
        return base58_encode(data)


def element_text(seen: Seen) -> str:
    """Return what `join` makes of an element.

    Raises:
        JavaScriptError: it throws.
    """
    value = seen.primitive()
    return "" if value is None else to_text(value)


def same_number(value: Any, number: int) -> bool:
    """Return whether a normalised value is this number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == number


def matters(key: str) -> bool:
    """Return whether an entry with this key can matter to objects that inherit from its map."""
    return key in _NAMES or key[:1] in _NUMBERS


def is_index(key: str) -> bool:
    """Return whether a key is an array index: JavaScript enumerates those before all others."""
    return bool(_INDEX.fullmatch(key)) and int(key) < 2**32 - 1


def _is_canonical_number(key: str) -> bool:
    """Return whether a key is a number as JavaScript prints it."""
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


def to_number(value: Primitive) -> float:
    """`Number(value)`, but that a BigInt throws, as it does where JavaScript converts without being asked to.

    Raises:
        JavaScriptError: it throws.
    """
    match value:
        case None:
            return 0.0
        case str():
            return _parse_number(value)
        case int() if not isinstance(value, bool) and abs(value) > MAX_CLOCK:
            raise JavaScriptError("a BigInt where a number is needed")
        case _:
            return float(value)


def _parse_number(text: str) -> float:
    match = _NUMERAL.fullmatch(text)
    if match is None:
        return math.nan
    if match["whole"]:
        whole = int(match["whole"], 0)
        return float(whole) if whole.bit_length() <= 1000 else math.inf
    if match["infinite"]:
        return -math.inf if match["infinite"].startswith("-") else math.inf
    return float(match["decimal"] or 0)


def to_text(value: Primitive) -> str:
    """`String(value)`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return (
                format_number(value) if math.isfinite(value) else "NaN" if math.isnan(value) else _INFINITY[value > 0]
            )
        case _:
            return str(value)
