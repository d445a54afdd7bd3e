from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from gossiplog import Log
from gossiplog.cli.messages import command as messages
from gossiplog.cli.messages.command import UnknownPrefix, _found
from tests.cli.support import Program


@dataclass
class FakeMessage:
    id: str


class FakeLog:
    """The part of a log that `show` uses, with ids that are chosen freely."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = ids

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def get(self, id: str) -> FakeMessage:
        return FakeMessage(id)

    def messages(self, after: str, before: str, limit: int) -> list[FakeMessage]:
        return [FakeMessage(id) for id in self._ids if after < id < before][:limit]

    def count(self, after: str, before: str) -> int:
        return len(self.messages(after, before, 1000))


def payloads(program: Program, log: Path, *options: str) -> list[object]:
    return [record["payload"] for record in program("read", log, *options).records]


def standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


def test_append(program: Program, log: Path) -> None:
    first, second = program("append", log, '{"text": "hi"}', "[1, 2.5, null]").records
    assert first == {"id": first["id"], "clock": 1, "parents": []}
    assert second == {"id": second["id"], "clock": 2, "parents": [first["id"]]}
    assert payloads(program, log) == [{"text": "hi"}, [1, 2.5, None]]


def test_append_reads_lines(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, b'"b"\r\n\n{"c":\t1}\n"without a line end"')
    assert len(program("append", log, '"a"', "-", '"z"').records) == 5
    assert payloads(program, log) == ["a", "b", {"c": 1}, "without a line end", "z"]


def test_append_reads_many_lines(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, b"".join(b"%d\n" % number for number in range(1000)))
    assert len(program("append", log, "-").records) == 1000
    assert payloads(program, log) == list(range(1000))


def test_append_stops_at_a_line_that_is_none(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, b"1\n\n2\n{3}\n4\n")
    result = program("append", log, "-")
    assert result.code == 1
    assert "gossiplog: line 4 of standard input is not dag-json: " in result.err
    assert result.err.endswith("; the 2 payloads before it were appended, and stay in the log\n")
    assert len(result.records) == 2
    assert payloads(program, log) == [1, 2]


def test_append_names_the_line_that_is_too_long_for_peers(
    program: Program, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standard_input(monkeypatch, b'1\n"' + b"x" * 4 * 2**20 + b'"\n3\n')
    result = program("append", log, "-")
    assert result.code == 1
    assert "gossiplog: line 2 of standard input has 4,194,309 bytes: peers read messages of up to " in result.err
    assert result.err.endswith("; the payload before it was appended, and stays in the log\n")
    assert payloads(program, log) == [1]


def test_append_refuses_an_endless_line(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, b"1\n" + b" " * (17 << 20))
    result = program("append", log, "-")
    assert result.code == 1
    assert "line 2 of standard input is longer than 16,777,216 bytes" in result.err


def test_append_refuses_what_is_not_json(program: Program, log: Path) -> None:
    result = program("append", log, "1", "hello")
    assert result.code == 1
    assert "payload 2 is not dag-json: " in result.err
    assert "(text needs its quotes: '\"text\"')\n" in result.err
    assert payloads(program, log) == []


@pytest.mark.parametrize("payload", ["NaN", "nan", "Infinity", "-Infinity", "[1,NaN]", "{3}", "{'a': 1}", "01"])
def test_append_advises_quotes_for_text_alone(program: Program, log: Path, payload: str) -> None:
    result = program("append", log, "--", payload)
    assert result.code == 1
    assert "payload 1 is not dag-json: " in result.err
    assert "quotes: '" not in result.err
    assert ("finite numbers only" in result.err) == payload.lower().endswith(("nan", "infinity"))


def test_append_refuses_what_others_would_change(program: Program, log: Path) -> None:
    result = program("append", log, '{"__proto__": 1}')
    assert result.code == 1
    assert "__proto__" in result.err
    assert result.err.splitlines()[-1].startswith("gossiplog: ")


def test_read_ranges(program: Program, log: Path) -> None:
    ids = [record["id"] for record in program("append", log, *"12345").records]
    assert payloads(program, log) == [1, 2, 3, 4, 5]
    assert payloads(program, log, "--reverse") == [5, 4, 3, 2, 1]
    assert payloads(program, log, "--limit", "2") == [1, 2]
    assert payloads(program, log, "--reverse", "--limit", "2") == [5, 4]
    assert payloads(program, log, "--limit", "0") == []
    assert payloads(program, log, "--after", ids[1]) == [3, 4, 5]
    assert payloads(program, log, "--before", ids[1]) == [1]
    assert payloads(program, log, "--after", ids[0], "--before", ids[4], "--reverse", "--limit", "2") == [4, 3]


def test_read_follows_in_order_of_arrival(program: Program, log: Path) -> None:
    ids = [record["id"] for record in program("append", log, "1", "2", "3").records]
    assert payloads(program, log, "--follow", "--limit", "3") == [1, 2, 3]
    assert payloads(program, log, "--follow", "--limit", "1", "--after", ids[0]) == [2]


@pytest.mark.parametrize("option", [["--reverse"], ["--before", "0" * 32]], ids=["reverse", "before"])
def test_what_follow_cannot_do(program: Program, log: Path, option: list[str]) -> None:
    result = program("read", log, "--follow", *option)
    assert result.code == 2
    assert "--follow cannot be combined with --reverse or --before" in result.err


def test_read_refuses_what_is_no_id(program: Program, log: Path) -> None:
    for call in (
        ("read", log, "--after", "nonsense"),
        ("read", log, "--before", "nonsense"),
        ("show", log, "non-sense"),
        ("show", log, "0" * 33),
    ):
        result = program(*call)
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert f"'{call[-1]}' is no id: " in result.err


def test_read_by_author(program: Program, log: Path, home: Path) -> None:
    other = program("keygen", home / "other.key").record["author"]
    for number in range(6):
        key = ["--key", str(home / "other.key")] if number % 2 else []
        program("append", log, *key, str(number))
    assert payloads(program, log, "--author", other) == [1, 3, 5]
    assert payloads(program, log, "--author", other[-6:]) == [1, 3, 5]
    assert payloads(program, log, "--author", f"…{other[-6:]}", "--limit", "2", "--reverse") == [5, 3]
    assert payloads(program, log, "--author", other, "--follow", "--limit", "3") == [1, 3, 5]
    assert payloads(program, log, "--author", "did:key:z6Mknobody") == []
    result = program("read", log, "--author", other[-5:])
    assert result.code == 2
    assert "is too short: expected a did:key, or the last 6 characters of one" in result.err


def test_show_by_the_beginning_of_an_id(program: Program, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_CANDIDATES", 5)
    ids = [record["id"] for record in program("append", log, *map(str, range(30))).records]
    assert program("show", log, ids[3][:12]).record["payload"] == 3
    result = program("show", log, "v" * 8)
    assert (result.code, result.err) == (1, "gossiplog: there is no message whose id begins with vvvvvvvv\n")
    result = program("show", log, "0")
    assert (result.code, result.out) == (1, "")
    several = [id for id in ids if id.startswith("0")]
    assert f"the ids of {len(several)} messages begin with 0: {', '.join(several[:5])} and 2 more\n" in result.err


@pytest.mark.parametrize("end", ["0", "v"])
def test_show_finds_the_ends_of_a_range(end: str) -> None:
    """Ids that are the first and the last with their beginnings."""
    ids = ["08" + "1" * 8 + end * 22, "08" + "2" * 30]
    assert _found(cast(Log, FakeLog(ids)), "08" + "1" * 8).id == ids[0]
    with pytest.raises(UnknownPrefix, match=f"the ids of 2 messages begin with 08: {ids[0]}, {ids[1]}$"):
        _found(cast(Log, FakeLog(ids)), "08")


def test_show(program: Program, log: Path) -> None:
    first, second, third = (
        record["id"] for record in program("append", log, "1", '{"/": {"bytes": "AQI"}}', "3").records
    )
    shown = program("show", log, second).record
    assert shown.keys() == {
        "id",
        "clock",
        "author",
        "parents",
        "children",
        "codec",
        "signature",
        "bytes",
        "canonical",
        "content_id",
        "payload",
    }
    assert (shown["id"], shown["clock"]) == (second, 2)
    assert (shown["parents"], shown["children"]) == ([first], [third])
    assert (shown["codec"], shown["canonical"]) == ("dag-cbor", True)
    assert shown["payload"] == {"/": {"bytes": "AQI"}}


def test_show_an_unknown_message(program: Program, log: Path) -> None:
    id = "0" * 32
    result = program("show", log, id)
    assert (result.code, result.err) == (1, f"gossiplog: message {id} is not in the log\n")
