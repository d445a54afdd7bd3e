"""dag-cbor, read as canvas-js reads it; `canonical` writes it.

Source: wire format, "What is written, and what is accepted"; RFC 8949. Nothing here recurses: nesting is a stack.
"""

from __future__ import annotations

import math
import struct
from base64 import b32encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gossiplog.errors import DecodeError
from gossiplog.reference.canonical import BYTES, LINK_TAG, SIMPLE, TEXT, TRUE, write_cbor
from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.limits import MAX_DEPTH
from gossiplog.reference.multiformats import CID, MAX_BASE58_BYTES, base58_encode, read_number
from gossiplog.reference.passing import Passing, Pending, check_total, pend
from gossiplog.reference.prototype import (
    Chain,
    JavaScriptError,
    Seen,
    element_text,
    is_index,
    matters,
    to_number,
)
from gossiplog.reference.values import PROTO, both_empty, normalise_float, same_primitive

_FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}


def cbor_decode(data: bytes) -> Any:
    """Read one value of dag-cbor, in any form that canvas-js accepts, and normalises it.

    Returns:
        None, bool, int, float, str, bytes, CID, list or dict.

    Raises:
        DecodeError: bytes that canvas-js refuses, or nested deeper than `MAX_DEPTH`.
    """
    read = read_cbor(data, "dag-cbor")
    if read.passes:
        try:
            if encode_in_chunks(read.value) != write_cbor(read.value):
                raise DecodeError("a map that passes for bytes, which encoders write past", 0)
        except JavaScriptError as error:
            raise DecodeError(str(error), 0) from error
    return read.plain()


@dataclass(frozen=True, slots=True)
class Read:
    """A value that was read.

    Attributes:
        value: normalised; it holds `Passing` bytes where a map passes for them.
        passes: whether there are any.
        unstorable: why canvas-js cannot store a message with this value, whose signature it would accept.
    """

    value: Any
    passes: bool
    unstorable: DecodeError | None

    def plain(self) -> Any:
        """Return the value with plain bytes."""
        return _replace(self.value, bytes, Passing) if self.passes else self.value


def read_stored(data: bytes) -> Read:
    """Read a message's stored value, whose signature names the codec that maps are read for.

    Raises:
        DecodeError: as for `cbor_decode`.
    """
    return read_cbor(data, _codec_of(data))


def _codec_of(data: bytes) -> str:
    """Return the codec in a stored value: what is no such value is refused for that, whatever the codec is."""
    if data[:2] != b"\x85\x83":
        return "dag-cbor"
    reader = _Reader(data, "")
    reader.offset = 2
    try:
        codec = reader.read_text()
    except DecodeError:
        return "dag-cbor"
    return codec


def read_cbor(data: bytes, codec: str) -> Read:
    """Read one value of dag-cbor as it is signed in a codec.

    Raises:
        DecodeError: as for `cbor_decode`.
    """
    reader = _Reader(bytes(data), codec)
    item = reader.read()
    if reader.offset < len(data):
        raise DecodeError(f"{len(data) - reader.offset} bytes are left over", reader.offset)
    reader.passes |= item.keep(codec)
    fault = item.fault or item.uncopied
    if fault is not None:
        raise fault
    value, total = item.value, 0

    def make(pending: Pending) -> Passing:
        nonlocal total
        total += pending.count
        check_total(total)
        return pending.make()

    passes = reader.passes
    value = _replace(value, make, Pending) if passes else value
    return Read(value, passes, item.unstorable or _check_stored(item.stored))


def _check_stored(stored: int) -> DecodeError | None:
    try:
        check_total(stored)
    except DecodeError as error:
        return error
    return None


def _replace(value: Any, make: Callable[[Any], Any], kind: type[Any]) -> Any:
    """Return a value with all objects of a type replaced. The lists and maps stay the same."""
    root = [value]
    pending: list[Any] = [root]
    while pending:
        inner = pending.pop()
        for key in inner if isinstance(inner, dict) else range(len(inner)):
            match inner[key]:
                case list() | dict() as found:
                    pending.append(found)
                case found if isinstance(found, kind):
                    inner[key] = make(found)
    return root[0]


