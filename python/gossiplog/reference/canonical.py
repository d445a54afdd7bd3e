"""dag-cbor in its one canonical form, as it is written; `cbor` reads it.

Source: wire format, "What is written, and what is accepted"; RFC 8949. Nothing here recurses: nesting is a stack.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from gossiplog.reference.multiformats import CID
from gossiplog.reference.values import normalise

# The major types of RFC 8949, 3.1, and its simple values, 3.3.
UINT, NEGINT, BYTES, TEXT, LIST, MAP, TAG, SIMPLE = range(8)
FALSE, TRUE, NULL, UNDEFINED = range(20, 24)
LINK_TAG: Final = 42


def cbor_encode(value: Any) -> bytes:
    """Write a value as canonical dag-cbor.

    Args:
        value: None, bool, int, float, str, bytes, bytearray, memoryview, CID, lists, tuples and mappings of these.

    Raises:
        EncodeError: a value that cannot be written, or that other peers would refuse or change; it names the place.
    """
    return write_cbor(normalise(value))


def write_cbor(value: Any) -> bytes:
    """Write a normalised value, of any depth, as canonical dag-cbor."""
    out = bytearray()
    pending = [value]
    while pending:
        value = pending.pop()
        match value:
            case bytes():
                out += write_head(BYTES, len(value)) + value
            case str():
                text = value.encode()
                out += write_head(TEXT, len(text)) + text
            case CID():
                head, link = write_link(value)
                out += head + link
            case list():
                out += write_head(LIST, len(value))
                pending.extend(reversed(value))
            case dict():
                out += write_head(MAP, len(value))
                for key in sorted(value, key=map_order, reverse=True):
                    pending += (value[key], key)
            case _:
                out += write_scalar(value)
    return bytes(out)


def write_scalar(value: bool | int | float | None) -> bytes:
    """Write null, a boolean or a number."""
    match value:
        case None:
            return bytes([SIMPLE << 5 | NULL])
        case bool():
            return bytes([SIMPLE << 5 | (TRUE if value else FALSE)])
        case int():
            return write_head(UINT, value) if value >= 0 else write_head(NEGINT, -1 - value)
        case _:
            return bytes([SIMPLE << 5 | 27]) + struct.pack(">d", value)


def write_link(link: CID) -> tuple[bytes, bytes]:
    """Return the tag and head of a link, and its bytes."""
    data = b"\0" + bytes(link)
    return write_head(TAG, LINK_TAG) + write_head(BYTES, len(data)), data


def map_order(key: str) -> tuple[int, bytes]:
    """Return what map keys sort by."""
    text = key.encode()
    return len(text), text


def write_head(major: int, argument: int) -> bytes:
    """Write the head of an item."""
    if argument < 24:
        return bytes([major << 5 | argument])
    size = next(size for size in range(4) if argument < 1 << (8 << size))
    return bytes([major << 5 | 24 + size]) + argument.to_bytes(1 << size)
