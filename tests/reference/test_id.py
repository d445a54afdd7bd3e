from types import ModuleType

import pytest

from gossiplog.errors import DecodeError, EncodeError
from gossiplog.reference.id import read_clock


@pytest.mark.parametrize("clock", [-1, 2**53])
def test_a_clock_out_of_range_is_not_encoded(core: ModuleType, clock: int) -> None:
    with pytest.raises((EncodeError, OverflowError)):
        core.encode_clock(clock)


@pytest.mark.parametrize("data", ["", "80", "8000", "807f", "ff00000000000000000000", "fe20000000000000", "c01fff"])
def test_a_clock_that_is_cut_off_or_not_minimal_or_too_large_is_refused(core: ModuleType, data: str) -> None:
    with pytest.raises(DecodeError):
        core.decode_clock(bytes.fromhex(data))


def test_the_bytes_of_clocks_sort_as_the_clocks_do(core: ModuleType) -> None:
    clocks = sorted({2**bits + step for bits in range(1, 53) for step in (-1, 0, 1)})
    assert [core.encode_clock(clock) for clock in clocks] == sorted(core.encode_clock(clock) for clock in clocks)


def test_clocks_in_parents_need_not_be_minimal() -> None:
    assert read_clock(bytes.fromhex("8001")) == (1, 2)
    assert read_clock(b"\xfe" + b"\xff" * 7) == (2**56 - 1, 8)


def test_ids_come_back(core: ModuleType) -> None:
    key = bytes(range(20))
    assert core.encode_id(key) == "000g40o40k30e209185go38e1s8124gj"
    assert core.decode_id(core.encode_id(key)) == key


@pytest.mark.parametrize("id", ["", "0" * 31, "0" * 33, "w" * 32, "V" * 32, "é" * 32, "0" * 31 + "\n", "٠" * 32])
def test_other_text_is_no_id(core: ModuleType, id: str) -> None:
    with pytest.raises(DecodeError):
        core.decode_id(id)


@pytest.mark.parametrize("length", [0, 19, 21])
def test_a_key_has_20_bytes(core: ModuleType, length: int) -> None:
    with pytest.raises(DecodeError):
        core.encode_id(bytes(length))
