"""`gossiplog.dashboard.recording`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given

from gossiplog.dashboard import recording
from gossiplog.dashboard.events import Event, Healed, Noted, PeerAdded, to_json
from gossiplog.dashboard.recording import MOST_LINE_BYTES, Recorder, Summary, check, read
from gossiplog.errors import DecodeError
from tests.dashboard.strategies import histories
from tests.strategies import repeatable

HEADER = b'{"format": "gossiplog-events", "version": 1, "title": "a run"}\n'
LINE = to_json(Noted(1.0, "one")) + b"\n"


@pytest.mark.slow
@given(history=histories())
@repeatable(50)
def test_what_is_recorded_is_read(history: Sequence[Event], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "run.jsonl"
    with Recorder(path, "a <run>") as recorder:
        recorder.write(history[:5])
        recorder.write(history[5:])
    if history:
        assert list(read(path)) == history
        assert check(path) == Summary("a <run>", len(history), history[-1].at, is_cut=False)


def test_what_was_written_is_there_though_the_program_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, "a run")
    recorder.write([Noted(1.0, "one")])
    assert list(read(path)) == [Noted(1.0, "one")]
    recorder.close()


@pytest.mark.parametrize("content", [b"hello\n", b"SQLite format 3\0", HEADER.replace(b"1", b"2", 1), LINE])
def test_what_is_no_recording_is_not_replaced(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(FileExistsError, match=r"the file there is no recording .* take another name"):
        Recorder(path)
    assert path.read_bytes() == content


def test_an_earlier_recording_is_replaced_by_the_first_event(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(HEADER + 5 * LINE)
    with Recorder(path, "another"):
        pass
    assert path.read_bytes() == HEADER + 5 * LINE
    with Recorder(path, "another") as recorder:
        recorder.write([])
        assert path.read_bytes() == HEADER + 5 * LINE
        recorder.write([Noted(3.0, "three")])
    assert check(path) == Summary("another", 1, 3.0, is_cut=False)


def test_a_recording_in_which_nothing_happened_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Recorder(path, "a run").close()
    assert path.read_bytes() == HEADER


def test_a_disk_that_is_full_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.symlink_to("/dev/full")
    recorder = Recorder(path)
    with pytest.raises(OSError, match=f"No space left on device: '{re.escape(str(path))}'"):
        recorder.write([Noted(1.0, "one")])
    recorder.close()


def test_times_do_not_go_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        recorder.write([Noted(2.0, "one"), Healed(1.5), PeerAdded(3.0, "a", "a")])
    assert [event.at for event in read(path)] == [2.0, 2.0, 3.0]


@pytest.mark.parametrize("cut", range(1, len(LINE)))
def test_a_line_that_was_not_written_to_its_end_does_not_count(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(HEADER + LINE + LINE[:cut])
    assert list(read(path)) == [Noted(1.0, "one")]
    assert check(path) == Summary("a run", 1, 1.0, is_cut=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no recording of a network"),
        (b"\x89PNG\r\n\x1a\n", "is no recording of a network"),
        (LINE, "is no recording of a network"),
        (b"[]\n", "is no recording of a network"),
        (HEADER.replace(b"gossiplog-events", b"other"), "has the format 'other': expected 'gossiplog-events'"),
        (HEADER.replace(b"1", b"2", 1), "is of version 2, and this program reads 1: update it"),
        (HEADER, "has no events"),
        (HEADER + LINE + b"\n", "line 3 of .* is damaged: no event of a dashboard: Invalid JSON"),
        (HEADER + b"{}\n" + LINE, "line 2 of .* is damaged: no event"),
        (HEADER + LINE.replace(b"1.0", b"5.0") + LINE, "line 3 of .* is damaged: its time 1.0 is before 5.0"),
        (HEADER + b" " * MOST_LINE_BYTES + LINE, "line 2 of .* is longer than 1048576 bytes"),
        (HEADER + LINE + b"\0" * 20 + b"\n", "line 3 of .* is damaged"),
    ],
)
def test_a_damaged_recording_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    for use in (check, lambda path: list(read(path))):
        with pytest.raises(DecodeError, match=said) as caught:
            use(path)
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 600


def test_a_header_without_an_end_has_no_events(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(HEADER.rstrip())
    assert check(path) == Summary("a run", 0, 0.0, is_cut=True)


def test_later_headers_may_say_more(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(json.dumps({**json.loads(HEADER), "made": "today"}).encode() + b"\n" + LINE)
    assert check(path).events == 1


def test_too_many_events_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_EVENTS", 2)
    path = tmp_path / "run.jsonl"
    path.write_bytes(HEADER + LINE * 2)
    assert check(path).events == 2
    path.write_bytes(HEADER + LINE * 3)
    with pytest.raises(DecodeError, match="more than 2 events"):
        check(path)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="folder"):
        check(tmp_path)
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "none.jsonl")
