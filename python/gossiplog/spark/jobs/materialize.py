"""The job `materialize`: messages folded into a table of state, and continued from where it stood.

A state is that of the first so many messages in the order of arrival, which is a whole history: parents arrive before
their children. Of several encodings of a message the first that arrived is folded, alone. Continuing a state reads
what arrived since; `gossiplog.spark.jobs.folds` says how a message among it with a smaller content id than some that
were folded is folded rightly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, DataType

from gossiplog import core
from gossiplog.errors import CursorOutdated, OptionError, SparkError, StorageError
from gossiplog.log.reading import read_arrivals
from gossiplog.spark.failures import expression_error, first_line, worker_errors
from gossiplog.spark.folders import locked, remove_locked
from gossiplog.spark.jobs.checkpoint import Checkpoint, Layer, StateFolder
from gossiplog.spark.jobs.folds import ElementSet, Fold, FunctionFold
from gossiplog.spark.jobs.summary import expression
from gossiplog.spark.payload import parse_payload, spark_type
from gossiplog.spark.source.data_source import read
from gossiplog.spark.source.locations import identity
from gossiplog.spark.source.marks import LogMark, check_mark, mark_of
from gossiplog.spark.source.offsets import is_other_origin, origin
from gossiplog.spark.source.opening import opened
from gossiplog.spark.source.options import SCHEMA
from gossiplog.spark.source.stream_reader import changes
from gossiplog.storage.base import Reader

# As many times the rows of all newer layers may a layer have and yet be merged with them.
_MOST_TIMES = 2


@dataclass(frozen=True, slots=True)
class Recipe:
    """How messages are folded.

    Expressions are Spark's SQL over the columns of the data source, as "payload.name" where the payload has a shape. In
    seq, id, key, value, size and canonical the encodings of a message differ: replicas may have different tables of a
    recipe that uses one of these columns.

    Attributes:
        fold: what becomes of the values of a key.
        key: an expression. A message for which it is null is passed over.
        value: an expression; None is 1 for every message, of use to a counter, or to a function, which takes none.
        removed: for a set: an expression that is true for messages that take their value out.
        shape: of payloads, as `parse_payload` takes it; None leaves them as dag-json.
    """

    fold: Fold
    key: str
    value: str | None = None
    removed: str | None = None
    shape: DataType | type | None = None

    def __post_init__(self) -> None:
        if self.removed is not None and not isinstance(self.fold, ElementSet):
            raise OptionError(f"nothing can be removed by the fold {self.fold.name}: only a set has elements")

    def check(self, session: SparkSession) -> None:
        """Check the recipe before anything is read.

        Raises:
            OptionError: as `keyed` does, or keys and values that the fold cannot take.
        """
        nothing = session.createDataFrame(to_arrow_schema(SCHEMA, timezone="UTC").empty_table(), SCHEMA)
        rows = self.rows(self.keyed(nothing), distinct=True)
        try:
            # Asked for, since over Spark Connect a frame is analysed when it is used.
            _ = self.fold.table(self.fold.combine(rows)).schema
        except AnalysisException as error:
            raise OptionError(
                f"the expressions for {self.named} cannot be used together: {first_line(error)}"
            ) from error

    @property
    def named(self) -> str:
        """The expressions, for errors."""
        given = {"key": self.key, "value": self.value, "removed": self.removed}
        return ", ".join(f"{name} ({text})" for name, text in given.items() if text is not None)

    def rows(self, keyed: DataFrame, *, distinct: bool) -> DataFrame:
        """Return messages as the fold takes them; those without a key are passed over.

        Args:
            keyed: as `keyed` returns them.
            distinct: no message comes twice, under whatever id.

        Raises:
            OptionError: keys or values of a type that the fold cannot take.
        """
        keyed = keyed.where(F.col("key").isNotNull())
        return self.fold.rows(keyed if distinct else self.fold.distinct(keyed))

    def keyed(self, messages: DataFrame) -> DataFrame:
        """Return messages with their keys and values; the key of some may be null.

        Args:
            messages: in the columns of the data source.

        Raises:
            OptionError: an expression that Spark does not understand, or that has a type which the fold cannot take; a
                shape that no columns have.
        """
        shape = self._payload_type()
        try:
            shaped = messages if shape is None else parse_payload(messages, shape)
        except TypeError as error:
            raise OptionError(str(error)) from error
        key = expression(shaped, "key", self.key)
        value = F.lit(1) if self.value is None else expression(shaped, "value", self.value)
        removed = F.lit(False) if self.removed is None else expression(shaped, "removed", self.removed)
        stored = F.col("value").alias("stored")
        # Of a damaged message, only the id is known.
        content = F.coalesce("content_id", "id").alias("content_id")
        named = (key.alias("key"), value.alias("value"), removed.alias("removed"))
        chosen = shaped.select(*named, content, "id", stored, "topic")
        if not isinstance(chosen.schema["removed"].dataType, BooleanType):
            raise OptionError(f"the expression for removed, {self.removed}, is not true or false")
        return chosen

    def describe(self) -> str:
        """Return the recipe as text, equal for equal recipes.

        Of a function it has the name, not what the function does.
        """
        shape = self._payload_type()
        described = {
            "fold": self.fold.name,
            "key": self.key,
            "value": self.value,
            "removed": self.removed,
            "shape": None if shape is None else shape.json(),
        }
        return json.dumps(described)

    def _payload_type(self) -> DataType | None:
        try:
            return self.shape if self.shape is None or isinstance(self.shape, DataType) else spark_type(self.shape)
        except TypeError as error:
            raise OptionError(str(error)) from error


@dataclass(frozen=True, slots=True)
class MaterializeResult:
    """What a run did.

    Attributes:
        messages: up to which sequence of the log's messages the state goes. Every encoding has a sequence.
        new: how many of them are new to it.
        rows: how many rows its table has: keys, or elements of sets.
        without_key: how many of the new messages were passed over because their key is null, each counted once.
    """

    messages: int
    new: int
    rows: int
    without_key: int = 0


def fold_messages(messages: DataFrame, recipe: Recipe) -> DataFrame:
    """Return the state of all messages of a frame, with the columns key and value.

    Args:
        messages: in the columns of the data source. A message that is there several times, in several encodings or from
            several replicas, is folded once.
        recipe: how to fold them.

    Raises:
        OptionError: an expression that Spark does not understand, or that has a type which the fold cannot take.
    """
    return recipe.fold.table(recipe.fold.combine(recipe.rows(recipe.keyed(messages), distinct=False)))


def read_state(session: SparkSession, folder: str, fold: Fold) -> DataFrame:
    """Return the state that is current in a folder, with the columns key and value.

    Args:
        session: of Spark.
        folder: as `materialize` was given it.
        fold: as in the recipe.

    Raises:
        StorageError: there is none.
    """
    place = StateFolder(folder)
    current = place.current()
    if current is None:
        raise StorageError(f"there is no state in {place.path}")
    return _table(session, place, fold, current.layers)


def materialize(session: SparkSession, location: str, folder: str, recipe: Recipe) -> MaterializeResult:
    """Bring the state in a folder up to what a log holds now; make it where there is none.

    Args:
        session: of Spark.
        location: of the log.
        folder: of the state, on a file system that the executors share. At any time it holds a whole state: this one,
            or, if this fails, the former.
        recipe: how to fold messages: as before, where there is a state.

    Raises:
        OptionError: another recipe than that of the state, or one that Spark does not understand; nothing is read then.
        SparkError: Spark gave up, as where an expression fails for a message.
        StorageError: the folder's state is of another log, the folder cannot be written, or another process does.
        CursorOutdated: the log was rebased since the state was made.
        CorruptLog: a damaged message.
    """
    place = StateFolder(folder)
    with locked(place.path), worker_errors():
        former = place.current()
        position = _position(location, former)
        if former is not None and former.recipe != recipe.describe():
            raise OptionError(
                f"the state in {folder} was made in another way: {former.recipe}; name another folder to begin anew"
            )
        # What runs left that were killed.
        place.clear()
        count = position.mark.count
        new = count - (former.messages if former else 0)
        if former is not None and not new and former.rows is not None:
            return MaterializeResult(count, new, former.rows)
        recipe.check(session)
        run = _Run(session, location, place, recipe, former, position)
        layers, without_key = run.advance()
        kept = run.compact(layers)
        rows = run.count(layers, kept)
        # What was read of keys, and not in the order of arrival, was of this log, too.
        with opened(location) as (storage, _):
            check_mark(location, storage, position.mark)
        made = Checkpoint(
            kept,
            position.topic,
            count,
            position.last,
            recipe.describe(),
            position.mark.generation,
            rows,
            position.origin,
        )
        place.publish(made)
        return MaterializeResult(count, new, rows, without_key)


def check_state(location: str, folder: str) -> None:
    """Check that a log can be read, and that the state in a folder, if there is one, was made of it.

    Raises:
        StorageError: the log or the state cannot be read, the state is of another log, the folder cannot be made or
            written, or another process works there.
        CursorOutdated: the log was rebased since the state was made.
    """
    place = StateFolder(folder)
    _position(location, place.current())
    with locked(place.path):
        remove_locked(place.path)


@dataclass(frozen=True, slots=True)
class _Position:
    """What a log has when a run begins.

    Attributes:
        topic: of the log.
        last: the id of the last message in the order of arrival; None where there is none.
        mark: of the log.
        origin: from which it has these messages; None where that is not known.
    """

    topic: str
    last: str | None
    mark: LogMark
    origin: str | None


@dataclass(frozen=True, slots=True)
class _Run:
    """Brings a state up to a position of its log.

    Attributes:
        session: of Spark.
        location: of the log.
        place: of the state.
        recipe: how messages are folded.
        former: the state that is continued; None where there is none.
        position: up to which messages are folded.
    """

    session: SparkSession
    location: str
    place: StateFolder
    recipe: Recipe
    former: Checkpoint | None
    position: _Position

    @property
    def _after(self) -> int:
        """The sequence up to which messages were folded before."""
        return self.former.messages if self.former else 0

    def advance(self) -> tuple[tuple[Layer, ...], int]:
        """Write what has changed since the former state; return its layers with that one, and how many have no key."""
        mark = self.position.mark
        messages = changes(self.session, self.location, self._after, mark.count, mark.generation)
        # On disk, since it is used twice: to count it, which reads the log, and to fold it.
        keyed = self.recipe.keyed(messages).persist(StorageLevel.DISK_ONLY)
        try:
            without_key = _without_key(keyed, self.recipe)
            return self._fold(self.recipe.rows(keyed, distinct=True)), without_key
        finally:
            keyed.unpersist()

    def _fold(self, rows: DataFrame) -> tuple[Layer, ...]:
        """Write what rows of new messages change, and return the layers of the state with that one."""
        layers = self.former.layers if self.former else ()
        fold, count = self.recipe.fold, self.position.mark.count
        if not isinstance(fold, FunctionFold):
            return *layers, self.place.write(fold.combine(rows), count)
        if not layers:
            return (self.place.write(fold.combine(rows).withColumn("since", F.lit(None).cast("string")), count),)
        resumed = fold.resume(self.place.read(self.session, layers), rows).persist(StorageLevel.DISK_ONLY)
        try:
            bases = resumed.where(F.col("base").isNotNull())
            stored, topic = F.lit(None).cast("binary").alias("stored"), F.lit(self.position.topic).alias("topic")
            chosen = bases.select("key", "base.*", stored, topic).unionByName(rows)
            if (history := self._history(resumed)) is not None:
                chosen = chosen.unionByName(history)
            made = fold.combine(chosen).join(resumed.select("key", "since"), "key")
            return *layers, self.place.write(made, count)
        finally:
            resumed.unpersist()

    def _history(self, resumed: DataFrame) -> DataFrame | None:
        """Return the rows of messages that were folded already, and are to be folded again; None where there are none.

        Since keys begin with the clock, what is after a content id is read without what has smaller clocks.
        """
        again = resumed.where("again").select("key", F.col("base.content_id").alias("base"))
        figures = (F.count("*").alias("keys"), F.count("base").alias("bases"), F.min("base").alias("least"))
        found = again.agg(*figures).first()
        assert found is not None
        if not found["keys"]:
            return None
        clock = core.decode_clock(core.decode_id(found["least"]))[0] if found["bases"] == found["keys"] else 1
        options: dict[str, str | int] = {"encodings": "first", "mode": "failfast", "columns": "*", "minClock": clock}
        messages = read(self.session, identity(self.location), **options).where(F.col("seq") <= self._after)
        rows = self.recipe.rows(self.recipe.keyed(messages), distinct=True).join(again, "key")
        return rows.where(F.col("base").isNull() | (F.col("content_id") > F.col("base"))).drop("base")

    def compact(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Return layers of which each has more than twice the rows of all newer ones: those that had not are merged.

        So there are few, and a row is written as often as the logarithm of their number.
        """
        first, rows = len(layers) - 1, layers[-1].rows
        while first and layers[first - 1].rows <= _MOST_TIMES * rows:
            first -= 1
            rows += layers[first].rows
        if first == len(layers) - 1:
            return layers
        merged = self.recipe.fold.merge(self.place.read(self.session, layers[first:]))
        return *layers[:first], self.place.write(merged, self.position.mark.count)

    def count(self, layers: tuple[Layer, ...], kept: tuple[Layer, ...]) -> int:
        """Return how many rows the table has: those of its only layer, or as many as before and one for each new key.

        Args:
            layers: as `advance` returns them.
            kept: what `compact` made of them.
        """
        fold = self.recipe.fold
        if len(kept) == 1 and not isinstance(fold, ElementSet):
            return kept[0].rows
        if len(kept) == 1 or self.former is None or self.former.rows is None:
            return _table(self.session, self.place, fold, kept).count()
        changed = self.place.read(self.session, layers[-1:]).select("key")
        if not isinstance(fold, ElementSet):
            older = self.place.read(self.session, layers[:-1])
            return self.former.rows + changed.join(older, "key", "left_anti").count()
        # A set's rows are its elements, which messages also remove.
        rows = self.place.read(self.session, layers).join(changed.distinct(), "key", "left_semi")
        before = rows.where(F.col("layer") < len(layers) - 1)
        return self.former.rows + fold.table(fold.merge(rows)).count() - fold.table(fold.merge(before)).count()


