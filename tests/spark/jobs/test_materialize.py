"""State that is continued: equal to a replay wherever the history is cut, and never partial."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import gossiplog
from gossiplog.errors import CursorOutdated, OptionError, SparkError, StorageError
from gossiplog.spark.folders import locked
from gossiplog.spark.jobs.checkpoint import StateFolder
from gossiplog.spark.jobs.folds import Counter, ElementSet, FunctionFold, LastWriter
from gossiplog.spark.jobs.materialize import (
    MaterializeResult,
    Recipe,
    check_state,
    materialize,
    read_state,
)
from gossiplog.spark.source.data_source import read
from tests.spark.conftest import TOPIC
from tests.spark.histories import braided, insert, shuffled, with_alternatives
from tests.spark.in_tasks import clocks_seen
from tests.spark.jobs.test_folds import FOLDS, recipe, replayed, table
from tests.spark.source.test_reader import change

NUMBERS = Recipe(Counter(), "topic", value="cast(get_json_object(payload, '$.number') as bigint)")


@pytest.mark.parametrize("fold", FOLDS)
def test_wherever_the_history_is_cut(
    spark: SparkSession, tmp_path: Path, fold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas get the messages in other orders, and other encodings of them. Their states are equal in the end."""
    chance = random.Random(fold)
    states = []
    messages = braided(0, 160, TOPIC)
    for seed in range(2):
        arriving = shuffled(seed, with_alternatives(seed, messages))
        # Otherwise no message comes late, and nothing is tried.
        late = sum(
            message.key < max(one.key for one in arriving[:index]) for index, message in enumerate(arriving) if index
        )
        assert late > 50
        path, folder = tmp_path / f"{seed}.db", tmp_path / str(seed)
        # Layers are merged as soon as they hold the same keys: of the first replica all stay, so that late messages
        # find theirs.
        monkeypatch.setattr("gossiplog.spark.jobs.materialize._MOST_TIMES", 2 if seed else 0)
        number = 5 if fold == "function" and not seed else 2
        cuts = [0, *sorted(chance.sample(range(1, len(arriving)), number)), len(arriving)]
        if not seed:
            # The first layer has not all keys.
            cuts[1] = 4
        for start, end in itertools.pairwise(cuts):
            insert(path, TOPIC, arriving[start:end])
            done = materialize(spark, str(path), str(folder), recipe(fold))
            with gossiplog.open(path) as log:
                expected = replayed(log, fold)
            assert table(read_state(spark, str(folder), recipe(fold).fold), fold) == expected
            rows = sum(map(len, expected.values())) if fold == "set" else len(expected)
            keyless = sum(message.payload is None for message in arriving[start:end])
            assert done == MaterializeResult(end, end - start, rows, keyless)
        states.append(expected)
    assert states[0] == states[1]


@pytest.mark.parametrize("fold", ["count", "function"])
def test_a_state_of_a_former_version_is_continued(spark: SparkSession, tmp_path: Path, fold: str) -> None:
    """It has one layer, not known how long, and of a function no `since`. Late messages come to it."""
    arriving = shuffled(1, with_alternatives(1, braided(0, 80, TOPIC)))
    path, folder = tmp_path / "log.db", tmp_path / "state"
    insert(path, TOPIC, arriving[:50])
    materialize(spark, str(path), str(folder), recipe(fold))
    checkpoint = folder / "checkpoint.json"
    written = json.loads(checkpoint.read_text())
    (layer,) = written.pop("layers")
    del written["rows"]
    checkpoint.write_text(json.dumps({**written, "format": 2, "state": layer["state"]}))
    for part in (folder / layer["state"]).glob("*.parquet"):
        rows = pq.read_table(part)
        (part.parent / f".{part.name}.crc").unlink()
        pq.write_table(rows.select([name for name in rows.column_names if name != "since"]), part)
    for start, end in itertools.pairwise((50, 50, 70, len(arriving))):
        insert(path, TOPIC, arriving[start:end])
        done = materialize(spark, str(path), str(folder), recipe(fold))
        with gossiplog.open(path) as log:
            expected = replayed(log, fold)
        assert (done.messages, done.rows) == (end, len(expected))
        assert table(read_state(spark, str(folder), recipe(fold).fold), fold) == expected


