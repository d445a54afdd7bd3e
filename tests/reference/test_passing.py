import pytest

from gossiplog.reference.passing import pend
from gossiplog.reference.prototype import Chain, JavaScriptError, Primitive, Seen


def passed(length: Primitive, codec: str, indices: dict[str, Primitive] | None = None) -> bytes:
    keys = {"length": Seen(length)} | {key: Seen(value) for key, value in (indices or {}).items()}
    return bytes(pend(Chain("bytes", keys, b"\x7f", 1), codec).make())


@pytest.mark.parametrize(
    ("length", "cbor", "json"),
    [
        *[(0, "", ""), (2, "7f00", "7f00"), (1.5, "7f", "7f00"), (0.5, "", "7f"), (-2, "", ""), (None, "", "")],
        *[(True, "7f", "7f"), ("", "", ""), ("2", "7f00", "7f00"), ("x", None, ""), (-(2**53), None, "")],
        *[(2**53, None, None), (256, None, "7f" + "00" * 255), (2**22 + 1, None, None), ("Infinity", None, None)],
    ],
)
def test_lengths(length: Primitive, cbor: str | None, json: str | None) -> None:
    for codec, expected in (("dag-cbor", cbor), ("dag-json", json)):
        if expected is None:
            with pytest.raises(JavaScriptError):
                passed(length, codec)
        else:
            assert passed(length, codec).hex() == expected


@pytest.mark.parametrize(
    ("value", "cbor", "json"),
    [
        *[
            (1, "7f01", "7f01"),
            (None, "7f00", "7f00"),
            (1.9, "7f01", "7f01"),
            ("0x10", "7f10", "7f10"),
            ("x", "7f00", "7f00"),
        ],
        *[(300, "7f2c", "7f2c"), (-1, "7fff", "7fff"), (-256, "7f00", "7f00"), (2.0**53, "7f00", "7f00")],
    ],
)
def test_indices(value: Primitive, cbor: str, json: str) -> None:
    assert passed(2, "dag-cbor", {"1": value, "2": 5}).hex() == cbor
    assert passed(2, "dag-json", {"1": value}).hex() == json


def test_a_map_without_a_length_has_no_bytes() -> None:
    with pytest.raises(JavaScriptError, match="__proto__"):
        pend(Chain("bytes", {}, b"\x7f", 1), "dag-cbor")
