from types import ModuleType

import pytest

from gossiplog.errors import DecodeError


@pytest.mark.parametrize(("opening", "closing"), [(b"\x81", b"\x80"), (b"\xa1\x61a", b"\xa0")])
def test_nesting_is_accepted_up_to_its_limit(core: ModuleType, opening: bytes, closing: bytes) -> None:
    limit = core.MAX_DEPTH
    core.cbor_decode(opening * (limit - 1) + closing)
    for depth in (limit, 100_000):
        with pytest.raises(DecodeError):
            core.cbor_decode(opening * depth + closing)


@pytest.mark.parametrize(("data", "offset"), [("8201f97e00", 2), ("a2616101616102", 4), ("82010000", 3)])
def test_the_place_is_named(core: ModuleType, data: str, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        core.cbor_decode(bytes.fromhex(data))
    assert caught.value.offset == offset


def test_huge_lengths_cost_nothing(core: ModuleType) -> None:
    for head in ("9b", "bb", "5b", "7b"):
        with pytest.raises(DecodeError):
            core.cbor_decode(bytes.fromhex(head + "00ffffffffffffff"))
