import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import DecodeError
from gossiplog.reference.varint import read_number, read_uvarint, write_uvarint
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
