"""Events of an application: read from Parquet, CSV or JSON Lines, made ready to be signed, and what is wrong with them.

What cannot be read is an error, never a row of nulls.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from gossiplog.errors import DecodeError, KeyFileError, OptionError
from gossiplog.message import MAX_PARENTS
from gossiplog.spark.failures import raising, worker_errors
from gossiplog.spark.folders import is_local, local_path, read_pattern
from gossiplog.spark.jobs.sign import KeyStore
from gossiplog.spark.jobs.summary import expression
from gossiplog.spark.source.locations import alternatives
from gossiplog.spark.tasks import frame_of

_FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "json"}
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_OPTIONS: dict[str, dict[str, str | bool]] = {
    "parquet": {},
    # RFC 4180: a first line with names, quotes doubled, line ends within quotes.
    "csv": {"header": True, "escape": '"', "multiLine": True, "enforceSchema": False},
    "jsonl": {},
}
# The column that gets the text of a record which Spark cannot read.
_MALFORMED = "__malformed"
# Of PySpark, for errors in an expression of a DataFrame's or of SQL's.
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# Characters of such a record that are shown.
_SHOWN_LINE = 200


def read_events(
    session: SparkSession, paths: Sequence[str], format: str | None = None, schema: str | None = None
) -> DataFrame:
    """Return the rows of files.

    Args:
        session: of Spark.
        paths: of files or folders, patterns of Spark's, or URIs of other file systems. A path that is there is no
            pattern.
        format: "parquet", "csv" (RFC 4180, with a line of names) or "jsonl"; None goes by the names of the files.
        schema: the columns, in Spark's DDL; None takes those of the files: all strings in CSV, inferred in JSON Lines.

    Raises:
        OptionError: a format that does not exist, names that show none, or a schema for Parquet, which has its own.
        DecodeError: on use, a malformed record, or one that does not fit the schema. It has the name of the file and
            the beginning of the record.
        SparkError: the files cannot be read.
    """
    chosen = event_format(paths, format, schema)
    # Of alternatives with whole paths Hadoop would take the first brace for a machine's name.
    each = [part for path in paths for part in (alternatives(path) if path.startswith("{/") else [path])]
    found = [read_pattern(path) for path in each]
    reader = session.read.format(_FORMATS[chosen]).options(**_OPTIONS[chosen])
    if schema is not None:
        with worker_errors():
            reader = reader.schema(schema)
    with worker_errors():
        if chosen == "parquet":
            return reader.load(found)
        # The mode FAILFAST names neither the record nor, while a schema is inferred, the file.
        reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=_MALFORMED)
        fields = [field for field in reader.load(found).schema if field.name != _MALFORMED]
        columns = fields or [StructField("nothing", StringType())]
        frame = reader.schema(StructType([*columns, StructField(_MALFORMED, StringType())])).load(found)
        frame = frame.where(_is_sound(field.name for field in columns)).drop(_MALFORMED)
        if not fields:
            # No record is sound: fail with that, and not with a column that the caller asks for and there is not.
            frame.head()
        return frame


def _is_sound(columns: Iterable[str]) -> Column:
    """Return a condition that is true for every row, and fails where a record was malformed.

    Args:
        columns: of the rows.
    """
    # Empty text of all columns: Spark does not parse those that nothing uses, nor find what is wrong with them.
    uses_all = F.substring(F.to_json(F.struct(*(F.col(f"`{name}`") for name in columns))), 1, 0)
    record = F.substring(F.regexp_replace(_MALFORMED, r"\s+", " "), 1, _SHOWN_LINE)
    text = F.concat(
        F.input_file_name(),
        F.lit(" has a record that is malformed or does not fit the schema: "),
        record,
        F.lit(" (correct it, or remove it, and begin again)"),
        uses_all,
    )
    return F.col(_MALFORMED).isNull() | raising(DecodeError, text).cast("boolean")


def event_format(paths: Sequence[str], format: str | None, schema: str | None) -> str:
    """Return the format of events, as `read_events` takes it.

    Raises:
        OptionError: as `read_events`.
    """
    chosen = format or _format_of(paths)
    if chosen not in _FORMATS:
        raise OptionError(f"there is no format {chosen!r} of events: expected one of {', '.join(_FORMATS)}")
    if schema is not None and chosen == "parquet":
        raise OptionError("Parquet files have a schema of their own: leave it out")
    return chosen


def check_event_files(paths: Sequence[str]) -> None:
    """Check that there are files of events, as far as they are on this machine.

    Raises:
        OptionError: a path or a pattern without a file.
    """
    for named in paths:
        if not is_local(named):
            continue
        path = local_path(named, "the events")
        # After backslashes Spark's patterns are not Python's.
        if "\\" in path or os.path.exists(path):
            continue
        # Hadoop takes "[^a]" for "[!a]", and Python for one of the two characters.
        patterns = (alternative.replace("[^", "[!") for alternative in alternatives(path))
        if not any(map(glob.glob, patterns)):
            raise OptionError(f"there is no file of events {named}: expected Parquet, CSV or JSON Lines")


def _format_of(paths: Sequence[str]) -> str:
    found = {format for path in paths for suffix, format in _SUFFIXES.items() if path.lower().endswith(suffix)}
    if len(found) != 1:
        raise OptionError(f"the names of the files do not show their format: expected one of {', '.join(_FORMATS)}")
    return found.pop()


_PLAIN = (
    BinaryType,
    BooleanType,
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)
# Characters of a row that is shown.
_SHOWN = 300
_PROBLEMS = "problem string, event string"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a frame say what of an event. All are expressions in Spark's SQL, mostly names of columns.

    An event follows the one of its author with the next smaller sequence, and those whose ids it names; so events are
    concurrent that do neither, directly or through others.

    Attributes:
        author: whose key signs; a name in the key store.
        sequence: an integer that orders an author's events; None leaves the order to the parents alone.
        id: the application's own name of an event.
        parents: an array of ids, as "split(parents, ' ')"; null and empty strings name none.
        payload: what its messages hold, a map by the names of the columns; None takes all columns but those that the
            other expressions use: they are about an event, and not in it.
    """

    author: str
    sequence: str | None = None
    id: str | None = None
    parents: str | None = None
    payload: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.sequence is None and self.parents is None:
            raise OptionError(
                "nothing says in which order the events are: name a column for the sequence or the parents"
            )
        if self.parents is not None and self.id is None:
            raise OptionError("parents are named by ids: name the column that has the events' own")


