from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import DecodeError
from gossiplog.reference.multiformats import base58_decode, base58_encode, read_number, read_uvarint, write_uvarint
from tests.strategies import repeatable


@repeatable(100)
@given(number=st.integers(0, 2**64 - 1), before=st.binary(max_size=3))
def test_numbers_come_back(number: int, before: bytes) -> None:
    data = before + write_uvarint(number)
    assert read_uvarint(data + b"\x81", len(before)) == (number, len(data))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x80\x00", b"\x81\x00", b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01"]
)
def test_link_records_hold_minimal_ones_of_64_bits(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(data, 0)


def test_multiformats_are_read_as_javascript_reads_them() -> None:
    assert read_number(b"\x92" + b"\x80" * 145 + b"\x00", 0) == (18, 147)
    assert read_number(b"\x81" + b"\x80" * 6 + b"\x10", 0) == (2**53, 8)
    with pytest.raises(DecodeError, match="147"):
        read_number(b"\x92" + b"\x80" * 146 + b"\x00", 0)


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", ""), (b"\0", "1"), (b"Hello World!", "2NEpo7TZRRrLZSi2U"), (b"\0\0\x28\x7f\xb4\xcd", "11233QC4")],
)
def test_examples_of_the_internet_draft(data: bytes, text: str) -> None:
    """Source: draft-msporny-base58, section 5."""
    assert base58_encode(data) == text
    assert base58_decode(text) == data


@repeatable(100)
@given(data=st.binary())
def test_bytes_come_back(data: bytes) -> None:
    assert base58_decode(base58_encode(data)) == data


@pytest.mark.parametrize("letter", ["0", "O", "I", "l", "é"])
def test_other_letters_are_refused(letter: str) -> None:
    with pytest.raises(DecodeError, match="base58"):
        base58_decode(f"2{letter}")


V0 = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKU4vT"
V1 = "bafyreidykglsfhoixmivffc5uwhcgshx4j465xwqntbmu43nb2dzqwfvae"


@pytest.mark.parametrize("text", [V0, V1, "bafkqaaa"])
def test_text_comes_back(core: ModuleType, text: str) -> None:
    link = core.CID.parse(text)
    assert str(link) == text
    assert core.CID(bytes(link)) == link
    assert hash(core.CID(bytes(link))) == hash(link)
    assert link != text


def test_a_link_without_bytes_is_written_as_nothing(core: ModuleType) -> None:
    """canvas-js takes some maps for it (wire format, "The map key `__proto__`")."""
    link = core.cbor_decode(
        bytes.fromhex(
            "a2695f5f70726f746f5f5ff6695f5f70726f746f5f5fa4695f5f70726f746f5f5f"
            "f6612f40695f5f70726f746f5f5fd82a440012016165627974657340"
        )
    )
    assert (bytes(link), str(link), repr(link)) == (b"", "", "CID.parse('')")
    assert core.json_encode([link]) == b'[{"/":""}]'


def test_base58_with_its_prefix(core: ModuleType) -> None:
    assert str(core.CID.parse("zdj7WkRPAX9o9nb9zPbXzwG7JEs78uyhwbUs8JSUayB98DWWY")).startswith("bafy")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "b",
            "z",
            "Q",
            "Qm",
            f"z{V0}",
            V1.upper(),
            f"{V1}=",
            f"{V1}a",
            V1[:-1],
            "bafkqaab",
            "uAVUAAA",
            "text",
            "é",
        ),
        *(f"b{'a' * 9000}", f"z{'z' * 9000}"),
    ],
    ids=lambda text: text[:20],
)
def test_other_text_is_no_link(core: ModuleType, text: str) -> None:
    with pytest.raises(DecodeError):
        core.CID.parse(text)


@pytest.mark.parametrize("data", ["", "01", "0171", "017112", "01711201", "0171120161ff", "02711200", "0201", "80"])
def test_other_bytes_are_no_link(core: ModuleType, data: str) -> None:
    with pytest.raises(DecodeError):
        core.CID(bytes.fromhex(data))
