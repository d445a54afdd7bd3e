"""The columns and the options of the data source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from gossiplog import core
from gossiplog.errors import DecodeError, OptionError
from gossiplog.spark.source.locations import locations

SCHEMA = StructType(
    [
        StructField("log", StringType()),
        StructField("seq", LongType()),
        StructField("id", StringType()),
        StructField("key", BinaryType()),
        StructField("clock", LongType()),
        StructField("topic", StringType()),
        StructField("author", StringType()),
        StructField("codec", StringType()),
        StructField("parents", ArrayType(StringType())),
        StructField("payload", StringType()),
        StructField("value", BinaryType()),
        StructField("size", LongType()),
        StructField("canonical", BooleanType()),
        StructField("content_id", StringType()),
    ]
)
"""Every column. `log` is the location, `seq` the arrival sequence, `key` (20 bytes) and `value` what is stored, `size`
the value's bytes. The others are decoded from the value: `payload` is dag-json, `author` a did:key URI, `parents` ids.
All encodings of a message have one `content_id`, the id of the canonical one; `canonical` says whether the row is it.
"""

METADATA = StructType(
    [
        StructField("log_path", StringType()),
        StructField("log_size", LongType()),
        StructField("log_problem", StringType()),
    ]
)
"""Columns that a read has only where they are named, as those of Spark's `_metadata`: they say the same in every row of
a log. `log_path` is the location that depends on no working folder and no link, `log_size` the bytes of the log when
the read was planned. `path` is the name of an option, and `size` that of a value's column. `log_problem` is null but in
a row that has nothing else than columns of the log: one for each part of a log that `ignore_corrupt_files` passes over.
"""

STORED = frozenset({"log", "seq", "key", "value", "size"})
"""Columns that need no look into the value."""

_TYPES: dict[str, DataType] = {field.name: field.dataType for field in SCHEMA.fields + METADATA.fields}


def pruned(names: Iterable[str]) -> StructType:
    """Return the schema with some of the columns, in the order in which they are named.

    Raises:
        OptionError: a name that no column has, or that comes twice.
    """
    fields: list[StructField] = []
    for name in names:
        if name in {field.name for field in fields}:
            raise OptionError(f"the option columns names {name!r} twice")
        fields.append(StructField(name, _type_of(name)))
    if not fields:
        raise OptionError("the option columns names no column")
    return StructType(fields)


def check_schema(schema: StructType) -> None:
    """Check a schema that a user gave against the columns that there are.

    Raises:
        OptionError: a column that there is not, or that has another type.
    """
    for field in schema:
        if field.dataType != (expected := _type_of(field.name)):
            raise OptionError(
                f"the schema gives the column {field.name!r} the type {field.dataType.simpleString()}: expected"
                f" {expected.simpleString()}"
            )


def _type_of(name: str) -> DataType:
    if name not in _TYPES:
        raise OptionError(f"there is no column {name!r}: expected one of {', '.join(_TYPES)}")
    return _TYPES[name]


Parser: TypeAlias = Callable[[str, str], Any]
"""Takes the name of an option, as it is spelt, and its value; raises OptionError."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read is asked for. In Spark the names are those of the attributes in camel case, as `minClock`.

    Attributes:
        paths: of logs, as they were given, as `locations` takes them.
        topic: what the logs must have; None takes any.
        min_clock: the least clock, itself included.
        max_clock: the largest clock, itself included.
        min_id: the least id, itself included; ids are ordered as keys are, by clock.
        max_id: the largest id, itself included.
        authors: did:key URIs, separated by commas; None takes all.
        columns: names, separated by commas, or "*" for all. A read without this option has all of them too, and remarks
            on it where that costs much.
        partitions: of all logs together, about; None takes one for each 262,144 messages and each 128 MiB, and of
            smaller logs one for each processor of the driver's machine, from 4 MiB each on. Of a stream's micro-batch,
            None takes one for each 262,144 messages.
        encodings: "all" gives every encoding of a message, "first" that alone which arrived first in its log. It never
            changes, and is looked for in the whole log, whatever the other options leave out.
        mode: "permissive" gives rows whose value is damaged null in every decoded column, "dropmalformed" leaves them
            out, "failfast" raises CorruptLog. Both of these look into every value, whatever the columns.
        max_rows: of a stream: the most messages in a micro-batch; None takes what there is.
        starting_offsets: of a stream: the sequence after which it begins in every log; None takes the logs' ends. In
            Spark also "earliest" and "latest".
        recursive_file_lookup: whether the folders in a folder are looked into, and those that fit a pattern.
        path_glob_filter: a pattern that the names of files must fit, as "*.db"; None takes all.
        ignore_missing_files: whether a read goes on where the file of a log has been removed since it was listed, with
            the rows that were read. A path that names no file is an error all the same.
        ignore_corrupt_files: whether a read goes on where a log cannot be read or not to its end, because it is none,
            damaged, locked or of a newer version, with the rows that were read. What was wrong is logged, and the
            column `log_problem` has it where it is named. Another topic than `topic` is an error all the same; a stream
            passes over such a log, too, of which it has read nothing.
    """

    paths: tuple[str, ...]
    topic: str | None = None
    min_clock: int = 1
    max_clock: int = core.MAX_CLOCK
    min_id: bytes = b""
    max_id: bytes | None = None
    authors: tuple[str, ...] | None = None
    columns: StructType = SCHEMA
    partitions: int | None = None
    encodings: str = "all"
    mode: str = "permissive"
    max_rows: int | None = None
    starting_offsets: int | None = 0
    recursive_file_lookup: bool = False
    path_glob_filter: str | None = None
    ignore_missing_files: bool = False
    ignore_corrupt_files: bool = False

    def locations(self) -> list[str]:
        """Return the locations of the logs, each once.

        Raises: as `gossiplog.spark.source.locations.locations`.
        """
        return locations(self.paths, recursive=self.recursive_file_lookup, name_filter=self.path_glob_filter)

    @property
    def bounds(self) -> tuple[bytes, bytes | None]:
        """The keys that are asked for: start <= key < end, an end of None being that of the log."""
        start = max(self.min_id, core.encode_clock(self.min_clock))
        ends = [] if self.max_id is None else [self.max_id + b"\0"]
        if self.max_clock < core.MAX_CLOCK:
            ends.append(core.encode_clock(self.max_clock + 1))
        return start, min(ends, default=None)


def read_options(options: Mapping[str, str], kinds: Mapping[str, Parser]) -> ReadOptions:
    """Parse what Spark hands over.

    Args:
        options: by name in any case.
        kinds: those that there are: BATCH_OPTIONS, STREAM_OPTIONS or READ_OPTIONS.

    Raises:
        OptionError: an option that there is not, or a value that it cannot have.
    """
    given = {name.lower(): value for name, value in options.items()}
    found = ReadOptions(_paths(given), **parsed(given, kinds))
    if found.min_clock > found.max_clock:
        raise OptionError(f"the option minClock is {found.min_clock}, above maxClock, which is {found.max_clock}")
    if found.max_id is not None and found.min_id > found.max_id:
        raise OptionError(f"the option minId is {given['minid']}, above maxId, which is {given['maxid']}")
    if found.ignore_corrupt_files and found.mode == "failfast":
        raise OptionError("the mode failfast ends a read at what ignoreCorruptFiles passes over: give one of them")
    return found


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where and how stored values are to be added. In Spark the names are those of the attributes.

    Attributes:
        path: of the log, which is made where there is none and a topic is given.
        topic: of the log; None takes that which it has.
        staging: a folder that all executors and the driver see, for what is verified until it is merged; None takes the
            folder in which the log is. A job whose driver is killed leaves there what it staged, in a folder called
            after the log with `.staging-` in its name, which may be removed. Of a stream, the next micro-batch removes
            it.
        report: a folder to be made, for what became of the values; None makes an error of values that are refused. Of a
            stream, a folder that may be there, in which each micro-batch with values that were refused gets one of its
            own, as `QUERY/BATCH`.
    """

    path: str
    topic: str | None = None
    staging: str | None = None
    report: str | None = None