@dataclass(slots=True, eq=False)
class _Item:
    """A value that was read, and what it does to a map to which it becomes the prototype.

    Attributes:
        value: normalised; `Pending` for a map that passes for bytes.
        raw: the value as it was decoded.
        copy: the value in the copy that canvas-js makes of a message before it encodes it for the signature.
        fault: why that copy cannot be encoded; it counts only where the value is kept.
        uncopied: why that copy cannot be made.
        stored: how many bytes maps pass for as the value is stored.
        unstorable: why the value cannot be encoded as it was decoded, which canvas-js does to store it.
        offset: of a map, where it begins.
    """

    value: Any
    raw: Seen
    copy: Seen
    fault: DecodeError | None = None
    unstorable: DecodeError | None = None
    offset: int | None = None
    uncopied: DecodeError | None = None
    stored: int = 0

    def keep(self, codec: str) -> bool:
        """Judge a map as it is encoded; what is dropped is not. Return whether it passes for bytes."""
        if isinstance(self.value, CID):
            self._write_link(self.value, codec, as_version_0=cast(Chain, self.raw.chain).is_version_0)
        if self.offset is None or not isinstance(self.value, dict):
            return False
        raw, copy, start = cast(Chain, self.raw.chain), cast(Chain, self.copy.chain), self.offset
        if raw.end == "bytes":
            # It is stored in dag-json, and is its own copy.
            pending, self.unstorable = _pend(raw, "dag-json", start)
            self.uncopied, self.stored = None, 0 if pending is None else pending.count
        elif _is_stored_as_link(raw):
            self.unstorable, self.stored = _unstorable(raw, start), 0
        if copy.end == "bytes":
            passing, self.fault = _pend(copy, codec, start)
            self.value = self.value if passing is None else passing
            return passing is not None
        slash, other = _mark(copy, "/"), _mark(copy, "bytes")
        if same_primitive(slash, other):
            self.fault = self.fault or DecodeError("a map whose `/` equals its `bytes`", start)
        is_empty_link = both_empty(slash, other)
        if is_empty_link or (isinstance(slash, CID) and slash is other):
            # The entries of what is written as a link are not encoded.
            self.fault = None
            as_version_0 = copy.has_version_0()
            if is_empty_link:
                self.value = CID.empty() if codec != "dag-json" else {"/": "" if as_version_0 else "b"}
            else:
                # The copy inherits from a link's fields, and is written as that link.
                self._write_link(slash, codec, as_version_0=as_version_0)
        return False

    def _write_link(self, link: CID, codec: str, *, as_version_0: bool) -> None:
        try:
            self.value = _as_signed(link, codec, as_version_0=as_version_0)
        except DecodeError as error:
            self.fault = self.fault or error


def _pend(chain: Chain, codec: str, start: int) -> tuple[Pending | None, DecodeError | None]:
    try:
        return pend(chain, codec), None
    except JavaScriptError as error:
        return None, DecodeError(f"a map that passes for bytes: {error}", start)


def _mark(chain: Chain, key: str) -> Any:
    """Return what the encoder finds under `/` or `bytes`, its test for links."""
    if key in chain.keys:
        return chain.keys[key].value
    return chain.data if isinstance(chain.data, CID) else None


def _is_stored_as_link(raw: Chain) -> bool:
    """Return whether a map passes for a link as it was decoded: nothing that is in it is stored."""
    slash, other = _mark(raw, "/"), _mark(raw, "bytes")
    same_link = slash is other and (slash is None or isinstance(slash, CID))
    equal = same_primitive(slash, other) or both_empty(slash, other) or same_link
    return equal or "asCID" not in raw.keys if raw.end == "link" else equal and slash is not None


def _unstorable(raw: Chain, start: int) -> DecodeError | None:
    """Return why a map that passes for a link cannot be encoded as decoded: it has no text."""
    try:
        raw.link_data()
    except JavaScriptError as error:
        return DecodeError(f"a map that passes for a link: {error}", start)
    return None


def _as_signed(link: CID, codec: str, *, as_version_0: bool) -> CID | dict[str, str]:
    """Return a link, or in dag-json the map that is written like it.

    The map is needed where the bytes of the link would be read as of another version.

    Raises:
        DecodeError: a link that is too long for base58.
    """
    data = bytes(link)
    if codec != "dag-json" or as_version_0 == (data[:1] != b"\x01"):
        return link
    if not as_version_0:
        return {"/": f"b{b32encode(data).decode().lower().rstrip('=')}"}
    if len(data) > MAX_BASE58_BYTES:
        raise DecodeError(f"a link of version 0 with {len(data)} bytes has no text form")
    return {"/": base58_encode(data)}


