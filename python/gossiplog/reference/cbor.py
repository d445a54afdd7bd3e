"""dag-cbor: written in its one canonical form, read as the original reads it.

Source: wire format, "What is written, and what is accepted"; RFC 8949. Nothing here recurses: nesting is a stack.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from gossiplog.errors import DecodeError
from gossiplog.reference.cid import CID
from gossiplog.reference.limits import MAX_DEPTH
from gossiplog.reference.number import normalise_float
from gossiplog.reference.prototype import NULL, OBJECT, PROTO, Chain
from gossiplog.reference.values import normalise, same_primitive

_UINT, _NEGINT, _BYTES, _TEXT, _LIST, _MAP, _TAG, _SIMPLE = range(8)
_LINK_TAG: Final = 42
_FALSE, _TRUE, _NULL, _UNDEFINED = range(20, 24)
_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}


def cbor_encode(value: Any) -> bytes:
    """Writes a value as canonical dag-cbor.

    Args:
        value: None, bool, int, float, str, bytes, bytearray, memoryview, CID, lists, tuples and mappings of these.

    Raises:
        EncodeError: a value that cannot be written, or that other peers would refuse or change; it names the place.
    """
    return write_cbor(normalise(value))


def write_cbor(value: Any) -> bytes:
    """Writes a normalised value, of any depth, as canonical dag-cbor."""
    out = bytearray()
    pending = [value]
    while pending:
        value = pending.pop()
        match value:
            case None:
                out.append(_SIMPLE << 5 | _NULL)
            case bool():
                out.append(_SIMPLE << 5 | (_TRUE if value else _FALSE))
            case int():
                out += _write_head(_UINT, value) if value >= 0 else _write_head(_NEGINT, -1 - value)
            case float():
                out.append(_SIMPLE << 5 | 27)
                out += struct.pack(">d", value)
            case bytes():
                out += _write_head(_BYTES, len(value)) + value
            case str():
                text = value.encode()
                out += _write_head(_TEXT, len(text)) + text
            case CID():
                link = b"\0" + bytes(value)
                out += _write_head(_TAG, _LINK_TAG) + _write_head(_BYTES, len(link)) + link
            case list():
                out += _write_head(_LIST, len(value))
                pending.extend(reversed(value))
            case _:
                out += _write_head(_MAP, len(value))
                for key in sorted(value, key=_map_order, reverse=True):
                    pending += (value[key], key)
    return bytes(out)


def _map_order(key: str) -> tuple[int, bytes]:
    text = key.encode()
    return len(text), text


def _write_head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in range(4) if argument < 1 << (8 << size))
    return bytes([major << 5 | 24 + size]) + argument.to_bytes(1 << size)


def cbor_decode(data: bytes) -> Any:
    """Reads one value of dag-cbor, in any form that the original accepts, and normalises it.

    Returns:
        None, bool, int, float, str, bytes, CID, list or dict.

    Raises:
        DecodeError: bytes that the original refuses, or nested deeper than `MAX_DEPTH`.
    """
    reader = _Reader(bytes(data))
    item = reader.read()
    if reader.offset < len(data):
        raise DecodeError(f"{len(data) - reader.offset} bytes are left over", reader.offset)
    if item.fault is not None:
        raise item.fault
    return item.value


@dataclass(slots=True)
class _Item:
    """A value that was read, and what it does to a map to which it becomes the prototype.

    Attributes:
        value: normalised.
        chain: how its prototype chain ends; None for booleans, numbers and strings, which cannot be prototypes.
        fault: why it cannot be encoded again; that counts only where the value is kept.
        marks: what the original's encoder finds under `/` and `bytes`, its test for links.
    """

    value: Any
    chain: Chain | None = None
    fault: DecodeError | None = None
    marks: tuple[Any, Any] = (None, None)


@dataclass(slots=True)
class _OpenList:
    remaining: int
    items: list[Any] = field(default_factory=list)
    fault: DecodeError | None = None

    def add(self, item: _Item) -> None:
        self.items.append(item.value)
        self.fault = self.fault or item.fault
        self.remaining -= 1

    def close(self) -> _Item:
        return _Item(self.items, OBJECT, self.fault)


@dataclass(slots=True)
class _OpenMap:
    """A map under construction. See `prototype`."""

    remaining: int
    offset: int
    key: str | None = None
    key_offset: int = 0
    entries: dict[str, Any] = field(default_factory=dict)
    prototype: _Item | None = None
    chain: Chain = OBJECT
    fault: DecodeError | None = None

    def open_entry(self, key: str, offset: int) -> None:
        if key in self.entries or (key == PROTO and self.prototype is not None):
            raise DecodeError(f"the map key {key[:40]!r} is there twice", offset)
        self.key, self.key_offset = key, offset

    def add(self, item: _Item) -> None:
        key, self.key = self.key, None
        self.remaining -= 1
        if key is None:
            raise DecodeError("a map value without its key", self.key_offset)
        if key == PROTO and self.chain is not NULL:
            self.chain = item.chain or self.chain
        elif key == PROTO:
            self.prototype = item
        elif self.chain.blocks(key):
            raise DecodeError(
                f"the map key {key!r} after a __proto__ that JavaScript cannot assign it to", self.key_offset
            )
        elif not self.chain.swallows(key):
            self.entries[key] = item.value
            self.fault = self.fault or item.fault

    def close(self) -> _Item:
        value: Any = self.entries
        inherited: tuple[Any, Any] = (None, None)
        fault = self.fault
        ends = [self.chain]
        if self.prototype is not None:
            inherited = self.prototype.marks
            ends.append(self.prototype.chain or OBJECT)
        if any(chain.end == "bytes" for chain in ends):
            fault = fault or DecodeError("a map whose __proto__ is bytes", self.offset)
        slash, other = value.get("/", inherited[0]), value.get("bytes", inherited[1])
        if same_primitive(slash, other):
            fault = fault or DecodeError("a map whose `/` equals its `bytes`", self.offset)
        if isinstance(slash, CID) and slash is other:
            # The original's copy of the map inherits from a link's fields, and is written as that link.
            value = slash
        return _Item(value, self.chain, fault, (slash, other))


class _Reader:
    """Reads one value from bytes; `offset` is how far it came."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offset = 0

    def read(self) -> _Item:
        """The value at `offset`."""
        stack: list[_OpenList | _OpenMap] = []
        while True:
            start = self.offset
            if stack and isinstance(stack[-1], _OpenMap) and stack[-1].key is None:
                stack[-1].open_entry(self._read_key(), start)
            item = self._read_item()
            if not isinstance(item, _Item):
                if len(stack) == MAX_DEPTH:
                    raise DecodeError(f"lists and maps more than {MAX_DEPTH} deep", start)
                stack.append(item)
            while True:
                if isinstance(item, _Item):
                    if not stack:
                        return item
                    stack[-1].add(item)
                if stack[-1].remaining:
                    break
                item = stack.pop().close()

    def _read_head(self) -> tuple[int, int, int]:
        """Major type, additional information, and argument: minimal, except where the type is 7."""
        start = self.offset
        initial = self._take(1)[0]
        major, info = initial >> 5, initial & 31
        if info < 24:
            return major, info, info
        if info > 27:
            raise DecodeError("an item of indefinite length" if info == 31 else f"reserved information {info}", start)
        size = 1 << (info - 24)
        argument = int.from_bytes(self._take(size))
        if major != _SIMPLE and argument < (24 if size == 1 else 1 << (4 * size)):
            raise DecodeError("a number or length in more bytes than it needs", start)
        return major, info, argument

    def _read_item(self) -> _Item | _OpenList | _OpenMap:
        start = self.offset
        major, info, argument = self._read_head()
        match major:
            case 0:
                return _Item(argument)
            case 1:
                return _Item(-1 - argument)
            case 2:
                return _Item(self._take(argument), Chain("bytes", argument))
            case 3:
                return _Item(self._take_text(argument))
            case 4:
                self._expect(argument)
                return _OpenList(argument)
            case 5:
                self._expect(2 * argument)
                return _OpenMap(argument, start)
            case 6:
                return self._read_link(argument, start)
            case _:
                return _Item(*self._read_simple(info, argument, start))

    def _read_key(self) -> str:
        start = self.offset
        major, _, argument = self._read_head()
        if major != _TEXT:
            raise DecodeError("a map key that is not a string", start)
        return self._take_text(argument)

    def _read_link(self, tag: int, start: int) -> _Item:
        if tag != _LINK_TAG:
            raise DecodeError(f"tag {tag}: expected {_LINK_TAG}, a link", start)
        major, _, argument = self._read_head()
        if major != _BYTES:
            raise DecodeError("a link that is not bytes", start)
        data = self._take(argument)
        if data[:1] != b"\0":
            raise DecodeError("a link without its leading zero", start)
        try:
            link = CID(data[1:])
        except DecodeError as error:
            raise DecodeError(error.reason, start) from error
        return _Item(link, Chain("link"), None, (link, link))

    def _read_simple(self, info: int, argument: int, start: int) -> tuple[Any, Chain | None]:
        match info:
            case 20 | 21:
                return info == _TRUE, None
            case 22 | 23:
                return None, NULL
            case 25 | 26 | 27:
                size = 1 << (info - 24)
                number: float = struct.unpack(_FLOATS[info], argument.to_bytes(size))[0]
                if not math.isfinite(number):
                    raise DecodeError(f"{number} is not in the data model", start)
                return normalise_float(number), None
            case _:
                raise DecodeError(f"simple value {argument}", start)

    def _take(self, count: int) -> bytes:
        self._expect(count)
        self.offset += count
        return self._data[self.offset - count : self.offset]

    def _take_text(self, count: int) -> str:
        return self._take(count).decode("utf-8", "replace").removeprefix("\ufeff")

    def _expect(self, count: int) -> None:
        left = len(self._data) - self.offset
        if count > left:
            raise DecodeError(f"{count} bytes or more must follow, {left} do", self.offset)