def test_a_late_message_has_only_what_follows_an_earlier_state_read_again(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks: list[int] = []
    monkeypatch.setattr("gossiplog.spark.jobs.materialize.read", reading(clocks))
    monkeypatch.setattr("gossiplog.spark.jobs.materialize._MOST_TIMES", 0)
    folder, other = str(tmp_path / "state"), tmp_path / "other.db"
    every = Recipe(FunctionFold(clocks_seen), "topic")
    path = make_log(messages=20)
    materialize(spark, str(path), folder, every)
    make_log(messages=5)
    with gossiplog.open(other, TOPIC) as late, gossiplog.open(path) as log:
        late.pull(log)
        make_log(messages=15)
        materialize(spark, str(path), folder, every)
        assert clocks == []
        # A branch beside the 26th message, after which fourteen were folded.
        late.append(None, signer=gossiplog.Signer(b"\2" * 32))
        log.pull(late)
        assert materialize(spark, str(path), folder, every) == MaterializeResult(41, 1, 1)
        assert clocks == [20]
        expected = [message.clock for message in sorted(log, key=lambda message: message.content_id)]
    assert expected == [*range(1, 27), *range(26, 41)]
    assert table(read_state(spark, folder, every.fold), "function") == {TOPIC: expected}


def reading(clocks: list[int]) -> Callable[..., DataFrame]:
    """`read`, which notes from which clock on it reads."""

    def noting(session: SparkSession, path: str, *, minClock: int, **options: str) -> DataFrame:
        clocks.append(minClock)
        return read(session, path, minClock=minClock, **options)

    return noting


def test_where_no_state_can_be_is_said_before_spark_starts(make_log: Callable[..., Path], tmp_path: Path) -> None:
    path, folder = str(make_log(messages=1)), tmp_path / "state"
    with pytest.raises(StorageError, match="/proc/state: "):
        check_state(path, "/proc/state")
    check_state(path, str(folder))
    assert not folder.exists()
    with locked(str(folder)), pytest.raises(StorageError, match="another process works in"):
        check_state(path, str(folder))


def test_an_empty_log_and_one_that_did_not_grow(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path
) -> None:
    path, folder = make_log(messages=0), str(tmp_path / "state")
    assert materialize(spark, str(path), folder, NUMBERS) == MaterializeResult(0, 0, 0)
    make_log(messages=4)
    assert materialize(spark, str(path), folder, NUMBERS) == MaterializeResult(4, 4, 1)
    before = StateFolder(folder).current()
    assert materialize(spark, str(path), folder, NUMBERS) == MaterializeResult(4, 0, 1)
    assert StateFolder(folder).current() == before
    assert table(read_state(spark, folder, NUMBERS.fold), "count") == {TOPIC: 6}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Recipe(Counter(), "no_such"), "the expression for key, no_such, cannot be used: "),
        (Recipe(Counter(), "clock +"), r"the expression for key, clock \+, cannot be used: "),
        (Recipe(Counter(), "sum(clock)"), r"the expression for key, sum\(clock\), cannot be used: "),
        (Recipe(LastWriter(), "author", "max(clock)"), r"the expression for value, max\(clock\), cannot be used: "),
        (Recipe(LastWriter(), "map(clock, 1)"), "the key has the type map<bigint,int>"),
        (Recipe(Counter(), "author", "payload"), "the value has the type string"),
        (Recipe(ElementSet(), "author", "clock", "clock"), "the expression for removed, clock, is not true or false"),
        (
            Recipe(ElementSet(), "author", "parse_json(payload)"),
            r"the expressions for key \(author\), value \(parse_json\(payload\)\) cannot be used together: ",
        ),
    ],
)
def test_what_is_wrong_with_an_expression_is_said_before_anything_is_read(
    spark: SparkSession,
    make_log: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: Recipe,
    said: str,
) -> None:
    monkeypatch.delattr("gossiplog.spark.jobs.materialize.changes")
    with pytest.raises(OptionError, match=said):
        materialize(spark, str(make_log()), str(tmp_path / "state"), made)


def test_an_expression_that_fails_for_a_message_is_named(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path
) -> None:
    failing = Recipe(LastWriter(), "cast(payload as int)", "clock")
    named = r"one of the expressions for key \(cast\(payload as int\)\), value \(clock\)"
    said = rf"^{named} failed for a message: .*CAST_INVALID_INPUT.*; .*, use try_cast"
    with pytest.raises(SparkError, match=said):
        materialize(spark, str(make_log()), str(tmp_path / "state"), failing)