def events(frame: DataFrame, layout: Layout) -> DataFrame:
    """Return the events of a frame.

    Returns:
        The columns author, sequence, id, parents (without repetitions), payload, and `fault`: the row as JSON where it
        lacks what an event must have, else null.

    Raises:
        OptionError: an expression that Spark does not understand, or of a type that does not fit.
    """
    author = expression(frame, "author", layout.author).cast("string")
    sequence = F.lit(None).cast("long")
    if layout.sequence is not None:
        # Text that is no integer becomes null, and is found as such.
        sequence = expression(frame, "sequence", layout.sequence).cast("string").try_cast("long")
    id = F.lit(None).cast("string") if layout.id is None else expression(frame, "id", layout.id).cast("string")
    parents = F.lit(None).cast("array<string>")
    if layout.parents is not None:
        parents = expression(frame, "parents", layout.parents)
        if not isinstance(frame.select(parents).schema[0].dataType, ArrayType):
            raise OptionError(
                f"the expression for parents, {layout.parents}, is no array: split({layout.parents}, ' ')"
            )
        named = F.filter(parents.cast("array<string>"), lambda one: one.isNotNull() & (one != ""))
        parents = F.array_distinct(named)
    needed = [author, *([sequence] if layout.sequence else []), *([id] if layout.id else [])]
    lacking = reduce(Column.__or__, [one.isNull() for one in needed])
    shown = F.concat(F.substring(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}), 1, _SHOWN), _file())
    return frame.select(
        author.alias("author"),
        sequence.alias("sequence"),
        id.alias("id"),
        parents.alias("parents"),
        _payload(frame, layout).alias("payload"),
        F.when(lacking, shown).alias("fault"),
    )


def problems(found: DataFrame, layout: Layout, keys: KeyStore, merger: str) -> DataFrame:
    """Return what is wrong with events, apart from cycles and payloads, which show when they are signed.

    Args:
        found: as `events` returns them.
        layout: as `events` was given it.
        keys: of the authors.
        merger: an author whose key must be there, too.

    Returns:
        The columns problem and event; no row where nothing is wrong.
    """
    names = {"sequence": layout.sequence, "id": layout.id}
    needed = ", ".join(["author", *(name for name, column in names.items() if column)])
    faults = found.where("fault IS NOT NULL").select(
        F.lit(f"it lacks what an event must have: {needed}").alias("problem"), F.col("fault").alias("event")
    )
    sound = found.where("fault IS NULL").drop("payload", "fault")
    event = F.to_json(F.struct("author", "sequence", "id"))
    tables = [faults, _without_keys(sound, keys, merger)]
    if layout.sequence is not None:
        tables.append(_repeated(sound, ["author", "sequence"]))
    if layout.id is not None:
        tables.append(_repeated(sound, ["id"]))
    if layout.parents is not None:
        # One more than are named: the event of the same author before.
        most = MAX_PARENTS - (layout.sequence is not None)
        many = sound.where(F.size("parents") > most)
        tables.append(many.select(F.lit(f"it names more than {most} parents").alias("problem"), event.alias("event")))
        links = sound.select(event.alias("event"), F.explode("parents").alias("parent"))
        ids = sound.select(F.col("id").alias("parent"))
        unknown = F.concat(F.lit("no event has the id of its parent "), F.col("parent"))
        tables.append(links.join(ids, "parent", "left_anti").select(unknown.alias("problem"), "event"))
    return reduce(DataFrame.unionByName, tables)