def _without_key(keyed: DataFrame, recipe: Recipe) -> int:
    """Return how many messages have no key.

    Raises:
        SparkError: Spark gave up, which may be because of an expression.
    """
    try:
        with worker_errors():
            return keyed.where(F.col("key").isNull()).count()
    except SparkError as error:
        raise expression_error(f"one of the expressions for {recipe.named}", error) from error.__cause__


def _table(session: SparkSession, place: StateFolder, fold: Fold, layers: tuple[Layer, ...]) -> DataFrame:
    rows = place.read(session, layers)
    return fold.table(rows if len(layers) == 1 else fold.merge(rows))


def _position(location: str, former: Checkpoint | None) -> _Position:
    """Return what a log has.

    Raises:
        CursorOutdated: it was rebased since a former state was made.
        StorageError: the former state was made of another log, or it cannot be read.
    """
    with opened(location) as (storage, topic):
        mark = mark_of(storage)
        with storage.reader(single=True) as reader:
            if former is not None:
                _check_former(location, reader, topic, mark.generation, former)
                if is_other_origin(former.origin, origin(storage, former.messages)):
                    raise StorageError(
                        f"the state was made of another log than {location}, which is no backup of that one and may"
                        " have other messages than it: put the former file back, or name another folder to"
                        " begin anew"
                    )
            return _Position(topic, _id(reader, topic, mark.count), mark, origin(storage, mark.count))


def _check_former(location: str, reader: Reader, topic: str, generation: int, former: Checkpoint) -> None:
    if former.topic == topic and former.messages and former.generation != generation:
        raise CursorOutdated(
            f"{location} was rebased since the state was made (generation {generation}, the state is of"
            f" {former.generation}): name another folder to begin anew",
            former.generation,
            generation,
        )
    if former.topic != topic or _id(reader, topic, former.messages) != former.last:
        raise StorageError(f"the state was made of another log than {location}: name another folder to begin anew")


def _id(reader: Reader, topic: str, sequence: int) -> str | None:
    """Return the id of the message with a sequence; None for 0, and for one that no message has."""
    if sequence == 0:
        return None
    return next((message.id for _, message in read_arrivals(reader, topic, sequence - 1, 1)), None)
