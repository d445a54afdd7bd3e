from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import Signer, core
from gossiplog.cli.main import main
from gossiplog.errors import CorruptLog, TopicMismatch
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.id import message_key
from gossiplog.spark import VerifyResult, log_metadata, read, verify, verify_log
from gossiplog.spark.jobs import over_logs
from gossiplog.spark.jobs.message_check import check_partition
from gossiplog.spark.jobs.root import joined
from gossiplog.spark.source.batches import BATCH
from tests.spark.damage import change, entries
from tests.spark.shared import frame_of_rows

TOPIC = "org.example.spark"
MakeLog = Callable[..., Path]


def defects(found: VerifyResult) -> dict[str, set[str | None]]:
    """The ids of each kind."""
    kinds: dict[str, set[str | None]] = {}
    for row in found.report.collect():
        kinds.setdefault(row.kind, set()).add(row.id)
    assert {kind: len(ids) for kind, ids in kinds.items()} == found.defects
    found.report.unpersist()
    return kinds


def test_a_sound_log(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=1000)
    with gossiplog.open(path) as log:
        root = log.root
    found = verify_log(spark, str(path))
    assert (defects(found), found.messages, found.root) == ({}, 1000, root)


def test_many_heads_and_parents_in_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "wide.db"
    made = [core.sign(TOPIC, 1, [], number, bytes(32)) for number in range(300)]
    ids = [core.encode_id(key) for key, _ in made]
    merges = [core.sign(TOPIC, 2, ids[at : at + 3], at, bytes(32)) for at in range(0, 200, 5)]
    with gossiplog.open(path, TOPIC) as log:
        log.insert_many([value for _, value in made + merges])
    own = log_metadata(str(path))
    assert own.heads is not None
    assert len(own.heads) == 300 - 3 * len(merges) + len(merges)
    frame = read(spark, str(path), columns="seq,key,value", partitions=4)
    assert defects(verify(frame, TOPIC, own, ascending=True)) == {}


def test_every_encoding_is_verified(spark: SparkSession, several: tuple[Path, list[int]]) -> None:
    path, first = several
    with gossiplog.open(path) as log:
        root, messages = log.root, len(log)
    assert messages > len(first)
    found = verify_log(spark, str(path))
    assert (defects(found), found.messages, found.root) == ({}, messages, root)


def test_an_empty_log(spark: SparkSession, make_log: MakeLog) -> None:
    found = verify_log(spark, str(make_log(messages=0)))
    assert (defects(found), found.messages, found.root) == ({}, 0, core.Tree().root)


@pytest.mark.parametrize("messages", [18_000])
def test_values_and_signatures_that_were_changed_are_named(
    spark: SparkSession,
    make_log: MakeLog,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    messages: int,
) -> None:
    """In two tasks, of which each reads more than a batch."""
    monkeypatch.setattr(over_logs, "LEAST_MESSAGES", BATCH)
    assert messages // 2 > BATCH
    path = make_log(messages=messages)
    found = entries(path)
    chooser = random.Random(1)
    chosen = chooser.sample(sorted(found), 100)
    changed: dict[bytes, bytes] = {}
    for key in chosen[:50]:
        at = chooser.randrange(len(found[key]))
        changed[key] = found[key][:at] + bytes([found[key][at] ^ 1 << chooser.randrange(8)]) + found[key][at + 1 :]
    signatures = {key: core.read_message(found[key], TOPIC).signature for key in chosen[50:]}
    swapped = chosen[51:] + chosen[50:51]
    for key, other in zip(chosen[50:], swapped, strict=True):
        changed[key] = found[key].replace(signatures[key], signatures[other])
    change(path, changed)
    assert defects(verify_log(spark, str(path))) == {
        "value": {core.encode_id(key) for key in chosen},
        "root": {None},
    }
    folder = tmp_path / "report"
    assert main(["pipeline", "verify", str(path), "--json", "--output", str(folder)]) == 1
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {line["id"] for line in lines if "kind" in line} == {None, *map(core.encode_id, chosen)}
    assert [line["defects"] for line in lines if "messages" in line] == [101]
    assert spark.read.parquet(str(folder)).count() == 101