def _repeated(sound: DataFrame, columns: list[str]) -> DataFrame:
    counted = sound.groupBy(*columns).count().where("count > 1")
    problem = F.concat(F.col("count").cast("string"), F.lit(f" events have the same {' and '.join(columns)}"))
    return counted.select(problem.alias("problem"), F.to_json(F.struct(*columns)).alias("event"))


def _without_keys(sound: DataFrame, keys: KeyStore, merger: str) -> DataFrame:
    own = frame_of(sound.sparkSession, [(merger,)], pa.schema([("author", pa.string())]))
    authors = sound.select("author").union(own).distinct()
    return authors.mapInArrow(_LookForKeys(keys), _PROBLEMS)


@dataclass(frozen=True, slots=True)
class _LookForKeys:
    """Names the authors whose keys cannot be had, where the executors see them."""

    keys: KeyStore

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([("problem", pa.string()), ("event", pa.string())])
        for batch in batches:
            rows: list[dict[str, str]] = []
            for author in batch.column("author").to_pylist():
                try:
                    self.keys.load(author)
                except KeyFileError as error:
                    rows.append({"problem": str(error), "event": f"all of the author {author!r}"})
            yield pa.RecordBatch.from_pylist(rows, schema)


def _payload(frame: DataFrame, layout: Layout) -> Column:
    chosen = layout.payload or tuple(_quoted(name) for name in _unused(frame, layout))
    if not chosen:
        raise OptionError(
            "no column is left for the payload, because the other options use them all: name those that it has"
            " (`payload` of the layout, --payload of the command)"
        )
    payload = F.struct(*(expression(frame, "payload", text) for text in chosen))
    check_payload(frame.select(*(expression(frame, "payload", text) for text in chosen)).schema)
    return payload


def _unused(frame: DataFrame, layout: Layout) -> list[str]:
    """Return the columns that no expression about an event uses."""
    about = [text for text in (layout.author, layout.sequence, layout.id, layout.parents) if text is not None]
    return [name for name in frame.columns if not any(_uses(frame, text, name) for text in about)]


def _uses(frame: DataFrame, text: str, name: str) -> bool:
    """Return whether an expression, which the frame can compute, uses a column of it."""
    # Spark tells nobody which columns an expression uses; but without one that it does, it understands it no more.
    if name.lower() not in text.replace("``", "`").lower():
        return False
    # PySpark logs what it raises, with a stack; here an error is an answer.
    quiet = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    were = [logger.disabled for logger in quiet]
    try:
        for logger in quiet:
            logger.disabled = True
        # With Spark Connect an expression is looked at no earlier.
        _ = frame.select(*(_quoted(other) for other in frame.columns if other != name)).select(F.expr(text)).schema
    except AnalysisException:
        return True
    finally:
        for logger, was in zip(quiet, were, strict=True):
            logger.disabled = was
    return False


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def check_payload(columns: StructType) -> None:
    """Check the columns of payloads by the IPLD data model.

    Raises:
        OptionError: a type that no payload can have. The message has an expression that gives the column as text.
    """
    for field in columns.fields:
        if (found := _unfit(field.dataType, f"payload.{field.name}")) is None:
            continue
        place, kind = found
        others = "and --payload NAME for each other column of the payload"
        if isinstance(kind, NullType):
            raise OptionError(f"{place} is null in every row: leave the column out, by --payload NAME for each other")
        name = field.name if field.name.isidentifier() else f"`{field.name}`"
        text = f"cast({name} as string)" if kind is field.dataType and not isinstance(kind, MapType) else None
        raise OptionError(
            f"{place} has the type {kind.simpleString()}, which no payload can have: give it as text, with"
            f" --payload '{text or f'to_json({name})'} as {name}', {others}"
        )


def _unfit(kind: DataType, place: str) -> tuple[str, DataType] | None:
    """Return the first type within a type that no payload can have, and where it is."""
    match kind:
        case StructType():
            found = (_unfit(field.dataType, f"{place}.{field.name}") for field in kind.fields)
            return next((each for each in found if each is not None), None)
        case ArrayType(elementType=element):
            return _unfit(element, f"{place}[]")
    return None if isinstance(kind, _PLAIN) else (place, kind)


def _file() -> Column:
    name = F.input_file_name()
    return F.when(name == "", "").otherwise(F.concat(F.lit(" in "), name))
