"""The job `ingest`: rows of an application become a log of signed messages.

What is done on the way lies in a staging folder beside the log; the log is made there, too, and gets its name when it
is complete, by one link. All else is removed before, because it has the events as they are, and the folder when the job
ends, also where it refuses events, unless others have put files into it. Where it is interrupted or a task fails, other
tasks may still run: what they wrote is removed, and an empty file stays in its place, below which they can write no
more. A job that is killed leaves all of it. The next run clears the folder and begins anew: since signing is
deterministic, it makes the same messages. The driver holds no rows but the first of those that are unsound.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

import gossiplog.log
from gossiplog.errors import EventsRefused, GossipLogError, StorageError
from gossiplog.files import publish
from gossiplog.log.insertion import insert_many
from gossiplog.log.log import replica_of
from gossiplog.message import check_topic
from gossiplog.reprs import counted
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import (
    INGEST_SUFFIX,
    check_staging,
    is_local,
    local_path,
    locked,
    remove_locked,
    write_back,
)
from gossiplog.spark.jobs.components import components
from gossiplog.spark.jobs.events import Layout, events, problems
from gossiplog.spark.jobs.sign import SIGNED, KeyStore, Merging, Signing
from gossiplog.spark.source.locations import is_uri, without_password
from gossiplog.spark.source.staging import merged, sort
from gossiplog.spark.tasks import parallelism

_SHOWN = 20
# Of the staging folder: what lies there is not verified again.
_MODE = 0o700
# How the folders in it begin that runs work in. Each has one of its own: tasks of a run that was killed may write for a
# moment longer, and would be taken for this run's.
_WORK = "work"
_LOG = "log"
# Tasks for each core: components are not of equal size. Fewer, where each would have less than it costs.
_TASKS = 4
_TASK_EVENTS = 1000
# How many times a folder is removed, while tasks that were cancelled still write into it, and the seconds between.
_DISCARDS = 50
_DISCARD_SECONDS = 0.1
# Messages that are inserted at a time.
_SLICE = 2**16


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What a job made.

    Attributes:
        events: how many messages hold events.
        merges: how many others there are, which join heads.
        authors: of the events.
        heads: of the events, before they were joined.
    """

    events: int
    merges: int
    authors: int
    heads: int


def ingest(frame: DataFrame, log: str, topic: str, layout: Layout, keys: str, *, merger: str) -> IngestResult:
    """Make a log of the rows of a frame.

    Args:
        frame: with a row for each event.
        log: the path of the log to be made, on a file system that the executors share: the staging folder is beside it.
        topic: of the log.
        layout: which columns say what.
        keys: a folder of key files, as `KeyStore` has them, which the executors see.
        merger: an author in the key store, who signs the messages that join heads until one is left.

    Raises:
        OptionError: an expression that Spark does not understand, or of a type that does not fit.
        EncodeError: a topic that no log can have.
        EventsRefused: rows that cannot become messages. There is no log.
        StorageError: the log is there already, cannot be written, or another process makes it; or the staging folder is
            there, and no job of this user's left it. A log that is complete and cannot get its name stays in the
            staging folder, which the error names.
        KeyFileError: a key that was there is gone.
    """
    check_new_log(log, topic)
    log = os.path.abspath(log)
    folder = _staging_folder(log)
    store = KeyStore(os.path.abspath(local_path(keys, "the keys")))
    with locked(folder, _MODE, staging=True), worker_errors():
        stage = _Stage(os.path.join(folder, f"{_WORK}-{uuid.uuid4().hex}"))
        try:
            _clear(folder)
            os.mkdir(stage.folder)
            done = _make(frame, stage, topic, layout, store, merger)
            stage.leave(_LOG)
        except BaseException as error:
            # However it ends: the events lie there as they are.
            _discard(folder, stage.folder)
            if isinstance(error, GossipLogError):
                # The driver's own, while no task runs.
                _clear(folder)
                remove_locked(folder)
            raise
        _publish(stage.path(_LOG), log)
        _clear(folder)
        remove_locked(folder)
    return done


def check_new_log(log: str, topic: str) -> None:
    """Check that a log of a topic can be made.

    Raises:
        EncodeError: a topic that no log can have.
        StorageError: the log is there already, or a staging folder that no job of this user's left; or one cannot be
            made there, or another process works in it.
    """
    check_topic(topic)
    if is_uri(log) or not is_local(log):
        raise StorageError(
            f"{without_password(log)} is no path of a file: name one to be made on this machine, and gossiplog sync URL"
            " FILE brings it into a database"
        )
    folder = _staging_folder(os.path.abspath(log))
    check_staging(folder, _MODE)
    if os.path.lexists(log):
        left = f"; remove {folder}, which a job has left that was killed" if os.path.exists(folder) else ""
        raise StorageError(
            f"{os.path.abspath(log)} is there already: name a log to be made, and sync it with the other{left}"
        )
    # Whether a folder can be made shows nowhere but in making it.
    with locked(folder, _MODE, staging=True):
        remove_locked(folder)


def _staging_folder(log: str) -> str:
    return f"{log}{INGEST_SUFFIX}"


def _works(folder: str) -> list[str]:
    """Return the folders that runs have worked in."""
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(_WORK)]


def _clear(folder: str) -> None:
    """Remove what runs have left that were killed."""
    for work in _works(folder):
        if os.path.isdir(work):
            shutil.rmtree(work)
        else:
            os.unlink(work)