@dataclass(slots=True)
class _Elements:
    """What a list is as text, which a number may be converted from."""

    first: str = ""
    throwing: list[int] = field(default_factory=list)

    def add(self, seen: Seen, index: int, total: int) -> None:
        try:
            if total == 1:
                self.first = element_text(seen)
            else:
                seen.check_text()
        except JavaScriptError:
            self.throwing.append(index)

    def close(self, items: list[Any]) -> Seen:
        chain = Chain("list", length=len(items), first=self.first, throwing=tuple(self.throwing))
        return Seen(items, chain, _join(chain))


def _has_number(seen: Seen) -> bool:
    try:
        to_number(seen.primitive())
    except JavaScriptError:
        return False
    return True


def _inherited_join(chain: Chain) -> str | JavaScriptError | None:
    return None if chain.end != "list" or {"toString", "join"} & chain.keys.keys() else _join(chain)


def _join(chain: Chain) -> str | JavaScriptError:
    try:
        return chain.join()
    except JavaScriptError as error:
        return error


@dataclass(slots=True)
class _OpenList:
    codec: str
    total: int
    items: list[Any] = field(default_factory=list)
    fault: DecodeError | None = None
    unstorable: DecodeError | None = None
    uncopied: DecodeError | None = None
    stored: int = 0
    passes: bool = False
    raw: _Elements = field(default_factory=_Elements)
    copy: _Elements = field(default_factory=_Elements)

    @property
    def remaining(self) -> int:
        return self.total - len(self.items)

    def add(self, item: _Item) -> None:
        self.passes |= item.keep(self.codec)
        self.fault = self.fault or item.fault
        self.unstorable = self.unstorable or item.unstorable
        self.uncopied = self.uncopied or item.uncopied
        self.stored += item.stored
        # Of several elements only those count that may have no text.
        if self.total == 1 or item.raw.chain is not None:
            self.raw.add(item.raw, len(self.items), self.total)
            self.copy.add(item.copy, len(self.items), self.total)
        self.items.append(item.value)

    def close(self) -> _Item:
        raw, copy = self.raw.close(self.items), self.copy.close(self.items)
        return _Item(self.items, raw, copy, self.fault, self.unstorable, None, self.uncopied, self.stored)


@dataclass(slots=True)
class _OpenMap:
    """A map under construction. See `prototype`."""

    codec: str
    remaining: int
    offset: int
    key: str | None = None
    key_offset: int = 0
    entries: dict[str, Any] = field(default_factory=dict)
    raw_keys: dict[str, Seen] = field(default_factory=dict)
    copy_keys: dict[str, Seen] = field(default_factory=dict)
    prototype: _Item | None = None
    chain: Chain | None = None
    fault: DecodeError | None = None
    unstorable: DecodeError | None = None
    uncopied: DecodeError | None = None
    stored: int = 0
    passes: bool = False

    def open_entry(self, key: str, offset: int) -> None:
        if key in self.entries or (key == PROTO and self.prototype is not None):
            raise DecodeError(f"the map key {key[:40]!r} is there twice", offset)
        self.key, self.key_offset = key, offset

    def add(self, item: _Item) -> None:
        key, self.key = self.key, None
        self.remaining -= 1
        if key is None:
            raise DecodeError("a map value without its key", self.key_offset)
        chain = self.chain
        if key == PROTO and (chain is None or chain.end != "null"):
            self.chain = item.raw.chain or chain
        elif key == PROTO:
            self.prototype = item
            # It is stored, but not signed.
            item.keep(self.codec)
            self.unstorable = self.unstorable or item.unstorable
            self.uncopied = self.uncopied or item.uncopied
            self.stored += item.stored
        elif chain is not None and chain.blocks(key):
            raise DecodeError(
                f"the map key {key!r} after a __proto__ that JavaScript cannot assign it to", self.key_offset
            )
        elif chain is None or not chain.swallows(key):
            self._assign(key, item)
        elif not _has_number(item.raw):
            raise DecodeError(f"a value of {key!r} that JavaScript cannot convert", self.key_offset)

    def _assign(self, key: str, item: _Item) -> None:
        self.passes |= item.keep(self.codec)
        self.entries[key] = item.value
        self.fault = self.fault or item.fault
        self.unstorable = self.unstorable or item.unstorable
        self.uncopied = self.uncopied or item.uncopied
        self.stored += item.stored
        if not matters(key):
            return
        self.raw_keys[key] = item.raw
        prototype = None if self.prototype is None else self.prototype.copy.chain
        # The copy has its indices first, whatever their order was.
        if prototype is None or is_index(key):
            self.copy_keys[key] = item.copy
        elif prototype.blocks(key) or (prototype.swallows(key) and not _has_number(item.copy)):
            reason = f"the map key {key!r}, which the copy cannot have"
            self.uncopied = self.uncopied or DecodeError(reason, self.key_offset)
        elif not prototype.swallows(key):
            self.copy_keys[key] = item.copy

    def close(self) -> _Item:
        raw = self.chain.extend(self.raw_keys) if self.chain is not None else Chain("object", self.raw_keys)
        prototype = None if self.prototype is None else self.prototype.copy.chain
        copy = prototype.extend(self.copy_keys) if prototype is not None else Chain("object", self.copy_keys)
        if raw.end == "bytes":
            copy = raw
        seen = [Seen(self.entries, chain, _inherited_join(chain)) for chain in (raw, copy)]
        faults = self.fault, self.unstorable, self.offset, self.uncopied
        return _Item(self.entries, seen[0], seen[1], *faults, self.stored)