def test_damage_among_the_messages_that_the_index_does_not_cover(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=200)
    keys = sorted(entries(path))
    change(path, {keys[50]: b"broken", keys[199]: b"broken, too"})
    assert defects(verify_log(spark, str(path))) == {
        "value": {core.encode_id(keys[50]), core.encode_id(keys[199])},
        "root": {None},
    }


def forged(value: bytes) -> tuple[bytes, bytes]:
    """A message with a signature that does not hold, under the key that it has."""
    signature = core.read_message(value, TOPIC).signature
    changed = value.replace(signature, signature[:10] + bytes([signature[10] ^ 1]) + signature[11:])
    return core.read_message(changed, TOPIC).key, changed


def test_signatures_clocks_parents_and_nulls_of_any_frame(spark: SparkSession, make_log: MakeLog) -> None:
    pairs = sorted(entries(make_log(messages=40)).items())
    gone = pairs.pop(20)[0]
    key, value = forged(pairs[30][1])
    late_value = write_cbor([["dag-cbor", Signer(bytes(32)).did, bytes(64)], TOPIC, 5, [], None])
    late = message_key(5, late_value)
    rows = [*pairs, (key, value), (late, late_value), (b"short", b"x"), (None, value), (b"\1" * 20, None)]
    frame = frame_of_rows(
        spark,
        [tuple(None if part is None else bytearray(part) for part in row) for row in rows],
        "key binary, value binary",
    )
    found = verify(frame.repartition(3), TOPIC)
    child = core.encode_id(pairs[20][0])
    assert core.read_message(pairs[20][1], TOPIC).parents == (core.encode_id(gone),)
    assert defects_with_details(found) == {
        ("signature", core.encode_id(key)),
        ("parent", child),
        ("value", None),
        ("value", core.encode_id(late)),
        ("value", core.encode_id(b"\1" * 20)),
    }


def defects_with_details(found: VerifyResult) -> set[tuple[str, str | None]]:
    rows = found.report.collect()
    found.report.unpersist()
    assert all(row.detail for row in rows)
    return {(row.kind, row.id) for row in rows}


def test_heads_that_are_stored_wrongly(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=600)
    keys = sorted(entries(path))
    with sqlite3.connect(path) as database:
        indexed = database.execute("SELECT count(*) FROM gossiplog_heads").fetchone()
        assert indexed == (1,)
        sequence = database.execute("SELECT seq FROM gossiplog_leaves WHERE key = ?", (keys[4],)).fetchone()[0]
        database.execute("INSERT INTO gossiplog_heads VALUES (?, ?)", (keys[4], sequence))
    database.close()
    assert defects(verify_log(spark, str(path))) == {"head": {core.encode_id(keys[4])}}
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM gossiplog_heads")
    database.close()
    found = defects(verify_log(spark, str(path)))
    assert found.keys() == {"head"}


def test_another_topic(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=3)
    with pytest.raises(TopicMismatch):
        verify_log(spark, str(path), "org.example.other")
    frame = frame_of_rows(
        spark, [(bytearray(key), bytearray(value)) for key, value in entries(path).items()], "key binary, value binary"
    )
    assert verify(frame, "org.example.other").defects == {"value": 3}


