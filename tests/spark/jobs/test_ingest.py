"""From rows of an application to a log."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import gossiplog
from gossiplog import SignedMessage, Signer
from gossiplog.errors import EncodeError, EventsRefused, OptionError, StorageError
from gossiplog.spark.folders import locked
from gossiplog.spark.jobs import ingest as job
from gossiplog.spark.jobs.events import Layout
from gossiplog.spark.jobs.ingest import IngestResult, check_new_log, ingest
from tests.spark.conftest import TOPIC
from tests.spark.shared import frame_of_rows

AUTHORS = ["ann", "ben", "cleo@example.org", "dan"]
LAYOUT = Layout(author="who", sequence="nr", id="id", parents="split(after, ' ')", payload=("id", "text", "size"))
COLUMNS = "who string, nr bigint, id string, after string, text string, size double"


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return make_keys(tmp_path)


def make_keys(folder: Path) -> str:
    for number, name in enumerate(["ann", "ben", "cleo%40example.org", "dan", "importer"]):
        Signer(bytes([number]) * 32).save(folder / "keys" / f"{name}.key")
    return str(folder / "keys")


def braid(seed: int, events: int) -> list[dict[str, Any]]:
    """Rows of four authors: one on her own, the others see one another's events now and then."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(events):
        who = chance.choice(AUTHORS)
        others = [row["id"] for row in rows if row["who"] != "dan"]
        after = chance.sample(others, min(len(others), chance.choice([0, 0, 0, 1, 3]))) if who != "dan" else []
        text = None if chance.random() < 0.1 else 'a, "b"\né'[: chance.randrange(9)]
        rows.append(
            {
                "who": who,
                "nr": number * 3,
                "id": f"e{number}",
                "after": " ".join(after),
                "text": text,
                "size": number / 4,
            }
        )
    chance.shuffle(rows)
    return rows


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return frame_of_rows(spark, [tuple(row.values()) for row in rows], COLUMNS)


