from __future__ import annotations

import codecs
import io

import pytest

import gossiplog
from gossiplog import Signer, core
from gossiplog.cli.messages import json_lines
from gossiplog.cli.messages.json_lines import (
    LongLine,
    OtherEncoding,
    first_line,
    last_line,
    message_line,
    message_value,
    read_lines,
    read_mark,
)
from gossiplog.errors import DecodeError
from tests.strategies import TOPIC, alternative, longer_author


def test_lines_have_their_numbers() -> None:
    stream = io.BufferedReader(io.BytesIO(b"a\r\n\n  \nb"))
    assert [line for found in read_lines(stream, "a file") for line in found] == [(1, b"a"), (4, b"b")]


def test_a_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 10)
    with pytest.raises(LongLine, match="line 2 of a file is longer than 10 bytes"):
        list(read_lines(io.BufferedReader(io.BytesIO(b"1\n" + b" " * 11)), "a file"))


@pytest.mark.parametrize(
    ("encoding", "named"),
    [
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16LE"),
        ("utf-16-be", "UTF-16BE"),
        ("utf-32", "UTF-32"),
        ("utf-32-le", "UTF-32LE"),
        ("utf-32-be", "UTF-32BE"),
    ],
)
@pytest.mark.parametrize("text", ['{"topic":"t"}\n{}\n', "1"])
def test_another_encoding_is_named(text: str, encoding: str, named: str) -> None:
    stream = io.BufferedReader(io.BytesIO(text.encode(encoding)))
    expected = f"^a file is in {named}: expected UTF-8, which iconv -f {named} -t UTF-8 makes of it$"
    with pytest.raises(OtherEncoding, match=expected):
        list(read_lines(stream, "a file"))


@pytest.mark.parametrize("text", [b"1", b"1\n2\n"])
def test_a_byte_order_mark_of_utf_8_is_left_out(text: bytes) -> None:
    def lines(data: bytes) -> list[tuple[int, bytes]]:
        return [line for found in read_lines(io.BufferedReader(io.BytesIO(data)), "a file") for line in found]

    assert lines(codecs.BOM_UTF8 + text) == lines(text)
    # Later it is part of a line.
    assert lines(b"0\n" + codecs.BOM_UTF8 + b"1")[1] == (2, codecs.BOM_UTF8 + b"1")


def test_a_message_comes_back_byte_for_byte() -> None:
    with gossiplog.open(":memory:", TOPIC, signer=Signer(bytes(32))) as log:
        for payload in ({"text": "ü\u2028", "value": [1, -(2**64), 0.5, b"\0"]}, {"value": b"1"}, None):
            log.append(payload)
        log.append({"n": 1}, codec="dag-json")
        for value in [message.value for message in log]:
            log.insert_many([alternative(value), alternative(value, 1), longer_author(value)])
        stored = list(log)
    assert len({message.canonical for message in stored}) == 2
    for message in stored:
        line = message_line(message)
        assert b"\n" not in line
        assert message_value(line) == message.value
        body = core.json_decode(line)
        assert core.json_encode(body) == line
        assert body["id"] == message.id
        assert ("value" in body) == (not message.canonical)
        assert body["message"]["payload"] == message.payload


def test_a_message_whose_text_is_too_long_has_its_value_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_LONGEST_TEXT", 1000)
    with gossiplog.open(":memory:", TOPIC) as log:
        message = log.append("\0" * 300, signer=Signer(bytes(32)))
    assert core.json_decode(message_line(message)) == {"id": message.id, "value": message.value}
    assert message_value(message_line(message)) == message.value


def test_the_first_and_the_last_line_of_an_export() -> None:
    assert read_mark(first_line("ü" * 512)) == "ü" * 512
    assert read_mark(last_line(607)) == 607
    for line in (
        b'{"topic":1}',
        b'{"messages":true}',
        b'{"messages":1',
        b'{"messages":1,"n":2}',
        b'{"topic":"a","n":2}',
    ):
        assert read_mark(line) is None


@pytest.mark.parametrize("line", [b"1", b"{", b'{"value":1}', b'{"value":{"/":{"bytes":"AQ"}}', b'{"id":"value"}'])
def test_what_is_no_message(line: bytes) -> None:
    with pytest.raises(DecodeError):
        message_value(line)