def test_a_file_that_was_cut_off(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=3000)
    whole = path.read_bytes()
    for part in (3, 10):
        cut = tmp_path / f"cut{part}.db"
        cut.write_bytes(whole[: len(whole) * part // 12])
        with pytest.raises(CorruptLog, match=re.escape(str(cut))):
            verify_log(spark, str(cut))


def test_messages_that_arrive_meanwhile_are_passed_over(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=50)
    before = log_metadata(str(path))
    with gossiplog.open(path) as log:
        log.append("later", signer=Signer(b"\7" * 32))
    rows = spark.read.format("gossiplog").load(str(path))
    assert defects(verify(rows, before.topic, before, ascending=True)) == {}


def test_the_commands_end_with_0_for_sound_logs(
    spark: SparkSession, make_log: MakeLog, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [make_log(name, 60) for name in ("a.db", "b.db")]
    shutil.copy(paths[0], paths[0].with_name("c.db"))
    for command in ("verify", "root"):
        assert main(["pipeline", command, str(paths[0].with_name("*.db")), "--json"]) == 0
        *rows, last = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        figures = {"logs": 3, "messages": 180, "unreadable": 0}
        assert last == {"summary": figures | ({"defects": 0, "defective": 0} if command == "verify" else {})}
        assert [row["problem"] for row in rows] == [None] * 3
        assert [row["messages"] for row in rows] == [60] * 3
        assert rows[0]["root"] == rows[2]["root"] == log_metadata(str(paths[0])).root.hash.hex()  # type: ignore[union-attr]


def test_a_terminal_shows_the_first_defects(
    spark: SparkSession, make_log: MakeLog, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_log(messages=600)
    keys = sorted(entries(path))[:30]
    change(path, dict.fromkeys(keys, b"x"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    # Ids stay whole, to be copied, where the rest is folded.
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["pipeline", "verify", str(path)]) == 1
    written = capfd.readouterr()
    # One is the root's, which has no id.
    assert sum(core.encode_id(key) in written.out for key in keys) in (19, 20)
    assert "The first 20 of 31 defects are shown" in written.err
    assert "`gossiplog repair LOG --from SOURCE` repairs it" in written.err


# What a task does with its partition, without Spark

CHAIN = Signer(bytes(32)).sign_chain(TOPIC, [], [{"number": number} for number in range(8)], "dag-cbor", 2**20)
KEYS, VALUES = (list(column) for column in zip(*((message.key, message.value) for message in CHAIN), strict=True))


def partition(keys: list[bytes | None], values: list[bytes | None], seq: list[int] | None = None) -> pa.RecordBatch:
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    return pa.record_batch(columns if seq is None else columns | {"seq": pa.array(seq, pa.int64())})


def reported(*batches: pa.RecordBatch, count: int | None = None) -> dict[str, list[tuple[bytes | None, bytes | None]]]:
    """The keys of each kind of row, with the others that go with them."""
    kinds: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    for found in check_partition(TOPIC, count, batches):
        for row in found.to_pylist():
            kinds.setdefault(row["kind"], []).append((row["key"], row["other"]))
    return kinds


def test_a_partition_reports_what_others_may_have() -> None:
    """Parents that are not here, and messages that nobody here names."""
    found = reported(partition(KEYS[2:4], VALUES[2:4]), partition(KEYS[4:6], VALUES[4:6]))
    assert found.pop("fragment")[0][0] is None
    assert found == {"outer": [(KEYS[1], KEYS[2])], "childless": [(KEYS[5], None)]}


def test_the_fragment_is_that_of_all_entries() -> None:
    ((_, fragment),) = reported(partition(KEYS, VALUES))["fragment"]
    assert fragment is not None
    assert joined([fragment]).count == len(KEYS)


def test_what_arrived_later_is_passed_over() -> None:
    found = reported(partition(KEYS, VALUES, list(range(1, 9))), count=5)
    assert found["childless"] == [(KEYS[4], None)]


def test_values_and_signatures_of_a_partition() -> None:
    values: list[bytes | None] = [*VALUES[:2], b"\0", None, *VALUES[4:]]
    found = reported(partition([*KEYS], values))
    assert [key for key, _ in found["value"]] == KEYS[2:4]
    assert "signature" not in found
    # Another payload, with which the value ends, under the same signature.
    forged = core.read_message(VALUES[3][:-1] + bytes([VALUES[3][-1] ^ 1]), TOPIC)
    found = reported(partition([forged.key], [forged.value]))
    assert [key for key, _ in found["signature"]] == [forged.key]


def test_a_partition_without_messages() -> None:
    ((_, fragment),) = reported().pop("fragment")
    assert fragment == core.Fragment().to_bytes()
