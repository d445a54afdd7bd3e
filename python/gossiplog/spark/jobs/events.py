"""Events of an application: read from Parquet, CSV or JSON Lines, made ready to be signed, and what is wrong with them.

What cannot be read is an error, never a row of nulls.
"""

from __future__ import annotations

import glob
import os
import uuid
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
from gossiplog.spark.jobs.records import ADVICE, REFUSED, SHOWN, check_csv, check_json
from gossiplog.spark.jobs.sign import KeyStore
from gossiplog.spark.jobs.summary import expression
from gossiplog.spark.source.locations import alternatives
from gossiplog.spark.tasks import frame_of

_FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "json"}
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_OPTIONS: dict[str, dict[str, str | bool]] = {
    "parquet": {},
    # RFC 4180: a first line with names, quotes doubled, line ends within quotes. Null is a field without anything, and
    # not the empty text, "": Spark tells them apart where null is some other text, which no file has.
    "csv": {"header": True, "escape": '"', "multiLine": True, "enforceSchema": False, "nullValue": uuid.uuid4().hex},
    "jsonl": {},
}
# The column that gets the text of a record which Spark cannot read.
_MALFORMED = "__malformed"
# Of PySpark, for errors in an expression of a DataFrame's or of SQL's.
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


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

    CSV and JSON Lines are read twice, at once to judge them, and where they are used. What is malformed is refused
    then: an object that something follows in its line, a quote that is not closed, text that is not Unicode, JSON
    nested more than 100 deep. Nothing is changed either: JSON Lines with values of different types in one place need a
    schema, as integers do that a column cannot hold; only null and absent values are the same.

    Raises:
        OptionError: a format that does not exist, names that show none, a schema for Parquet, which has its own, or a
            file that Spark would leave out.
        DecodeError: a malformed record, or one that does not fit the schema, the latter on use. It has the name of the
            file and the beginning of the record. Also names of CSV's columns that are not the schema's, in its order.
        SparkError: the files cannot be read.
    """
    chosen = event_format(paths, format, schema)
    for path in paths:
        _check_all_read(path)
    # Of alternatives with whole paths Hadoop would take the first brace for a machine's name.
    each = [part for path in paths for part in (alternatives(path) if path.startswith("{/") else [path])]
    found = [read_pattern(path) for path in each]
    reader = session.read.format(_FORMATS[chosen]).options(**_OPTIONS[chosen])
    with worker_errors():
        if chosen == "parquet":
            return reader.load(found)
        given = None if schema is None else reader.schema(schema).load(found).schema
        if chosen == "csv":
            columns = check_csv(session, found, None if given is None else given.names)
        else:
            columns = check_json(session, found, infer=given is None)
        # With the columns that the names of folders have.
        all_columns = reader.schema(given or columns).load(found).schema.fields or [
            StructField("nothing", StringType())
        ]
        # The mode FAILFAST does not name the record.
        reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=_MALFORMED)
        frame = reader.schema(StructType([*all_columns, StructField(_MALFORMED, StringType())])).load(found)
        return frame.where(_is_sound(field.name for field in all_columns)).drop(_MALFORMED)


def _is_sound(columns: Iterable[str]) -> Column:
    """Return a condition that is true for every row, and fails where a record does not fit the schema.

    Args:
        columns: of the rows.
    """
    # Empty text of all columns: Spark does not parse those that nothing uses, nor find what is wrong with them.
    uses_all = F.substring(F.to_json(F.struct(*(F.col(_quoted(name)) for name in columns))), 1, 0)
    record = F.substring(F.regexp_replace(_MALFORMED, r"\s+", " "), 1, SHOWN)
    text = F.concat(F.input_file_name(), F.lit(REFUSED), record, F.lit(f" ({ADVICE})"), uses_all)
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
    """Check that there are files of events and that Spark reads all of them, as far as they are on this machine.

    Raises:
        OptionError: a path or a pattern without a file, or a file that Spark would leave out without a word.
    """
    for path in paths:
        if _check_all_read(path) == []:
            raise OptionError(f"there is no file of events {path}: expected Parquet, CSV or JSON Lines")


def _check_all_read(named: str) -> list[str] | None:
    """Check that Spark reads all files of events, and return what a path or pattern names; None where that is unknown.

    Raises:
        OptionError: a file that Spark would leave out.
    """
    if not is_local(named):
        return None
    path = local_path(named, "the events")
    if os.path.exists(path):
        found = [path]
    elif "\\" in path:
        # After backslashes Spark's patterns are not Python's.
        return None
    else:
        # Hadoop takes "[^a]" for "[!a]", and Python for one of the two characters.
        patterns = (alternative.replace("[^", "[!") for alternative in alternatives(path))
        found = [each for pattern in patterns for each in glob.glob(pattern)]
    for one in found:
        if (left_out := _left_out(one, is_named=one == path)) is not None:
            raise OptionError(
                f"Spark would leave out {left_out}, as all whose names begin with _ or . and all in folders within"
                " folders: rename it, move it away, or name the files one by one"
            )
    return found


def _left_out(path: str, *, is_named: bool) -> str | None:
    """Return a file of events that Spark leaves out where it is given a path; None where there is none.

    Args:
        path: of a file or a folder.
        is_named: it is no pattern that it fits, which other files may fit, too.
    """
    if not os.path.isdir(path):
        return path if _is_hidden(os.path.basename(path)) and (is_named or _has_suffix(path)) else None
    for folder, _, files in os.walk(path):
        inner = os.path.relpath(folder, path)
        # Columns may stand in the names of folders: year=2026.
        is_read = inner == "." or all("=" in name and not _is_hidden(name) for name in inner.split(os.sep))
        for name in files:
            if _has_suffix(name) and not (is_read and not _is_hidden(name)):
                return os.path.join(folder, name)
    return None


def _has_suffix(name: str) -> bool:
    return name.lower().endswith(tuple(_SUFFIXES))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


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
    columns = [expression(frame, "payload", text) for text in chosen]
    check_payload(frame.select(*columns).schema)
    return F.struct(*columns)


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
