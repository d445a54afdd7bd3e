"""Stored values on their way into a log: tasks verify them and leave sorted runs in a folder, which the driver merges.

The folder is made before the tasks start, and no task makes it: one that still runs when the job is given up finds no
place for its files. Its owner alone has access to it, because the driver takes what lies there as verified. A job that
is killed leaves it. No process works in it all the time, so no lock would say that it is dead; but all of its processes
on the driver have one parent (Spark's daemon of workers, or Java itself), and whoever makes the next folder beside it
looks whether that is still there.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
import socket
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from gossiplog import core
from gossiplog.columns import verify
from gossiplog.errors import StorageError
from gossiplog.spark.folders import STAGING

# Of a run: it is sorted in memory.
_RUN_MESSAGES = 2**17
_RUN_BYTES = 2**26
# Of the part of a run that the driver holds, which it does of every run that it merges.
_CHUNK_BYTES = 2**19
# Runs that are merged at a time: a process may have as few as 256 files open.
_OPEN_RUNS = 128
# In a staging folder: for which process it was made.
_OWNER = ".owner"
_REMOVED = ".removed"
_MESSAGES = pa.schema([("key", pa.binary()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task leaves.

    Attributes:
        runs: files of messages, ascending by key.
        refused: a file of what it refused, a JSON object a line.
        values: how many it was given.
        refusals: how many of them it refused.
    """

    runs: tuple[str, ...]
    refused: str
    values: int
    refusals: int


def make_folder(base: str, name: str) -> str:
    """Make a staging folder, and return its path; remove those of the same name that killed jobs have left.

    Args:
        base: the folder in which it is made.
        name: of the log, which it is called after.

    Raises:
        StorageError: it cannot be made.
    """
    prefix = f"{name}{STAGING}"
    with raising_staging_error(base):
        _remove_abandoned(base, prefix)
        folder = tempfile.mkdtemp(prefix=prefix, dir=base)
        with open(os.path.join(folder, _OWNER), "w", encoding="utf-8") as file:
            json.dump([*_here(), os.getppid(), _started(os.getppid())], file)
    return folder


@contextmanager
def raising_staging_error(base: str) -> Iterator[None]:
    """Translate OSError into StorageError in a block that makes folders for staging.

    Args:
        base: the folder in which they are made.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"values cannot be staged in {base} ({error.strerror}): set the option staging to a folder that you can"
            " write to"
        ) from error


def remove_folder(folder: str) -> None:
    """Remove a staging folder with all that is in it; one that is gone is no error."""
    leaving = f"{folder}{_REMOVED}"
    try:
        # At once, so that no task that is still running adds to it meanwhile.
        os.rename(folder, leaving)
    except FileNotFoundError:
        return
    # Another job may remove it at the same time. What stays, the next one removes.
    shutil.rmtree(leaving, ignore_errors=True)


def _remove_abandoned(base: str, prefix: str) -> None:
    """Remove staging folders whose jobs are dead: of this user's, on this machine."""
    with os.scandir(base) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(prefix)]
    for path in found:
        # Gone meanwhile, or not ours to remove.
        with suppress(OSError, ValueError):
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                continue
            if path.endswith(_REMOVED):
                shutil.rmtree(path)
                continue
            with open(os.path.join(path, _OWNER), encoding="utf-8") as file:
                match json.load(file):
                    case [host, namespace, int(process), started] if (host, namespace) == _here():
                        if _started(process) != started:
                            remove_folder(path)


def _here() -> tuple[str, str]:
    """Return where the number of a process means the same process: the machine, and the container on it."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return socket.gethostname(), namespace


def _started(process: int) -> str | None:
    """Return what no later process of the same number has in common with it; None where there is none.

    That is when it started, as Linux has it (proc_pid_stat(5)); elsewhere nothing.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            # The name of the program, in parentheses, may have any signs.
            return file.read().rpartition(")")[2].split()[19]
    except FileNotFoundError:
        return None if os.path.exists("/proc/self/stat") else ""


