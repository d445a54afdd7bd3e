from __future__ import annotations

import io

import pytest

import gossiplog
from gossiplog import Signer, core
from gossiplog.cli import json_lines
from gossiplog.cli.json_lines import (
    LongLine,
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