def parents_of(rows: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The ids that each event follows, as a log should have it."""
    found = {row["id"]: set(row["after"].split()) for row in rows}
    for who in AUTHORS:
        own = sorted((row for row in rows if row["who"] == who), key=lambda row: row["nr"])
        for before, after in itertools.pairwise(own):
            found[after["id"]].add(before["id"])
    return found


def stored(path: Path) -> list[bytes]:
    with gossiplog.open(path) as log:
        log.verify()
        return [message.value for message in log]


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], Path, IngestResult]:
    """Rows, the log that was made of them, and what the job said."""
    folder, rows = tmp_path_factory.mktemp("made"), braid(1, 200)
    path = folder / "log.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "_TASK_EVENTS", 10)
        done = ingest(frame(spark, rows), str(path), TOPIC, LAYOUT, make_keys(folder), merger="importer")
    return rows, path, done


def test_a_log_of_events(whole: tuple[list[dict[str, Any]], Path, IngestResult]) -> None:
    rows, path, done = whole
    assert done == IngestResult(events=200, merges=1, authors=4, heads=done.heads)
    assert 2 <= done.heads <= 32
    assert sorted(os.listdir(path.parent)) == ["keys", "log.db"]
    with gossiplog.open(path) as log:
        assert len(log.heads) == 1
        log.verify()
        messages = {message.payload["id"]: message for message in log if message.payload}
        (merge,) = (message for message in log if message.payload is None)
    expected = {row["id"]: {"id": row["id"], "text": row["text"], "size": row["size"]} for row in rows}
    assert {id: message.payload for id, message in messages.items()} == expected
    ids = {message.id: id for id, message in messages.items()}
    assert {id: {ids[one] for one in message.parents} for id, message in messages.items()} == parents_of(rows)
    authors = {who: Signer(bytes([number]) * 32).did for number, who in enumerate(AUTHORS)}
    assert {id: message.author for id, message in messages.items()} == {row["id"]: authors[row["who"]] for row in rows}
    assert merge.author == Signer(bytes([4]) * 32).did


def csv(path: Path, rows: list[dict[str, Any]]) -> None:
    import csv as module

    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = module.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_every_format_and_partitioning_makes_the_same_log(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    rows = [row | {"text": row["text"] or "-"} for row in braid(2, 100)]
    whole = frame(spark, rows)
    csv(tmp_path / "events.csv", rows)
    whole.repartition(3).write.parquet(str(tmp_path / "parquet"))
    whole.orderBy("size").write.json(str(tmp_path / "json"))
    frames = [
        spark.read.schema(COLUMNS).options(header=True, multiLine=True, escape='"').csv(str(tmp_path / "events.csv")),
        spark.read.parquet(str(tmp_path / "parquet")),
        spark.read.schema(COLUMNS).json(str(tmp_path / "json")),
    ]
    logs: list[list[bytes]] = []
    for number, one in enumerate(frames):
        path = tmp_path / f"{number}.db"
        ingest(one, str(path), TOPIC, LAYOUT, keys, merger="importer")
        logs.append(stored(path))
    assert len(logs[0]) == 101
    assert logs[0] == logs[1] == logs[2]


def test_parents_alone_say_the_order(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    rows, path = braid(3, 40), tmp_path / "log.db"
    layout = Layout(author="who", id="id", parents="split(after, ' ')", payload=("id",))
    done = ingest(frame(spark, rows), str(path), TOPIC, layout, keys, merger="importer")
    with gossiplog.open(path) as log:
        messages: dict[str, SignedMessage] = {one.id: one for one in log if one.payload}
        assert len(log) == done.events + done.merges
        assert len(log.heads) == 1
    named = {one.payload["id"]: {messages[id].payload["id"] for id in one.parents} for one in messages.values()}
    assert named == {row["id"]: set(row["after"].split()) for row in rows}


def test_sequences_alone(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    rows, path = braid(4, 30), tmp_path / "log.db"
    done = ingest(frame(spark, rows), str(path), TOPIC, Layout("who", "nr"), keys, merger="ann")
    assert done == IngestResult(events=30, merges=1, authors=4, heads=4)
    with gossiplog.open(path) as log:
        payloads = [message.payload for message in log if message.payload]
    # All columns that say nothing else.
    assert {frozenset(payload) for payload in payloads} == {frozenset({"after", "id", "size", "text"})}


def test_no_events(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    path = tmp_path / "log.db"
    assert ingest(frame(spark, []), str(path), TOPIC, LAYOUT, keys, merger="ann") == IngestResult(0, 0, 0, 0)
    assert stored(path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, StorageError], ids=lambda error: error.__name__)
def test_what_fails_leaves_nothing(
    spark: SparkSession, tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(job, "_signed", fail)
    with pytest.raises(error):
        ingest(frame(spark, [row()]), str(tmp_path / "log.db"), TOPIC, LAYOUT, keys, merger="importer")
    if error is StorageError:
        assert os.listdir(tmp_path) == ["keys"]
        return
    # What was interrupted may have tasks that still run, and make the folders of their files.
    folder = tmp_path / "log.db.ingest"
    assert sorted(os.listdir(tmp_path)) == ["keys", "log.db.ingest"]
    assert folder.stat().st_mode & 0o777 == 0o700
    lock, mark = sorted(folder.iterdir())
    assert (lock.name, mark.read_bytes()) == (".lock", b"")
    with pytest.raises(NotADirectoryError):
        os.makedirs(mark / "events" / "_temporary")
    monkeypatch.undo()
    ingest(frame(spark, [row()]), str(tmp_path / "log.db"), TOPIC, LAYOUT, keys, merger="importer")
    assert sorted(os.listdir(tmp_path)) == ["keys", "log.db"]


def test_where_nothing_can_be_made_is_said_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"/proc/log\.db\.ingest: "):
        check_new_log("/proc/log.db", TOPIC)
    check_new_log(str(tmp_path / "log.db"), TOPIC)
    assert list(tmp_path.iterdir()) == []
    with locked(str(tmp_path / "log.db.ingest"), 0o700), pytest.raises(StorageError, match="another process works in"):
        check_new_log(str(tmp_path / "log.db"), TOPIC)


def test_a_folder_that_a_task_makes_anew_is_removed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work-1"
    remove, made = shutil.rmtree, iter(range(3))

    def make_anew(place: str, **options: bool) -> None:
        remove(place, **options)
        if next(made, None) is not None:
            (work / "events").mkdir(parents=True)

    (work / "events").mkdir(parents=True)
    monkeypatch.setattr(job, "shutil", SimpleNamespace(rmtree=make_anew))
    monkeypatch.setattr(job, "_DISCARD_SECONDS", 0)
    job._discard(str(tmp_path), str(work))
    assert work.is_file()


def ingest_without_spark(folder: Path, keys: str) -> None:
    """Begin an ingest that fails before it needs a session."""
    events = cast(DataFrame, SimpleNamespace(sparkSession=None))
    ingest(events, str(folder / "log.db"), TOPIC, LAYOUT, keys, merger="a")


def test_a_failure_leaves_what_others_put_into_the_folder(
    tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "log.db.ingest"
    folder.mkdir(0o700)

    def fail(*_: object) -> None:
        (folder / "work").mkdir()
        (folder / "notes").touch()
        raise StorageError

    discard = job._discard

    def begin(*places: str) -> None:
        with pytest.raises(StorageError, match="another process works in "), locked(str(folder)):
            raise AssertionError
        discard(*places)

    monkeypatch.setattr(job, "_make", fail)
    # What another process does while this one clears the folder.
    monkeypatch.setattr(job, "_discard", begin)
    with pytest.raises(StorageError):
        ingest_without_spark(tmp_path, keys)
    assert sorted(os.listdir(folder)) == [".lock", "notes"]


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_staging_folder_that_others_made_is_not_trusted(tmp_path: Path, keys: str, mode: int) -> None:
    work = tmp_path / "log.db.ingest" / "work"
    work.mkdir(parents=True)
    work.parent.chmod(mode)
    (work / "notes").touch()
    for call in (
        lambda: check_new_log(str(tmp_path / "log.db"), TOPIC),
        lambda: ingest_without_spark(tmp_path, keys),
    ):
        with pytest.raises(StorageError, match=r"log\.db\.ingest, which is there already and .*: move it away"):
            call()
    assert (work / "notes").exists()


def test_a_complete_log_that_cannot_get_its_name_is_kept(
    spark: SparkSession, tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    publish = job._publish

    def too_late(made: str, log: str) -> None:
        path.touch()
        publish(made, log)

    monkeypatch.setattr(job, "_publish", too_late)
    with pytest.raises(StorageError, match="was made by another process meanwhile; the log is in ") as caught:
        ingest(frame(spark, [row()]), str(path), TOPIC, LAYOUT, keys, merger="importer")
    made = Path(str(caught.value).rpartition(" ")[2])
    # Nothing has the events as they were.
    assert {name for name in os.listdir(made.parent) if not name.startswith("log")} == set()
    assert len(stored(made)) == 1


class Killed(BaseException):
    """As a signal ends a process: nothing catches it."""


def test_a_job_that_was_killed_is_begun_again(
    spark: SparkSession,
    whole: tuple[list[dict[str, Any]], Path, IngestResult],
    tmp_path: Path,
    keys: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, other, done = whole
    path = tmp_path / "log.db"

    def killed(*_: object) -> None:
        raise Killed

    for where in ("_signed", "_store", "_publish"):
        monkeypatch.setattr(job, where, killed)
        # It does not come to what it does when it fails.
        monkeypatch.setattr(job, "_discard", killed)
        with pytest.raises(Killed):
            ingest(frame(spark, rows), str(path), TOPIC, LAYOUT, keys, merger="importer")
        assert sorted(os.listdir(tmp_path)) == ["keys", "log.db.ingest"]
        assert (tmp_path / "log.db.ingest").stat().st_mode & 0o777 == 0o700
        monkeypatch.undo()
    assert ingest(frame(spark, rows), str(path), TOPIC, LAYOUT, keys, merger="importer") == done
    assert sorted(os.listdir(tmp_path)) == ["keys", "log.db"]
    assert stored(path) == stored(other)
    with pytest.raises(StorageError, match=f"{path} is there already.* sync it with the other$"):
        ingest(frame(spark, rows), str(path), TOPIC, LAYOUT, keys, merger="importer")


def row(
    who: str | None = "ann", nr: int | None = 0, id: str | None = "x", after: str = "", **rest: Any
) -> dict[str, Any]:
    return {"who": who, "nr": nr, "id": id, "after": after, "text": "t", "size": 0.5} | rest


# What is wrong with rows, and what is said about it. All are rows of one frame: no case has what another one repeats.
UNSOUND: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "null": (
        [row(who=None, nr=10, id="n0"), row(nr=None, id="n1"), row(nr=12, id=None)],
        [
            'it lacks what an event must have: author, sequence, id ({"who":"ann","nr":12,"id":null,',
            'it lacks what an event must have: author, sequence, id ({"who":"ann","nr":null,"id":"n1",',
            'it lacks what an event must have: author, sequence, id ({"who":null,"nr":10,"id":"n0",',
        ],
    ),
    "key": (
        [row(who="eve", id="k0"), row(who="../keys/ann", id="k1")],
        [
            "cannot read the key file FOLDER/..%2Fkeys%2Fann.key: No such file or directory"
            " (all of the author '../keys/ann')",
            "cannot read the key file FOLDER/eve.key: No such file or directory (all of the author 'eve')",
        ],
    ),
    "sequence": (
        [row(nr=20, id="s0"), row(nr=20, id="s1")],
        ['2 events have the same author and sequence ({"author":"ann","sequence":20})'],
    ),
    "id": ([row(nr=30, id="i"), row(nr=31, id="i")], ['2 events have the same id ({"id":"i"})']),
    "parent": (
        [row(nr=40, id="p", after="e1 nobody")],
        ['no event has the id of its parent nobody ({"author":"ann","sequence":40,"id":"p"})'],
    ),
    "parents": (
        [row(nr=100 + n, id=f"x{n}") for n in range(300)]
        + [row(who="ben", id="y", after=" ".join(f"x{n}" for n in range(256)))],
        ['it names more than 255 parents ({"author":"ben","sequence":0,"id":"y"})'],
    ),
}


def refusals(spark: SparkSession, folder: Path, bad: list[dict[str, Any]]) -> list[str]:
    """What is said about rows beside some of another author."""
    keys = make_keys(folder)
    rows = [row(who="dan", nr=n, id=f"e{n}") for n in range(3)]
    with pytest.raises(EventsRefused) as caught:
        ingest(frame(spark, rows + bad), str(folder / "log.db"), TOPIC, LAYOUT, keys, merger="importer")
    assert os.listdir(folder) == ["keys"]
    return [problem.replace(keys, "FOLDER") for problem in caught.value.problems]


@pytest.fixture(scope="module")
def refused(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is said about all rows of `UNSOUND`."""
    return refusals(spark, tmp_path_factory.mktemp("refused"), [one for bad, _ in UNSOUND.values() for one in bad])


@pytest.mark.parametrize("name", UNSOUND)
def test_rows_that_cannot_be_events(refused: list[str], name: str) -> None:
    for problem in UNSOUND[name][1]:
        assert [one for one in refused if one.startswith(problem)], refused


def test_nothing_else_is_said_about_rows_that_cannot_be_events(refused: list[str]) -> None:
    expected = sorted(problem for _, problems in UNSOUND.values() for problem in problems)
    assert [one[: len(start)] for one, start in zip(refused, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ([row(after="y"), row(who="ben", id="y", after="x")], "it descends from itself ("),
        ([row(size=float("nan"))], "no message can have its payload: "),
    ],
    ids=["cycle", "payload"],
)
def test_rows_that_cannot_be_signed(
    spark: SparkSession, tmp_path: Path, bad: list[dict[str, Any]], problem: str
) -> None:
    (found,) = refusals(spark, tmp_path, bad)
    assert found.startswith(problem)


def test_events_that_make_the_same_message(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    layout = Layout("who", id="id", parents="split(after, ' ')", payload=("text",))
    with pytest.raises(EventsRefused, match=r'2 events make the same message: of one author.*"author":"ann","id":"'):
        ingest(frame(spark, [row(), row(id="y")]), str(tmp_path / "a.db"), TOPIC, layout, keys, merger="ann")


def test_only_the_first_problems_are_told(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    rows = [row(who=f"eve{n:02}", id=f"x{n}") for n in range(50)]
    with pytest.raises(EventsRefused, match=r"; and more$") as caught:
        ingest(frame(spark, rows), str(tmp_path / "a.db"), TOPIC, LAYOUT, keys, merger="ann")
    assert [f"eve{n:02}.key" in problem for n, problem in enumerate(caught.value.problems)] == [True] * 20


def test_a_key_that_others_can_read(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    os.chmod(os.path.join(keys, "importer.key"), 0o644)
    with pytest.raises(EventsRefused, match=r"importer\.key is open to other users: run chmod 600"):
        ingest(frame(spark, [row()]), str(tmp_path / "a.db"), TOPIC, LAYOUT, keys, merger="importer")


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda: Layout("who"), "nothing says in which order the events are"),
        (lambda: Layout("who", "nr", parents="array(after)"), "parents are named by ids"),
        (lambda: Layout("whom", "nr"), "the expression for author, whom, cannot be used"),
        (lambda: Layout("who", "nr", "id", "after"), r"no array: split\(after, ' '\)"),
        (lambda: Layout("who", "nr", payload=("current_date() as day",)), "payload.day has the type date"),
        (lambda: Layout("who", "nr", payload=("null as x",)), "payload.x is null in every row"),
    ],
)
def test_layouts_that_do_not_fit(
    spark: SparkSession, tmp_path: Path, keys: str, made: Callable[[], Layout], complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        ingest(frame(spark, [row()]), str(tmp_path / "a.db"), TOPIC, made(), keys, merger="ann")
    assert not (tmp_path / "a.db").exists()


def test_a_topic_that_is_none(spark: SparkSession, tmp_path: Path, keys: str) -> None:
    with pytest.raises(EncodeError, match="is no topic"):
        ingest(frame(spark, [row()]), str(tmp_path / "a.db"), "a b", LAYOUT, keys, merger="ann")
