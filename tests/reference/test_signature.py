from types import ModuleType

import pytest

from gossiplog.errors import DecodeError, EncodeError
from gossiplog.reference.multiformats import base58_encode
from gossiplog.reference.signature import decode_did


def test_a_key_comes_back(core: ModuleType) -> None:
    key = core.SigningKey(b"\x01" * 32)
    assert key.did == "did:key:z6Mkon3Necd6NkkyfoGoHxid2znGc59LU3K7mubaRcFbLfLX"
    assert decode_did(key.did) == (0xED, key.public_key)
    assert repr(key) == f"<SigningKey of {key.did}>"


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_have_32_bytes(core: ModuleType, length: int) -> None:
    with pytest.raises(EncodeError, match="32"):
        core.SigningKey(bytes(length))


@pytest.mark.parametrize(
    ("did", "reason"),
    [
        ("did:web:example.com", "no did:key"),
        ("did:key:z", "no did:key"),
        ("did:key:z0", "no did:key"),
        ("did:key:z" + "z" * 100_000, "no did:key"),
        ("did:key:z" + base58_encode(b"\xe7\x01" + bytes(33)), "unknown type 0xe7"),
        ("did:key:z" + base58_encode(b"\xed\x01" + bytes(31)), "31 bytes"),
        ("did:key:z" + base58_encode(b"\xed"), "cut off"),
    ],
    ids=lambda text: text[:24],
)
def test_other_authors_are_refused_by_name(did: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_did(did)
