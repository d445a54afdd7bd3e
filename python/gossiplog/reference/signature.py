"""Signature schemes, by the multicodec of their public keys, and the did:key URIs that name authors.

Source: wire format, "Message, signature, stored value".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from gossiplog.errors import DecodeError
from gossiplog.reference import ed25519
from gossiplog.reference.multiformats import base58_decode, base58_encode, read_number, write_uvarint

_DID: Final = re.compile(r"did:key:z([1-9A-HJ-NP-Za-km-z]+)", re.ASCII)
#: No key of a known scheme, behind the longest varint, is longer.
_MAX_DID: Final = 512
ED25519: Final = 0xED
"""The multicodec of Ed25519 public keys."""


class Scheme(Protocol):
    """How signatures by one kind of key are verified."""

    @property
    def name(self) -> str:
        """The name of the key type in the multicodec table, without its `-pub`."""

    @property
    def key_length(self) -> int:
        """The length of a public key in bytes."""

    @property
    def signature_length(self) -> int:
        """The length of a signature in bytes."""

    def holds(self, key: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether a signature of the right length by a key of the right length holds over a message."""


@dataclass(frozen=True, slots=True)
class _Ed25519:
    name: str = "ed25519"
    key_length: int = 32
    signature_length: int = ed25519.SIGNATURE_LENGTH

    def holds(self, key: bytes, message: bytes, signature: bytes) -> bool:
        return ed25519.is_valid(key, message, signature)


#: The schemes that have a verdict, by the multicodec of their public keys.
SCHEMES: Final[Mapping[int, Scheme]] = {ED25519: _Ed25519()}


def write_did(code: int, key: bytes) -> str:
    """Return the one minimal did:key URI of a public key under its multicodec."""
    return f"did:key:z{base58_encode(write_uvarint(code) + bytes(key))}"


def decode_did(did: str) -> tuple[int, bytes]:
    """Return the multicodec and the public key of a did:key URI, whose multicodec need not be minimal.

    Raises:
        DecodeError: no did:key URI, a scheme that is not known here, or a key of the wrong length.
    """
    shown = did if len(did) <= 80 else did[:80] + "…"
    found = _DID.fullmatch(did) if len(did) <= _MAX_DID else None
    if found is None:
        raise DecodeError(f"{shown!r} is no did:key URI in base58btc")
    data = base58_decode(found[1])
    code, start = read_number(data, 0)
    scheme = SCHEMES.get(code)
    if scheme is None:
        raise DecodeError(f"{shown!r} is a key of the unknown type {code:#x}; known: {_known()}")
    key = data[start:]
    if len(key) != scheme.key_length:
        raise DecodeError(f"{shown!r} holds {len(key)} bytes of key: {scheme.name} has {scheme.key_length}")
    return code, key


def _known() -> str:
    return ", ".join(f"{code:#x} ({scheme.name})" for code, scheme in SCHEMES.items())
