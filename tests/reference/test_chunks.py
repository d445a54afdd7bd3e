import pytest

from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.chunks import encode_in_chunks
from gossiplog.reference.passing import Passing
from gossiplog.reference.prototype import JavaScriptError, Primitive


def passing(data: bytes, length: Primitive) -> Passing:
    made = Passing(data)
    made.length = length
    made.is_key = False
    return made


@pytest.mark.parametrize("size", [0, 23, 63, 64, 200, 253, 254, 255, 256, 300, 70_000])
def test_without_such_maps_it_is_what_is_written(size: int) -> None:
    value = [b"x" * size, "y" * size, {"a": [None, True, -1, 1.5, 2**60]}, "\u20ac" * 22]
    assert encode_in_chunks(value) == write_cbor(value)


def test_a_length_that_fits_is_written() -> None:
    for data in (b"", b"x", b"x" * 24, b"x" * 63, b"x" * 200):
        value = [passing(data, len(data)), "y" * 100, passing(b"z", 1)]
        assert encode_in_chunks(value) == write_cbor(value)


def test_64_bytes_must_fit_into_the_chunk() -> None:
    for size, fits in ((63, True), (64, False)):
        value = ["y" * 60, "y" * 60, "y" * 60, "y" * 10, passing(b"x" * size, size)]
        if fits:
            assert encode_in_chunks(value) == write_cbor(value)
        else:
            with pytest.raises(JavaScriptError, match="joined"):
                encode_in_chunks(value)


def test_a_negative_length_takes_the_end_back() -> None:
    assert encode_in_chunks(["abcdef", passing(b"", -2)]).hex() == "8266616263646566"[:14]
    assert encode_in_chunks(["abcdef", passing(b"", -2), "x"]).hex() == "83666162636465" + "6178"
    with pytest.raises(JavaScriptError, match="never written"):
        encode_in_chunks(passing(b"", -2))
    assert encode_in_chunks(passing(b"", -300)) == b""


def test_fractions_add_up_to_gaps() -> None:
    half = passing(b"x", 1.5)
    assert encode_in_chunks([half, "y"]).hex() == "8241786179"
    with pytest.raises(JavaScriptError, match="never written"):
        encode_in_chunks([half, half])
    with pytest.raises(JavaScriptError, match="joined to a length"):
        encode_in_chunks([half, "y" * 300])


def test_text_is_appended_to_the_end() -> None:
    assert encode_in_chunks(["a", passing(b"", "")]).hex() == "82616140"
    assert encode_in_chunks(["a", passing(b"", ".5")]).hex() == "82616140"
    # The end is 4.5e-1.
    assert encode_in_chunks(["a", passing(b"", ".5e-1")]) == b""
    for length in ("2", "20", "-1"):
        with pytest.raises(JavaScriptError):
            encode_in_chunks(["a", passing(b"", length), "b" * 300])
