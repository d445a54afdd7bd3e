"""Analysing logs whose shape is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import SignedMessage, Signer, core
from gossiplog.cli.bench.stage import TOPIC as BENCH_TOPIC
from gossiplog.cli.bench.stage import history
from gossiplog.errors import CorruptLog, OptionError, SparkError
from gossiplog.spark import COLUMNS, AnalyzeResult, analyze, read
from gossiplog.spark.jobs.analyze import LIMIT, AlternativeEncodings, Author, Width, clock_ranges
from tests.spark.conftest import ADA, BEN, TOPIC
from tests.spark.damage import lose_entry
from tests.spark.jobs.test_fetch_values import lose
from tests.spark.source.test_reader import change
from tests.strategies import alternative, longer_author

MakeLog = Callable[..., Path]


def analysed(spark: SparkSession, path: Path, hot: str | None = None) -> AnalyzeResult:
    return analyze(read(spark, str(path), columns=",".join(COLUMNS)), hot)


def heads_after(messages: list[SignedMessage], clock: int) -> int:
    before = [message for message in messages if message.clock <= clock]
    return len({message.id for message in before} - {parent for message in before for parent in message.parents})


@pytest.mark.parametrize(
    ("last", "number", "width"),
    [
        (0, 0, 0),
        (1, 1, 1),
        (200, 200, 1),
        (201, 101, 2),
        (312, 156, 2),
        (1000, 200, 5),
        (1001, 101, 10),
        (4001, 81, 50),
    ],
)
def test_ranges_have_one_round_width(last: int, number: int, width: int) -> None:
    ranges = clock_ranges(last)
    assert len(ranges) == number
    assert [clock for part in ranges for clock in part] == list(range(1, last + 1))
    assert {len(part) for part in ranges[:-1]} <= {width}


def test_the_largest_clock_has_ranges_too() -> None:
    ranges = clock_ranges(core.MAX_CLOCK)
    assert len(ranges) <= 200
    assert ranges[-1][-1] == core.MAX_CLOCK


def test_a_history_is_counted_as_one_process_counts_it(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "gossip.db"
    with gossiplog.open(path, BENCH_TOPIC, synchronous="off") as log:
        log.insert_many(history("gossip", 3000))
        messages, heads = list(log), log.heads
    found = analysed(spark, path)
    per_clock = Counter(message.clock for message in messages)
    children = Counter(parent for message in messages for parent in message.parents)
    totals = found.totals
    assert (totals.messages, totals.heads, totals.longest_chain) == (3000, len(heads), messages[-1].clock)
    assert totals.branches == sum(count > 1 for count in children.values())
    assert totals.merges == sum(len(message.parents) > 1 for message in messages)
    assert totals.first == sum(not message.parents for message in messages)
    assert totals.widest == max(per_clock.values())
    assert totals.bytes == sum(len(message.value) for message in messages)
    assert totals.authors == len({message.author for message in messages})
    sizes = {part.last_clock - part.first_clock + 1 for part in found.ranges[:-1]}
    assert len(sizes) == 1
    covered = [clock for part in found.ranges for clock in range(part.first_clock, part.last_clock + 1)]
    assert covered == list(range(1, messages[-1].clock + 1))
    for part in found.ranges[::20]:
        inside = [message for message in messages if part.first_clock <= message.clock <= part.last_clock]
        assert part.messages == len(inside)
        assert part.bytes == sum(len(message.value) for message in inside)
        assert part.authors == len({message.author for message in inside})
        assert part.merges == sum(len(message.parents) > 1 for message in inside)
        assert part.widest == max(per_clock[message.clock] for message in inside)
        assert part.heads == heads_after(messages, part.last_clock)
    for width in found.widths:
        assert width.clocks == sum(width.least <= count <= width.most for count in per_clock.values())
    assert sum(width.clocks for width in found.widths) == len(per_clock)


def test_a_chain(spark: SparkSession, make_log: MakeLog) -> None:
    found = analysed(spark, make_log(messages=3))
    (author,) = found.authors
    assert [(part.first_clock, part.last_clock, part.messages, part.heads) for part in found.ranges] == [
        (1, 1, 1, 1),
        (2, 2, 1, 1),
        (3, 3, 1, 1),
    ]
    assert found.widths == (Width(1, 1, 3),)
    assert author == Author(ADA.did, 3, found.totals.bytes, 1, 3, 1.0, None, 1.0, None)
    assert (found.suspects, found.alternative_encodings, found.hot_keys) == ((), (), None)


def test_an_empty_log(spark: SparkSession, make_log: MakeLog) -> None:
    found = analysed(spark, make_log(messages=0), "payload")
    assert set(asdict(found.totals).values()) == {0, None}
    assert (found.ranges, found.widths, found.authors, found.hot_keys) == ((), (), (), ())


def test_suspects(spark: SparkSession, tmp_path: Path) -> None:
    """One of twelve authors writes a hundred times as much as the others; another writes few, but long messages."""
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, synchronous="off") as log:
        for author in range(10):
            log.append_many(["word"] * (8 + author % 3), signer=Signer(bytes([author]) * 32))
        loud, long = Signer(bytes([50]) * 32), Signer(bytes([51]) * 32)
        log.append_many(["buy"] * 900, signer=loud)
        log.append_many(["x" * 20_000] * 9, signer=long)
    found = analysed(spark, path)
    assert found.totals.suspects == 2
    assert {suspect.author for suspect in found.suspects} == {loud.did, long.did}
    (of_long,) = [suspect for suspect in found.suspects if suspect.author == long.did]
    assert of_long.messages_score is not None
    assert of_long.bytes_score is not None
    assert of_long.messages_score < 3.5 < of_long.bytes_score
    (of_loud,) = [suspect for suspect in found.suspects if suspect.author == loud.did]
    assert of_loud.messages_ratio == pytest.approx(100)
    numbers = [math.log(number) for number in (*(8 + author % 3 for author in range(10)), 900, 9)]
    deviation = median(abs(number - median(numbers)) for number in numbers)
    assert of_loud.messages_score == pytest.approx(0.6745 * (math.log(900) - median(numbers)) / deviation)
    assert of_long.messages_ratio == pytest.approx(1)


@pytest.mark.parametrize(("others", "is_outlier"), [(3, False), (4, True)])
def test_one_author_among_others_who_are_alike(
    spark: SparkSession, tmp_path: Path, others: int, is_outlier: bool
) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, synchronous="off") as log:
        for author in range(others):
            log.append("word", signer=Signer(bytes([author]) * 32))
        log.append_many(["buy"] * 100, signer=Signer(bytes([50]) * 32))
    first, *rest = analysed(spark, path).authors
    assert first.messages_score is not None
    assert (first.messages_score > LIMIT) is is_outlier
    assert {author.messages_score for author in rest} == {0}


def test_hot_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, synchronous="off") as log:
        log.append_many([{"key": "a"}, {"key": "b"}, {"key": "a"}, "text"], signer=ADA)
    found = analysed(spark, path, "get_json_object(payload, '$.key')")
    assert found.hot_keys is not None
    assert [(key.key, key.messages) for key in found.hot_keys] == [("a", 2), (None, 1), ("b", 1)]
    with pytest.raises(OptionError, match=r"the expression for hot keys, .*nothing_like_it"):
        analysed(spark, path, "nothing_like_it")
    with pytest.raises(SparkError, match=r"^the expression for hot keys, 1/0, failed for a message: .*DIVIDE_BY_ZERO"):
        analysed(spark, path, "1/0")


def test_messages_in_several_encodings_count_once(spark: SparkSession, tmp_path: Path) -> None:
    """A braid of five messages, whose parents are named by any of their encodings, one by two of them."""
    encodings: list[list[bytes]] = []
    for n, above in enumerate([[], [(0, 0)], [(0, 2)], [(1, 1), (2, 3)], [(3, 0), (3, 1)]]):
        parents = [core.verify(encodings[message][encoding], TOPIC) for message, encoding in above]
        clock = 1 + max((parent.clock for parent in parents), default=0)
        _, value = ADA.sign(TOPIC, clock, [parent.id for parent in parents], {"n": n % 2})
        encodings.append([value, alternative(value), alternative(value, 1), longer_author(value)])
    # An alternative encoding is first everywhere.
    arriving = [[*values[1:], values[0]] for values in encodings]
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, synchronous="off") as log:
        assert all(log.insert(value) for values in arriving for value in values)
    found = analysed(spark, path, "get_json_object(payload, '$.n')")
    totals = found.totals
    assert (totals.messages, totals.not_canonical, totals.reencoded) == (5, 15, 5)
    assert totals.bytes == sum(len(values[0]) for values in arriving)
    assert found.hot_keys is not None
    assert [(key.key, key.messages) for key in found.hot_keys] == [("0", 3), ("1", 2)]
    assert [(author.author, author.messages) for author in found.authors] == [(ADA.did, 5)]
    expected = set()
    for values in arriving:
        ids = [core.verify(value, TOPIC).id for value in values]
        expected.add(AlternativeEncodings(ids[-1], ids[0], tuple(ids[1:]), 4, sum(map(len, values))))
    assert set(found.alternative_encodings) == expected
    assert found.frames["alternative_encodings"].count() == 20
    # The first has two children, which the fourth joins.
    assert found.widths == (Width(1, 1, 3), Width(2, 2, 1))
    shape = [(part.merges, part.branches, part.heads) for part in found.ranges]
    assert shape == [(0, 0, 1), (0, 1, 2), (1, 0, 1), (0, 0, 1)]


def test_alternative_encodings(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, synchronous="off") as log:
        messages = log.append_many([{"a": 1, "b": 2}, {"c": 3, "d": 4}, {"e": 5}], signer=BEN)
        log.insert(alternative(messages[1].value))
        (other,) = [message for message in log if not message.canonical]
    found = analysed(spark, path)
    assert (found.totals.not_canonical, found.totals.reencoded, found.totals.heads) == (1, 1, 1)
    size = len(messages[1].value) + len(other.value)
    id = messages[1].id
    assert found.alternative_encodings == (AlternativeEncodings(id, id, (other.id,), 2, size),)


def test_a_sound_encoding_counts_for_a_damaged_one(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, synchronous="off") as log:
        first, *_ = log.append_many([{"n": n} for n in range(3)], signer=BEN)
        log.insert(alternative(first.value))
    change(path, "UPDATE gossiplog_messages SET value = x'00' WHERE seq = 1")
    totals = analysed(spark, path).totals
    assert (totals.messages, totals.damaged, totals.heads, totals.reencoded) == (3, 1, 1, 1)


def test_a_log_that_has_lost_a_message(spark: SparkSession, make_log: MakeLog) -> None:
    """A frame of a part of a log has no location."""
    path = make_log()
    lose_entry(path, 4)
    frame = read(spark, str(path), columns=",".join(COLUMNS))
    with pytest.raises(CorruptLog) as caught:
        analyze(frame, location=str(path))
    assert caught.value.problems == (f"{path}: it has 9 keys and says that it has 10 messages",)
    assert analyze(frame).totals.messages == 9


def test_damaged_values(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=600)
    lose(path, 5)
    found = analysed(spark, path)
    totals = found.totals
    assert (totals.messages, totals.damaged, totals.heads, totals.longest_chain) == (599, 1, 2, 600)
    assert totals.branches == 0
