"""Encodings of dag-cbor as nobody writes them: generated with a structure, and mutated.

A generator is a function of its seed, so that a number names a whole run.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TypeAlias, TypeVar

_PROTO = b"__proto__"
_KEYS = [
    *[_PROTO] * 12,
    *[b"length"] * 8,
    *b"/ / bytes bytes 0 0 1 1 2 3 7 70 -0 -1 1.5 01 1e21 1e+21 4294967295 1e400".split(),
    *b"NaN nan -nan inf -inf Infinity -Infinity infinity a b aa".split(),
    *b"asCID byteLength byteOffset buffer BYTES_PER_ELEMENT version code multihash".split(),
    *b"join toString valueOf constructor toJSON".split(),
    *(b"\xef\xbb\xbf" + key for key in (_PROTO, b"length", b"a")),
    *(b"", b"\xff", b"\xc3\xa9"),
]
_TEXTS = [
    *b"0 1 2 20 64 300 -1 +1 .5 .5e-1 0.5 0x10 0b1 0o7 1e1 1e-1 Infinity NaN abc 1_0 __proto__".split(),
    *(b"", b" ", b" .5", b"\xc2\xa05", b"\xef\xbb\xbf5", b"\xe2\x80\xa8", b"x" * 30, b"\xe2\x82\xac" * 22),
    *(b"\xff", b"\xe2\x82", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80"),
]
_LINKS = [
    *(b"\x01\x71\x12\x01a", b"\x01\x55\x00\x00", b"\x81\x00\xf1\x00\x12\x01a"),
    *(b"\x12\x01a", b"\x12\x00", b"\x12\x80\x00", b"\x92\x00\x01a", b"\x12\x20" + b"d" * 32),
    *(b"\x00\x71\x12\x01a", b"\x00\x70\x01\x00", b"\x00\x70\x01\x55\x00", b"\x00\x01\x00\x00"),
    *(b"\x02\x71\x00\x00", b"\x01\x71\x12\x05a"),
]
_LENGTHS = [0, 1, 2, 3, 5, 20, 23, 24, 60, 63, 64, 65, 100, 150, 200, 255, 256, 300, 1000]
_INTEGERS = [
    *(*_LENGTHS, 2**16, 2**22, 2**22 + 1, 2**31, 2**32 - 1, 2**32, 2**53 - 1, 2**53, 2**63, 2**64 - 1),
    *(-1, -2, -3, -10, -35, -100, -256, -1000, -(2**31), 1 - 2**53, -(2**53), -(2**64)),
]
_FLOATS = [0.5, 1.5, 1.9, -0.5, 20.0, 63.5, 255.5, 1e21, 2.0**53, -(2.0**53), 1e-7, 5e-324, 3.0, 0.1, 300.7, -1.5]


_SCALARS = 512
#: Encodings that are made of one structure, with other scalars and keys in it.
_VARIANTS = 6
_POOL = 500

_T = TypeVar("_T")


class _Kind(Enum):
    """What a part of an encoding is: a variant has other scalars and keys than the one before."""

    FIXED = auto()
    SCALAR = auto()
    KEY = auto()


_Part: TypeAlias = tuple[_Kind, bytes]
_Entry: TypeAlias = tuple[bytes, list[_Part]]


def head(major: int, argument: int, *, width: int | None = None) -> bytes:
    """Write the head of an item; with a width of 0 to 3, in more bytes than it needs."""
    if width is None and argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in range(4) if argument < 1 << (8 << size))
    size = max(size, width or 0)
    return bytes([major << 5 | 24 + size]) + argument.to_bytes(1 << size)


def text(data: bytes) -> bytes:
    """Write a string."""
    return head(3, len(data)) + data


class Encodings:
    """A source of payloads.

    Most of the time would go into random choices: so scalars are drawn from a pool of random ones, and each structure
    is used several times.

    Args:
        seed: of all random choices.
        recorded: encodings that mutations begin with, besides those that were generated.
    """

    def __init__(self, seed: str, recorded: Sequence[bytes] = ()) -> None:
        self.random = random.Random(seed)
        self._pool = list(recorded)
        self._makers: list[Callable[[int], list[_Part]]] = (
            [self._map] * 10 + [self._list] * 3 + [self._scalar] * 2 + [self._passing] * 4
        )
        self._makers += [self._linked, self._copied_link]
        self._containers = self._makers[:13] + self._makers[-4:]
        self._scalars = [self._make_scalar() for _ in range(_SCALARS)]
        self._parts: list[_Part] = []
        self._variable: list[int] = []
        self._variants = 0

    def choose(self, choices: Sequence[_T]) -> _T:
        """Return one of them. Faster than `random.choice`, and about as fair."""
        return choices[int(self.random.random() * len(choices))]

    def payload(self) -> bytes:
        """Return one encoding, of which most can be decoded."""
        choice = self.random.random()
        if choice < 0.05 and self._pool:
            return self.mutate(self.choose(self._pool))
        if self._variants == 0:
            self._parts = self._structure()
            self._variable = [at for at, (kind, _) in enumerate(self._parts) if kind is not _Kind.FIXED]
            self._variants = min(_VARIANTS, len(self._variable)) or 1
        else:
            self._vary()
        self._variants -= 1
        made = b"".join([part for _, part in self._parts])
        if choice < 0.2:
            self._keep(made)
            return self.mutate(made)
        return made

    def _keep(self, made: bytes) -> None:
        if len(self._pool) < _POOL:
            self._pool.append(made)
        else:
            self._pool[int(self.random.random() * _POOL)] = made

    def _structure(self) -> list[_Part]:
        parts = self.choose(self._makers)(self.choose((1, 2, 2, 3, 4)))
        choice = self.random.random()
        if choice < 0.1:
            # Few are very deep, because they take as long as hundreds of others.
            wrap = self.choose((b"\x81", b"\xa1\x61a", b"\xa1\x69__proto__", b"\xa1\x66length"))
            depth = 400 if choice < 0.002 else self.choose((1, 2, 5, 30))
            parts = [(_Kind.FIXED, wrap * depth), *parts]
        return parts

    def _vary(self) -> None:
        for _ in range(self.choose((1, 1, 2, 3))):
            at = self.choose(self._variable)
            kind, _ = self._parts[at]
            self._parts[at] = (kind, self.choose(self._scalars) if kind is _Kind.SCALAR else text(self.choose(_KEYS)))

    def mutate(self, data: bytes) -> bytes:
        """Return the bytes after one to three accidents."""
        for _ in range(self.choose((1, 1, 2, 3))):
            at = int(self.random.random() * (len(data) + 1))
            match self.choose(range(5)):
                case 0 if data:
                    at = min(at, len(data) - 1)
                    data = data[:at] + bytes([data[at] ^ 1 << self.choose(range(8))]) + data[at + 1 :]
                case 1:
                    data = data[:at] + data[at + self.choose(range(1, 9)) :]
                case 2:
                    data = data[:at] + self.random.randbytes(self.choose((1, 2, 3, 4))) + data[at:]
                case 3 if self._pool:
                    other = self.choose(self._pool)
                    data = data[:at] + other[int(self.random.random() * (len(other) + 1)) :]
                case _:
                    data = data[:at] + self.choose(self._scalars) + data[at:]
        return data

    def _value(self, depth: int) -> list[_Part]:
        return self._scalar(0) if depth <= 0 or self.random.random() < 0.55 else self.choose(self._containers)(depth)

    def _scalar(self, _: int) -> list[_Part]:
        return [(_Kind.SCALAR, self.choose(self._scalars))]

    def _list(self, depth: int) -> list[_Part]:
        items = [self._value(depth - 1) for _ in range(self.choose((0, 1, 1, 2, 3)))]
        return [(_Kind.FIXED, head(4, len(items))), *(part for item in items for part in item)]

    def _map(self, depth: int) -> list[_Part]:
        count = self.choose((0, 1, 2, 3, 4, 5, 6, 8))
        return self._entries([(self.choose(_KEYS), self._value(depth - 1)) for _ in range(count)])

    def _entries(self, entries: Sequence[_Entry]) -> list[_Part]:
        parts = [(_Kind.FIXED, head(5, len(entries)))]
        for key, value in entries:
            # A variant keeps what makes a map pass for something else.
            kind = _Kind.FIXED if key == _PROTO and self.random.random() < 0.8 else _Kind.KEY
            parts.append((kind, text(key)))
            parts += value
        return parts

    def _passing(self, depth: int) -> list[_Part]:
        """Write a map with bytes, or what inherits from them, under `__proto__`."""
        prototype = self.choose((self._bytes, self._bytes, self._bytes, self._passing, self._map))
        entries: list[_Entry] = [(b"length", self._length(depth))] if self.random.random() < 0.9 else []
        for _ in range(self.choose((0, 0, 1, 2, 3))):
            key = self.choose((b"0", b"1", b"2", b"7", b"19", self.choose(_KEYS)))
            entries.append((key, self._length(depth)))
        self.random.shuffle(entries)
        at = self.choose(range(len(entries) + 1)) if self.random.random() < 0.3 else len(entries)
        # Mostly a chain that ends in null first, or none.
        own: list[_Entry] = [(_PROTO, [(_Kind.FIXED, b"\xf6")])] if self.random.random() < 0.15 else []
        entries.insert(at, (_PROTO, prototype(depth - 1) if depth > 0 else self._bytes(0)))
        if self.random.random() < 0.1:
            entries += [(name, [(_Kind.SCALAR, b"\x14")]) for name in (b"byteLength", b"length")]
            self.random.shuffle(entries)
        return self._entries(own + entries)

    def _linked(self, depth: int) -> list[_Part]:
        """Write a map that might pass for a link: by equal entries, or by what it inherits."""
        value = self._scalar(0)
        entries: list[_Entry] = [(b"/", value), (b"bytes", value)]
        entries += [(self.choose(_KEYS), self._value(depth - 1)) for _ in range(self.choose((0, 1, 2)))]
        self.random.shuffle(entries)
        wrapped: list[_Entry] = [(_PROTO, [(_Kind.FIXED, b"\xf6")])] if self.random.random() < 0.3 else []
        inner = self._entries(wrapped + entries[: self.choose(range(1, len(entries) + 1))])
        return self._entries([*wrapped, (_PROTO, inner), *entries[2:]]) if self.random.random() < 0.5 else inner

    def _copied_link(self, depth: int) -> list[_Part]:
        """Write a map whose copy inherits from a link, over entries that are not encoded if it is written as one."""
        inner = [(_Kind.FIXED, self._make_link())]
        if depth > 0 and self.random.random() < 0.3:
            inner = self._copied_link(depth - 1)
        entries: list[_Entry] = [(_PROTO, inner)]
        for _ in range(self.choose((0, 1, 1, 2))):
            value = self.choose((self._passing, self._linked, self._value))
            entries.append((self.choose((b"7", b"a", b"version", self.choose(_KEYS))), value(depth - 1)))
        if self.random.random() < 0.5:
            # Mostly both, which make a link of their own.
            entries += [(key, [(_Kind.FIXED, b"\x40")]) for key in (b"/", b"bytes") if self.random.random() < 0.9]
        self.random.shuffle(entries)
        return self._entries([(_PROTO, [(_Kind.FIXED, b"\xf6")]), *entries])

    def _length(self, depth: int) -> list[_Part]:
        if self.random.random() < 0.5:
            return [(_Kind.SCALAR, head(0, self.choose(_LENGTHS)))]
        return self._value(depth - 1)

    def _bytes(self, _: int) -> list[_Part]:
        return [(_Kind.SCALAR, self._make_bytes())]

    def _make_bytes(self) -> bytes:
        size = self.choose((0, 1, 1, 2, 3, 5, 20, 70, 130))
        return head(2, size) + self.random.randbytes(size)

    def _make_scalar(self) -> bytes:
        match self.choose(range(12)):
            case 0 | 1:
                return self._make_integer(self.choose(_INTEGERS))
            case 2:
                return self._make_integer(self.choose(range(-300, 301)))
            case 3:
                return self._make_float(self.choose(_FLOATS))
            case 4:
                return self._make_float(struct.unpack(">d", self.random.randbytes(8))[0])
            case 5:
                return self.choose((b"\xf4", b"\xf5", b"\xf6", b"\xf7", b"\xf6", b"\xf5", b"\xf9\x7e\x00", b"\xf8\x20"))
            case 6 | 7:
                return text(self.choose(_TEXTS))
            case 8:
                return text(self.random.randbytes(self.choose((1, 2, 5))))
            case 9 | 10:
                return self._make_bytes()
            case _:
                return self._make_link()

    def _make_link(self) -> bytes:
        link = self.choose(_LINKS)
        return b"\xd8\x2a" + head(2, len(link) + 1) + b"\0" + link

    def _make_integer(self, number: int) -> bytes:
        # One in fifty takes more bytes than it needs, which is refused.
        width = self.choose(range(4)) if self.random.random() < 0.02 else None
        return head(0, number, width=width) if number >= 0 else head(1, -1 - number, width=width)

    def _make_float(self, number: float) -> bytes:
        match self.choose(range(3)):
            case 0 if abs(number) < 60000:
                return b"\xf9" + struct.pack(">e", number)
            case 1 if abs(number) < 3e38:
                return b"\xfa" + struct.pack(">f", number)
            case _:
                return b"\xfb" + struct.pack(">d", number)
