from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.errors import CorruptLog
from gossiplog.log import arrival_check
from gossiplog.spark import verify_log
from gossiplog.spark.jobs import log_metadata
from gossiplog.spark.jobs.over_logs import KnownLogs, LogPart, LogParts, WholeLogs, placed_parts
from gossiplog.spark.jobs.row_check import check_heads
from gossiplog.spark.jobs.verify import VerifyWork
from gossiplog.spark.source.opening import unopened
from gossiplog.storage.sqlite.tables import SQLiteReader
from tests.damage import DAMAGE, TOPIC, Damage, make_damage, make_log
from tests.spark.inline import InlineSession
from tests.spark.jobs.inline_logs import inline, internal, task_rows


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "log.db"
    make_log(path)
    return path


@pytest.fixture
def damaged(intact: Path, tmp_path: Path, damage: Damage) -> str:
    path = tmp_path / "log.db"
    shutil.copy(intact, path)
    make_damage(path, damage)
    return str(path)


def test_a_sound_log(spark: SparkSession, intact: Path) -> None:
    found = verify_log(spark, str(intact))
    found.report.unpersist()
    assert found.defects == {}
    for most in (2**17, 10):
        outcomes, report = inline(VerifyWork(), [str(intact)], most)
        assert report == []
        assert outcomes[str(intact)].result == (found.messages, found.root)


@pytest.mark.parametrize("damage", DAMAGE, ids=[damage.name for damage in DAMAGE])
def test_damage_is_named(damaged: str, damage: Damage) -> None:
    """By the task that has all of the log, and by those of its parts, which come to the same."""
    expected = {"log"} if damage.kinds is None else {*damage.kinds}
    found: list[set[tuple[str, bytes | None]]] = []
    for most in (2**17, 10):
        outcomes, report = inline(VerifyWork(), [damaged], most)
        assert {row["kind"] for row in report} == outcomes[damaged].kinds.keys()
        assert outcomes[damaged].kinds.keys() & expected, outcomes
        assert sum(outcomes[damaged].kinds.values()) == len(report)
        found.append({(row["kind"], row["key"]) for row in report if row["key"] is not None})
    assert found[0] == found[1]


@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage.kinds is None][:1], ids=str)
def test_a_log_that_does_not_open_is_an_error(damaged: str, damage: Damage) -> None:
    with pytest.raises(CorruptLog):
        verify_log(InlineSession(), damaged)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("key", [7, "a text"])
