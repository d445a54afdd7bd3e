"""Sorted runs of verified values, and merging them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossiplog import Signer, core
from gossiplog.errors import StorageError
from gossiplog.spark.source import staging
from gossiplog.spark.source.staging import make_folder, merged, refused, remove_folder, sort, stage
from tests.strategies import repeatable

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


def test_a_folder_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gossiplog.spark.source.staging.json.dump", full)
    with pytest.raises(StorageError, match=r"cannot be staged in .* \(No space left on device\): set the option stagi"):
        make_folder(str(tmp_path), "log.db")


@pytest.mark.slow
@repeatable(200)
@given(st.lists(st.lists(st.binary(max_size=3), max_size=5), max_size=40), st.integers(2, 6), st.integers(1, 40))
@example([[bytes([number])] for number in range(37)], 6, 1)
def test_any_number_of_runs_is_merged_by_key(runs: list[list[bytes]], most: int, chunk: int) -> None:
    opened: list[str] = []
    read = staging._read

    def counted(path: str) -> Iterator[tuple[bytes, bytes]]:
        # Not when it is called, but when it is read.
        opened.append(path)
        assert len(opened) <= most
        yield from read(path)
        opened.remove(path)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(staging, "_OPEN_RUNS", most)
        patch.setattr(staging, "_CHUNK_BYTES", chunk)
        patch.setattr(staging, "_read", counted)
        paths = []
        for keys in runs:
            batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())})
            paths += [path for path, _ in sort(folder, [batch])]
        assert list(merged(paths)) == sorted(key for keys in runs for key in keys)
        # What was merged into a longer run is gone.
        assert len(list(Path(folder).iterdir())) <= most


# Runs of a message each, more than a process may have files open.
_MANY = """
import resource, sys
import pyarrow as pa
import gossiplog
from gossiplog import Signer
from gossiplog.spark.jobs.ingest import _insert
from gossiplog.spark.source.options import write_options
from gossiplog.spark.source.staging import sort
from gossiplog.spark.source.writer import LogArrowWriter
from pyspark.sql.types import BinaryType, StructField, StructType

folder, runs = sys.argv[1], 1200
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
messages = [Signer(bytes(32)).sign("many", 1, [], number) for number in range(runs)]
writer = LogArrowWriter(
    write_options({"path": folder + "/append.db", "topic": "many"}), StructType([StructField("value", BinaryType())])
)
writer.commit([writer.write(iter([pa.record_batch({"value": [value]})])) for _, value in messages])
paths = []
for _, value in messages:
    key = gossiplog.core.verify(value, "many").key
    paths += [path for path, _ in sort(folder, [pa.record_batch({"key": [key], "value": [value]})])]
_insert(paths, runs, folder + "/ingest.db", "many")
with gossiplog.open(folder + "/append.db") as one, gossiplog.open(folder + "/ingest.db") as other:
    assert len(one) == len(other) == runs
    assert one.root == other.root
print("whole")
"""


@pytest.mark.integration
def test_more_runs_than_files_may_be_open(tmp_path: Path) -> None:
    """In a process of its own, because the limit holds for all of it."""
    run = subprocess.run(
        [sys.executable, "-c", _MANY, str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert (run.returncode, run.stdout) == (0, "whole\n"), run.stderr


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


def test_two_jobs_remove_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that ends, and the next one, which takes for abandoned what has been renamed to be removed."""
    folder = make_folder(str(tmp_path), "log.db")
    for name in "abc":
        Path(folder, name).touch()
    unlink = os.unlink

    def unlinked(path: str, **options: int) -> None:
        monkeypatch.setattr(os, "unlink", unlink)
        remove_folder(make_folder(str(tmp_path), "log.db"))
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", unlinked)
    remove_folder(folder)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is taken for this one's parent."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr("os.getppid", lambda: process.pid)
        yield process


def test_what_a_killed_job_has_left_is_removed_by_the_next(
    tmp_path: Path, parent: subprocess.Popen[bytes], values: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = str(tmp_path)
    left, other = make_folder(base, "log.db"), make_folder(base, "other.db")
    stage(left, TOPIC, 0, batches(values, 100))
    # While its job runs, another one into the same log leaves it alone.
    remove_folder(make_folder(base, "log.db"))
    assert {path.name for path in tmp_path.iterdir()} == {Path(left).name, Path(other).name}
    parent.kill()
    parent.wait()
    monkeypatch.undo()
    Path(f"{left}x.removed").mkdir(0o700)
    following = make_folder(base, "log.db")
    assert {path.name for path in tmp_path.iterdir()} == {Path(following).name, Path(other).name}


@pytest.mark.parametrize("kind", ["link", "open", "owner", "machine", "json", "number", "lacking", "file"])
def test_what_no_killed_job_of_ours_has_left_stays(
    tmp_path: Path, parent: subprocess.Popen[bytes], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(make_folder(str(tmp_path), "log.db"))
    parent.kill()
    parent.wait()
    match kind:
        case "link":
            folder = folder.rename(tmp_path / "moved")
            (tmp_path / "log.db.staging-link").symlink_to(folder)
        case "open":
            folder.chmod(0o770)
        case "owner":
            monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
        case "machine":
            monkeypatch.setattr("socket.gethostname", lambda: "another")
        case "json":
            (folder / ".owner").write_text("{")
        case "number":
            (folder / ".owner").write_text('["a", "b", "c", "d"]')
        case "lacking":
            (folder / ".owner").unlink()
        case "file":
            (tmp_path / "log.db.staging-file").touch()
            (folder / ".owner").unlink()
    before = set(tmp_path.iterdir())
    made = Path(make_folder(str(tmp_path), "log.db"))
    assert set(tmp_path.iterdir()) == before | {made}


def test_a_number_that_another_process_has_now_is_no_owner(
    tmp_path: Path, parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_started", lambda _: "earlier")
    folder = Path(make_folder(str(tmp_path), "log.db"))
    monkeypatch.setattr(staging, "_started", lambda _: "later")
    make_folder(str(tmp_path), "log.db")
    assert not folder.exists()


def test_a_task_that_outlives_its_job_leaves_nothing(tmp_path: Path, values: list[bytes]) -> None:
    folder = make_folder(str(tmp_path), "log.db")
    remove_folder(folder)
    with pytest.raises(FileNotFoundError):
        stage(folder, TOPIC, 0, batches(values, 100))
    assert list(tmp_path.iterdir()) == []
