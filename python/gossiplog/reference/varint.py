"""Unsigned LEB128 integers: in link records, and as multiformats write and read them in CIDs and did:key URIs.

The multiformats code of canvas-js adds the groups of seven bits up as JavaScript numbers, accepts longer forms than
the minimal one, and has no limit but the range of a number. `read_number` does the same, so that the verdicts agree.
"""

from typing import Final

from gossiplog.errors import DecodeError

#: A group that begins at bit 1024 or above is not a finite JavaScript number any more, not even when it is zero.
_NUMBER_BYTES: Final = 147


def write_uvarint(number: int) -> bytes:
    """Write a number of 0 or more in its minimal form."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def skip_uvarint(data: bytes, offset: int) -> int:
    """Return the offset of the byte after the varint at `offset`, which may have any length.

    Raises:
        DecodeError: the data ends first.
    """
    while offset < len(data):
        offset += 1
        if data[offset - 1] < 0x80:
            return offset
    raise DecodeError("a varint is cut off", offset)


def read_uvarint(data: bytes, offset: int) -> tuple[int, int]:
    """Read a varint of at most 64 bits at `offset`, in its minimal form: (number, offset of the byte after).

    Raises:
        DecodeError: a varint cut off, too large, or longer than it need be.
    """
    end = skip_uvarint(data, offset)
    number = sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(data[offset : min(end, offset + 10)]))
    if end - offset > 10 or number >= 2**64:
        raise DecodeError("a varint is above 2^64-1", offset)
    if end - offset > 1 and data[end - 1] == 0:
        raise DecodeError("a varint is written in more bytes than it needs", offset)
    return number, end


def read_number(data: bytes, offset: int) -> tuple[int, int]:
    """Read a varint of any form at `offset` as canvas-js does: (number, offset of the byte after).

    Raises:
        DecodeError: a varint cut off, or longer than a JavaScript number allows.
    """
    end = skip_uvarint(data, offset)
    if end - offset > _NUMBER_BYTES:
        raise DecodeError("a varint is longer than 147 bytes", offset)
    number = 0.0
    for index, byte in enumerate(data[offset:end]):
        number += float(byte & 0x7F) * 2.0 ** (7 * index)
    if number == float("inf"):
        raise DecodeError("a varint is above the range of a number", offset)
    return int(number), end
