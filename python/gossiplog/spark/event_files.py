"""Files of events: Parquet, CSV, JSON Lines. What cannot be read is an error, never a row of nulls."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from gossiplog.errors import OptionError
from gossiplog.spark.failures import worker_errors

_FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "json"}
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_OPTIONS: dict[str, dict[str, str | bool]] = {
    "parquet": {},
    # RFC 4180: a first line with names, quotes doubled, line ends within quotes.
    "csv": {"header": True, "escape": '"', "multiLine": True, "enforceSchema": False, "mode": "FAILFAST"},
    "jsonl": {"mode": "FAILFAST"},
}


def read_events(
    session: SparkSession, paths: Sequence[str], format: str | None = None, schema: str | None = None
) -> DataFrame:
    """The rows of files.

    Args:
        session: of Spark.
        paths: of files or folders, as Spark takes them.
        format: "parquet", "csv" (RFC 4180, with a line of names) or "jsonl"; None goes by the names of the files.
        schema: the columns, in Spark's DDL; None takes those of the files: all strings in CSV, inferred in JSON Lines.

    Raises:
        OptionError: a format that there is not, names that tell none, or a schema for Parquet, which has its own.
        SparkError: the files cannot be read; on use, too, where one holds what is no row.
    """
    chosen = format or _format_of(paths)
    if chosen not in _FORMATS:
        raise OptionError(f"there is no format {chosen!r} of events: expected one of {', '.join(_FORMATS)}")
    reader = session.read.format(_FORMATS[chosen]).options(**_OPTIONS[chosen])
    if schema is not None:
        if chosen == "parquet":
            raise OptionError("Parquet files have a schema of their own: leave it out")
        with worker_errors():
            reader = reader.schema(schema)
    with worker_errors():
        return reader.load(list(paths))


def _format_of(paths: Sequence[str]) -> str:
    found = {format for path in paths for suffix, format in _SUFFIXES.items() if path.lower().endswith(suffix)}
    if len(found) != 1:
        raise OptionError(f"the names of the files do not tell their format: expected one of {', '.join(_FORMATS)}")
    return found.pop()
