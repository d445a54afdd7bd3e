"""The encoder of dag-cbor that canvas-js uses, as far as it makes a difference: its buffer.

It writes into chunks of 256 bytes, and what is 64 bytes or longer and does not fit becomes a chunk itself. How far it
came is a sum of the `length` of all that it wrote. A map that passes for bytes has any `length`: a fraction, a negative
number, or text, to which a sum appends. So what is written next can overwrite what was written, or leave a gap, in
which stands what the process had in memory; that, and what makes the encoder throw, is refused here.

Source: cborg's `Bl` and `concat`, `Buffer.concat` of Node.js, and ECMAScript 2023, 23.2.3.26 (`set`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from gossiplog.reference.canonical import map_order, write_head, write_link, write_scalar
from gossiplog.reference.limits import MAX_CLOCK
from gossiplog.reference.multiformats import CID
from gossiplog.reference.passing import Passing
from gossiplog.reference.prototype import JavaScriptError, to_number, to_text

_CHUNK: Final = 256
_OWN_CHUNK: Final = 64
#: Strings of fewer UTF-16 units are written from a list, which has no method of a typed array.
_LISTED: Final = 24
#: Before the beginning of any chunk.
_FAR: Final = 2.0**53
#: A position that was appended to so often is no longer followed.
_MAX_POSITION: Final = 4096


def encode_in_chunks(value: Any) -> bytes:
    """Return what canvas-js signs in dag-cbor for a normalised value that may hold `Passing` bytes.

    Raises:
        JavaScriptError: it throws, or signs what happens to be in memory.
    """
    chunks = _Chunks()
    pending = [value]
    while pending:
        value = pending.pop()
        match value:
            case Passing():
                number = to_number(value.length)
                low = int(number) & 0xFF
                chunks.push(bytes([0x40 | low] if number < 24 else [0x58, low]))
                chunks.push_passing(value)
            case bytes():
                chunks.push(write_head(2, len(value)))
                chunks.push(value)
            case str():
                text = value.encode()
                chunks.push(write_head(3, len(text)))
                chunks.push(text, is_list=len(value.encode("utf-16-le")) < 2 * _LISTED)
            case list():
                chunks.push(write_head(4, len(value)))
                pending.extend(reversed(value))
            case dict():
                chunks.push(write_head(5, len(value)))
                for key in sorted(value, key=map_order, reverse=True):
                    pending += (value[key], key)
            case CID():
                head, data = write_link(value)
                chunks.push(head[:2])
                chunks.push(head[2:])
                chunks.push(data)
            case _:
                chunks.push(write_scalar(value))
    return chunks.finish()


@dataclass(slots=True, eq=False)
class _Chunk:
    data: bytearray
    written: bytearray
    is_list: bool = False

    def __len__(self) -> int:
        return len(self.data)

    def set(self, data: bytes, at: float) -> None:
        start = math.trunc(at) if math.isfinite(at) else -1
        if self.is_list or start < 0 or start + len(data) > len(self.data):
            raise JavaScriptError("bytes written outside the encoder's buffer")
        self.data[start : start + len(data)] = data
        self.written[start : start + len(data)] = b"\1" * len(data)

    def take(self, end: float) -> bytes:
        stop = 0 if math.isnan(end) else math.trunc(max(-_FAR, min(end, len(self.data))))
        return self.checked(max(0, stop + len(self.data)) if stop < 0 else stop)

    def checked(self, stop: int) -> bytes:
        if not all(self.written[:stop]):
            raise JavaScriptError("bytes of the encoder's buffer that were never written")
        return bytes(self.data[:stop])

    def trim(self, end: float) -> None:
        if self.is_list:
            raise JavaScriptError("a list has no part")
        stop = math.trunc(max(end, -_FAR))
        stop = max(0, stop + len(self.data)) if stop < 0 else stop
        del self.data[stop:], self.written[stop:]


class _Chunks:
    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        #: A sum of numbers, or text to which numbers are appended.
        self._position: float | str = 0.0
        self._last = -1.0

    def push(self, data: bytes, *, is_list: bool = False) -> None:
        self._add(data, float(len(data)), is_list=is_list)

    def push_passing(self, data: Passing) -> None:
        length = data.length
        self._add(data, length if isinstance(length, str) else to_number(length), passes=True)

    def _add(self, data: bytes, length: float | str, *, is_list: bool = False, passes: bool = False) -> None:
        end = _sum(self._position, length)
        top = self._chunks[-1] if self._chunks else None
        start = len(top or ()) - (self._last - to_number(self._position)) - 1
        if top is not None and to_number(end) <= self._last + 1:
            top.set(data, start)
        else:
            if top is not None and start < len(top):
                top.trim(start)
                self._last = to_number(self._position) - 1
            if to_number(length) < _OWN_CHUNK:
                top = _Chunk(bytearray(_CHUNK), bytearray(_CHUNK))
                top.set(data, 0)
                self._last += _CHUNK
            elif passes:
                raise JavaScriptError("a map that passes for bytes, where chunks are joined")
            else:
                top = _Chunk(bytearray(data), bytearray(b"\1" * len(data)), is_list)
                self._last += len(data)
            self._chunks.append(top)
        self._position = end

    def finish(self) -> bytes:
        if len(self._chunks) == 1:
            return self._chunks[0].take(to_number(self._position))
        position = self._position
        if isinstance(position, str) or not position.is_integer() or not 0 <= position <= MAX_CLOCK:
            raise JavaScriptError(f"chunks joined to a length of {position}")
        out = bytearray()
        for chunk in self._chunks:
            out += chunk.checked(min(len(chunk), int(position) - len(out)))
        return bytes(out) + bytes(int(position) - len(out))


def _sum(position: float | str, length: float | str) -> float | str:
    if isinstance(position, float) and isinstance(length, float):
        return position + length
    text = to_text(position) + to_text(length)
    if len(text) > _MAX_POSITION:
        raise JavaScriptError("a position of too many characters")
    return text
