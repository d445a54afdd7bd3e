"""Hypothesis strategies that several test files share.

Values are neutral of the core under test: a `Link` stands for the core's own CID. `build` and `neutral` convert.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st

from gossiplog import reference
from gossiplog.reference.multiformats import base58_decode, base58_encode

TOPIC = "test.example.com"

# Which earlier messages each message of a history has as parents.
Shape: TypeAlias = tuple[tuple[int, ...], ...]


def repeatable(examples: int, *, storage: str = "") -> Callable[[Any], Any]:
    """Settings for a property with so many examples; the profile `quick` tries a fifth, but not fewer than ten.

    Args:
        examples: how many.
        storage: of the logs that the property makes. Over "postgres" it has a quarter of the examples: each takes ten
            times as long, and what its schema leaves in the catalogs slows the next ones down.
    """
    if storage == "postgres":
        examples //= 4
    if settings.get_current_profile_name() == "quick":
        examples = min(examples, max(examples // 5, 10))
    return settings(max_examples=examples)


@dataclass(frozen=True, slots=True)
class Link:
    """Stands for a core's CID in a neutral value."""

    data: bytes


def build(core: ModuleType, value: Any) -> Any:
    """A neutral value as one that `core` takes."""
    match value:
        case Link():
            return core.CID(value.data)
        case list():
            return [build(core, item) for item in value]
        case dict():
            return {key: build(core, item) for key, item in value.items()}
        case _:
            return value


def neutral(core: ModuleType, value: Any) -> Any:
    """What `core` decoded, with types spelt out, so that 1, 1.0 and True differ."""
    match value:
        case core.CID():
            return Link(bytes(value))
        case list():
            return [neutral(core, item) for item in value]
        case dict():
            return {key: neutral(core, item) for key, item in value.items()}
        case _:
            return type(value).__name__, value


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda text: not text.startswith("\ufeff"))
numbers = st.one_of(
    st.integers(-(2**64), 2**64 - 1),
    st.integers(-300, 300),
    st.sampled_from([2**53 - 1, 2**53, -(2**53), 1 - 2**53, 2**64 - 1, -(2**64), 2**32, 65535, 65536]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-0.0, 1e20, 1e21, 2.0**53, 1e-6, 1e-7, 5e-324, 9007199254740991.0]),
)
links = st.one_of(
    st.binary(max_size=12).map(lambda digest: Link(b"\x01\x71\x12" + bytes([len(digest)]) + digest)),
    st.binary(min_size=32, max_size=32).map(lambda digest: Link(b"\x12\x20" + digest)),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts, st.binary(max_size=8), links)
_keys = st.one_of(texts, st.sampled_from(["/", "bytes", "a", "b"])).filter(lambda key: key != "__proto__")
#: Neutral values that a core encodes, or refuses for a map whose `/` equals its `bytes`.
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_keys, inner, max_size=4)),
    max_leaves=12,
)


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in range(4) if argument < 1 << (8 << size))
    return bytes([major << 5 | 24 + size]) + argument.to_bytes(1 << size)


def _string(data: bytes) -> bytes:
    return _head(3, len(data)) + data


_wild_keys = st.sampled_from(
    [
        b"__proto__",
        b"__proto__",
        b"\xef\xbb\xbf__proto__",
        b"asCID",
        b"a",
        b"b",
        b"aa",
        b"\xef\xbb\xbfa",
        b"\xff",
        b"\xc3\xa9",
    ]
)
_wild_scalars = st.one_of(
    numbers.filter(lambda number: isinstance(number, int)).map(reference.cbor_encode),
    st.sampled_from(
        [b"\xf4", b"\xf5", b"\xf6", b"\xf7", b"\xf9\x3c\x00", b"\xf9\x3e\x00", b"\xf9\x80\x00", b"\xf9\x7e\x00"]
    ),
    st.floats(width=32).map(lambda number: b"\xfa" + struct.pack(">f", number)),
    st.floats().map(lambda number: b"\xfb" + struct.pack(">d", number)),
    st.binary(max_size=5).map(lambda data: _head(2, len(data)) + data),
    st.binary(max_size=5).map(_string),
    texts.map(lambda text: _string(text.encode())),
    st.sampled_from(
        [
            b"\x01\x71\x12\x01a",
            b"\x12\x01a",
            b"\x00\x71\x12\x01a",
            b"\x81\x00\xf1\x00\x12\x01a",
            b"\x92\x00\x81\x00a",
            b"\x02\x71\x00\x00",
        ]
    ).map(lambda link: b"\xd8\x2a" + _head(2, len(link) + 1) + b"\0" + link),
)
#: Bytes of dag-cbor as liberal writers make it, and some that every reader refuses.
wild_cbor = st.recursive(
    _wild_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: _head(4, len(items)) + b"".join(items)),
        st.lists(st.tuples(_wild_keys, inner), max_size=4).map(
            lambda pairs: _head(5, len(pairs)) + b"".join(_string(key) + item for key, item in pairs)
        ),
    ),
    max_leaves=12,
)

