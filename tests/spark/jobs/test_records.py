"""Records of CSV and JSON Lines, judged without Spark: what must be refused, and the types that change no value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import DecodeError
from gossiplog.spark.jobs.records import _check_names, _check_parts, _judge_csv, _JudgeJSON, _names


def types(*lines: bytes) -> str:
    """The columns of lines, each of which is read by a task of its own, as one whole."""
    judge = _JudgeJSON(infer=True)
    kinds = [kind for line in lines for kind in judge(iter([("file", 0, line)]))]
    for kind in kinds[1:]:
        kinds[0].merge(kind)
    (together,) = judge(("file", 0, line) for line in lines)
    assert kinds[0].columns() == together.columns()
    found: str = together.columns().simpleString()
    return found


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1}{"a":2}', "Extra data at character 8"),
        (b'{"a":1} and more', "Extra data at character 9"),
        (b'[{"a":1}]', "it is no object"),
        (b'{"a":1,"b":{"c":1,"c":2}}', "it has a name twice"),
        (b'{"a":1e999}', "the number 1e999 is too large"),
        (b'{"a":-Infinity}', "-Infinity is no JSON"),
        (b'{"a":"\xff"}', "it is not UTF-8"),
        (b'{"a":"\\ud800"}', "it has half of a surrogate pair"),
        (b'{"\\uDC00":1}', "it has half of a surrogate pair"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "it is nested more than 100 deep"),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "it is nested more than 100 deep"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "it is nested more than 100 deep"),
    ],
)
@pytest.mark.parametrize("infer", [True, False])
def test_lines_that_are_no_record(line: bytes, reason: str, infer: bool) -> None:
    with pytest.raises(DecodeError) as caught:
        list(_JudgeJSON(infer)(iter([("file", 0, b'{"a":1}'), ("file", 0, line)])))
    text = str(caught.value)
    assert text.startswith(
        "file has a record that is malformed or does not fit the schema: " + line[:9].decode(errors="replace")
    )
    assert text.endswith(f"({reason}; correct it, or remove it, and begin again)")


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        ([b'{"b":1,"a":"x"}', b" \t\r", b'{"c":true}'], "struct<a:string,b:bigint,c:boolean>"),
        ([b'{"a":null}', b'{"a":[]}', b'{"a":[null]}'], "struct<a:array<string>>"),
        ([b'{"a":null}'], "struct<a:string>"),
        ([b'{"a":{"b":[1]}}', b'{"a":{"b":[0.5],"c":null}}'], "struct<a:struct<b:array<double>,c:string>>"),
        # Integers become floating point numbers only where they stay what they are.
        ([b'{"a":9007199254740992}', b'{"a":0.5}'], "struct<a:double>"),
        ([b'{"a":9007199254740993}', b'{"a":1}'], "struct<a:bigint>"),
        ([b'{"a":-9223372036854775808}'], "struct<a:bigint>"),
        ([b'{"a":"\\ud83d\\ude00"}'], "struct<a:string>"),
        ([b'{"a":' + b"[" * 99 + b"]" * 99 + b"}"], "struct<a:" + "array<" * 99 + "string" + ">" * 100),
        ([b""], "struct<>"),
    ],
)
def test_types(lines: list[bytes], columns: str) -> None:
    assert types(*lines) == types(*reversed(lines)) == columns


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b'{"a":9007199254740993}', b'{"a":0.5}'], "a is a fraction here or in another record, and an integer"),
        ([b'{"a":1}', b'{"a":0.5}', b'{"a":9007199254740993}'], "a is a fraction here or in another record"),
        ([b'{"a":18446744073709551617}'], "a is an integer of more than 64 bits"),
        ([b'{"a":{"b":[1]}}', b'{"a":{"b":["x"]}}'], "a.b[] is text, and a number in another record"),
        ([b'{"a":{"b":1}}', b'{"a":true}'], "a is true or false, and an object in another record"),
        ([b'{"a":{"b":1}}', b'{"a":[]}'], "a is an array, and an object in another record"),
        ([b'{"a":{}}'], "a is an empty object in every record"),
    ],
)
def test_values_that_no_type_holds_as_they_are(lines: list[bytes], reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        types(*lines)
    assert reason in str(caught.value)
    assert "in a schema" in str(caught.value)
    # A schema says it.
    list(_JudgeJSON(infer=False)(("file", 0, line) for line in lines))


def names(text: bytes, starts: frozenset[int] = frozenset()) -> list[str]:
    """The names of columns of CSV whose parts begin at lines of these numbers."""

    def lines() -> Iterator[tuple[str, int, bytes]]:
        start = 0
        for number, line in enumerate(text.removesuffix(b"\n").split(b"\n")):
            start = number if number in starts else start
            yield "file", start, line

    # Tasks end in any order.
    return _names(_check_parts([*_judge_csv(lines())][::-1]))


def is_sound(text: str) -> bool:
    """Whether text is CSV, by a state for each character."""
    state = "start"
    for sign in text:
        match state, sign:
            case (("start" | "text" | "closed"), ("," | "\n")):
                state = "start"
            case "start", '"':
                state = "quoted"
            case (("start" | "text"), "a"):
                state = "text"
            case "quoted", _:
                state = "closed" if sign == '"' else "quoted"
            case "closed", '"':
                state = "quoted"
            case _:
                return False
    return state != "quoted"


@given(st.text('a",\n', min_size=1, max_size=20), st.frozensets(st.integers(1, 10)))
def test_csv_is_what_the_grammar_says_however_it_is_split(text: str, starts: frozenset[int]) -> None:
    text = "a\n" + text
    if is_sound(text):
        assert names(text.encode(), starts) == ["a"]
    else:
        with pytest.raises(DecodeError, match="a quote"):
            names(text.encode(), starts)


@pytest.mark.parametrize(
    ("text", "shown", "reason"),
    [
        (b'a,b\nx,"y\nz,1\n', 'x,"y', "a quote of it is never closed"),
        (b'a,b\nx,"y"z\n', 'x,"y"z', "a quote, or the end of a line, is at no place for one"),
        (b'a,b\nx,"y\nz"z\n', 'z"z', "a quote, or the end of a line, is at no place for one"),
        (b'a,b\nx,5"\n', 'x,5"', "a quote, or the end of a line, is at no place for one"),
        (b"a,b\nx\ry,z\n", "x y,z", "a quote, or the end of a line, is at no place for one"),
        (b"a,b\nx,\xff\n", "x,\N{REPLACEMENT CHARACTER}", "it is not UTF-8"),
        (b'a,"b\nc"\nx,y\n', 'a,"b', "a column's name has the end of a line"),
        (b"a,b\nx,y\r\nz,1\n", "x,y", "it ends in LF, and others in CRLF, or the other way round"),
        (b"a,b\r\nx,y\nz,1\r\n", "x,y", "it ends in LF, and others in CRLF, or the other way round"),
        (b'a,b\nx,"\n\xff"\n', '\N{REPLACEMENT CHARACTER}"', "it is not UTF-8"),
    ],
)
def test_records_that_are_no_csv(text: bytes, shown: str, reason: str) -> None:
    # Where a part ends, nobody sees how the lines in the other end.
    for starts in (
        (frozenset[int](), frozenset({2}))
        if "CRLF" in reason
        else (frozenset[int](), frozenset({1}), frozenset({1, 2}))
    ):
        with pytest.raises(DecodeError) as caught:
            names(text, starts)
        assert str(caught.value) == (
            f"file has a record that is malformed or does not fit the schema: {shown} ({reason}; correct it, or remove"
            " it, and begin again)"
        )


def test_names_of_columns() -> None:
    assert names(b'\r\n"a ""b""",c\r\nx,"\n"\r\nx,y') == ['a "b"', "c"]
    _check_names("file", ["A", "b"], ["a", "B"], "the schema has")
    _check_names("file", [], ["a", "B"], "the schema has")
    for found, complaint in (
        (["b", "a"], "file has the columns b, a where the schema has a, b: give the same names in the same order"),
        (["a"], "file has the columns a where the schema has a, b"),
        (["a", ""], "file has no name for its column 2: give it one"),
        (["a", "A"], "file has two columns A: rename one"),
    ):
        with pytest.raises(DecodeError) as caught:
            _check_names("file", found, ["a", "b"], "the schema has")
        assert complaint in str(caught.value)
