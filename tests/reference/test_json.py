from types import ModuleType
from typing import Any

import pytest

from gossiplog.errors import DecodeError
from tests.strategies import neutral


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' { "a" : [ 1 , 2.0 , -0 , 1e2 , 0.5 ] } \n', {"a": [1, 2, 0, 100, 0.5]}),
        (r'"\u0041\n\/\ud83d\ude00"', "A\n/😀"),
        ('{"/":{"bytes":"AQI"}}', b"\1\2"),
        ('{"/":{"bytes":""}}', b""),
        ('{"/":"text"}', {"/": "text"}),
        ('{"/":5}', {"/": 5}),
        ('{"/":{}}', {"/": {}}),
        ('{"/":{"bytes":"AQI","more":1}}', {"/": {"bytes": "AQI", "more": 1}}),
        ('{"/":{"bytes":"AQI"},"more":1}', {"/": {"bytes": "AQI"}, "more": 1}),
        ("18446744073709551615", 2**64 - 1),
        ("-18446744073709551616", -(2**64)),
        ("9007199254740993", 2**53 + 1),
        ("1e21", 1e21),
        ("[" * 500 + "]" * 500, None),
        ("[" * 498 + '{"/":{"bytes":"AQI"}}' + "]" * 498, None),
    ],
)
def test_what_is_read(core: ModuleType, text: str, value: Any) -> None:
    read = core.json_decode(text.encode())
    if value is not None:
        assert neutral(core, read) == neutral(core, value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "nul",
            "NaN",
            "Infinity",
            "-",
            "01",
            "1.",
            ".5",
            "1e",
            "+1",
            "1 2",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "}",
        ),
        *(
            '{"a"}',
            '{"a":}',
            '{"a":1,}',
            "{a:1}",
            "{'a':1}",
            '"',
            '"\n"',
            r'"\x"',
            r'"\u12"',
            r'"\ud800"',
            r'"\udc00\ud800"',
        ),
        *('"\ufeff"', '{"\ufeff":1}', r'"\ufeffa"', '{"a":1,"a":2}', r'{"a":1,"\u0061":2}', "\ufeff1"),
        *(f'{{"/":{{"bytes":{value}}}}}' for value in ("5", '"AQ=="', '"AR"', '"A"', '"A Q"', '"_-"', "{}")),
        *("18446744073709551616", "-18446744073709551617", "9" * 5000, "1e999"),
        *("[" * 501 + "]" * 501, "[" * 100_000, '{"a":' * 100_000),
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_what_is_refused(core: ModuleType, text: str) -> None:
    with pytest.raises(DecodeError):
        core.json_decode(text.encode("utf-8", "surrogatepass"))


def test_text_is_utf8(core: ModuleType) -> None:
    with pytest.raises(DecodeError):
        core.json_decode(b'"\xff"')


def test_links(core: ModuleType) -> None:
    link = core.CID.parse("bafkqaaa")
    assert core.json_encode({"a": link, "b": b"\1"}) == b'{"a":{"/":"bafkqaaa"},"b":{"/":{"bytes":"AQ"}}}'
    assert core.json_decode(b'{"a":{"/":"bafkqaaa"}}') == {"a": link}
