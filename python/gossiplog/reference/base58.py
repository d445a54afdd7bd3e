"""Base58 in Bitcoin's alphabet, as did:key URIs and version 0 CIDs use it."""

from gossiplog.errors import DecodeError

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
