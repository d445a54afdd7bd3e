"""The reader of the data source, without Spark: its partitions, and the batches of each."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import gossiplog
from gossiplog import CorruptLog, Signer, core
from gossiplog.errors import CursorOutdated, NotALog, OptionError, StorageError, TopicMismatch
from gossiplog.spark.source import opening
from gossiplog.spark.source import reader as reader_module
from gossiplog.spark.source.data_source import GossipLogSource
from gossiplog.spark.source.fleet import Bundle
from gossiplog.spark.source.locations import shown
from gossiplog.spark.source.marks import check_generation, mark_of, replaced
from gossiplog.spark.source.opening import opened
from gossiplog.spark.source.options import BATCH_OPTIONS, SCHEMA, pruned, read_options
from gossiplog.spark.source.reader import LogReader, number_of_partitions
from tests.rot.cells import Cell
from tests.storage.damage import damage
from tests.strategies import longer_author

MakeLog = Callable[..., Path]


def reader(*paths: Path, columns: Sequence[str] = (), **options: str) -> LogReader:
    given = {"paths": json.dumps([str(path) for path in paths])}
    return LogReader(read_options(given | options, BATCH_OPTIONS), pruned(columns) if columns else SCHEMA)


def rows(reader: LogReader) -> list[dict[str, Any]]:
    """All rows, the partitions travelling as they do to executors."""
    # As PySpark does, also where there is none (plan_data_source_read.py).
    partitions = pickle.loads(pickle.dumps(list(reader.partitions()) or [InputPartition(None)]))
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.mark.parametrize(("table", "row"), [("leaves", "last"), ("leaves", "middle"), ("tree", "middle")])
def test_a_read_of_a_damaged_tree_ends(make_log: MakeLog, tmp_path: Path, table: str, row: str) -> None:
    """A key that reads as null: before, a read that met it last began anew, without end."""
    path = make_log(messages=600)
    Cell("", f"gossiplog_{table}", "key", row, "null").apply(tmp_path)
    read = LogReader(read_options({"path": str(path), "partitions": "4"}, BATCH_OPTIONS), pruned(["id"]))
    ids: list[str] = []
    for partition in read.partitions():
        for batch in read.read(partition):
            ids += filter(None, batch["id"].to_pylist())
            assert len(ids) <= 600
    assert len({*ids}) == len(ids) >= 599


def test_every_column(make_log: MakeLog) -> None:
    path = make_log(messages=3)
    found = rows(reader(path))
    with gossiplog.open(path) as log:
        messages = list(log)
    assert found == [
        {
            "log": str(path),
            "seq": number + 1,
            "id": message.id,
            "key": message.key,
            "clock": message.clock,
            "topic": message.topic,
            "author": message.author,
            "codec": message.codec,
            "parents": list(message.parents),
            "payload": f'{{"number":{number}}}',
            "value": message.value,
            "size": len(message.value),
            "canonical": True,
            "content_id": message.id,
        }
        for number, message in enumerate(messages)
    ]


def test_columns_of_the_log_as_a_whole(make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {make_log(name, messages).name: 0 for name, messages in (("a.db", 3), ("b.db", 500))}
    sizes = {name: (tmp_path / name).stat().st_size for name in sizes}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.db").symlink_to("b.db")
    found = rows(reader(Path("a.db"), Path("link.db"), columns=["log_size", "log", "log_path", "size"], partitions="3"))
    named = {(row["log"], row["log_path"], row["log_size"]) for row in found}
    assert named == {
        ("a.db", str(tmp_path / "a.db"), sizes["a.db"]),
        ("link.db", str(tmp_path / "b.db"), sizes["b.db"]),
    }
    assert all(0 < row["size"] < 1000 for row in found)
    assert len(found) == 503


def test_a_log_that_is_removed_while_it_is_read(make_log: MakeLog, caplog: pytest.LogCaptureFixture) -> None:
    paths = [make_log(name, 20) for name in ("a.db", "b.db", "c.db")]
    strict = reader(*paths, columns=["log", "seq"])
    lenient = reader(*paths, columns=["log", "seq"], ignoreMissingFiles="true", partitions="3")
    planned = lenient.partitions()
    paths[1].unlink()
    with pytest.raises(NotALog, match=r"there is no log .*b\.db"):
        [*strict.read(planned[1])]
    found = [row for partition in planned for batch in lenient.read(partition) for row in batch.to_pylist()]
    assert [(row["log"], row["seq"]) for row in found] == [
        (str(path), number) for path in (paths[0], paths[2]) for number in range(1, 21)
    ]
    assert f"ignoreMissingFiles passes over {paths[1]}" in caplog.text
    # A path that names no file is an error, as in Spark.
    with pytest.raises(NotALog, match="there is no log"):
        lenient.partitions()


@pytest.mark.parametrize("name", ["\x1b]0;title\x07\x1b[31m\r.db", "a\nINFO all fine.db", "\u202ebd.a"])
def test_a_remark_holds_nothing_that_a_terminal_obeys(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    gone, junk = make_log(f"gone-{name}", 20), make_log(f"junk-{name}", 20)
    read = reader(gone, junk, columns=["log"], ignoreMissingFiles="true", ignoreCorruptFiles="true", partitions="2")
    planned = read.partitions()
    with opened(str(gone)) as (storage, _):
        mark = mark_of(storage)
    gone.unlink()
    junk.write_text("junk" * 400)
    assert not [batch for partition in planned for batch in read.read(partition)]
    remarks = [record.getMessage() for record in caplog.records]
    assert [remark.split()[2] for remark in remarks] == ["passes", "passes"]
    problems = [str(replaced(str(junk)))]
    with pytest.raises(CursorOutdated) as rebased:
        check_generation(str(junk), mark, mark.generation + 1)
    assert all(text.isprintable() and shown(name) in text for text in (*remarks, *problems, str(rebased.value)))


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_log_that_is_removed_while_the_read_is_planned(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """At each of the two looks at it, and at the read."""
    paths = [make_log(name, 20) for name in ("a.db", "b.db")]
    opens = 0

    def removing(location: str, *others: Any) -> Any:
        nonlocal opens
        opens += location == str(paths[0])
        if opens == looks:
            paths[0].unlink(missing_ok=True)
        return opened(location, *others)

    monkeypatch.setattr(opening, "opened", removing)
    found = rows(reader(*paths, columns=["log"], ignoreMissingFiles="true", partitions="4"))
    assert [row["log"] for row in found] == [str(paths[1])] * 20
    assert not paths[0].exists()


def test_damage_is_no_missing_file(make_log: MakeLog) -> None:
    path = make_log()
    planned = reader(path).partitions()
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError):
        [*reader(path, ignoreMissingFiles="true").read(planned[0])]


@pytest.fixture
def broken(make_log: MakeLog, tmp_path: Path) -> tuple[list[Path], dict[Path, str]]:
    """Two sound logs, and four that cannot be read, with the kinds of their problems."""
    sound = [make_log("a.db", 20), make_log("z.db", 30)]
    kinds = {tmp_path / "notes.db": "no log", make_log("leaves.db"): "damaged", make_log("newer.db"): "unreadable"}
    (tmp_path / "notes.db").write_text("no log")
    damage(tmp_path / "leaves.db", "gossiplog_leaves")
    change(tmp_path / "newer.db", "UPDATE gossiplog_meta SET value = 99 WHERE name = 'schema'")
    kinds[make_log("cut.db", 500)] = "damaged"
    (tmp_path / "cut.db").write_bytes((tmp_path / "cut.db").read_bytes()[:4096])
    return sound, kinds


@pytest.mark.parametrize("opened_logs", [2, 256])
@pytest.mark.parametrize("partitions", ["1", "9"])
def test_what_cannot_be_read_is_passed_over(
    broken: tuple[list[Path], dict[Path, str]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    partitions: str,
    opened_logs: int,
) -> None:
    """Whether its plan opens it or its task: a warning each, and a row where its column is named."""
    monkeypatch.setattr(reader_module, "OPENED_LOGS", opened_logs)
    sound, kinds = broken
    paths = [sound[0], *kinds, sound[1]]
    options = {"ignoreCorruptFiles": "true", "partitions": partitions}
    found = rows(reader(*paths, columns=["log", "seq"], **options))
    assert [(row["log"], row["seq"]) for row in found] == [
        (str(path), number) for path, last in zip(sound, (20, 30), strict=True) for number in range(1, last + 1)
    ]
    for path, kind in kinds.items():
        assert f"ignoreCorruptFiles passes over the rest of {path}: {kind}: " in caplog.text
    named = rows(reader(*paths, columns=["log_problem", "log", "seq"], **options))
    problems = {row["log"]: row["log_problem"] for row in named if row["log_problem"] is not None}
    assert {Path(log): problem.partition(":")[0] for log, problem in problems.items()} == kinds
    assert [row for row in named if row["log_problem"] is not None and row["seq"] is not None] == []
    assert len(named) == 50 + len(kinds)
    with pytest.raises(StorageError):
        rows(reader(*paths, columns=["seq"], partitions=partitions))


def test_what_is_no_damage_is_an_error_all_the_same(broken: tuple[list[Path], dict[Path, str]]) -> None:
    (path, _), _ = broken
    lenient = {"ignoreCorruptFiles": "true"}
    with pytest.raises(TopicMismatch):
        rows(reader(path, topic="other", **lenient))
    planned = reader(path, **lenient)
    partitions = planned.partitions()
    log = partitions[0].ranges[0].log
    rebased = replace(partitions[0].ranges[0], log=replace(log, mark=replace(log.mark, generation=7)))
    with pytest.raises(CursorOutdated):
        [*planned.read(Bundle((rebased,)))]
    path.unlink()
    with pytest.raises(NotALog):
        [*planned.read(partitions[0])]
    with pytest.raises(OptionError, match="the mode failfast ends a read at what ignoreCorruptFiles"):
        reader(path, mode="failfast", **lenient)


def test_what_was_read_before_the_damage_stays(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Spark, whose files give what was read of them."""
    path = make_log(messages=30)
    monkeypatch.setattr("gossiplog.spark.source.batches.BATCH", 10)
    read = reader(path, columns=["seq", "log_problem"], ignoreCorruptFiles="true")
    batches = read.read(read.partitions()[0])
    assert len(next(batches)) == 10
    damage(path, "gossiplog_leaves")
    (last,) = [row for batch in batches for row in batch.to_pylist() if row["log_problem"] is not None]
    assert last["log_problem"].partition(": ")[0] in ("damaged", "unreadable")


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_partitions_tile_the_log(make_log: MakeLog, partitions: int) -> None:
    path = make_log(messages=3000)
    found = reader(path, columns=["key"], partitions=str(partitions))
    sizes = [sum(len(batch) for batch in found.read(partition)) for partition in found.partitions()]
    assert len(sizes) == partitions
    assert sum(sizes) == 3000
    keys = [row["key"] for row in rows(found)]
    assert keys == sorted(set(keys))


