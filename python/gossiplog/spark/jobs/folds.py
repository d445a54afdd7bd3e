"""Folds of messages into a state for each key, as DataFrames.

A fold goes through one encoding of each message in the order of content ids, which is causal. Where every message is
canonical, it equals what `Log.replay` computes in the order of ids. Replicas that got encodings in another order have
the same content ids, and so the same state. What a state must keep so that a message which arrives later with a smaller
content id is still folded rightly differs:

- *The last writer wins*: the content id that wrote the value. It is a maximum, so the order of arrival does not matter,
  nor how often a message comes.
- *Counters*: nothing but the sum. Two states have no message in common.
- *Sets*: for each element the content id of what last put it in or took it out, also for those that are out.
- *A function*: the content id that was folded last, to know when a message comes before it. The function may be
  anything, so the keys of such messages are folded again: from the last state that an earlier run left of them, from
  before that message, and with what the log has since; or from their first message, where no run did.

In the first three a state has the columns of messages, and folding is associative: the states of two parts of a log,
put together, are folded once more. For a function they are the same columns, too: a state stands where its last message
stood.
"""

from __future__ import annotations

import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
)

from gossiplog import core
from gossiplog.errors import EncodeError, OptionError, SparkError
from gossiplog.log.callbacks import check_runs
from gossiplog.message import SignedMessage, plain_json
from gossiplog.spark.failures import raising

FoldFunction: TypeAlias = Callable[[Any, SignedMessage], Any]
"""Takes the state of a key, None before its first message, and a message; returns the new state, a value of the IPLD
data model."""

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
# Equal in Spark exactly when they are equal in Python: floating point has NaN, and two zeros.
_KEYS = (*_INTEGERS, StringType, BinaryType, BooleanType, DateType)
# Rows of state in a batch.
_BATCH = 4096
# Characters of a key that an error shows.
_SHOWN_KEY = 200


