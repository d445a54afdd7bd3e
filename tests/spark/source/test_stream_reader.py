"""Following logs: offsets and micro-batches, and what a checkpoint is good for."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import gossiplog
from gossiplog import Signer, core
from gossiplog.errors import CorruptLog, CursorOutdated, NotALog, OptionError, StorageError
from gossiplog.spark import worker_errors
from gossiplog.spark.source import stream_reader as module
from gossiplog.spark.source.offsets import Offset, StreamPosition, decode
from gossiplog.spark.source.options import SCHEMA, STREAM_OPTIONS, pruned, read_options
from gossiplog.spark.source.stream_reader import LogStreamReader, changes
from gossiplog.storage.base import Storage
from tests.spark import java
from tests.spark.conftest import TOPIC
from tests.spark.histories import insert
from tests.strategies import repeatable

MakeLog = Callable[..., Path]
SIGNER = Signer(bytes(32))


def reader(path: Path | str, columns: list[str] | None = None, **options: str) -> LogStreamReader:
    given = read_options({"path": str(path), **options}, STREAM_OPTIONS)
    return LogStreamReader(given, pruned(columns) if columns else SCHEMA)


def rows(reader: LogStreamReader, start: Offset, end: Offset) -> Iterator[dict[str, Any]]:
    # As Spark hands them over.
    start, end = json.loads(json.dumps([start, end]))
    for partition in pickle.loads(pickle.dumps(reader.partitions(start, end))):
        for batch in reader.read(partition):
            yield from batch.to_pylist()


def sequences(offset: Offset) -> dict[str, int]:
    return {log: reached.sequence for log, reached in decode(offset).logs.items()}


def add(path: Path, messages: int) -> None:
    with gossiplog.open(path) as log:
        log.append_many(range(messages), signer=SIGNER)


def test_arrivals_in_micro_batches(make_log: MakeLog) -> None:
    path = make_log(messages=25)
    log = str(path)
    stream = reader(path, maxrows="10")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    offsets = [stream.initialOffset()]
    for _ in range(4):
        offsets.append(stream.latestOffset(offsets[-1], limit))
    assert list(map(sequences, offsets)) == [{}, {log: 10}, {log: 20}, {log: 25}, {log: 25}]
    assert offsets[3] == offsets[4]
    with gossiplog.open(path) as opened:
        ids = [message.id for message in opened]
    found = list(rows(stream, offsets[1], offsets[2]))
    assert [(row["seq"], row["id"], row["key"] is None) for row in found] == [
        (number + 1, ids[number], False) for number in range(10, 20)
    ]
    assert list(rows(stream, offsets[3], offsets[4])) == []
    add(path, 5)
    latest = stream.latestOffset(offsets[4], limit)
    assert stream.reportLatestOffset() == {"messages": latest["messages"]} == {"messages": 30}
    assert sequences(latest) == {log: 30}


def test_all_at_once(make_log: MakeLog) -> None:
    path = make_log(messages=25)
    stream = reader(path, ["seq"], partitions="4")
    assert stream.getDefaultReadLimit() == ReadAllAvailable()
    end = stream.latestOffset({str(path): 5}, ReadAllAvailable())
    assert len(stream.partitions({str(path): 5}, end)) == 4
    assert [row["seq"] for row in rows(stream, {str(path): 5}, end)] == list(range(6, 26))


@pytest.mark.parametrize(("start", "offset"), [("earliest", 0), ("latest", 10), ("4", 4), ("99", 10)])
def test_where_it_starts(make_log: MakeLog, start: str, offset: int) -> None:
    path = make_log(messages=10)
    expected = {str(path): offset} if offset else {}
    assert sequences(reader(path, startingoffsets=start).initialOffset()) == expected


def test_logs_share_a_micro_batch(make_log: MakeLog, tmp_path: Path) -> None:
    logs = [str(make_log(name, messages)) for name, messages in (("a.db", 100), ("b.db", 2), ("c.db", 100))]
    stream = reader(tmp_path / "*.db")
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(30))
    assert sequences(end) == dict(zip(logs, (14, 2, 14), strict=True))


def test_more_logs_than_rows(make_log: MakeLog, tmp_path: Path) -> None:
    """Each gets its turn, also after a restart: the offset knows whose turn it was."""
    logs = [str(make_log(name, 3)) for name in ("a.db", "b.db", "c.db")]
    offsets = [StreamPosition().encode()]
    for _ in range(5):
        offsets.append(reader(tmp_path / "*.db").latestOffset(offsets[-1], ReadMaxRows(2)))
    found = [[sequences(offset).get(log, 0) for log in logs] for offset in offsets]
    assert found == [[0, 0, 0], [1, 1, 0], [2, 1, 1], [2, 2, 2], [3, 3, 2], [3, 3, 3]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of logs, to be read only: `0.db` without messages, `1.db` with one and so on."""
    folder = tmp_path_factory.mktemp("fleet")
    for messages in (0, 1, 2, 5, 12):
        with gossiplog.open(folder / f"{messages}.db", "org.example.spark", synchronous="off") as log:
            log.append_many(range(messages), signer=SIGNER)
    return folder


