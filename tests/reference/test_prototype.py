import math

import pytest

from gossiplog.reference.prototype import Chain, JavaScriptError, Seen, to_number, to_text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[
            ("", 0),
            (" \n\ufeff\u2028", 0),
            (" 5 ", 5),
            ("05", 5),
            ("5.", 5),
            (".5", 0.5),
            ("+1e1", 10),
            ("-0x10", math.nan),
        ],
        *[
            ("0x10", 16),
            ("0XfF", 255),
            ("0b11", 3),
            ("0o17", 15),
            ("0x", math.nan),
            ("1_0", math.nan),
            ("1n", math.nan),
        ],
        *[
            ("Infinity", math.inf),
            ("-Infinity", -math.inf),
            ("infinity", math.nan),
            ("nan", math.nan),
            ("1e400", math.inf),
        ],
        *[(".", math.nan), ("1 2", math.nan), ("\u00b2", math.nan), ("\u0665", math.nan), ("0x" + "f" * 300, math.inf)],
    ],
)
def test_text_is_converted_to_numbers_as_javascript_does(text: str, number: float) -> None:
    assert to_number(text) == pytest.approx(number, abs=0, nan_ok=True)


def test_what_is_no_text() -> None:
    assert [to_number(value) for value in (None, False, True, 7, 1.5)] == [0, 0, 1, 7, 1.5]
    for value in (2**53, -(2**53)):
        with pytest.raises(JavaScriptError, match="BigInt"):
            to_number(value)
    assert [to_text(value) for value in (None, True, 2**53, 1e21, -math.inf)] == [
        *("null", "true", "9007199254740992", "1e+21", "-Infinity")
    ]


def test_what_a_map_on_the_chain_has_can_be_assigned() -> None:
    chain = Chain("bytes", data=b"ab", length=2)
    assert chain.blocks("length")
    assert (chain.swallows("2"), chain.swallows("1"), chain.swallows("-0"), chain.swallows("a")) == (
        True,
        False,
        True,
        False,
    )
    longer = chain.extend({"length": Seen(1), "2": Seen(2)})
    assert not longer.blocks("length")
    assert longer.blocks("buffer")
    assert (longer.swallows("2"), longer.swallows("3")) == (False, True)
