"""Clocks, message keys and ids. Source: wire format, "Clock" and "Message id"."""

import hashlib
import re
from base64 import b32hexdecode, b32hexencode

from gossiplog.errors import DecodeError, EncodeError
from gossiplog.reference.limits import KEY_LENGTH, MAX_CLOCK


def encode_clock(clock: int) -> bytes:
    """Write a clock in its one, minimal form of 1 to 8 bytes, which sort as the clocks do.

    Raises:
        EncodeError: a clock outside 0 to 2**53 - 1.
    """
    if not 0 <= clock <= MAX_CLOCK:
        raise EncodeError(f"clock {clock}: expected 0 to 2^53-1")
    extra = 0
    while clock >> (7 * (extra + 1)):
        extra += 1
    prefix = (0xFF00 >> extra) & 0xFF
    return (clock | prefix << (8 * extra)).to_bytes(extra + 1)


def read_clock(data: bytes) -> tuple[int, int]:
    """Read a clock that need not be minimal, as canvas-js reads those in parents' keys: (clock, bytes read).

    Raises:
        DecodeError: no data, a first byte of 0xff, or too few bytes.
    """
    if not data:
        raise DecodeError("no clock: the input is empty", 0)
    extra = 8 - (data[0] ^ 0xFF).bit_length()
    if extra == 8:
        raise DecodeError("no clock begins with 0xff", 0)
    if len(data) <= extra:
        raise DecodeError(f"a clock of {extra + 1} bytes is cut off after {len(data)}", len(data))
    mask = (1 << (7 * (extra + 1))) - 1
    return int.from_bytes(data[: extra + 1]) & mask, extra + 1


def decode_clock(data: bytes) -> tuple[int, int]:
    """Read the clock that `data` begins with: (clock, bytes read).

    Raises:
        DecodeError: a clock cut off, longer than it need be, or above 2**53 - 1.
    """
    clock, length = read_clock(data)
    if clock > MAX_CLOCK:
        raise DecodeError(f"clock {clock} is above 2^53-1", 0)
    if length != len(encode_clock(clock)):
        raise DecodeError(f"clock {clock} is written in {length} bytes, more than it needs", 0)
    return clock, length


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
