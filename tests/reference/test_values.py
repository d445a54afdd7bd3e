from types import ModuleType
from typing import Any

import pytest

from gossiplog.errors import EncodeError
from gossiplog.reference.values import format_number, normalise_float


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (5.0, "5"), (-1.5, "-1.5"), (0.1, "0.1"), (1e-6, "0.000001"), (1.5e-7, "1.5e-7"),
        (1e-7, "1e-7"),
        (123456789012345680000.0, "123456789012345680000"), (1e21, "1e+21"), (1.25e21, "1.25e+21"), (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"), (100.0, "100"), (0.00001234, "0.00001234"), (12.5, "12.5"),
    ],
)  # fmt: skip
def test_numbers_print_as_in_javascript(number: float, text: str) -> None:
    """Source: printed by `String(number)` in Node 20."""
    assert format_number(number) == text


def test_floats_become_integers_where_javascript_tells_these_apart() -> None:
    assert [repr(normalise_float(number)) for number in (1.0, -0.0, 2.0**53 - 1, 2.0**53, -(2.0**53), 0.5)] == [
        *("1", "0", "9007199254740991", "9007199254740992.0", "-9007199254740992.0", "0.5"),
    ]


_cycle: list[Any] = []
_cycle.append(_cycle)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("encode", ["cbor_encode", "json_encode"])
@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "$"),
        ({"a": [1, 2, 3, float("-inf")]}, "$.a[3]"),
        ({"key with space": 2**64}, "key with space"),
        ([-(2**64) - 1], "$[0]"),
        ({"a": "\ufeffx"}, "$.a"),
        ({"a": {"\ufeff": 1}}, "$.a"),
        (["\ud800"], "$[0]"),
        ({"__proto__": 1}, "__proto__"),
        ({"a": {"/": 5, "bytes": 5.0}}, "$.a"),
        ({"/": "x", "bytes": "x"}, "$"),
        ({"/": 2**60, "bytes": 2**60}, "$"),
        ({1: 2}, "$"),
        ([{1, 2}], "$[0]"),
        pytest.param(object(), "$", id="an object"),
        (nested(501), ""),
        (_cycle, ""),
    ],
    ids=str,
)
def test_what_other_peers_would_refuse_or_change(core: ModuleType, encode: str, value: Any, place: str) -> None:
    with pytest.raises(EncodeError) as caught:
        getattr(core, encode)(value)
    assert place in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        nested(500),
        {"/": 1, "bytes": True},
        {"/": None, "bytes": None},
        {"/": 2**53, "bytes": 2.0**53},
        {"/": b"a", "bytes": b"a"},
        {"/": [], "bytes": []},
        {"/": 1.5, "bytes": 2},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_written(core: ModuleType, value: Any) -> None:
    assert core.cbor_decode(core.cbor_encode(value)) == value


def test_types(core: ModuleType) -> None:
    value = core.cbor_decode(core.cbor_encode([True, 1, 1.0, -0.0, (2,), bytearray(b"a"), memoryview(b"b"), 2.0**53]))
    assert repr(value) == "[True, 1, 1, 0, [2], b'a', b'b', 9007199254740992.0]"