@pytest.mark.slow
@repeatable(12)
@given(data=st.data(), limit=st.integers(1, 25), partitions=st.none() | st.integers(1, 5))
def test_each_message_once_whatever_the_micro_batches(
    data: st.DataObject, fleet: Path, limit: int, partitions: int | None
) -> None:
    """Over logs and restarts: a micro-batch is full as long as there is enough, and no log waits for longer than a
    round."""
    options = {} if partitions is None else {"partitions": str(partitions)}
    stream, offset = reader(fleet, ["log", "seq"], **options), StreamPosition().encode()
    found: dict[str, list[int]] = {}
    left, waited = 20, dict.fromkeys(("1", "2", "5", "12"), 0)
    while (end := stream.latestOffset(offset, ReadMaxRows(limit))) != offset:
        batch = [(Path(row["log"]).stem, row["seq"]) for row in rows(stream, offset, end)]
        assert len(batch) == min(limit, left)
        left -= len(batch)
        for log, sequence in batch:
            found.setdefault(log, []).append(sequence)
        for log in waited:
            waited[log] = 0 if any(name == log for name, _ in batch) else waited[log] + 1
            assert waited[log] < -(-4 // min(limit, 4)) or len(found.get(log, [])) == int(log)
        offset = json.loads(json.dumps(end))
        if data.draw(st.booleans()):
            stream = reader(fleet, ["log", "seq"], **options)
    assert found == {str(messages): list(range(1, messages + 1)) for messages in (1, 2, 5, 12)}


def test_small_logs_are_read_by_one_task(make_log: MakeLog, tmp_path: Path) -> None:
    logs = [str(make_log(name, 3)) for name in ("a.db", "b.db", "c.db")]
    stream = reader(tmp_path, ["log", "seq"])
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert len(stream.partitions({}, end)) == 1
    assert [(row["log"], row["seq"]) for row in rows(stream, {}, end)] == [(log, n) for log in logs for n in (1, 2, 3)]


@pytest.mark.parametrize("paths", ["folder", "pattern"])
def test_a_log_that_appears_later_is_read_from_its_start(paths: str, make_log: MakeLog, tmp_path: Path) -> None:
    """Whether the query runs, or is started again."""
    named = tmp_path if paths == "folder" else tmp_path / "*.db"
    old = make_log("a.db", 5)
    running = reader(named, ["log", "seq"], startingoffsets="latest")
    start = running.initialOffset()
    new = make_log("b.db", 3)
    for stream in (running, reader(named, ["log", "seq"])):
        end = stream.latestOffset(start, ReadAllAvailable())
        assert sequences(end) == {str(old): 5, str(new): 3}
        assert [(row["log"], row["seq"]) for row in rows(stream, start, end)] == [(str(new), n) for n in (1, 2, 3)]


def test_a_file_that_is_not_yet_a_log(make_log: MakeLog, tmp_path: Path) -> None:
    """It is waited for while it changes: a copy may be under way."""
    old = make_log("a.db", 5)
    arriving = tmp_path / "b.db"
    arriving.write_bytes(b"SQLite format 3\0, and the remaining part has yet to come")
    stream = reader(tmp_path / "*.db")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert sequences(end) == {str(old): 5}
    os.utime(arriving, (0, 0))
    with pytest.raises(NotALog, match=r"b\.db is not a log"):
        stream.latestOffset(end, ReadAllAvailable())
    arriving.touch()
    with pytest.raises(NotALog):
        reader(arriving).latestOffset({}, ReadAllAvailable())
    arriving.unlink()
    make_log("b.db", 2)
    assert sequences(stream.latestOffset(end, ReadAllAvailable())) == {str(old): 5, str(arriving): 2}


def test_logs_that_cannot_be_read_are_passed_over_where_it_is_asked_for(
    make_log: MakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    paths = [make_log(f"in/{name}", 3, topic="t") for name in ("a.db", "b.db")]
    lenient = {"topic": "t", "ignoreCorruptFiles": "true"}
    follower = reader(tmp_path / "in", ["log", "seq"], **lenient)
    start = follower.latestOffset(follower.initialOffset(), ReadAllAvailable())
    sound = paths[1].read_bytes()
    paths[1].write_bytes(b"x" * 4096 + sound[4096:])
    make_log("in/other.db", 2, topic="another")
    (junk := tmp_path / "in" / "junk.db").write_text("junk")
    os.utime(junk, (0, 0))
    add(paths[0], 4)
    for strict in (reader(tmp_path / "in", topic="t"), reader(tmp_path / "in")):
        with pytest.raises(StorageError):
            strict.latestOffset(start, ReadAllAvailable())
    for each in (follower, reader(tmp_path / "in", ["log", "seq"], **lenient)):
        caplog.clear()
        end = each.latestOffset(start, ReadAllAvailable())
        assert each.latestOffset(start, ReadAllAvailable()) == end
        assert sequences(end) == {str(paths[0]): 7, str(paths[1]): 3}
        assert [row["seq"] for row in rows(each, start, end)] == [4, 5, 6, 7]
        # Once each.
        passed = [record.getMessage() for record in caplog.records if "ignoreCorruptFiles" in record.getMessage()]
        assert sorted(message.split(": ")[1].rpartition("/")[2] for message in passed) == [
            "b.db",
            "junk.db",
            "other.db",
        ]
    # Mended, it goes on after what was read.
    paths[1].write_bytes(sound)
    add(paths[1], 1)
    mended = follower.latestOffset(end, ReadAllAvailable())
    assert [row["seq"] for row in rows(follower, end, mended)] == [4]
    # Another log in its place is never passed over: what was read of it is in a sink.
    paths[1].unlink()
    Path(f"{paths[1]}-count").unlink(missing_ok=True)
    make_log("in/b.db", 9, author=7, topic="t")
    with pytest.raises(StorageError, match="is another log than the query has read"):
        follower.latestOffset(mended, ReadAllAvailable())


def test_damage_that_a_task_finds_is_passed_over_where_it_is_asked_for(make_log: MakeLog, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    paths = [make_log(f"in/{name}", 3) for name in ("a.db", "b.db")]
    for lenient in ({}, {"ignoreCorruptFiles": "true"}):
        follower = reader(tmp_path / "in", ["log", "seq"], **lenient)
        start = follower.initialOffset()
        (part,) = follower.partitions(start, follower.latestOffset(start, ReadAllAvailable()))
        sound = paths[0].read_bytes()
        paths[0].write_bytes(b"x" * len(sound))
        if lenient:
            found = [row["log"] for batch in follower.read(part) for row in batch.to_pylist()]
            assert found == [str(paths[1])] * 3
        else:
            with pytest.raises(StorageError):
                list(follower.read(part))
        paths[0].write_bytes(sound)


def test_a_link_that_is_pointed_at_another_log(
    make_log: MakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (make_log(f"{count}.db", count, author=count) for count in (3, 5))
    (folder := tmp_path / "in").mkdir()
    link = folder / "link.db"
    link.symlink_to(first)
    follower = reader(folder, ["log", "seq"])
    start = follower.latestOffset(follower.initialOffset(), ReadAllAvailable())
    link.unlink()
    link.symlink_to(second)
    for each in (follower, reader(folder, ["log", "seq"])):
        end = each.latestOffset(start, ReadAllAvailable())
        assert sequences(end) == {str(first): 3, str(second): 5}
        assert [(row["log"], row["seq"]) for row in rows(each, start, end)] == [(str(link), n) for n in range(1, 6)]
    assert caplog.text.count(f"{link} leads to {second} now, which is a log of its own") == 1
    second.unlink()
    second.write_bytes(first.read_bytes())
    with pytest.raises(StorageError, match=f"{link}, which leads to {second}, is another log than the query has read"):
        follower.latestOffset(end, ReadAllAvailable())


def test_remarks_and_errors_hold_nothing_that_a_terminal_obeys(
    make_log: MakeLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "\x1b[31m\r.db"
    (tmp_path / "in").mkdir()
    path = make_log(f"in/a{name}", 3)
    strict = reader(tmp_path / "in", ["log"])
    lenient = reader(tmp_path / "in", ["log"], ignoreMissingFiles="true", ignoreCorruptFiles="true")
    start = strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    (junk := tmp_path / "in" / f"junk{name}").write_text("junk" * 400)
    os.utime(junk, (0, 0))
    lenient.latestOffset(start, ReadAllAvailable())
    junk.unlink()
    path.unlink()
    make_log("in/b.db", 1)
    lenient.latestOffset(start, ReadAllAvailable())
    remarks = [record.getMessage() for record in caplog.records]
    assert ["junk" in remark for remark in remarks] == [True, False]
    make_log(f"in/a{name}", 5, author=2)
    with pytest.raises(StorageError, match="is another log than the query has read") as another:
        strict.latestOffset(start, ReadAllAvailable())
    path.unlink()
    with pytest.raises(StorageError, match="is gone") as gone:
        reader(tmp_path / "in", ["log"]).latestOffset(start, ReadAllAvailable())
    for text in (*remarks, str(another.value), str(gone.value)):
        assert text.isprintable(), text
        assert r"\x1b[31m\r.db" in text


def test_a_file_with_two_names_is_read_once(make_log: MakeLog, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = make_log("in/a.db", 3)
    os.link(path, path.with_name("b.db"))
    follower = reader(tmp_path / "in", ["log", "seq"])
    start = follower.initialOffset()
    assert len([*rows(follower, start, follower.latestOffset(start, ReadAllAvailable()))]) == 3


@pytest.mark.parametrize("paths", ["a.db,b.db", "*.db", "."])
def test_a_log_that_is_gone(paths: str, make_log: MakeLog, tmp_path: Path) -> None:
    old, gone = make_log("a.db", 5), make_log("b.db", 5)
    several = json.dumps([str(tmp_path / path) for path in paths.split(",")])
    options = {"paths": several, "columns": "seq"}
    first, second = (LogStreamReader(read_options(options, STREAM_OPTIONS), pruned(["seq"])) for _ in range(2))
    part = first.latestOffset({}, ReadMaxRows(4))
    assert sequences(part) == {str(old): 2, str(gone): 2}
    gone.rename(tmp_path / "elsewhere")
    restarted = LogStreamReader(read_options(options, STREAM_OPTIONS), pruned(["seq"]))
    for call in (
        lambda: first.latestOffset(part, ReadAllAvailable()),
        lambda: second.latestOffset(part, ReadAllAvailable()),
        lambda: second.partitions({}, part),
        lambda: restarted.latestOffset(part, ReadAllAvailable()),
        lambda: restarted.partitions({}, part),
    ):
        with pytest.raises(StorageError, match=r"b\.db, of which .* read 2 messages, is gone: put it back, or start"):
            call()
    (tmp_path / "elsewhere").rename(gone)
    assert sequences(second.latestOffset(part, ReadAllAvailable())) == {str(old): 5, str(gone): 5}


@pytest.mark.parametrize("paths", ["b.db;a.db", "{b,a}.db", "*.db"])
@pytest.mark.parametrize("restarts", [False, True])
def test_logs_that_are_gone_and_passed_over(paths: str, restarts: bool, make_log: MakeLog, tmp_path: Path) -> None:
    """Where one comes back, its messages follow those that were read of it."""
    old, gone = make_log("a.db", 5), make_log("b.db", 5)
    several = json.dumps([str(tmp_path / path) for path in paths.split(";")])
    options = {"paths": several, "columns": "log,seq", "ignoreMissingFiles": "true"}

    def started() -> LogStreamReader:
        return LogStreamReader(read_options(options, STREAM_OPTIONS), pruned(["log", "seq"]))

    stream = started()
    part = stream.latestOffset({}, ReadMaxRows(4))
    planned = stream.partitions({}, part)
    gone.rename(tmp_path / "elsewhere")
    read = [row["seq"] for partition in planned for batch in stream.read(partition) for row in batch.to_pylist()]
    assert read == [1, 2]
    stream = started() if restarts else stream
    end = stream.latestOffset(part, ReadAllAvailable())
    assert sequences(end) == {str(old): 5, str(gone): 2}
    assert [row["seq"] for row in rows(stream, part, end)] == [3, 4, 5]
    assert [row["seq"] for row in rows(stream, {}, end)] == [1, 2, 3, 4, 5]
    (tmp_path / "elsewhere").rename(gone)
    stream = started() if restarts else stream
    back = stream.latestOffset(end, ReadAllAvailable())
    assert [(row["log"], row["seq"]) for row in rows(stream, end, back)] == [(str(gone), n) for n in (3, 4, 5)]


def test_a_path_that_names_no_log(make_log: MakeLog, tmp_path: Path) -> None:
    """Whatever is to be passed over: nothing was read of it."""
    options = {"paths": json.dumps([str(make_log("a.db", 5)), str(tmp_path / "b.db")])}
    for ignored in ("false", "true"):
        given = read_options({**options, "ignoreMissingFiles": ignored}, STREAM_OPTIONS)
        with pytest.raises(NotALog, match=r"there is no log .*b\.db"):
            LogStreamReader(given, SCHEMA).initialOffset()


def test_a_restart_with_fewer_paths(make_log: MakeLog, tmp_path: Path) -> None:
    """A log that is there, but not named any more, is not gone: its place is kept."""
    logs = [str(make_log(name, 3)) for name in ("a.db", "b.db")]
    end = reader(tmp_path / "*.db").latestOffset({}, ReadMaxRows(4))
    assert sequences(reader(logs[0]).latestOffset(end, ReadAllAvailable())) == {logs[0]: 3, logs[1]: 2}


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the logs that were opened."""
    opened: list[str] = []
    original = module.opened

    def counting(location: str, *others: Any) -> AbstractContextManager[tuple[Storage, str]]:
        opened.append(Path(location).name)
        return original(location, *others)

    monkeypatch.setattr(module, "opened", counting)
    return opened


def test_logs_are_opened_where_something_changed(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openings: list[str]
) -> None:
    # As some time after the last change, when another one would have another time stamp.
    monkeypatch.setattr(module, "is_settled", lambda changed, now: True)
    logs = [make_log(name, 5) for name in ("a.db", "b.db", "c.db")]
    stream = reader(tmp_path / "*.db")
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    stream.partitions({}, end)
    assert openings == ["a.db", "b.db", "c.db"]
    assert stream.latestOffset(end, ReadAllAvailable()) is end
    assert openings == ["a.db", "b.db", "c.db"]
    add(logs[1], 1)
    later = stream.latestOffset(end, ReadAllAvailable())
    stream.partitions(end, later)
    assert stream.latestOffset(later, ReadAllAvailable()) is later
    assert openings == ["a.db", "b.db", "c.db", "b.db"]
    assert stream.reportLatestOffset() == {"messages": 16}


def test_a_log_that_was_written_just_now_is_opened_each_time(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, openings: list[str]
) -> None:
    """Its next change could have the time stamp that the last one had."""
    monkeypatch.setattr(module, "is_settled", lambda changed, now: False)
    path = make_log(messages=5)
    stream = reader(path)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for count in (2, 3):
        assert stream.latestOffset(end, ReadAllAvailable()) is end
        assert len(openings) == count


def test_offsets_do_not_depend_on_the_working_folder(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_log()
    monkeypatch.chdir(tmp_path)
    assert reader(path.name).initialOffset() == reader(path).initialOffset()


def test_what_comes_later_is_not_available_now(make_log: MakeLog) -> None:
    path = make_log(messages=10)
    stream = reader(path)
    stream.prepareForTriggerAvailableNow()
    add(path, 5)
    assert sequences(stream.latestOffset({str(path): 0}, ReadAllAvailable())) == {str(path): 10}


def test_authors(make_log: MakeLog) -> None:
    path = make_log(messages=3)
    add(path, 2)
    stream = reader(path, ["seq"], authors=SIGNER.did)
    assert [row["seq"] for row in rows(stream, {}, {str(path): 5})] == [4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("rows_each", [1, 7, 1000])
def test_the_first_encodings_alone(several: tuple[Path, list[int]], rows_each: int) -> None:
    path, first = several
    stream = reader(path, ["seq"], encodings="first", partitions="2")
    with gossiplog.open(path) as log:
        bounds = [*range(0, len(log), rows_each), len(log)]
    found = [row["seq"] for a, b in pairwise(bounds) for row in rows(stream, {str(path): a}, {str(path): b})]
    assert found == sorted(first)


@pytest.mark.parametrize("messages", [9, 10, 30])
def test_another_log_in_the_place_of_one(make_log: MakeLog, messages: int) -> None:
    path = make_log(messages=10)
    end = reader(path).latestOffset({}, ReadAllAvailable())
    path.unlink()
    make_log(messages=messages, author=2)
    stream = reader(path)
    with pytest.raises(StorageError, match=r"is another log than the query has read: .* with a new checkpointLocation"):
        stream.latestOffset(end, ReadAllAvailable())
    with pytest.raises(StorageError, match="another log"):
        stream.partitions({str(path): 0}, end)
    with pytest.raises(StorageError, match="another log"):
        stream.partitions(end, {str(path): 40})


def test_a_look_that_held_no_offset_against_the_log(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that for the trigger availableNow: a look at the times of the files does not do for the next one."""
    monkeypatch.setattr(module, "is_settled", lambda changed, now: True)
    path = make_log(messages=10)
    end = reader(path).latestOffset({}, ReadAllAvailable())
    path.unlink()
    make_log(messages=20, author=2)
    stream = reader(path)
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(StorageError, match="another log"):
        stream.latestOffset(end, ReadAllAvailable())
    with pytest.raises(StorageError, match="another log"):
        stream.partitions({}, end)


def test_a_log_that_was_rebased(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=10)
    end = reader(path).latestOffset({}, ReadAllAvailable())
    with gossiplog.open(path) as log:
        (first,) = log.messages(limit=1)
        topic = log.topic
    with gossiplog.open(":memory:", topic) as empty:
        gossiplog.rebase(path, empty, [first.id], signer=Signer(b"\1" * 32))
    stream = reader(path)
    with pytest.raises(
        CursorOutdated, match=r"was rebased since the query read it .* with a new checkpointLocation"
    ) as error:
        stream.latestOffset(end, ReadAllAvailable())
    assert (error.value.found, error.value.expected) == (0, 1)
    with pytest.raises(CursorOutdated):
        stream.partitions({str(path): 0}, end)
    # Nothing was read, so nothing is outdated; what former versions wrote is of generation 0.
    assert sequences(stream.latestOffset({str(path): 0}, ReadAllAvailable())) == {str(path): 9}
    with pytest.raises(CursorOutdated):
        stream.latestOffset({str(path): 5}, ReadAllAvailable())
    latest = stream.latestOffset({}, ReadAllAvailable())
    assert stream.latestOffset(latest, ReadAllAvailable()) == latest


@pytest.mark.parametrize("cut", [8192, 4])
def test_a_log_that_is_another_one_when_a_task_opens_it(
    cut: int, make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The micro-batch was planned before: nothing of the other one may reach the sink."""
    monkeypatch.setattr(module, "BATCH", cut)
    for name, kind, reason in (
        ("rebased", CursorOutdated, r"rebased\.db was rebased since the query read it \(generation 1"),
        ("replica", StorageError, r"replica\.db is another log .*: the message of sequence 10 is not the one"),
        ("shorter", StorageError, r"shorter\.db is another log .*: it has 9 messages, and 10 were read"),
    ):
        path = make_log(f"{name}.db", messages=10)
        stream = reader(path)
        (part,) = stream.partitions({}, stream.latestOffset({}, ReadAllAvailable()))
        if name == "rebased":
            with gossiplog.open(path) as log:
                first, *_ = log.messages(limit=1)
            with gossiplog.open(":memory:", first.topic) as empty:
                gossiplog.rebase(path, empty, [first.id], signer=Signer(b"\1" * 32))
            add(path, 5)
        else:
            os.replace(make_log("other.db", messages=20 if name == "replica" else 9, author=3), path)
        with pytest.raises(kind, match=reason):
            list(stream.read(part))


def test_columns_of_the_log_as_a_whole(make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_log()
    monkeypatch.chdir(tmp_path)
    follower = reader(path.name, ["log", "log_path"])
    end = follower.latestOffset(follower.initialOffset(), ReadAllAvailable())
    found = rows(follower, follower.initialOffset(), end)
    assert {(row["log"], row["log_path"]) for row in found} == {(path.name, str(path))}
    with pytest.raises(OptionError, match="a stream has no column log_size"):
        reader(path, ["log_size"])


def test_a_replica_in_the_place_of_a_log(make_log: MakeLog) -> None:
    path = make_log(messages=10)
    add(path, 1)
    end = reader(path).latestOffset({}, ReadAllAvailable())
    with gossiplog.open(path) as log:
        messages = list(log)
    path.unlink()
    Path(f"{path}-count").unlink()
    make_log(messages=10)
    with gossiplog.open(path) as log:
        log.append("a message that arrived before the other's last", signer=Signer(b"\2" * 32))
        log.insert(messages[-1].value)
    with pytest.raises(StorageError, match="the message of sequence 11 is not the one that was read"):
        reader(path).latestOffset(end, ReadAllAvailable())


def test_a_replica_with_the_same_last_message(two_orders: tuple[Path, Path]) -> None:
    """One message came earlier there, and one comes later: it would be lost, and the other one read twice."""
    path, replica = two_orders
    stream = reader(path, ["id"])
    end = stream.latestOffset({}, ReadAllAvailable())
    (part,) = stream.partitions({}, end)
    os.replace(replica, path)
    with pytest.raises(StorageError, match="it is no backup of the log"):
        list(stream.read(part))
    for each in (stream, reader(path, ["id"])):
        with pytest.raises(StorageError, match="it is no backup of the log"):
            each.latestOffset(end, ReadAllAvailable())
        with pytest.raises(StorageError, match="it is no backup of the log"):
            each.partitions({}, end)


@pytest.mark.parametrize("reads", [4, 10])
def test_backups_in_the_place_of_a_log(reads: int, make_log: MakeLog, tmp_path: Path) -> None:
    """Each has an identity of its own, and says of which file it is one."""
    path = make_log(messages=10)
    ends = [reader(path, maxrows=str(reads)).latestOffset({}, ReadMaxRows(reads))]
    for name in ("one.db", "two.db"):
        with gossiplog.open(path) as log:
            log.append_many(range(5), signer=SIGNER)
            log.backup(tmp_path / name)
    # As they are uploaded one after the other, and the last one is restored and written to.
    os.replace(tmp_path / "one.db", path)
    ends.append(reader(path).latestOffset(ends[-1], ReadAllAvailable()))
    os.replace(tmp_path / "two.db", path)
    ends.append(reader(path).latestOffset(ends[-1], ReadAllAvailable()))
    add(path, 5)
    ends.append(reader(path).latestOffset(ends[-1], ReadAllAvailable()))
    assert [sequences(end)[str(path)] for end in ends] == [reads, 15, 20, 25]
    assert [len(list(rows(reader(path), start, end))) for start, end in pairwise(ends)] == [15 - reads, 5, 5]


def test_an_older_backup_that_was_written_to(make_log: MakeLog, tmp_path: Path) -> None:
    """What came after the backup came in another order, but for the last message."""
    path, backup = make_log(messages=10), tmp_path / "backup.db"
    with gossiplog.open(path) as log:
        log.backup(backup)
        heads = [core.decode_id(id) for id in log.heads]
        signers = [Signer(bytes([number]) * 32) for number in (4, 5, 6)]
        a, b, c = (signer.sign_chain(log.topic, heads, [0])[0] for signer in signers)
    insert(path, TOPIC, [a, b])
    insert(backup, TOPIC, [c, b, a])
    end = reader(path).latestOffset({}, ReadAllAvailable())
    os.replace(backup, path)
    with pytest.raises(StorageError, match="it is no backup of the log that was read"):
        reader(path).latestOffset(end, ReadAllAvailable())


def test_a_repaired_log_in_its_place(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=10)
    with gossiplog.open(path) as log:
        log.backup(tmp_path / "backup.db")
    end = reader(path).latestOffset({}, ReadAllAvailable())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 2")
    gossiplog.repair(path, tmp_path / "backup.db")
    add(path, 5)
    assert sequences(reader(path).latestOffset(end, ReadAllAvailable())) == {str(path): 15}


def test_an_offset_that_has_no_origin_gets_one(make_log: MakeLog) -> None:
    path = make_log(messages=10)
    stream = reader(path)
    latest = stream.latestOffset({}, ReadAllAvailable())
    former = StreamPosition({str(path): replace(decode(latest).logs[str(path)], origin=None)}).encode()
    assert former != latest
    assert stream.latestOffset(former, ReadAllAvailable()) == latest
    assert stream.latestOffset(latest, ReadAllAvailable()) is latest


def test_a_copy_of_a_file_in_the_place_of_a_log(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=10)
    end = reader(path).latestOffset({}, ReadAllAvailable())
    add(path, 5)
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(tmp_path / "backup")) as backup:
        connection.backup(backup)
    os.replace(tmp_path / "backup", path)
    assert sequences(reader(path).latestOffset(end, ReadAllAvailable())) == {str(path): 15}


def test_a_checkpoint_of_a_former_version(make_log: MakeLog) -> None:
    """Its offsets are sequences alone: it is resumed, and what follows is as of now."""
    path = make_log(messages=10)
    stream = reader(path, ["seq"])
    end = stream.latestOffset({str(path): 10}, ReadAllAvailable())
    assert sequences(end) == {str(path): 10}
    assert stream.latestOffset(end, ReadAllAvailable()) is end
    assert list(rows(stream, {str(path): 10}, end)) == []
    assert [row["seq"] for row in rows(stream, {str(path): 4}, {str(path): 6})] == [5, 6]
    with pytest.raises(StorageError, match="it has 10 messages, and 11 were read"):
        stream.latestOffset({str(path): 11}, ReadAllAvailable())


def test_a_message_that_was_lost(make_log: MakeLog) -> None:
    path = make_log(messages=10)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_messages WHERE seq = 4")
    with pytest.raises(CorruptLog, match="after the sequence 0 is not there"):
        list(rows(reader(path), {}, {str(path): 10}))


def test_a_damaged_value(make_log: MakeLog) -> None:
    path = make_log(messages=3)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 2")
    found = list(rows(reader(path), {}, {str(path): 3}))
    assert [row["clock"] for row in found] == [1, None, 3]
    sound = reader(path, mode="dropmalformed", columns=["seq"])
    assert [row["seq"] for row in rows(sound, {}, {str(path): 3})] == [1, 3]
    with pytest.raises(CorruptLog, match="message without an id, of sequence 2"):
        list(rows(reader(path, mode="failfast"), {}, {str(path): 3}))


# Through Spark itself

QUERY = """
import sys
from gossiplog import spark
log, folder = sys.argv[1:]
stream = spark.session("local[2]").readStream.format("gossiplog").option("maxRows", 10).load(log).select("seq")
stream.writeStream.option("checkpointLocation", folder + "/checkpoint").start(folder + "/out").awaitTermination()
"""


def follow(frame: DataFrame, folder: Path) -> None:
    """Takes what there is into Parquet files, which are exactly what their checkpoint says."""
    query = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    query.start(str(folder / "out")).awaitTermination()


def test_a_restart_takes_what_is_new(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=25)
    folder = tmp_path / "stream"
    for count in (25, 40):
        follow(spark.readStream.format("gossiplog").option("maxRows", 10).load(str(path)), folder)
        found = spark.read.parquet(str(folder / "out")).select("seq").collect()
        assert sorted(row.seq for row in found) == list(range(1, count + 1))
        add(path, 15)


def test_a_restart_over_another_log(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=25)
    frame = spark.readStream.format("gossiplog").load(str(path))
    follow(frame, tmp_path / "stream")
    path.unlink()
    make_log(messages=40, author=2)
    with pytest.raises(StorageError, match="is another log than the query has read"), worker_errors():
        follow(frame, tmp_path / "stream")


def test_a_query_that_was_killed_goes_on(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=200)
    folder = tmp_path / "stream"
    command = [sys.executable, "-c", QUERY, str(path), str(folder)]
    # A session of its own, so that Java dies with it.
    environment = os.environ | {"SPARK_SUBMIT_OPTS": java.archived()}
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        commits = folder / "checkpoint" / "commits"
        while not list(commits.glob("[0-9]*")):
            time.sleep(0.1)
            assert process.poll() is None, process.communicate()[1]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    follow(spark.readStream.format("gossiplog").option("maxRows", 100).load(str(path)).select("seq"), folder)
    found = spark.read.parquet(str(folder / "out")).select("seq").collect()
    assert sorted(row.seq for row in found) == list(range(1, 201))


def sequences_of(frame: DataFrame) -> list[int]:
    return sorted(row.seq for row in frame.select("seq").collect())


def test_every_cut_of_a_log(spark: SparkSession, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST", 8)
    path = str(make_log(messages=40))
    for after, last in itertools.combinations((0, 1, 17, 39, 40), 2):
        frame = changes(spark, path, after, last)
        assert frame.schema == SCHEMA
        assert sequences_of(frame) == list(range(after + 1, last + 1))
    assert changes(spark, path, 0, 40).rdd.getNumPartitions() == 2
    assert sequences_of(changes(spark, path, 40, 40)) == []


def test_later_messages_are_passed_over(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=10)
    frame = changes(spark, str(path), 4, 10)
    before = frame.sort("seq").collect()
    with gossiplog.open(path) as log:
        log.append("later", signer=Signer(b"\7" * 32))
        ids = [message.id for message in log.messages()]
    assert frame.sort("seq").collect() == before
    assert [row.id for row in before] == ids[4:10]


def test_damage_and_no_log(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=10)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    database.close()
    assert sequences_of(changes(spark, str(path), 7, 10)) == [8, 9, 10]
    with pytest.raises(CorruptLog), worker_errors():
        changes(spark, str(path), 0, 10).collect()
    with pytest.raises(StorageError):
        changes(spark, str(path.with_name("none.db")), 0, 10)