def stage(folder: str, topic: str, partition: int, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Verify the values of a task, and leave them in sorted runs.

    Args:
        folder: for the files.
        topic: of the log.
        partition: the task's number, for the report.
        batches: with a column `value`.
    """
    # A task may be tried several times, also at once.
    name = os.path.join(folder, uuid.uuid4().hex)
    runs: list[str] = []
    values = refusals = 0
    with open(f"{name}.refused", "w", encoding="utf-8") as refused:
        for run in _runs_of(batches, ["value"]):
            column = run["value"].combine_chunks()
            verdicts = verify(None, column, topic)
            table = pa.table({"key": verdicts["key"], "value": column, "error": verdicts["error"]})
            bad = pc.is_valid(table["error"])
            numbers = pc.indices_nonzero(bad).to_pylist()
            for number, row in zip(numbers, table.filter(bad).select(["key", "error"]).to_pylist(), strict=True):
                record = {"partition": partition, "row": values + number, "id": _id(row["key"]), "error": row["error"]}
                refused.write(json.dumps(record) + "\n")
            sound = table.filter(pc.invert(bad)).select(["key", "value"]).sort_by("key")
            if len(sound):
                runs.append(f"{name}-{len(runs)}.arrow")
                _write(runs[-1], sound)
            values += len(column)
            refusals += len(numbers)
    return Staged(tuple(runs), f"{name}.refused", values, refusals)


def sort(folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int]]:
    """Leave, in sorted runs, messages that need not be verified.

    Args:
        folder: for the runs.
        batches: with the columns `key` and `value`.

    Returns:
        The runs' files, each with the number of its messages.
    """
    for run in _runs_of(batches, ["key", "value"]):
        path = os.path.join(folder, f"{uuid.uuid4().hex}.arrow")
        _write(path, run.sort_by("key"))
        yield path, len(run)


def merged(runs: Iterable[str]) -> Iterator[bytes]:
    """Return the values of runs, ascending by key, and so parents before their children.

    Where there are too many runs to be open at a time, the shortest ones are merged into longer ones beside them first,
    and removed: so few messages are merged often (D. Huffman's code for an alphabet of `_OPEN_RUNS` signs).
    """
    waiting = [(os.path.getsize(run), run) for run in runs]
    heapq.heapify(waiting)
    while len(waiting) > _OPEN_RUNS:
        # Fewer the first time, so that later merges have as many as they may.
        count = (len(waiting) - 2) % (_OPEN_RUNS - 1) + 2
        shortest = [heapq.heappop(waiting)[1] for _ in range(count)]
        longer = os.path.join(os.path.dirname(shortest[0]), f"{uuid.uuid4().hex}.arrow")
        _write_merged(longer, shortest)
        for run in shortest:
            os.unlink(run)
        heapq.heappush(waiting, (os.path.getsize(longer), longer))
    return (value for _, value in heapq.merge(*(_read(run) for _, run in waiting)))


def refused(staged: Iterable[Staged]) -> Iterator[dict[str, object]]:
    """Yield what the tasks refused."""
    for task in staged:
        with open(task.refused, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _runs_of(batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[pa.Table]:
    """Yield these columns of batches, binary ones, joined to the length of runs."""
    schema = pa.schema([(name, pa.binary()) for name in names])
    gathered: list[pa.RecordBatch] = []
    size = length = 0
    for batch in batches:
        gathered.append(batch.select(names).cast(schema))
        length += len(batch)
        size += gathered[-1].nbytes
        if length >= _RUN_MESSAGES or size >= _RUN_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size, length = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _write(path: str, run: pa.Table) -> None:
    # Never whole runs: the driver reads all of them at a time.
    rows = max(1, len(run) * _CHUNK_BYTES // max(run.nbytes, 1))
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, run.schema) as writer:
        writer.write_table(run, max_chunksize=rows)


def _write_merged(path: str, runs: Iterable[str]) -> None:
    chunk: list[tuple[bytes, bytes]] = []
    size = 0
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, _MESSAGES) as writer:

        def flush() -> None:
            keys, values = zip(*chunk, strict=True)
            writer.write_batch(pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], _MESSAGES))

        for message in heapq.merge(*map(_read, runs)):
            chunk.append(message)
            size += len(message[0]) + len(message[1])
            if size >= _CHUNK_BYTES:
                flush()
                chunk, size = [], 0
        if chunk:
            flush()


def _read(path: str) -> Iterator[tuple[bytes, bytes]]:
    with pa.OSFile(path) as file, pa.ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)


def _id(key: bytes | None) -> str | None:
    return core.encode_id(key) if key is not None and len(key) == core.KEY_LENGTH else None