def test_a_state_is_continued_only_as_it_was_made(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path
) -> None:
    path, folder = make_log(messages=3), str(tmp_path / "state")
    materialize(spark, str(path), folder, NUMBERS)
    with pytest.raises(OptionError, match=f"the state in {folder} was made in another way"):
        materialize(spark, str(path), folder, Recipe(LastWriter(), "topic", value="payload"))
    for other in (make_log("other.db", 3, author=2), make_log("short.db", 2), make_log("topic.db", 3, topic="b.c")):
        with pytest.raises(StorageError, match=f"the state was made of another log than {other}"):
            materialize(spark, str(other), folder, NUMBERS)


def test_a_state_of_a_replica_with_the_same_last_message(
    spark: SparkSession, two_orders: tuple[Path, Path], tmp_path: Path
) -> None:
    """A counter would count one message twice, and another one never."""
    path, replica = two_orders
    folder, backup = str(tmp_path / "state"), tmp_path / "backup.db"
    materialize(spark, str(path), folder, NUMBERS)
    with pytest.raises(StorageError, match=f"the state was made of another log than {replica}, which is no backup"):
        check_state(str(replica), folder)
    with gossiplog.open(path) as log:
        log.append({"number": 4}, signer=gossiplog.Signer(b"\1" * 32))
        log.backup(backup)
    assert materialize(spark, str(backup), folder, NUMBERS).new == 1
    assert table(read_state(spark, folder, NUMBERS.fold), "count") == {TOPIC: 7}


def test_a_state_of_a_former_version_has_no_origin(make_log: Callable[..., Path], tmp_path: Path) -> None:
    path, folder = make_log(messages=3), tmp_path / "state"
    folder.mkdir()
    with gossiplog.open(path) as log:
        last = list(log)[-1].id
    former = {"format": 3, "layers": [{"state": f"state-3-{'0' * 32}", "rows": 1}], "topic": TOPIC, "messages": 3}
    for origin, other in ((None, False), ("abcdefgh", True)):
        text = json.dumps({**former, "last": last, "recipe": "", "origin": origin})
        (folder / "checkpoint.json").write_text(text)
        with pytest.raises(StorageError, match="another log") if other else nullcontext():
            check_state(str(path), str(folder))


def test_a_state_of_a_log_that_was_rebased(spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path) -> None:
    path, folder = make_log(messages=3), str(tmp_path / "state")
    materialize(spark, str(path), folder, NUMBERS)
    with gossiplog.open(path) as log:
        (first,) = log.messages(limit=1)
    with gossiplog.open(":memory:", TOPIC) as empty:
        gossiplog.rebase(path, empty, [first.id], signer=gossiplog.Signer(b"\1" * 32))
    with pytest.raises(
        CursorOutdated, match=r"was rebased since the state was made \(generation 1, the state is of 0\)"
    ):
        materialize(spark, str(path), folder, NUMBERS)
    assert materialize(spark, str(path), str(tmp_path / "new"), NUMBERS).messages == 2
    assert materialize(spark, str(path), str(tmp_path / "new"), NUMBERS).messages == 2


def test_a_run_that_is_killed_leaves_the_former_state(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = make_log(messages=3), str(tmp_path / "state")
    materialize(spark, str(path), folder, NUMBERS)
    make_log(messages=3)
    names = set(os.listdir(folder))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            materialize(spark, str(path), folder, NUMBERS)
    # What the messages changed, that with what was there, since it is as much, and what would have named it.
    assert len(set(os.listdir(folder)) - names) == 3
    assert table(read_state(spark, folder, NUMBERS.fold), "count") == {TOPIC: 3}
    assert materialize(spark, str(path), folder, NUMBERS) == MaterializeResult(6, 3, 1)
    assert table(read_state(spark, folder, NUMBERS.fold), "count") == {TOPIC: 6}
    # The former state is kept for who reads it; what the killed run left is not.
    assert len([name for name in os.listdir(folder) if name.startswith("state-")]) == 2
    assert not [name for name in os.listdir(folder) if name.startswith(".checkpoint-")]


def test_damage_ends_a_run(spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path) -> None:
    path, folder = make_log(messages=3), str(tmp_path / "state")
    change(path, "UPDATE gossiplog_messages SET value = x'00' WHERE seq = 2")
    with pytest.raises(gossiplog.CorruptLog, match="sequence 2"):
        materialize(spark, str(path), folder, NUMBERS)
    assert StateFolder(folder).current() is None