def _scalar(value: Any, chain: Chain | None = None) -> _Item:
    seen = Seen(value, chain)
    return _Item(value, seen, seen)


class _Reader:
    """Reads one value from bytes; `offset` is how far it came."""

    def __init__(self, data: bytes, codec: str) -> None:
        self._data = data
        self._codec = codec
        self.offset = 0
        self.passes = False

    def read(self) -> _Item:
        """Return the value at `offset`."""
        stack: list[_OpenList | _OpenMap] = []
        while True:
            start = self.offset
            if stack and isinstance(stack[-1], _OpenMap) and stack[-1].key is None:
                stack[-1].open_entry(self.read_text(), start)
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
                closed = stack.pop()
                self.passes |= closed.passes
                item = closed.close()

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
        if major != SIMPLE and argument < (24 if size == 1 else 1 << (4 * size)):
            raise DecodeError("a number or length in more bytes than it needs", start)
        return major, info, argument

    def _read_item(self) -> _Item | _OpenList | _OpenMap:
        start = self.offset
        major, info, argument = self._read_head()
        match major:
            case 0:
                return _scalar(argument)
            case 1:
                return _scalar(-1 - argument)
            case 2:
                data = self._take(argument)
                return _scalar(data, Chain("bytes", data=data, length=argument))
            case 3:
                return _scalar(self._take_text(argument))
            case 4:
                self._expect(argument)
                return _OpenList(self._codec, argument)
            case 5:
                self._expect(2 * argument)
                return _OpenMap(self._codec, argument, start)
            case 6:
                return self._read_link(argument, start)
            case _:
                return _scalar(*self._read_simple(info, argument, start))

    def read_text(self) -> str:
        """Return the string at `offset`."""
        start = self.offset
        major, _, argument = self._read_head()
        if major != TEXT:
            raise DecodeError("a map key that is not a string", start)
        return self._take_text(argument)

    def _read_link(self, tag: int, start: int) -> _Item:
        if tag != LINK_TAG:
            raise DecodeError(f"tag {tag}: expected {LINK_TAG}, a link", start)
        major, _, argument = self._read_head()
        if major != BYTES:
            raise DecodeError("a link that is not bytes", start)
        data = self._take(argument)
        if data[:1] != b"\0":
            raise DecodeError("a link without its leading zero", start)
        try:
            link = CID(data[1:])
        except DecodeError as error:
            raise DecodeError(error.reason, start) from error
        # The copy has a link's fields, but is none.
        is_version_0 = read_number(data, 1)[0] != 1
        raw, copy = (Chain(end, data=link, is_version_0=is_version_0) for end in ("link", "object"))
        return _Item(link, Seen(link, raw), Seen(link, copy))

    def _read_simple(self, info: int, argument: int, start: int) -> tuple[Any, Chain | None]:
        match info:
            case 20 | 21:
                return info == TRUE, None
            case 22 | 23:
                return None, Chain("null")
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