def write_options(options: Mapping[str, str], *, stream: bool = False) -> WriteOptions:
    """Parse what Spark hands over.

    Args:
        options: by name in any case.
        stream: whether Spark's own options of queries are among them.

    Raises:
        OptionError: an option that there is not, or a value that it cannot have.
    """
    given = {name.lower(): value for name, value in options.items()}
    if stream:
        given = {name: value for name, value in given.items() if name not in _QUERY_OPTIONS}
    paths = _paths(given)
    if len(paths) > 1:
        raise OptionError(f"values are added to one log, and there are {len(paths)} paths")
    return WriteOptions(paths[0], **parsed(given, WRITE_OPTIONS))


def parsed(given: Mapping[str, str], options: Mapping[str, Parser]) -> dict[str, Any]:
    """Return options by the names of attributes.

    Args:
        given: by name in lower case.
        options: those that there are, by the names of attributes.

    Raises:
        OptionError: an option that there is not, or a value that it cannot have.
    """
    spellings = {_spelling(attribute).lower(): attribute for attribute in options}
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in spellings:
            raise OptionError(f"there is no option {name!r} here: expected one of {', '.join(map(_spelling, options))}")
        attribute = spellings[name]
        found[attribute] = options[attribute](_spelling(attribute), value)
    return found


