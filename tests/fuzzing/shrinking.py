"""The smallest encoding that still shows what a larger one showed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from gossiplog.errors import DecodeError
from gossiplog.reference.canonical import write_head

_CONTAINERS = {4: 1, 5: 2}
_SMALLEST = (b"\xf6", b"\x00", b"\x40", b"\x60", b"\x80", b"\xa0")


@dataclass(frozen=True, slots=True)
class _Item:
    """An item of CBOR: its bytes, or of a list or map the items in it."""

    data: bytes
    major: int
    inner: tuple[_Item, ...] = ()

    def write(self) -> bytes:
        if self.major not in _CONTAINERS:
            return self.data
        return write_head(self.major, len(self.inner) // _CONTAINERS[self.major]) + b"".join(
            item.write() for item in self.inner
        )

    def smaller(self) -> Iterator[_Item]:
        """Items with less in them, those with the least first."""
        for data in _SMALLEST:
            if len(data) < len(self.data) or (data < self.data and len(data) == len(self.data)):
                yield _Item(data, data[0] >> 5)
        yield from (item for item in self.inner if item.major in _CONTAINERS or self.major == 4)
        step = _CONTAINERS.get(self.major, 1)
        for at in range(0, len(self.inner), step):
            yield self._with((*self.inner[:at], *self.inner[at + step :]))
        for at, item in enumerate(self.inner):
            if self.major == 5 and at % 2 == 0:
                continue
            for other in item.smaller():
                yield self._with((*self.inner[:at], other, *self.inner[at + 1 :]))

    def _with(self, inner: tuple[_Item, ...]) -> _Item:
        return _Item(self.data, self.major, inner)


def _read(data: bytes, at: int, depth: int = 0) -> tuple[_Item, int]:
    major, info = data[at] >> 5, data[at] & 31
    width = 1 << info - 24 if 24 <= info < 28 else 0
    argument = int.from_bytes(data[at + 1 : at + 1 + width]) if width else info
    end = at + 1 + width
    if major in _CONTAINERS:
        if depth > 500:
            raise DecodeError("too deep to shrink", at)
        inner: list[_Item] = []
        for _ in range(argument * _CONTAINERS[major]):
            item, end = _read(data, end, depth + 1)
            inner.append(item)
        return _Item(data[at:end], major, tuple(inner)), end
    if major in (2, 3):
        end += argument
    elif major == 6:
        _, end = _read(data, end, depth + 1)
    if end > len(data):
        raise DecodeError("bytes are missing", at)
    return _Item(data[at:end], major), end


def _without(data: bytes, at: int) -> bytes:
    return data[:at] + data[at + 1 :]


def shrink(data: bytes, shows: Callable[[bytes], bool], tries: int = 2000) -> bytes:
    """Return a smaller encoding for which `shows` is true as it is for `data`; `data` itself where none is found."""
    while tries > 0:
        smaller: list[Iterable[bytes]] = []
        try:
            item, end = _read(data, 0)
        except (DecodeError, IndexError):
            end = 0
        else:
            rest = data[end:]
            smaller.append(candidate.write() + rest for candidate in item.smaller())
        # What is no item loses single bytes.
        smaller.append(_without(data, at) for at in range(end, len(data)))
        for candidate in chain(*smaller):
            tries -= 1
            if candidate != data and len(candidate) <= len(data) and shows(candidate):
                data = candidate
                break
            if tries <= 0:
                return data
        else:
            return data
    return data
