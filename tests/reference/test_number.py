import pytest

from gossiplog.reference.number import format_number, normalise_float


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