def _discard(folder: str, work: str) -> None:
    """Remove what a run has made, and leave an empty file in its place.

    Tasks that were cancelled run on for a moment. They would make all folders of their paths anew, which others may
    then enter, and write events there; below a file they cannot.
    """
    for place in {work, *_works(folder)}:
        for _ in range(_DISCARDS):
            if os.path.isdir(place):
                shutil.rmtree(place, ignore_errors=True)
            with suppress(OSError):
                # Not where a task has made it anew meanwhile.
                open(place, "x", encoding="utf-8").close()
            if os.path.isfile(place):
                break
            time.sleep(_DISCARD_SECONDS)


def _make(frame: DataFrame, stage: _Stage, topic: str, layout: Layout, store: KeyStore, merger: str) -> IngestResult:
    """Make the log in the staging folder."""
    # Once and for all: what is read anew may have changed.
    found = stage.keep("events", events(frame, layout))
    counts = found.agg(F.count("*").alias("events"), F.count_distinct("author").alias("authors"))
    given = _check(problems(found, layout, store, merger), counts)
    tasks = min(parallelism(found.sparkSession) * _TASKS, max(given.events // _TASK_EVENTS, 1))
    signed = stage.keep("signed", _signed(found, layout, topic, store, stage, tasks))
    unsound = signed.where("problem IS NOT NULL").select("problem", "event").unionByName(_identical(signed))
    heads = _check(unsound, signed.agg(F.count_if("head").alias("heads"))).heads
    merges = (
        signed.where("head")
        .select("key")
        .repartition(1)
        .sortWithinPartitions("key")
        .mapInArrow(Merging(topic, store, merger), "key binary, value binary")
    )
    messages = _store(signed.select("key", "value").union(merges), stage, topic)
    return IngestResult(given.events, messages - given.events, given.authors, heads)


class _Stage:
    """What lies in the folder that a run works in, by name."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def leave(self, kept: str) -> None:
        """Remove the folders of all other names, and so the events as they are; files beside the log are its own."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name != kept and entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """Compute a frame, and return what was computed."""
        return write_back(frame, self.path(name))


def _signed(found: DataFrame, layout: Layout, topic: str, keys: KeyStore, stage: _Stage, tasks: int) -> DataFrame:
    node = F.xxhash64("author" if layout.sequence is not None else "id").alias("node")
    rows = found.drop("fault").withColumn("node", node)
    labelled = rows.withColumn("component", F.col("node"))
    if layout.parents is not None:
        # Events of an author belong together anyway where they have a sequence. Two nodes with the same hash become
        # one, which only puts two components into one task.
        ids = rows.select(F.col("id").alias("parent"), F.col("node").alias("b"))
        links = rows.select(F.col("node").alias("a"), F.explode("parents").alias("parent"))
        linked = components(links.join(ids, "parent").select("a", "b").distinct(), stage.path("components"))
        labelled = rows.join(linked, "node", "left").withColumn("component", F.coalesce("component", "node"))
    order = ["component", "author", "sequence", "id"]
    ordered = labelled.select(*order, "parents", "payload").repartition(tasks, "component")
    return ordered.sortWithinPartitions(*order).mapInArrow(Signing(topic, keys), SIGNED)


def _identical(signed: DataFrame) -> DataFrame:
    """Return events that make the same message, which a log would hold once."""
    messages = signed.where("key IS NOT NULL").groupBy("key")
    counted = messages.agg(F.count("*").alias("count"), F.min("event").alias("event")).where("count > 1")
    problem = F.concat(
        F.col("count").cast("string"),
        F.lit(" events make the same message: of one author, after the same parents, with the same payload"),
    )
    return counted.select(problem.alias("problem"), "event")


def _check(found: DataFrame, counts: DataFrame) -> Row:
    """Return the single row of `counts`, computed in the job that looks for problems.

    Raises:
        EventsRefused: there are some.
    """
    both = found.unionByName(counts, allowMissingColumns=True)
    # The row of counts has no problem, and nulls sort first.
    counted, *rows = both.orderBy("problem", "event").limit(_SHOWN + 2).collect()
    if rows:
        raise EventsRefused([f"{row.problem} ({row.event})" for row in rows[:_SHOWN]], complete=len(rows) <= _SHOWN)
    return counted


def _store(messages: DataFrame, stage: _Stage, topic: str) -> int:
    """Make the log, and return how many messages it has.

    What the executors have signed is not verified again: the staging folder is its owner's alone.
    """
    folder = stage.path("runs")
    os.mkdir(folder)

    def sorted_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [{"run": path, "messages": number} for path, number in sort(folder, batches)]
        yield pa.RecordBatch.from_pylist(rows, pa.schema([("run", pa.string()), ("messages", pa.int64())]))

    runs = messages.mapInArrow(sorted_runs, "run string, messages long").collect()
    number: int = sum(row.messages for row in runs)
    _insert([row.run for row in runs], number, stage.path(_LOG), topic)
    return number


def _insert(runs: list[str], number: int, path: str, topic: str) -> None:
    """Make a log of the messages of sorted runs.

    Raises:
        StorageError: it does not have as many messages as they should be.
    """
    values = merged(runs)
    inserted = 0
    with gossiplog.log.open(path, topic) as log:
        while some := list(islice(values, _SLICE)):
            inserted += insert_many(replica_of(log), some, signed=True).inserted
    if inserted != number:
        raise StorageError(f"of {counted(number, 'message')}, {inserted:,} could be stored in {path}")


def _publish(made: str, log: str) -> None:
    """Publish a log under its name, atomically; fail if the name exists."""
    try:
        publish(made, log)
    except FileExistsError as error:
        raise StorageError(f"{log} was made by another process meanwhile; the log is in {made}") from error
    except OSError as error:
        raise StorageError(f"{log}: {error.strerror}; the log is in {made}") from error