def test_keys_of_other_types_are_in_the_first_range(intact: Path, tmp_path: Path, key: object) -> None:
    """In a damaged file: they come before all bytes, and a range of bytes would leave them out."""
    path = tmp_path / "log.db"
    shutil.copy(intact, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("INSERT INTO gossiplog_tree SELECT ?, hash FROM gossiplog_tree LIMIT 1", (key,))
        database.execute("INSERT INTO gossiplog_heads SELECT ?, seq FROM gossiplog_heads LIMIT 1", (key,))
    for most in (2**17, 10):
        outcomes, _ = inline(VerifyWork(), [str(path)], most)
        # What the log says of its tree, and the head.
        assert outcomes[str(path)].kinds == {"tree": 1, "index": 2}


@pytest.mark.slow
@pytest.mark.parametrize("most", [2**17, 10])
def test_as_many_heads_as_messages(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of messages without parents is sound; they are read in pages."""
    path = tmp_path / "log.db"
    signer = gossiplog.Signer(bytes(32))
    with gossiplog.open(path, TOPIC) as log:
        log.insert_many([signer.sign(TOPIC, 1, [], n)[1] for n in range(300)])
    largest = 0
    read = SQLiteReader.heads

    def counted(self: SQLiteReader, start: bytes = b"", end: bytes | None = None, limit: int | None = None) -> object:
        nonlocal largest
        rows = read(self, start, end, limit)
        largest = max(largest, len(rows))
        return rows

    monkeypatch.setattr(log_metadata, "_PAGE", 16)
    monkeypatch.setattr(SQLiteReader, "heads", counted)
    outcomes, report = inline(VerifyWork(), [str(path)], most)
    assert (report, largest) == ([], 16)
    messages, _ = outcomes[str(path)].result
    assert messages == 300
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        lost, wrong = database.execute("SELECT key FROM gossiplog_heads ORDER BY key LIMIT 1 OFFSET 150").fetchone(), 3
        database.execute("DELETE FROM gossiplog_heads WHERE key = ?", lost)
        database.executemany("INSERT INTO gossiplog_heads VALUES (?, 1)", [(bytes([n]) * 20,) for n in range(wrong)])
    outcomes, report = inline(VerifyWork(), [str(path)], most)
    assert [(row["kind"], row["key"]) for row in report if row["kind"] == "head"] == [("head", lost[0])]
    assert {row["kind"] for row in report} == {"head", "index"}


def test_a_file_with_more_wrong_heads_than_are_reported(intact: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    shutil.copy(intact, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("INSERT OR IGNORE INTO gossiplog_heads SELECT key, seq FROM gossiplog_leaves")
    storage = gossiplog.SQLiteStorage(str(path))
    topic = storage.open(None, create=False)
    with closing(storage), pytest.MonkeyPatch.context() as patch:
        own = log_metadata.log_figures(storage, topic)
        patch.setattr(arrival_check, "MOST_PROBLEMS", 5)
        problems, lost = check_heads(storage, own, LogPart(1, own.count, b"", None), pa.chunked_array([], pa.binary()))
    assert (len(problems), lost) == (5, [])


@pytest.mark.slow
def test_a_log_that_is_rebased_between_the_stages(tmp_path: Path) -> None:
    """It is sound, before and after: no defect may be made of two states of it. Amid a part nobody can rebase it."""
    path = str(tmp_path / "log.db")
    signer = gossiplog.Signer(bytes(32))
    with gossiplog.open(path, TOPIC, signer=signer) as log:
        first, *_ = log.append_many(range(600))
    work = VerifyWork()
    known = KnownLogs()
    logs = [unopened(path)]
    large = known.take(internal(task_rows(WholeLogs(work, 300), [logs])))
    with gossiplog.open(":memory:", TOPIC) as empty:
        gossiplog.rebase(path, empty, [first.id], signer=signer)
    with gossiplog.open(path, signer=signer) as log:
        log.append_many(range(60))
    second = task_rows(LogParts(work), placed_parts(large, logs))
    known.take(internal(second))
    known.conclude(work, large)
    outcome = known.outcome(path)
    assert str(outcome.problem).startswith(f"replaced: {path} was rebased while it was read")
    assert outcome.kinds == {"log": 1}
    assert outcome.seconds > 0
    assert [row for row in second if not row["kind"].startswith("=")] == []


def test_messages_that_are_lost(intact: Path, tmp_path: Path) -> None:
    """They are named as lost, one by one and as a range of sequences, and are not counted."""
    path = str(tmp_path / "log.db")
    shutil.copy(intact, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        (count,) = database.execute("SELECT count(*) FROM gossiplog_messages").fetchone()
        database.execute("DELETE FROM gossiplog_messages WHERE seq BETWEEN 20 AND 29 OR seq = 33")
    outcomes, report = inline(VerifyWork(), [path])
    found = [row["detail"] for row in report if row["kind"] == "value"]
    assert found == ["its value is gone: the log has its leaf alone"] * 11
    gaps = [row["detail"] for row in report if row["kind"] == "order" and "parents" not in row["detail"]]
    assert "there are no messages with the sequences 20 to 29 (10 messages)" in gaps
    assert "there is no message with the sequence 33" in gaps
    messages, _ = outcomes[path].result
    assert messages == count - 11
    assert f"{count - 11} messages have a key and a value; the log says that it has {count}" in [
        row["detail"] for row in report if row["kind"] == "count"
    ]
