"""Sorted runs of verified values, and merging them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from gossiplog import Signer, core
from gossiplog.spark.source import staging
from gossiplog.spark.source.staging import make_folder, merged, refused, remove_folder, sort, stage

TOPIC = "org.example.spark"


@pytest.fixture
def values() -> list[bytes]:
    """Stored values of messages without parents, in no order."""
    return [Signer(bytes(32)).sign(TOPIC, 1, [], number)[1] for number in range(500)]


def batches(values: list[bytes | None], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(values), size):
        yield pa.record_batch({"other": [0] * len(values[start : start + size]), "value": values[start : start + size]})


def by_key(values: list[bytes]) -> list[bytes]:
    return sorted(values, key=lambda value: core.verify(value, TOPIC).key)


def test_runs_are_merged_by_key(tmp_path: Path, values: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_RUN_MESSAGES", 100)
    monkeypatch.setattr(staging, "_CHUNK_BYTES", 1000)
    tasks = [stage(str(tmp_path), TOPIC, number, batches(values[number::3], 50)) for number in range(3)]
    assert [len(task.runs) for task in tasks] == [2, 2, 2]
    assert [task.values for task in tasks] == [167, 167, 166]
    assert list(merged(run for task in tasks for run in task.runs)) == by_key(values)
    assert list(refused(tasks)) == []


def test_messages_that_need_not_be_verified(
    tmp_path: Path, values: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_RUN_MESSAGES", 200)
    keys = [core.verify(value, TOPIC).key for value in values]
    rows = [pa.record_batch({"value": [value], "key": [key]}) for key, value in zip(keys, values, strict=True)]
    runs = list(sort(str(tmp_path), rows))
    assert [number for _, number in runs] == [200, 200, 100]
    assert list(merged(path for path, _ in runs)) == by_key(values)


def test_what_is_refused_is_named(tmp_path: Path, values: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_RUN_MESSAGES", 4)
    _, other = Signer(bytes(32)).sign("another", 1, [], 0)
    forged = values[0][:-1] + bytes([values[0][-1] ^ 1])
    task = stage(str(tmp_path), TOPIC, 7, batches([values[1], None, b"", values[2], other, forged], 2))
    assert (task.values, task.refusals) == (6, 4)
    assert list(merged(task.runs)) == by_key(values[1:3])
    found = list(refused([task]))
    assert [(record["partition"], record["row"]) for record in found] == [(7, 1), (7, 2), (7, 4), (7, 5)]
    assert all(record["error"] for record in found)


def test_a_task_without_values(tmp_path: Path) -> None:
    task = stage(str(tmp_path), TOPIC, 0, iter(()))
    assert (task.runs, task.values, task.refusals) == ((), 0, 0)
    assert list(merged(task.runs)) == []


def test_a_folder_is_its_owners_and_goes_with_what_is_in_it(tmp_path: Path, values: list[bytes]) -> None:
    folder = make_folder(str(tmp_path), "log.db")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    stage(folder, TOPIC, 0, batches(values, 100))
    remove_folder(folder)
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_outlives_its_job_leaves_nothing(tmp_path: Path, values: list[bytes]) -> None:
    folder = make_folder(str(tmp_path), "log.db")
    remove_folder(folder)
    with pytest.raises(FileNotFoundError):
        stage(folder, TOPIC, 0, batches(values, 100))
    assert list(tmp_path.iterdir()) == []
