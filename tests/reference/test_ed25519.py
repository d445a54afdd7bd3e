from typing import Any

import pytest

from gossiplog.reference import ed25519
from tests import vectors


@pytest.mark.parametrize("row", vectors.load("signatures"), ids=lambda row: row["name"])
def test_verdicts(row: dict[str, Any]) -> None:
    key, message, signature = (bytes.fromhex(row[name]) for name in ("publicKey", "message", "signature"))
    assert ed25519.is_valid(key, message, signature) == row["accepted"]


@pytest.mark.parametrize(
    ("seed", "key", "message", "signature"),
    [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ],
)  # fmt: skip
def test_rfc_8032(seed: str, key: str, message: str, signature: str) -> None:
    """Source: RFC 8032, 7.1, tests 1 and 3."""
    assert ed25519.public_key_of(bytes.fromhex(seed)).hex() == key
    assert ed25519.sign_bytes(bytes.fromhex(seed), bytes.fromhex(message)).hex() == signature
    assert ed25519.is_valid(bytes.fromhex(key), bytes.fromhex(message), bytes.fromhex(signature))
    assert not ed25519.is_valid(bytes.fromhex(key), bytes.fromhex(message) + b"x", bytes.fromhex(signature))


def test_a_response_of_the_order_or_more_is_refused() -> None:
    identity = (1).to_bytes(32, "little")
    assert ed25519.is_valid(identity, b"", identity + bytes(32))
    assert not ed25519.is_valid(identity, b"", identity + ed25519.L.to_bytes(32, "little"))


def test_the_check_is_cofactored() -> None:
    """The commitment has a part of order 8, which only a check without the cofactor sees."""
    seed, message = b"\x05" * 32, b"message"
    torsion = ed25519.decompress(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"))
    assert torsion is not None
    key = ed25519.public_key_of(seed)
    plain = ed25519.sign_bytes(seed, message)
    scalar = int.from_bytes(plain[32:], "little")
    assert ed25519.compress(ed25519.multiply(8, torsion)) == (1).to_bytes(32, "little")
    nonce = 1234
    commitment = ed25519.compress(ed25519.add(ed25519.multiply_base(nonce), torsion))
    secret = ed25519._secret_scalar(seed)[0]
    response = (nonce + ed25519._hash_to_scalar(commitment, key, message) * secret) % ed25519.L
    assert scalar != response
    assert ed25519.is_valid(key, message, commitment + response.to_bytes(32, "little"))
