"""Multiformats: unsigned varints, base58, and the CIDs that link records.

The multiformats code of canvas-js adds the groups of seven bits up as JavaScript numbers, accepts longer forms than
the minimal one, and has no limit but the range of a number. `read_number` does the same, so that the verdicts agree.

Source: wire format, "Links"; the multiformats CID specification.
"""

from __future__ import annotations

from base64 import b32decode, b32encode
from typing import Final, final

from gossiplog.errors import DecodeError, EncodeError

#: A group that begins at bit 1024 or above is no longer a finite JavaScript number, not even when it is zero.
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


_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGITS = {letter: digit for digit, letter in enumerate(_ALPHABET)}


def base58_encode(data: bytes) -> str:
    """Write bytes as base58; each leading zero byte becomes a `1`."""
    zeros = len(data) - len(data.lstrip(b"\0"))
    number = int.from_bytes(data)
    letters = []
    while number:
        number, digit = divmod(number, 58)
        letters.append(_ALPHABET[digit])
    return "1" * zeros + "".join(reversed(letters))


def base58_decode(text: str) -> bytes:
    """Read base58. The time grows with the square of the length: callers bound it.

    Raises:
        DecodeError: a character outside the alphabet.
    """
    number = 0
    for offset, letter in enumerate(text):
        digit = _DIGITS.get(letter)
        if digit is None:
            raise DecodeError(f"{letter!r} is no base58 character", offset)
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8)


#: The multihash code of SHA-256: a CID that begins with it is a version 0.
_SHA256 = 18
#: A multicodec is written in at most this many bytes; canvas-js cuts off what goes beyond.
_CODEC_BYTES = 10
#: Base58 takes time by the square of the length: bytes that are written so, and half the digits that are read.
MAX_BASE58_BYTES = 2**14


@final
class CID:
    """An IPLD link. Takes the binary form, and normalises it.

    A version 0 is a bare multihash, whether its version was written out or not. A version 1 has its version and codec
    in the fewest bytes, and its multihash as it came.

    Raises:
        DecodeError: (by the constructor) bytes cut off or left over, or a version above 1.
    """

    __slots__ = ("_data",)

    _data: bytes

    def __new__(cls, data: bytes) -> CID:
        """From the binary form."""
        self = super().__new__(cls)
        self._data = _normalise(bytes(data))
        return self

    @staticmethod
    def empty() -> CID:
        """Return a link without bytes, which is read from none: canvas-js takes some maps for it."""
        cid = object.__new__(CID)
        cid._data = b""
        return cid

    @staticmethod
    def parse(text: str) -> CID:
        """Read a link's text: base32 with its `b`, base58btc with its `z`, or a version 0 as bare base58btc, `Q…`.

        Raises:
            DecodeError: any other text.
        """
        if not text.startswith("b") and len(text) > 2 * MAX_BASE58_BYTES:
            raise DecodeError(f"a link of {len(text)} characters: expected at most {2 * MAX_BASE58_BYTES}")
        if text.startswith("b"):
            data = _base32_decode(text[1:])
        elif text.startswith("z"):
            data = base58_decode(text[1:])
        elif text.startswith("Q"):
            data = base58_decode(text)
        else:
            raise DecodeError("no link: expected base32 (b…), base58btc (z…) or a version 0 (Q…)", 0)
        cid = CID(data)
        if cid._is_version_0 and not text.startswith("Q"):
            raise DecodeError("a link of version 0 has no multibase prefix", 0)
        return cid

    @property
    def _is_version_0(self) -> bool:
        # One without bytes is written as version 0, too.
        return self._data[:1] != b"\x01"

    def __bytes__(self) -> bytes:
        return self._data

    def __str__(self) -> str:
        if self._is_version_0:
            if len(self._data) > MAX_BASE58_BYTES:
                raise EncodeError(f"a link of version 0 with {len(self._data)} bytes has no text form")
            return base58_encode(self._data)
        return "b" + b32encode(self._data).decode().lower().rstrip("=")

    def __repr__(self) -> str:
        return f"CID.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CID) and self._data == other._data

    def __hash__(self) -> int:
        return hash((CID, self._data))


def _normalise(data: bytes) -> bytes:
    version, codec_at = read_number(data, 0)
    if version == _SHA256:
        multihash_at = 0
        prefix = b""
    elif version > 1:
        raise DecodeError(f"a link of version {version}: expected 0 or 1", 0)
    else:
        codec, multihash_at = read_number(data, codec_at)
        prefix = b"\x01" + write_uvarint(codec)[:_CODEC_BYTES] if version else b""
    length, digest_at = read_number(data, skip_uvarint(data, multihash_at))
    if digest_at + length != len(data):
        raise DecodeError(f"a link's digest of {length} bytes, but {len(data) - digest_at} bytes are there", digest_at)
    return prefix + data[multihash_at:]


def _base32_decode(text: str) -> bytes:
    try:
        data = b32decode(text.upper() + "=" * (-len(text) % 8)) if text == text.lower() and text.isascii() else b""
    except ValueError as error:
        raise DecodeError("a link in base32 that cannot be read", 0) from error
    if b32encode(data).decode().lower().rstrip("=") != text:
        raise DecodeError("a link in base32 that is not lower case, without padding, in its shortest form", 0)
    return data