def test_a_relative_path_is_the_drivers(make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_log(messages=3)
    monkeypatch.chdir(path.parent)
    found = reader(Path(path.name), columns=["log"])
    partitions = found.partitions()
    elsewhere = tmp_path / "executor"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    batches = [batch for partition in partitions for batch in found.read(partition)]
    assert [row["log"] for batch in batches for row in batch.to_pylist()] == [path.name] * 3


@pytest.mark.parametrize(
    ("messages", "size", "expected"),
    [
        (0, 49_152, 1),
        (1_000, 400_000, 1),
        (20_000, 8 * 2**20, 2),
        (200_001, 80 * 2**20, 8),
        (2_097_152, 800 * 2**20, 8),
        (2_097_153, 800 * 2**20, 9),
        # Large values.
        (10_000, 10 * 2**30, 80),
    ],
)
def test_partitions_by_size(messages: int, size: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert number_of_partitions(messages, size) == expected


@pytest.mark.integration
def test_a_log_of_some_megabytes_is_read_on_all_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    path = tmp_path / "log.db"
    with gossiplog.open(path, "t", synchronous="off") as log:
        log.append_many((bytes(1000) for _ in range(8_000)), signer=Signer(bytes(32)))
    found = reader(path, columns=["key"])
    sizes = [sum(len(batch) for batch in found.read(partition)) for partition in found.partitions()]
    assert len(sizes) == 2
    assert all(2_000 < size < 6_000 for size in sizes)


@pytest.mark.slow
def test_several_logs_share_the_partitions(make_log: MakeLog) -> None:
    paths = [make_log("a.db", 2000), make_log("b.db", 1000), make_log("c.db", 1), make_log("d.db", 0)]
    found = reader(*paths, partitions="6", columns=["log", "seq"])
    partitions = found.partitions()
    of = [part.log.location for partition in partitions for part in partition.ranges]
    assert [of.count(str(path)) for path in paths] == [4, 2, 1, 1]
    assert len(partitions) == 6
    assert len(rows(found)) == 3001


def test_a_read_sees_one_state(make_log: MakeLog) -> None:
    path = make_log(messages=100)
    found = reader(path, columns=["seq"], partitions="2")
    partitions = found.partitions()
    with gossiplog.open(path) as log:
        log.append_many(range(50), signer=Signer(bytes(32)))
    assert sum(len(batch) for partition in partitions for batch in found.read(partition)) == 100
    assert len(rows(found)) == 150


def test_ranges(make_log: MakeLog) -> None:
    path = make_log(messages=300)
    clocks = [row["clock"] for row in rows(reader(path, minclock="100", maxclock="199"))]
    assert clocks == list(range(100, 200))
    ids = [row["id"] for row in rows(reader(path, columns=["id"]))]
    assert [row["id"] for row in rows(reader(path, minid=ids[5], maxid=ids[8]))] == ids[5:9]
    assert rows(reader(path, minid=ids[5], maxclock="2")) == []
    assert rows(reader(path, minclock="1000")) == []


def test_authors(make_log: MakeLog) -> None:
    mine, other = make_log("a.db", 5, author=1), make_log("b.db", 7, author=2)
    found = reader(mine, other, authors=Signer(b"\2" * 32).did, columns=["seq"])
    assert [row["seq"] for row in rows(found)] == list(range(1, 8))


def test_the_topic_is_held_against_the_logs(make_log: MakeLog) -> None:
    with pytest.raises(gossiplog.TopicMismatch):
        reader(make_log(), topic="another").partitions()


@pytest.mark.slow
def test_every_encoding_and_the_first_alone(several: tuple[Path, list[int]]) -> None:
    path, first = several
    every = rows(reader(path))
    with gossiplog.open(path) as log:
        assert [(row["id"], row["canonical"], row["content_id"]) for row in every] == [
            (message.id, message.canonical, message.content_id) for message in log
        ]
    shown = {(row["content_id"], row["author"], row["payload"], row["codec"], *row["parents"]) for row in every}
    assert len(shown) == len(first)
    for columns in ([], ["id"], ["key", "seq"]):
        wanted = reader(path, columns=columns, encodings="first", partitions="3")
        expected = [row for row in every if row["seq"] in first]
        assert rows(wanted) == [{name: row[name] for name in columns or SCHEMA.names} for row in expected]
    author = every[0]["author"]
    found = rows(reader(path, columns=["seq"], encodings="first", authors=author))
    assert [row["seq"] for row in found] == [row["seq"] for row in expected if row["author"] == author]


def test_what_is_first_does_not_change(several: tuple[Path, list[int]]) -> None:
    path, first = several
    wanted = reader(path, columns=["seq"], encodings="first")
    (partition,) = wanted.partitions()
    with gossiplog.open(path) as log:
        log.insert_many(longer_author(message.value) for message in [*log])
        assert len(log) > partition.ranges[0].log.count
    assert sorted(row["seq"] for batch in wanted.read(partition) for row in batch.to_pylist()) == sorted(first)
    assert sorted(row["seq"] for row in rows(wanted)) == sorted(first)


def test_a_damaged_message_stays_where_the_first_encodings_are_read(several: tuple[Path, list[int]]) -> None:
    path, first = several
    change(path, "UPDATE gossiplog_messages SET value = x'00' WHERE seq = ?", first[3])
    found = rows(reader(path, encodings="first"))
    assert sorted(row["seq"] for row in found) == sorted(first)
    assert [row["seq"] for row in found if row["content_id"] is None] == [first[3]]


def change(path: Path, sql: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, parameters).rowcount == 1


@pytest.fixture
def damaged(make_log: MakeLog) -> tuple[Path, list[str]]:
    """A log of ten messages of which four are damaged, and the ids of these."""
    path = make_log(messages=10)
    with gossiplog.open(path) as log:
        messages = list(log)
    change(path, "UPDATE gossiplog_messages SET value = ? WHERE seq = 3", messages[2].value[:-1])
    change(path, "UPDATE gossiplog_messages SET value = ? WHERE seq = 4", messages[5].value)
    change(path, "UPDATE gossiplog_messages SET value = 'text' WHERE seq = 5")
    change(path, "DELETE FROM gossiplog_messages WHERE seq = 7")
    return path, [messages[index].id for index in (2, 3, 4, 6)]


def test_a_damaged_value_is_null_where_it_would_be_decoded(damaged: tuple[Path, list[str]]) -> None:
    path, ids = damaged
    found = rows(reader(path))
    assert [row["seq"] for row in found] == list(range(1, 11))
    assert [row["id"] for row in found if row["clock"] is None] == ids
    for row in found:
        nothing = {row[name] for name in ("clock", "topic", "author", "codec", "payload", "canonical")} == {None}
        assert nothing == (row["id"] in ids) == (row["parents"] is None)
        assert row["key"] == core.decode_id(row["id"])
        assert row["size"] == len(row["value"])


@pytest.mark.parametrize("columns", [["seq"], [], ["key", "clock"]])
def test_dropmalformed_leaves_damaged_messages_out(damaged: tuple[Path, list[str]], columns: list[str]) -> None:
    path, _ = damaged
    found = rows(reader(path, mode="DROPMALFORMED", columns=columns))
    assert len(found) == 6
    numbers = "seq" if "clock" not in columns else "clock"
    assert [row[numbers] for row in found] == [1, 2, 6, 8, 9, 10]
    assert rows(reader(path, mode="dropmalformed", columns=columns, authors="did:key:nobody")) == []


def test_failfast_names_every_damaged_message(damaged: tuple[Path, list[str]]) -> None:
    path, ids = damaged
    with pytest.raises(CorruptLog) as caught:
        rows(reader(path, mode="failfast", columns=["seq"]))
    assert [problem for id, problem in zip(ids, caught.value.problems, strict=True) if id not in problem] == []
    assert [problem.count(str(path)) for problem in caught.value.problems] == [1] * len(ids)


def test_a_key_that_is_none(make_log: MakeLog) -> None:
    path = make_log(messages=3)
    change(path, "UPDATE gossiplog_leaves SET key = x'ffff' WHERE seq = 2")
    (row,) = [row for row in rows(reader(path)) if row["seq"] == 2]
    assert (row["id"], row["clock"], row["key"]) == (None, None, b"\xff\xff")


def test_folders_and_patterns_of_read_only_files(make_log: MakeLog, tmp_path: Path) -> None:
    for name in ("a.db", "b c.db"):
        make_log(name).chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        for path in (f"file:{tmp_path}?immutable=1", f"file:{tmp_path}/{{a,b*}}.db?immutable=1"):
            found = rows(LogReader(read_options({"path": path}, BATCH_OPTIONS), pruned(["log", "clock"])))
            assert [row["clock"] for row in found] == [*range(1, 11), *range(1, 11)]
            assert {row["log"] for row in found} == {
                f"file:{tmp_path}/{name}?immutable=1" for name in ("a.db", "b%20c.db")
            }
    finally:
        tmp_path.chmod(0o700)


def remarks(caplog: pytest.LogCaptureFixture, schema: StructType, **options: str) -> list[str]:
    """What planning a read through the data source remarks on."""
    caplog.clear()
    GossipLogSource(options).reader(schema).partitions()
    return [record.getMessage() for record in caplog.records]


def test_a_read_of_all_columns_that_nobody_asked_for_is_remarked_on(
    make_log: MakeLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(make_log(messages=10))
    assert remarks(caplog, SCHEMA, path=path) == []
    monkeypatch.setattr("gossiplog.spark.source.reader.MANY_MESSAGES", 10)
    (remark,) = remarks(caplog, SCHEMA, path=path)
    assert "reads all 14 columns of 10 messages" in remark
    assert ".option('columns', 'clock,author')" in remark
    assert remarks(caplog, SCHEMA, path=path, columns="*") == []
    assert remarks(caplog, pruned(["seq"]), path=path, columns="seq") == []
    assert remarks(caplog, pruned(["seq"]), path=path) == []


def test_an_empty_log(make_log: MakeLog) -> None:
    assert rows(reader(make_log(messages=0))) == []


def test_batches_have_the_types_that_spark_wants(make_log: MakeLog) -> None:
    found = LogReader(read_options({"path": str(make_log())}, BATCH_OPTIONS), pruned(["parents", "seq"]))
    (partition,) = found.partitions()
    (batch,) = found.read(partition)
    assert batch.schema == pa.schema([("parents", pa.list_(pa.string())), ("seq", pa.int64())])
