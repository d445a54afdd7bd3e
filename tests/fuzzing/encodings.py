"""Encodings of dag-cbor as nobody writes them: generated with a structure, and mutated.

A generator is a function of its seed, so that a number names a whole run.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

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

    Args:
        seed: of all random choices.
        pool: encodings that mutations begin with, besides those that were generated.
    """

    def __init__(self, seed: str, pool: Sequence[bytes] = ()) -> None:
        self.random = random.Random(seed)
        self._pool = list(pool)
        self._makers: list[Callable[[int], bytes]] = (
            [self._map] * 10 + [self._list] * 3 + [self._scalar] * 2 + [self._passing] * 4 + [self._linked]
        )

    def payload(self) -> bytes:
        """Return one encoding, of which most can be decoded."""
        choose = self.random.random()
        if choose < 0.15 and self._pool:
            return self.mutate(self.random.choice(self._pool))
        made = self.random.choice(self._makers)(self.random.choice((1, 2, 2, 3, 4)))
        if choose > 0.9:
            made = self._deep(made)
        if len(self._pool) < 2000:
            self._pool.append(made)
        else:
            self._pool[self.random.randrange(2000)] = made
        return self.mutate(made) if 0.15 <= choose < 0.25 else made

    def mutate(self, data: bytes) -> bytes:
        """Return the bytes after one to three accidents."""
        for _ in range(self.random.choice((1, 1, 2, 3))):
            at = self.random.randrange(len(data) + 1)
            match self.random.randrange(5):
                case 0 if data:
                    at = min(at, len(data) - 1)
                    data = data[:at] + bytes([data[at] ^ 1 << self.random.randrange(8)]) + data[at + 1 :]
                case 1:
                    data = data[:at] + data[at + self.random.randint(1, 8) :]
                case 2:
                    data = data[:at] + self.random.randbytes(self.random.randint(1, 4)) + data[at:]
                case 3 if self._pool:
                    other = self.random.choice(self._pool)
                    data = data[:at] + other[self.random.randrange(len(other) + 1) :]
                case _:
                    data = data[:at] + self._scalar(0) + data[at:]
        return data

    def _value(self, depth: int) -> bytes:
        return self._scalar(0) if depth <= 0 or self.random.random() < 0.55 else self._container(depth)

    def _container(self, depth: int) -> bytes:
        return self.random.choice(self._makers[:13] + self._makers[-3:])(depth)

    def _deep(self, inner: bytes) -> bytes:
        wrap = self.random.choice((b"\x81", b"\xa1\x61a", b"\xa1\x69__proto__", b"\xa1\x66length"))
        return wrap * self.random.choice((1, 2, 5, 30, 400)) + inner

    def _list(self, depth: int) -> bytes:
        items = [self._value(depth - 1) for _ in range(self.random.choice((0, 1, 1, 2, 3)))]
        return head(4, len(items)) + b"".join(items)

    def _map(self, depth: int) -> bytes:
        count = self.random.choice((0, 1, 2, 3, 4, 5, 6, 8))
        return self._entries([(self.random.choice(_KEYS), self._value(depth - 1)) for _ in range(count)])

    def _entries(self, entries: Sequence[tuple[bytes, bytes]]) -> bytes:
        return head(5, len(entries)) + b"".join(text(key) + value for key, value in entries)

    def _passing(self, depth: int) -> bytes:
        """Write a map with bytes, or what inherits from them, under `__proto__`."""
        random = self.random
        prototype = random.choice((self._bytes, self._bytes, self._bytes, self._passing, self._map))
        entries = [(b"length", self._length(depth))] if random.random() < 0.9 else []
        for _ in range(random.choice((0, 0, 1, 2, 3))):
            key = random.choice((b"0", b"1", b"2", b"7", b"19", random.choice(_KEYS)))
            entries.append((key, self._length(depth)))
        random.shuffle(entries)
        at = random.randint(0, len(entries)) if random.random() < 0.3 else len(entries)
        # Mostly a chain that ends in null first, or none.
        own = [(_PROTO, b"\xf6")] if random.random() < 0.15 else []
        entries.insert(at, (_PROTO, prototype(depth - 1) if depth > 0 else self._bytes(0)))
        if random.random() < 0.1:
            entries += [(b"byteLength", b"\x14"), (b"length", b"\x14")]
            random.shuffle(entries)
        return self._entries(own + entries)

    def _linked(self, depth: int) -> bytes:
        """Write a map that might pass for a link: by equal entries, or by what it inherits."""
        random = self.random
        value = self._scalar(0)
        entries = [(b"/", value), (b"bytes", value)]
        entries += [(random.choice(_KEYS), self._value(depth - 1)) for _ in range(random.choice((0, 1, 2)))]
        random.shuffle(entries)
        wrapped = [(_PROTO, b"\xf6")] if random.random() < 0.3 else []
        inner = self._entries(wrapped + entries[: random.randint(1, len(entries))])
        return self._entries([*wrapped, (_PROTO, inner), *entries[2:]]) if random.random() < 0.5 else inner

    def _length(self, depth: int) -> bytes:
        if self.random.random() < 0.5:
            return head(0, self.random.choice(_LENGTHS))
        return self._value(depth - 1)

    def _scalar(self, _: int) -> bytes:
        random = self.random
        match random.randrange(12):
            case 0 | 1:
                return self._integer(random.choice(_INTEGERS))
            case 2:
                return self._integer(random.randint(-300, 300))
            case 3:
                return self._float(random.choice(_FLOATS))
            case 4:
                return self._float(struct.unpack(">d", random.randbytes(8))[0])
            case 5:
                return random.choice(
                    (b"\xf4", b"\xf5", b"\xf6", b"\xf7", b"\xf6", b"\xf5", b"\xf9\x7e\x00", b"\xf8\x20")
                )
            case 6 | 7:
                return text(random.choice(_TEXTS))
            case 8:
                return text(random.randbytes(random.choice((1, 2, 5))))
            case 9 | 10:
                return self._bytes(0)
            case _:
                link = random.choice(_LINKS)
                return b"\xd8\x2a" + head(2, len(link) + 1) + b"\0" + link

    def _bytes(self, _: int) -> bytes:
        size = self.random.choice((0, 1, 1, 2, 3, 5, 20, 70, 130))
        return head(2, size) + self.random.randbytes(size)

    def _integer(self, number: int) -> bytes:
        # One in fifty takes more bytes than it needs, which is refused.
        width = self.random.randrange(4) if self.random.random() < 0.02 else None
        return head(0, number, width=width) if number >= 0 else head(1, -1 - number, width=width)

    def _float(self, number: float) -> bytes:
        match self.random.randrange(3):
            case 0 if abs(number) < 60000:
                return b"\xf9" + struct.pack(">e", number)
            case 1 if abs(number) < 3e38:
                return b"\xfa" + struct.pack(">f", number)
            case _:
                return b"\xfb" + struct.pack(">d", number)