def _paths(options: dict[str, str]) -> tuple[str, ...]:
    """Take the paths out of the options. Spark gives a single one as `path`, a list of them as JSON in `paths`."""
    single, several = options.pop("path", None), options.pop("paths", None)
    paths = [] if single is None else [single]
    if several is not None:
        try:
            listed = json.loads(several)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise OptionError(f"the option paths is {several!r}: expected a JSON array of strings, or load([...])")
        paths += listed
    if not paths:
        raise OptionError("the option path is missing: expected the path of a log, as in load(path)")
    return tuple(paths)


def integer(name: str, text: str, least: int, most: int) -> int:
    """Return a number that an option gives.

    Raises:
        OptionError: no integer, or not in this range.
    """
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        raise OptionError(f"the option {name} is {text!r}: expected an integer from {least} to {most}")
    return number


def _clock(name: str, text: str) -> int:
    return integer(name, text, 1, core.MAX_CLOCK)


def _partitions(name: str, text: str) -> int:
    return integer(name, text, 1, 2**20)


def _id(name: str, text: str) -> bytes:
    try:
        return core.decode_id(text)
    except DecodeError as error:
        raise OptionError(f"the option {name} is {text!r}, which is no id of a message: {error}") from error


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise OptionError(f"the option {name} is {text!r}: expected names separated by commas")
    return names


def _dids(name: str, text: str) -> tuple[str, ...]:
    dids = _names(name, text)
    for did in dids:
        if not did.startswith("did:key:"):
            raise OptionError(f"the option {name} has {did!r}: expected did:key URIs, as the column author has them")
    return dids


def _columns(name: str, text: str) -> StructType:
    return SCHEMA if text.strip() == "*" else pruned(_names(name, text))


def _text(name: str, text: str) -> str:
    if not text:
        raise OptionError(f"the option {name} is empty")
    return text


def _one_of(*choices: str) -> Parser:
    def parse(name: str, text: str) -> str:
        if text.lower() not in choices:
            *others, last = choices
            raise OptionError(f"the option {name} is {text!r}: expected {', '.join(others)} or {last}")
        return text.lower()

    return parse


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"the option {name} is {text!r}: expected true or false")
    return text.lower() == "true"


def _rows(name: str, text: str) -> int:
    return integer(name, text, 1, 2**63 - 1)


def _offset(name: str, text: str) -> int | None:
    match text.lower():
        case "earliest":
            return 0
        case "latest":
            return None
    try:
        return integer(name, text, 0, 2**63 - 1)
    except OptionError as error:
        raise OptionError(f"{error}, earliest or latest") from None


def _spelling(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(map(str.capitalize, rest))


_COMMON: dict[str, Parser] = {
    "topic": _text,
    "authors": _dids,
    "columns": _columns,
    "partitions": _partitions,
    "encodings": _one_of("all", "first"),
    "mode": _one_of("permissive", "dropmalformed", "failfast"),
    "recursive_file_lookup": _boolean,
    "path_glob_filter": _text,
    "ignore_missing_files": _boolean,
    "ignore_corrupt_files": _boolean,
}
BATCH_OPTIONS: dict[str, Parser] = {
    **_COMMON,
    "min_clock": _clock,
    "max_clock": _clock,
    "min_id": _id,
    "max_id": _id,
}
STREAM_OPTIONS: dict[str, Parser] = {**_COMMON, "max_rows": _rows, "starting_offsets": _offset}
READ_OPTIONS: dict[str, Parser] = {**BATCH_OPTIONS, **STREAM_OPTIONS}
WRITE_OPTIONS: dict[str, Parser] = {"topic": _text, "staging": _text, "report": _text}
# Which Spark hands over with those of a sink, by the names of its methods and settings, in lower case.
_QUERY_OPTIONS = frozenset({"checkpointlocation", "queryname", "outputmode", "trigger"})
