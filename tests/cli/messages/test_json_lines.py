"""JSON Lines, `gossiplog export`, and `gossiplog import` of what it writes."""

from __future__ import annotations

import codecs
import io
import json
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer, core
from gossiplog.cli.messages import import_values, json_lines
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
from tests.cli.support import Program
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


def test_a_message_whose_text_nobody_can_read_has_its_value_alone() -> None:
    """One of a stranger made an export impossible."""
    with gossiplog.open(":memory:", TOPIC) as log:
        message = log.append({"/": {"bytes": 1}}, signer=Signer(bytes(32)))
        looks = log.append({"/": {"bytes": "AA"}}, signer=Signer(bytes(32)))
    assert core.json_decode(message_line(message)) == {"id": message.id, "value": message.value}
    assert [message_value(message_line(one)) for one in (message, looks)] == [message.value, looks.value]


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


@pytest.fixture
def written(log: Path) -> Path:
    """A log of messages in several encodings."""
    with gossiplog.open(log, signer=Signer(bytes(32))) as opened:
        opened.append_many({"n": n} for n in range(600))
        opened.append([b"bytes", 0.5, None], codec="dag-json")
        for message in list(opened)[:600:100]:
            assert opened.insert(alternative(message.value))
    return log


@pytest.mark.slow
def test_a_log_comes_back_byte_for_byte(program: Program, written: Path, home: Path) -> None:
    exported = program("export", written)
    assert exported.err == ""
    (home / "notes.jsonl").write_text(exported.out, encoding="utf-8")
    record = program("import", home / "again.db", home / "notes.jsonl", "--topic", "notes").record
    assert (record["values"], record["inserted"], record["refused"]) == (607, 607, [])
    with gossiplog.open(written) as ours, gossiplog.open(home / "again.db") as theirs:
        assert [message.value for message in ours] == [message.value for message in theirs]
        assert ours.root == theirs.root
    assert program("export", home / "again.db").out == exported.out


def test_an_empty_log(program: Program, log: Path, home: Path) -> None:
    assert program("export", log).out == '{"topic":"notes"}\n{"messages":0}\n'
    (home / "empty").touch()
    assert program("import", log, home / "empty").record["values"] == 0


def test_from_standard_input(program: Program, written: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = program("export", written).out.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(lines))))
    assert program("import", home / "again.db", "-", "--topic", "notes").record["inserted"] == 607


def test_what_is_imported_is_verified(program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals have the file and the line; what is right is in the log."""
    program("append", log, "1", "2", "3")
    _, first, second, third, _ = program("export", log).out.splitlines()
    changed = json.loads(third)
    changed["message"]["payload"] = 4
    lines = [first, "", json.dumps(changed), "{}", "", second, "[1]"]
    (home / "notes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = program("import", home / "again.db", home / "notes.jsonl", "--topic", "notes")
    assert result.code == 1
    reason = "the Ed25519 signature does not hold over the message in dag-cbor"
    assert result.err.startswith(
        f"gossiplog: 3 of 5 values were refused, and {home / 'again.db'} has the remaining ones; "
    )
    assert f"{home / 'notes.jsonl'}, line 3: message " in result.err
    assert result.err.endswith(f": {reason}\n")
    refused = result.record["refused"]
    assert [(refusal["file"], refusal["line"]) for refusal in refused] == [
        (str(home / "notes.jsonl"), line) for line in (3, 4, 7)
    ]
    assert "'signature' is missing" in refused[1]["error"]
    assert "the body must be a map, not list" in refused[2]["error"]
    assert result.record["messages"] == 2
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = program("import", home / "again.db", home / "notes.jsonl").out
    assert f"{home / 'notes.jsonl'}, line 4: " in shown


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        (slice(0, 3), "line 3: the file ends here, before the last line of the export, which has the number of"),
        (slice(0, 1), "line 1: the file ends here, before the last line of the export, which has the number of"),
        ([0, 1, 3, 4], "line 4: 3 messages should precede this line, and 2 do: the export was cut off or changed"),
        ([0, 1, 0, 1, 2, 3, 4], "line 3: another export begins here, before the last line of the export, which has"),
        # As `tail` leaves it.
        ([3, 4], "line 2: 3 messages should precede this line, and 1 does: the export was cut off or changed"),
    ],
)
def test_an_export_that_was_cut_off_is_said(
    program: Program, log: Path, home: Path, kept: slice | list[int], missing: str
) -> None:
    program("append", log, "1", "2", "3")
    lines = program("export", log).out.splitlines()
    found = lines[kept] if isinstance(kept, slice) else [lines[index] for index in kept]
    (home / "notes.jsonl").write_text("\n".join(found), encoding="utf-8")
    result = program("import", home / "again.db", home / "notes.jsonl", "--topic", "notes")
    assert (result.code, len(result.record["incomplete"]), result.err.count("\n")) == (1, 1, 1)
    assert f"{home / 'notes.jsonl'}, {missing}" in result.err


def test_a_line_that_was_cut_off_is_the_first_cause(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1", "2", "3")
    lines = program("export", log).out.splitlines()
    # The second message comes first: that it lacks its parent is the consequence.
    lines[1:3] = lines[2], lines[1][:100]
    (home / "notes.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = program("import", home / "again.db", home / "notes.jsonl", "--topic", "notes")
    assert result.code == 1
    assert f"3 of 3 values were refused; {home / 'notes.jsonl'}, line 3: the text ends within" in result.err


@pytest.mark.parametrize("line", ["{}", '{"topic":"notes"}', '{"messages":7}'])
def test_a_file_of_lines_that_are_no_messages_ends_the_import(
    program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """The rest is not read, since each such line takes memory until the end."""
    monkeypatch.setattr(import_values, "_MOST_FAULTS", 100)
    (home / "junk.jsonl").write_text(f"{line}\n" * 105, encoding="utf-8")
    result = program("import", log, home / "junk.jsonl")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"{home / 'junk.jsonl'} has more than 100 lines that are no messages of an export; " in result.err
    (home / "junk.jsonl").write_text(f"{line}\n" * 99, encoding="utf-8")
    assert program("import", log, home / "junk.jsonl").out


def test_an_export_of_another_topic_is_not_read(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1")
    (home / "notes.jsonl").write_text(program("export", log).out, encoding="utf-8")
    result = program("import", home / "other.db", home / "notes.jsonl", "--topic", "other")
    assert (result.code, result.out) == (1, "")
    assert "notes.jsonl, line 1: here begins the export of a log with the topic 'notes'; this log has" in result.err


def test_lines_of_an_export_by_themselves_and_several_exports(program: Program, log: Path, home: Path) -> None:
    """Older exports have messages alone, and so has what a person leaves of one."""
    program("append", log, "1", "2", "3")
    lines = program("export", log).out.splitlines()
    for kept in (lines[1:-1], lines[1:3], lines * 2, lines[1:-1] + lines):
        (home / "notes.jsonl").write_text("\n".join(kept), encoding="utf-8")
        result = program("import", home / "again.db", home / "notes.jsonl", "--topic", "notes")
        assert (result.code, result.record["incomplete"]) == (0, [])
    assert result.record["messages"] == 3
