import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import DecodeError
from gossiplog.reference.base58 import base58_decode, base58_encode
from tests.strategies import repeatable


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