_PROTOTYPES = [b"\xf6", b"\x40", b"\x42ab", b"\x80", b"\xa0", b"\xd8\x2a\x47\0\x01\x71\x12\x01a\x62", b"\x01"]
_property_keys = st.sampled_from(
    ["__proto__"] * 6
    + ["0", "1", "7", "-0", "-1", "1.5", "1e21", "1e+21", "01", "NaN", "nan", "-nan", "Infinity", "-Infinity", "inf"]
    + ["-inf", "infinity", "a", "/", "bytes", "asCID", "byteLength", "byteOffset", "buffer", "BYTES_PER_ELEMENT"]
    + ["length"] * 4
    + ["version", "join", "toString"]
)
_entry_values = st.one_of(
    st.sampled_from(_PROTOTYPES),
    st.one_of(st.integers(-40, 260), numbers, st.booleans(), texts, st.sampled_from(["", " ", "2", ".5", "0x1"])).map(
        lambda value: reference.cbor_encode(value)
    ),
    st.sampled_from([b"\x81\x02", b"\x82\x01\x02", b"\x81\xf5", b"\xa1\x69__proto__\x81\x02"]),
)
#: A map in bytes of dag-cbor whose entries set prototypes, and then what those take: keys come more than once.
prototype_maps = st.lists(st.tuples(_property_keys, _entry_values), max_size=8).map(
    lambda pairs: _head(5, len(pairs)) + b"".join(_string(key.encode()) + item for key, item in pairs)
)


@st.composite
def damaged(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """One of the originals after one or two accidents: a bit flipped, bytes cut, inserted, or taken from another."""
    data = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "insert", "splice"])):
            case "flip" if data:
                data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
            case "cut":
                data = data[:at] + data[at + draw(st.integers(1, 8)) :]
            case "insert":
                data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at:]
            case _:
                other = draw(st.sampled_from(originals))
                data = data[:at] + other[min(at, len(other)) :]
    return data


@st.composite
def shapes(draw: st.DrawFn, largest: int = 24) -> Shape:
    """Histories with branches and merges; parents may be ancestors of one another, in any order, and more than once."""
    size = draw(st.integers(1, largest))
    recent = draw(st.integers(1, 8))
    return tuple(
        tuple(draw(st.lists(st.integers(max(0, index - recent), index - 1), max_size=4))) if index else ()
        for index in range(size)
    )


@cache
def signed(shape: Shape) -> tuple[bytes, ...]:
    """The values of a history's messages, by three authors."""
    keys: list[bytes] = []
    made: list[bytes] = []
    for index, parents in enumerate(shape):
        value = sign_as_given(TOPIC, [keys[parent] for parent in parents], index, bytes([index % 3 + 1]) * 32)
        keys.append(reference.read_message(value, TOPIC).key)
        made.append(value)
    return tuple(made)


def sign_as_given(topic: str, parents: Sequence[bytes], payload: Any, private_key: bytes) -> bytes:
    """The stored value of a message whose parents stand as given: in any order, and more than once."""
    key = reference.SigningKey(private_key)
    clock = 1 + max((reference.decode_clock(parent)[0] for parent in parents), default=0)
    ids = [reference.encode_id(parent) for parent in parents]
    signed = reference.cbor_encode({"topic": topic, "clock": clock, "parents": ids, "payload": payload})
    return reference.cbor_encode([["dag-cbor", key.did, key.sign_bytes(signed)], topic, clock, list(parents), payload])


def alternative(value: bytes, junk: int = 0) -> bytes:
    """Another encoding of a message whose payload is a small map: with a key that sets JavaScript's prototype."""
    written = reference.cbor_encode(reference.cbor_decode(value)[4])
    entry = reference.cbor_encode("__proto__") + reference.cbor_encode(junk)
    return value.removesuffix(written) + bytes([written[0] + 1]) + entry + written[1:]


def longer_author(value: bytes) -> bytes:
    """Another encoding of a message: its author's URI has a longer varint."""
    (codec, did, signature), *rest = reference.cbor_decode(value)
    key = base58_decode(did.removeprefix("did:key:z"))
    longer = "did:key:z" + base58_encode(key[:1] + bytes([key[1] | 0x80, 0]) + key[2:])
    return reference.cbor_encode([[codec, longer, signature], *rest])
