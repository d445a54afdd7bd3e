from types import ModuleType

import pytest

from gossiplog.errors import DecodeError


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
