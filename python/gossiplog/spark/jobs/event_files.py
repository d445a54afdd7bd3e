"""Files of events: Parquet, CSV, JSON Lines. What cannot be read is an error, never a row of nulls."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from gossiplog.errors import DecodeError, OptionError
from gossiplog.spark.failures import raising, worker_errors
from gossiplog.spark.source.locations import alternatives, has_scheme

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
# Characters of such a record that are shown.
_SHOWN = 200


def read_events(
    session: SparkSession, paths: Sequence[str], format: str | None = None, schema: str | None = None
) -> DataFrame:
    """Return the rows of files.

    Args:
        session: of Spark.
        paths: of files or folders, as Spark takes them.
        format: "parquet", "csv" (RFC 4180, with a line of names) or "jsonl"; None goes by the names of the files.
        schema: the columns, in Spark's DDL; None takes those of the files: all strings in CSV, inferred in JSON Lines.

    Raises:
        OptionError: a format that there is not, names that tell none, or a schema for Parquet, which has its own.
        DecodeError: on use, a malformed record, or one that does not fit the schema. It has the name of the file and
            the beginning of the record.
        SparkError: the files cannot be read.
    """
    chosen = event_format(paths, format, schema)
    reader = session.read.format(_FORMATS[chosen]).options(**_OPTIONS[chosen])
    if schema is not None:
        with worker_errors():
            reader = reader.schema(schema)
    with worker_errors():
        if chosen == "parquet":
            return reader.load(list(paths))
        # The mode FAILFAST names neither the record nor, while a schema is inferred, the file.
        reader = reader.options(mode="PERMISSIVE", columnNameOfCorruptRecord=_MALFORMED)
        fields = [field for field in reader.load(list(paths)).schema if field.name != _MALFORMED]
        columns = fields or [StructField("nothing", StringType())]
        frame = reader.schema(StructType([*columns, StructField(_MALFORMED, StringType())])).load(list(paths))
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
    record = F.substring(F.regexp_replace(_MALFORMED, r"\s+", " "), 1, _SHOWN)
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
    """Check that there are files of events in the local file system, which is Spark's where nothing else is set.

    Raises:
        OptionError: a path or a pattern without a file.
    """
    for path in paths:
        # In URIs and after backslashes Spark's patterns are not Python's.
        if has_scheme(path) or "\\" in path or os.path.exists(path):
            continue
        # Hadoop takes "[^a]" for "[!a]", and Python for one of the two characters.
        patterns = (alternative.replace("[^", "[!") for alternative in alternatives(path))
        if not any(map(glob.glob, patterns)):
            raise OptionError(f"there is no file of events {path}: expected Parquet, CSV or JSON Lines")


def _format_of(paths: Sequence[str]) -> str:
    found = {format for path in paths for suffix, format in _SUFFIXES.items() if path.lower().endswith(suffix)}
    if len(found) != 1:
        raise OptionError(f"the names of the files do not tell their format: expected one of {', '.join(_FORMATS)}")
    return found.pop()