class Fold(ABC):
    """How messages become the state of their key.

    The frames of messages that it is given have the columns key, value, removed (whether a set loses the value),
    content_id, id, stored (the stored value) and topic; none has a null key.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """By which a checkpoint knows it again."""

    @abstractmethod
    def rows(self, messages: DataFrame) -> DataFrame:
        """Return messages in the columns of the state.

        Raises:
            OptionError: keys or values of a type that the fold cannot take.
        """

    def distinct(self, messages: DataFrame) -> DataFrame:
        """Return each message once; all as they are where `combine` counts a repeated one once."""
        return messages

    @abstractmethod
    def combine(self, rows: DataFrame) -> DataFrame:
        """Return the state of messages and former states, in the columns of `rows`."""

    def merge(self, layers: DataFrame) -> DataFrame:
        """Return the state that layers are together, in the columns of the state.

        Args:
            layers: rows of states, with the column `layer`: each is that of the messages which came after the former.
        """
        return self.combine(layers.drop("layer"))

    def table(self, state: DataFrame) -> DataFrame:
        """Return a state without what it keeps for messages to come: its keys and values."""
        return state.select("key", "value")


@dataclass(frozen=True, slots=True)
class LastWriter(Fold):
    """The value of the message with the largest content id. Null is a value like others."""

    @property
    def name(self) -> str:
        return "last"

    def rows(self, messages: DataFrame) -> DataFrame:
        _check_type("key", messages, _KEYS)
        return messages.select("key", "value", "content_id")

    def combine(self, rows: DataFrame) -> DataFrame:
        value = F.max_by("value", "content_id").alias("value")
        return rows.groupBy("key").agg(value, F.max("content_id").alias("content_id"))


@dataclass(frozen=True, slots=True)
class Counter(Fold):
    """The sum of the values, which are integers. A null counts nothing. A sum beyond 64 bits is an EncodeError."""

    @property
    def name(self) -> str:
        return "count"

    def rows(self, messages: DataFrame) -> DataFrame:
        _check_type("key", messages, _KEYS)
        # Not floating point: its sums depend on their order, which Spark does not promise.
        _check_type("value", messages, _INTEGERS)
        return messages.select("key", F.coalesce(F.col("value").cast("long"), F.lit(0)).alias("value"))

    def distinct(self, messages: DataFrame) -> DataFrame:
        # Of several encodings always the same one: an expression may distinguish them.
        row = F.min_by(F.struct("key", "value"), "id").alias("row")
        return messages.groupBy("content_id").agg(row).select("row.*")

    def combine(self, rows: DataFrame) -> DataFrame:
        # A sum wraps around in a session without spark.sql.ansi.enabled. No value is null: then only this one is.
        total = F.try_sum("value")
        key = F.substring(F.to_json(F.struct("key")), 1, _SHOWN_KEY)
        beyond = F.concat(F.lit("the sum of a counter is beyond 64 bits, that of "), key)
        return rows.groupBy("key").agg(F.coalesce(total, raising(EncodeError, beyond).cast("long")).alias("value"))


@dataclass(frozen=True, slots=True)
class ElementSet(Fold):
    """Values that were put in, and not taken out by a message with a larger content id. A null is no element."""

    @property
    def name(self) -> str:
        return "set"

    def rows(self, messages: DataFrame) -> DataFrame:
        _check_type("key", messages, _KEYS)
        if isinstance(messages.schema["value"].dataType, MapType):
            raise OptionError("the value of a set is a map, which Spark cannot compare")
        removed = F.coalesce(F.col("removed"), F.lit(False)).alias("removed")
        return messages.where(F.col("value").isNotNull()).select("key", "value", "content_id", removed)

    def combine(self, rows: DataFrame) -> DataFrame:
        last = F.max("content_id").alias("content_id")
        return rows.groupBy("key", "value").agg(last, F.max_by("removed", "content_id").alias("removed"))

    def table(self, state: DataFrame) -> DataFrame:
        """One row for each element of each key."""
        return state.where(~F.col("removed")).select("key", "value")


@dataclass(frozen=True, slots=True)
class FunctionFold(Fold):
    """A function, called once for each message of a key, in the order of content ids. Values are states as dag-json.

    Replicas may hand it another encoding of a message. All have the author, the clock, the parents, the payload and the
    content id in common. A state that depends on `id`, `key`, `value` or `canonical` is not the same everywhere; nor is
    one that takes parents for content ids, because a message may name any encoding of its parents.

    Attributes:
        function: as `FoldFunction` says. It runs on executors, which must have what it imports. A state that is
            continued is known by its name, which objects such as those of `functools.partial` lack.

    Raises:
        OptionError: it cannot be called with a state and a message, or its body would not run.
    """

    function: FoldFunction

    def __post_init__(self) -> None:
        try:
            check_runs("fold", self.function, "state", "message")
        except TypeError as error:
            raise OptionError(str(error)) from error

    @property
    def name(self) -> str:
        name = getattr(self.function, "__qualname__", None)
        if name is None:
            raise OptionError(
                f"the fold {self.function!r} has no name by which its state is known again: give a function that calls"
                " it, as def fold(state, message): return …"
            )
        return f"{self.function.__module__}:{name}"

    def rows(self, messages: DataFrame) -> DataFrame:
        _check_type("key", messages, _KEYS)
        return messages.select("key", F.lit(None).cast("string").alias("value"), "content_id", "stored", "topic")

    def combine(self, rows: DataFrame) -> DataFrame:
        key = rows.schema["key"].dataType.simpleString()
        schema = f"key {key}, value string, content_id string, stored binary, topic string"
        # Sorted on disk if need be: a task holds one batch and one state, however many messages a key has. A state
        # comes before a further encoding of its last message, and of several encodings always the same one is first.
        ordered = rows.repartition("key").sortWithinPartitions("key", "content_id", "stored")
        return ordered.mapInArrow(Runs(self.function), schema)

    def merge(self, layers: DataFrame) -> DataFrame:
        """Return the newest state of each key; `since` is the least content id of all that made it."""
        newest = F.max_by(F.struct("value", "content_id", "stored", "topic"), "layer").alias("newest")
        state = layers.groupBy("key").agg(newest, F.min("since").alias("since"))
        return state.select("key", "newest.*", "since")

    def resume(self, layers: DataFrame, rows: DataFrame) -> DataFrame:
        """Return where to go on for each key that has new messages: after the last state that has none too few.

        A state of a key is one of all messages before its own content id, but for those that arrived later: of these
        each layer has the least content id of a key, in `since`.

        Args:
            layers: of the state.
            rows: new messages, as `rows` returns them.

        Returns:
            The columns `key`, `since`, `base` (the state, a struct of `value` and `content_id`, null where the key has
            none to go on from), and `again` (what the log has after the base must be folded again).
        """
        if "since" not in layers.columns:
            # A former version's, which has one layer.
            layers = layers.withColumn("since", F.lit(None).cast("string"))
        since = rows.groupBy("key").agg(F.min("content_id").alias("arrived"))
        newer = Window.partitionBy("key").orderBy(F.desc("layer")).rowsBetween(Window.unboundedPreceding, -1)
        versions = layers.join(since, "key").withColumn("later", F.min("since").over(newer))
        whole = F.when(F.col("content_id") < F.least("arrived", "later"), F.col("layer"))
        found = versions.withColumn("whole", whole).groupBy("key")
        bases = found.agg(
            F.max_by(F.struct("value", "content_id"), "whole").alias("base"),
            F.max("whole").alias("whole"),
            F.max("layer").alias("newest"),
        )
        again = F.col("newest").isNotNull() & (F.coalesce("whole", F.lit(-1)) < F.col("newest"))
        # The struct of a key without any such state is one of nulls.
        base = F.when(F.col("whole").isNotNull(), F.col("base")).alias("base")
        return since.join(bases, "key", "left").select(
            "key", F.col("arrived").alias("since"), base, again.alias("again")
        )


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs a function over rows that ascend by (key, content_id), once for those that are equal in both."""

    function: FoldFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold batches into rows of the state."""
        finished: list[dict[str, Any]] = []
        current: dict[str, Any] | None = None
        state: Any = None
        schema: pa.Schema | None = None
        for batch in batches:
            schema = batch.schema
            for row in batch.to_pylist():
                if current is None or row["key"] != current["key"]:
                    if current is not None:
                        finished.append(_finished(current, state))
                    state = None
                elif row["content_id"] == current["content_id"]:
                    continue
                current = row
                state = self._step(state, row)
            if len(finished) >= _BATCH:
                yield pa.RecordBatch.from_pylist(finished, schema)
                finished = []
        if current is not None:
            finished.append(_finished(current, state))
            yield pa.RecordBatch.from_pylist(finished, schema)

    def _step(self, state: Any, row: Mapping[str, Any]) -> Any:
        """Return the state after a row, which has a message or a former state.

        Raises:
            SparkError: the function raised.
        """
        if row["stored"] is None:
            return core.json_decode(row["value"].encode())
        message = core.read_message(row["stored"], row["topic"])
        try:
            return self.function(state, message)
        except Exception as error:
            # All that Spark brings back of a worker's exception is text, and of ours its last line.
            raised = " ".join(traceback.format_exception_only(error)[-1].split())
            at = traceback.extract_tb(error.__traceback__)[-1]
            name = getattr(self.function, "__qualname__", repr(self.function))
            raise SparkError(
                f"the fold {name} raised {raised} ({os.path.basename(at.filename)}, line {at.lineno}), given the"
                f" message {message.id} of the key {row['key']!r}: `gossiplog show` shows the message"
            ) from error


def _finished(row: dict[str, Any], state: Any) -> dict[str, Any]:
    try:
        value = plain_json(state).decode()
    except EncodeError as error:
        raise EncodeError(f"the fold's state of the key {row['key']!r} cannot be kept: {error}") from error
    return {"key": row["key"], "value": value, "content_id": row["content_id"], "stored": None, "topic": None}


def _check_type(column: str, messages: DataFrame, expected: tuple[type[DataType], ...]) -> None:
    kind = messages.schema[column].dataType
    if not isinstance(kind, expected):
        names = ", ".join(sorted({one().simpleString() for one in expected}))
        raise OptionError(f"the {column} has the type {kind.simpleString()}: expected one of {names}, as by a cast")
