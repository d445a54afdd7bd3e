"""Lines between the coordinator and its workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import ProtocolError
from gossiplog.testnet import messages
from gossiplog.testnet.messages import (
    Answer,
    Append,
    Arrived,
    Block,
    Command,
    Dial,
    Done,
    Failed,
    Happened,
    Lines,
    Measure,
    Numbered,
    Observe,
    Open,
    Settle,
    Start,
    Stop,
)
from tests.strategies import repeatable

COMMANDS: list[Command] = [
    Open("org.example", 0, 100, 2, 12.5, ((0, "hub", "did:key:z"), (-1, "bootstrap", "12D3")), None),
    Start(1, ("/ip4/127.0.0.1/tcp/1/ws",), ("a",), ("b",), "hub"),
    Start(1, router="episub"),
    Stop(1),
    Append(1, 3, 4),
    Block(1, ("a", "b")),
    Dial(1, "/ip4/127.0.0.1/tcp/1/ws"),
    Measure(1),
    Observe(),
    Settle(),
]
ANSWERS: list[Answer] = [
    Done(7, ("ws://127.0.0.1:1",)),
    Failed(7, "no", "NetworkError"),
    Happened((dashboard_events.Committed(0.5, "a", 3, "00ff"), dashboard_events.Connected(1.0, "a", "b"))),
    Arrived(1, (0.25, 0.5)),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_commands_are_read_as_they_were_written(command: Command) -> None:
    line = messages.command_line(Numbered(3, command))
    assert line.count(b"\n") == 1
    assert messages.read_command(line.rstrip(b"\n")) == Numbered(3, command)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_answers_are_read_as_they_were_written(answer: Answer) -> None:
    line = messages.answer_line(answer)
    assert line.count(b"\n") == 1
    assert messages.read_answer(line.rstrip(b"\n")) == answer


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b'{"id": 1, "call": {"command": "stop"}}',
        b'{"id": 1, "call": {"command": "stop", "number": "1"}}',
        b'{"id": 1, "call": {"command": "stop", "number": 1, "more": 2}}',
        b'{"id": 1, "call": {"command": "run", "number": 1}}',
        b'{"answer": "done"}',
    ],
)
def test_lines_that_are_none(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="a worker's line is no command"):
        messages.read_command(line)
    with pytest.raises(ProtocolError, match="a worker's line is no answer"):
        messages.read_answer(line)


@repeatable(200)
@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=10), st.data())
def test_lines_come_whole_however_their_bytes_come(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found = Lines()
    assert [line for part in parts for line in found.feed(part)] == lines


def test_a_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LONGEST_LINE", 10)
    lines = Lines()
    assert lines.feed(b"0123456789") == ()
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        lines.feed(b"0")
