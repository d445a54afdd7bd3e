"""Message keys and ids. Source: wire format, "Message id"."""

import hashlib
import re
from base64 import b32hexdecode, b32hexencode

from gossiplog.errors import DecodeError
from gossiplog.reference.clock import encode_clock
from gossiplog.reference.limits import KEY_LENGTH

_ID = re.compile(r"[0-9a-v]{32}", re.ASCII)


def message_key(clock: int, value: bytes) -> bytes:
    """Return the key of a stored value: its clock, then its SHA-256, cut to 20 bytes."""
    return (encode_clock(clock) + hashlib.sha256(value).digest())[:KEY_LENGTH]


def encode_id(key: bytes) -> str:
    """Return the id of a key: 32 characters of base32hex, lower case.

    Raises:
        DecodeError: a key that is not 20 bytes long.
    """
    if len(key) != KEY_LENGTH:
        raise DecodeError(f"a key of {len(key)} bytes: expected {KEY_LENGTH}")
    return b32hexencode(key).decode().lower()


def decode_id(id: str) -> bytes:
    """Return the key of an id.

    Raises:
        DecodeError: anything but 32 characters of 0-9 and a-v.
    """
    if not _ID.fullmatch(id):
        shown = id if len(id) <= 40 else id[:40] + "…"
        raise DecodeError(f"{shown!r} is no message id: expected 32 characters of 0-9 and a-v")
    return b32hexdecode(id.upper())
