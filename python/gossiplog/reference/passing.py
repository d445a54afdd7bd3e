"""Maps that pass for bytes: their prototypes end in bytes, and they have a `length` of their own.

canvas-js hands such a map to its encoders as it is. They ask it for its `length`, of whatever type, and read so many
indices: the map's own entries, else the bytes that it inherits from, else nothing. In dag-cbor a typed array is set
from it, which takes the whole part of `length`, and each index modulo 256; in dag-json base64 is made of it by a loop
as long as the index is below `length`, with 32-bit integers.

Source: wire format, "Maps that pass for bytes"; cborg's `encodeBytes`, multiformats' `rfc4648`, and ECMAScript 2023,
7.1.6, 7.1.11 (conversions to integers) and 23.2.3.26.2 (`set`).
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gossiplog.errors import DecodeError
from gossiplog.reference.limits import MAX_CLOCK, MAX_PASSING_BYTES
from gossiplog.reference.prototype import Chain, JavaScriptError, Primitive, same_number, to_number

_KEY_LENGTH: Final = 20
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" + bytes(192)


class Passing(bytes):
    """The bytes that such a map is signed as.

    Attributes:
        length: what the encoder of dag-cbor finds.
        is_key: whether it also passes for a parent's key.
    """

    length: Primitive
    is_key: bool


@dataclass(slots=True, eq=False)
class Pending:
    """Such a map whose bytes are made once it is known to be kept.

    Attributes:
        chain: the map.
        count: of the bytes.
        indices: those that the map has of its own.
    """

    chain: Chain
    count: int
    indices: dict[int, int]

    def make(self) -> Passing:
        """Return the bytes."""
        data = bytearray(self.chain.data[: self.count] if isinstance(self.chain.data, bytes) else b"")
        data += bytes(self.count - len(data))
        if all(0 <= value < 256 for value in self.indices.values()):
            for index, value in self.indices.items():
                data[index] = value
            passing = Passing(data)
        else:
            passing = Passing(_through_base64([self.indices.get(index, byte) for index, byte in enumerate(data)]))
        passing.length = self.chain.keys["length"].primitive()
        passing.is_key = _is_key(self.chain)
        return passing


def pend(chain: Chain, codec: str) -> Pending:
    """Return the bytes of a map in messages that are signed with a codec.

    Raises:
        JavaScriptError: the encoder throws, or works on without end.
    """
    if "length" not in chain.keys:
        raise JavaScriptError("a map whose __proto__ is bytes")
    length = chain.keys["length"].primitive()
    if codec == "dag-cbor":
        return _pend(chain, _cbor_count(length), _to_uint8)
    return _pend(chain, _json_count(length), _to_int32)


def _pend(chain: Chain, count: int, convert: Callable[[float], int]) -> Pending:
    indices = {index: convert(to_number(seen.primitive())) for index, seen in chain.indices(count).items()}
    return Pending(chain, count, indices)


def _cbor_count(length: Primitive) -> int:
    number = to_number(length)
    # More than a chunk of the encoder has is refused, whatever it is; see `chunks`.
    if not number < 256:
        raise JavaScriptError(f"a `length` of {number}")
    return max(0, math.floor(number))


def _json_count(length: Primitive) -> int:
    if isinstance(length, int) and length < -MAX_CLOCK:
        return 0
    number = to_number(length)
    if math.isnan(number):
        return 0
    if number > MAX_PASSING_BYTES:
        raise JavaScriptError(f"a `length` of {number}: expected at most {MAX_PASSING_BYTES}")
    return max(0, math.ceil(number))


def _to_uint8(number: float) -> int:
    return int(number) % 2**8 if math.isfinite(number) else 0


def _to_int32(number: float) -> int:
    whole = int(number) % 2**32 if math.isfinite(number) else 0
    return whole - 2**32 if whole >= 2**31 else whole


def _through_base64(numbers: list[int]) -> bytes:
    """Return what is in the base64 that canvas-js makes of integers that may be no bytes."""
    buffer = bits = 0
    sextets = bytearray()
    for number in numbers:
        buffer = buffer << 8 & 0xFFFFFFFF | number & 0xFFFFFFFF
        bits += 8
        while bits > 6:
            bits -= 6
            sextets.append(_shift_right(buffer, bits) & 63)
    if bits:
        sextets.append(buffer << 6 - bits & 63)
    return b64decode(sextets.translate(_ALPHABET) + b"=" * (-len(sextets) % 4))


def _shift_right(number: int, bits: int) -> int:
    return (number - 2**32 if number >= 2**31 else number) >> bits


def _is_key(chain: Chain) -> bool:
    lengths = (chain.keys[name].value for name in ("length", "byteLength") if name in chain.keys)
    if [same_number(length, _KEY_LENGTH) for length in lengths] != [True, True]:
        return False
    values = [seen.value for seen in chain.indices(_KEY_LENGTH).values()]
    return all(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 256 for value in values)


def check_total(total: int) -> None:
    """Refuse a value whose maps pass for more bytes than can be held.

    Raises:
        DecodeError: they do.
    """
    if total > MAX_PASSING_BYTES:
        raise DecodeError(f"maps that pass for {total} bytes: expected at most {MAX_PASSING_BYTES}")
