"""The plan of work over many logs: what goes into which task."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import Signer
from gossiplog.errors import NotALog, TopicMismatch
from gossiplog.spark.source import opening
from gossiplog.spark.source import reader as reader_module
from gossiplog.spark.source.fleet import LEAST_MESSAGES, OPEN_WEIGHT, TASK_MESSAGES, pack, packed
from gossiplog.spark.source.opening import look_at, opened, split
from gossiplog.spark.source.options import BATCH_OPTIONS, pruned, read_options
from gossiplog.spark.source.reader import LogReader
from tests.strategies import repeatable

MakeLog = Callable[..., Path]


@dataclass(frozen=True)
class Item:
    number: int
    weight: int


@repeatable(300)
@given(st.lists(st.integers(1, 10**7), max_size=60), st.integers(1, 40))
def test_groups_have_everything_in_order_and_about_equal_weights(weights: list[int], tasks: int) -> None:
    items = [Item(*pair) for pair in enumerate(weights)]
    groups = pack(items, tasks)
    assert [item for group in groups for item in group] == items
    assert len(groups) <= tasks
    assert all(groups)
    if items:
        mean = sum(weights) / tasks
        assert all(sum(item.weight for item in group) <= mean + max(weights) for group in groups)


@pytest.mark.slow
@repeatable(300)
@given(st.lists(st.integers(1, 10**7), max_size=60), st.integers(1, 40))
def test_as_many_tasks_as_are_worth_their_start(weights: list[int], cores: int) -> None:
    items = [Item(*pair) for pair in enumerate(weights)]
    groups = packed(items, cores)
    assert [item for group in groups for item in group] == items
    total = sum(weights)
    # Some seconds of work at most, but for a single item; and no idle core for which there is enough of it.
    assert all(sum(item.weight for item in group) <= TASK_MESSAGES + max(weights) for group in groups)
    assert len(groups) <= max(-(-total // TASK_MESSAGES), min(3 * cores, total // LEAST_MESSAGES), 1)


@pytest.mark.parametrize(
    ("items", "weight", "cores", "tasks"),
    [(0, 1, 2, 0), (1, 10**9, 2, 1), (5, 1000, 64, 1), (100, 1000, 2, 6), (10_000, 2000, 2, 153), (64, 2**17, 64, 64)],
)
def test_numbers_of_tasks(items: int, weight: int, cores: int, tasks: int) -> None:
    groups = packed([Item(number, weight) for number in range(items)], cores)
    assert len(groups) == tasks
    sizes = [len(group) for group in groups]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_equal_items_get_a_task_each() -> None:
    assert [len(group) for group in pack([Item(number, 7) for number in range(16)], 16)] == [1] * 16


@pytest.mark.slow
def test_small_logs_share_a_task_and_a_large_one_is_split(make_log: MakeLog) -> None:
    large = look_at(str(make_log("large.db", 3000)))
    small = [look_at(str(make_log(f"{number}.db", 3))) for number in range(5)]
    ranges = [part for log in (large, *small) for part in split(log, 4 if log is large else 1)]
    assert [part.log.name for part in ranges].count(large.name) == 4
    groups = pack(ranges, 4)
    assert len(groups) == 4
    assert {part.log.name for part in groups[0]} == {large.name}
    assert {part.log.name for part in groups[-1]} == {log.name for log in small[-3:]}
    assert all(part.weight > OPEN_WEIGHT for part in ranges)


@pytest.fixture
def many(make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """More logs than a plan opens: small ones, and a large one."""
    monkeypatch.setattr(reader_module, "OPENED_LOGS", 4)
    first = make_log("0.db", 7)
    return [
        first,
        *(Path(shutil.copy(first, tmp_path / f"{number}.db")) for number in range(1, 9)),
        make_log("z", 2000),
    ]


@pytest.mark.slow
def test_of_many_logs_a_plan_opens_those_that_it_splits(many: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    opens: list[str] = []

    def open_it(location: str, *others: Any) -> Any:
        opens.append(location)
        return opened(location, *others)

    monkeypatch.setattr(opening, "opened", open_it)
    options = {"paths": json.dumps([str(path) for path in many]), "partitions": "4"}
    reader = LogReader(read_options(options, BATCH_OPTIONS), pruned(["log", "seq"]))
    partitions = reader.partitions()
    assert opens == [str(many[-1])]
    assert len(partitions) <= 4
    # It has one more when its task opens it.
    with gossiplog.open(many[3]) as log:
        log.append("late", signer=Signer(bytes(32)))
    found = [tuple(row.values()) for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]
    expected = {str(path): 8 if path == many[3] else 7 for path in many[:-1]} | {str(many[-1]): 2000}
    assert sorted(found) == sorted((log, seq) for log, last in expected.items() for seq in range(1, last + 1))


def test_what_is_wrong_with_an_unopened_log_is_an_error_of_its_task(many: list[Path]) -> None:
    options = {"paths": json.dumps([str(path) for path in many]), "topic": "org.example.spark"}
    reader = LogReader(read_options(options, BATCH_OPTIONS), pruned(["key"]))
    partitions = reader.partitions()
    many[5].unlink()
    with pytest.raises(NotALog, match=r"5\.db"):
        [*reader.read(partitions[0])]
    wrong = LogReader(
        read_options({"path": str(many[0].parent / "*.db"), "topic": "other"}, BATCH_OPTIONS), pruned(["key"])
    )
    with pytest.raises(TopicMismatch):
        [batch for part in wrong.partitions() for batch in wrong.read(part)]
