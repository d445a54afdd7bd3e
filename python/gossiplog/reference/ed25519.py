"""Ed25519: keys, signing, and verification by the rules of ZIP-215.

Points are in extended coordinates (X, Y, Z, T): x = X/Z, y = Y/Z, xy = T/Z. Not for secrets that an attacker may time.
Source: RFC 8032, 5.1; ZIP-215; wire format, "Signature verdicts"; @noble/curves 1.9.7, canvas-js's.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

P: Final = 2**255 - 19
#: The order of the base point.
L: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, P) % P
_SQRT_MINUS_1: Final = pow(2, (P - 1) // 4, P)
_SIGN_BIT: Final = 1 << 255
SEED_LENGTH: Final = 32
SIGNATURE_LENGTH: Final = 64


class Point(NamedTuple):
    """A point of the curve in extended coordinates."""

    x: int
    y: int
    z: int
    t: int


IDENTITY: Final = Point(0, 1, 1, 0)


def add(first: Point, second: Point) -> Point:
    """RFC 8032, 5.1.4; complete: right for equal points and the identity as well."""
    x1, y1, z1, t1 = first
    x2, y2, z2, t2 = second
    a = (y1 - x1) * (y2 - x2) % P
    b = (y1 + x1) * (y2 + x2) % P
    c = 2 * _D * t1 * t2 % P
    d = 2 * z1 * z2
    e, f, g, h = b - a, d - c, d + c, b + a
    return Point(e * f % P, g * h % P, f * g % P, e * h % P)


def double(point: Point) -> Point:
    """RFC 8032, 5.1.4."""
    x, y, z, _ = point
    a = x * x % P
    b = y * y % P
    h = a + b
    e = h - (x + y) * (x + y)
    g = a - b
    f = 2 * z * z + g
    return Point(e * f % P, g * h % P, f * g % P, e * h % P)


def negate(point: Point) -> Point:
    """Return the point that adds up with this one to the identity."""
    return Point(-point.x % P, point.y, point.z, -point.t % P)


def multiply(scalar: int, point: Point) -> Point:
    """Return a multiple of a point, by windows of four bits."""
    table = [IDENTITY]
    for _ in range(15):
        table.append(add(table[-1], point))
    result = IDENTITY
    for shift in range((scalar.bit_length() + 3) // 4 * 4 - 4, -1, -4):
        for _ in range(4):
            result = double(result)
        result = add(result, table[scalar >> shift & 15])
    return result


@cache
def _base_table() -> Sequence[Sequence[Point]]:
    """For each window of four bits of a scalar, the sixteen multiples of the base point that it may stand for."""
    base = decompress((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    if base is None:
        raise ArithmeticError("the base point is not on the curve")
    windows = []
    for _ in range(64):
        row = [IDENTITY]
        for _ in range(16):
            row.append(add(row[-1], base))
        base = row.pop()
        windows.append(row)
    return windows


def multiply_base(scalar: int) -> Point:
    """Return a multiple of the base point; the scalar is below 2**256."""
    result = IDENTITY
    for row in _base_table():
        result = add(result, row[scalar & 15])
        scalar >>= 4
    return result


def compress(point: Point) -> bytes:
    """RFC 8032, 5.1.2: the one canonical encoding of a point, 32 bytes."""
    inverse = pow(point.z, -1, P)
    x, y = point.x * inverse % P, point.y * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decompress(data: bytes) -> Point | None:
    """Return the point that 32 bytes encode, or None.

    As ZIP-215 wants it, y may be p or more, and x = 0 may have a sign.
    """
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number % _SIGN_BIT % P
    u, v = (y * y - 1) % P, (_D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    if (v * x * x - u) % P:
        x = x * _SQRT_MINUS_1 % P
    if (v * x * x - u) % P:
        return None
    if x & 1 != sign:
        x = -x % P
    return Point(x, y, 1, x * y % P)


def _hash_to_scalar(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % L


def _secret_scalar(seed: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(seed).digest()
    return int.from_bytes(digest[:32], "little") & (1 << 254) - 8 | 1 << 254, digest[32:]


def public_key_of(seed: bytes) -> bytes:
    """RFC 8032, 5.1.5: the 32-byte public key of a 32-byte seed."""
    return compress(multiply_base(_secret_scalar(seed)[0]))


def sign_bytes(seed: bytes, message: bytes) -> bytes:
    """RFC 8032, 5.1.6: the 64-byte signature over a message."""
    scalar, prefix = _secret_scalar(seed)
    key = compress(multiply_base(scalar))
    nonce = _hash_to_scalar(prefix, message)
    commitment = compress(multiply_base(nonce))
    response = (nonce + _hash_to_scalar(commitment, key, message) * scalar) % L
    return commitment + response.to_bytes(32, "little")


def is_valid(key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether a 64-byte signature holds, by ZIP-215: cofactored, S below L, points in any encoding.

    One thing is canvas-js's own: its challenge hashes both points as they are encoded canonically, not as they came.
    """
    public, commitment = decompress(key), decompress(signature[:32])
    response = int.from_bytes(signature[32:], "little")
    if public is None or commitment is None or response >= L:
        return False
    challenge = _hash_to_scalar(compress(commitment), compress(public), message)
    sum_ = add(commitment, multiply(challenge, public))
    difference = add(multiply_base(response), negate(sum_))
    for _ in range(3):
        difference = double(difference)
    return difference.x == 0 and difference.y == difference.z
