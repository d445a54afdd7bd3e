"""Records of CSV and JSON Lines, judged as they stand in their files, before Spark's readers get them.

Those are lenient: they pass over what follows a JSON object in its line, read to the end of a file for a quote that is
never closed, replace what is not Unicode, and round numbers. Here each record must be what the format says, and what
types JSON Lines have is found without changing a value.
"""

from __future__ import annotations

import csv
import json
import math
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from gossiplog.errors import DecodeError

REFUSED = " has a record that is malformed or does not fit the schema: "
"""What an error says of a record, between the name of its file and its text."""
ADVICE = "correct it, or remove it, and begin again"
SHOWN = 200
"""Characters of such a record that are shown."""

_MAX_NESTING = 100
# Integers up to it are floating point numbers, too.
_MAX_EXACT = 2**53
_MAX_LONG = 2**63
# A lone surrogate cannot stand in UTF-8, only be escaped.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FIELD = rb'(?:"(?:[^"]|"")*+"|[^",\r]*+)'
_CSV_LINE = re.compile(rb"%b(?:,%b)*+\r?" % (_FIELD, _FIELD), re.DOTALL)
_ODD_END = "it ends in LF, and others in CRLF, or the other way round"

Lines: TypeAlias = Iterator[tuple[str, int, bytes]]
"""The file of each line, where the part of it begins that a task reads, and the line."""


def check_json(session: SparkSession, paths: Sequence[str], *, infer: bool) -> StructType:
    """Check that each line of JSON Lines is blank or one object, and return the columns.

    Args:
        session: of Spark.
        paths: as Spark's readers take them.
        infer: find the columns; else there are none.

    Raises:
        DecodeError: a line that is not; with `infer`, also a value that no column of one type holds as it is.
    """
    columns = _Kind("", "struct")
    for found in _judge(session, paths, _JudgeJSON(infer)):
        columns.merge(found)
    return columns.columns()


def check_csv(session: SparkSession, paths: Sequence[str], columns: Sequence[str] | None) -> StructType:
    """Check that files are CSV as in RFC 4180, with one line of names that is the same in all, and return the columns.

    Args:
        session: of Spark.
        paths: as Spark's readers take them.
        columns: the names that must be there, if they are known; None takes those of the files.

    Raises:
        DecodeError: they are not.
    """
    files: dict[str, list[_Part]] = {}
    for part in _judge(session, paths, _judge_csv):
        files.setdefault(part.file, []).append(part)
    header: list[str] = []
    first = ""
    for file, parts in sorted(files.items()):
        names = _names(_check_parts(parts))
        if columns is not None:
            # Those that stand in the names of folders are in no file.
            expected, source = [name for name in columns if f"/{name}=" not in file], "the schema has"
        else:
            header, first = header or names, first or file
            expected, source = header, f"{first} has"
        _check_names(file, names, expected, source)
    return StructType([StructField(name, StringType()) for name in header])


def _judge(session: SparkSession, paths: Sequence[str], judge: Callable[[Lines], Iterator[Any]]) -> list[Any]:
    """Return what tasks find that get the lines of files, each the whole parts of some."""
    reader = session.read.format("text")
    if judge is _judge_csv:
        # Else the text within a quoted field would be split at "\r", too, and what ends a line be lost.
        reader = reader.option("lineSep", "\n")
    lines = reader.load([*paths]).select(
        F.input_file_name().alias("file"),
        F.col("_metadata.file_block_start").alias("start"),
        F.col("value").cast("binary").alias("line"),
    )
    found: list[Any] = []
    for row in lines.mapInArrow(_Task(judge), "result binary").collect():
        # From this session's own workers.
        one = pickle.loads(row.result)
        if isinstance(one, DecodeError):
            raise one
        found.append(one)
    return found


@dataclass(frozen=True, slots=True)
class _Task:
    """Gives lines to a judge, whose first refusal is its last result."""

    judge: Callable[[Lines], Iterator[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lines = (
            line for batch in batches for line in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        try:
            for one in self.judge(lines):
                yield _result(one)
        except DecodeError as error:
            yield _result(error)


def _result(one: Any) -> pa.RecordBatch:
    return pa.record_batch({"result": pa.array([pickle.dumps(one)], pa.binary())})


def _refuse(file: str, line: bytes, reason: str) -> NoReturn:
    shown = " ".join(line[: 4 * SHOWN].decode("utf-8", "replace").split())[:SHOWN]
    raise DecodeError(f"{file}{REFUSED}{shown} ({reason}; {ADVICE})")


@dataclass(frozen=True, slots=True)
class _JudgeJSON:
    """Judges lines of JSON, and yields the type that holds all of them."""

    infer: bool

    def __call__(self, lines: Lines) -> Iterator[Any]:
        columns = _Kind("", "struct")
        for file, _, line in lines:
            try:
                record = _object_of(line)
            except RecursionError:
                _refuse(file, line, f"it is nested more than {_MAX_NESTING} deep")
            except json.JSONDecodeError as error:
                _refuse(file, line, f"{error.msg} at character {error.pos + 1}")
            except ValueError as error:
                _refuse(file, line, str(error))
            if self.infer and record is not None:
                columns.add(record, (file, line[: 4 * SHOWN]))
        yield columns


def _object_of(line: bytes) -> dict[str, Any] | None:
    """Return the object that a line has; None where it is blank.

    Raises:
        ValueError: something else, or what other readers take differently.
        RecursionError: it is nested too deep.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if not text.strip(" \t\r\n"):
        return None
    value = json.loads(text, object_pairs_hook=_object, parse_float=_number, parse_constant=_constant)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    if _SURROGATE.search(line):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it has half of a surrogate pair") from None
    if line.count(b"{") + line.count(b"[") > _MAX_NESTING:
        _check_nesting(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a name twice")
    return found


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:SHOWN]} is too large")
    return number


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _check_nesting(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_NESTING):
        level = [
            part
            for one in level
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise RecursionError


_SAID = {"array": "an array", "boolean": "true or false", "string": "text", "struct": "an object"}
_TYPES: dict[str | None, DataType] = {
    # Null in every record.
    None: StringType(),
    "boolean": BooleanType(),
    "double": DoubleType(),
    "long": LongType(),
    "string": StringType(),
    "small": LongType(),
}


@dataclass(slots=True)
class _Kind:
    """The type of a value in all records that have it.

    Attributes:
        place: of the value in a record, for errors.
        name: None while it is null in every record; "small" of integers that floating point numbers hold, too.
        where: the file and the beginning of the record in which it is so.
        parts: of the fields of an object, and of an array, as one whose name is empty.
    """

    place: str
    name: str | None = None
    where: tuple[str, bytes] = ("", b"")
    parts: dict[str, _Kind] = field(default_factory=dict)

    def add(self, value: Any, where: tuple[str, bytes]) -> None:
        """Make it the type of a value, too."""
        match value:
            case None:
                return
            case dict():
                self._become("struct", where)
                for name, part in value.items():
                    self._part(name).add(part, where)
            case list():
                self._become("array", where)
                for part in value:
                    self._part("").add(part, where)
            case bool():
                self._become("boolean", where)
            case str():
                self._become("string", where)
            case float():
                self._become("double", where)
            case int() if -_MAX_EXACT <= value <= _MAX_EXACT:
                self._become("small", where)
            case int() if -_MAX_LONG <= value < _MAX_LONG:
                self._become("long", where)
            case _:
                _refuse(*where, f"{self.place} is an integer of more than 64 bits: name its type in a schema")

    def merge(self, other: _Kind) -> None:
        """Make it the type of all values of another one, too."""
        if other.name is not None:
            self._become(other.name, other.where)
        for name, part in other.parts.items():
            self._part(name).merge(part)

    def columns(self) -> StructType:
        """Return the type of an object in Spark."""
        return StructType([StructField(name, part._type()) for name, part in sorted(self.parts.items())])

    def _type(self) -> DataType:
        if self.name == "array":
            return ArrayType(self._part("")._type())
        if self.name == "struct":
            if not self.parts:
                _refuse(*self.where, f"{self.place} is an empty object in every record: name the columns in a schema")
            return self.columns()
        return _TYPES[self.name]

    def _part(self, name: str) -> _Kind:
        if name not in self.parts:
            separator = "." if self.place else ""
            self.parts[name] = _Kind(self.place + ("[]" if self.name == "array" else f"{separator}{name}"))
        return self.parts[name]

    def _become(self, name: str, where: tuple[str, bytes]) -> None:
        if self.name == name:
            return
        if self.name is None:
            self.name, self.where = name, where
            return
        pair = {self.name, name}
        if "small" in pair and pair & {"long", "double"}:
            if name != "small":
                self.name, self.where = name, where
            return
        if pair == {"long", "double"}:
            reason = (
                f"{self.place} is a fraction here or in another record, and an integer that no floating point number is"
            )
        else:
            one, other = (_SAID.get(each, "a number") for each in (name, self.name))
            reason = f"{self.place} is {one}, and {other} in another record"
        _refuse(*where, f"{reason}: name its type in a schema")


def _judge_csv(lines: Lines) -> Iterator[_Part]:
    """Judge lines of CSV, and yield the parts of files that they are."""
    part: _Part | None = None
    for file, start, line in lines:
        if part is None or (part.file, part.start) != (file, start):
            if part is not None:
                yield part
            part = _Part(file, start)
        part.add(line)
    if part is not None:
        yield part


@dataclass(slots=True)
class _Part:
    """A part of a file of CSV, read as if it begins between records, and as if it begins within a quoted field.

    Which of both it is, the parts before say.

    Attributes:
        file: which file.
        start: where it begins in it.
        readings: the two, by whether it begins within a field.
    """

    file: str
    start: int
    readings: tuple[_Reading, _Reading]

    def __init__(self, file: str, start: int) -> None:
        self.file = file
        self.start = start
        self.readings = (_Reading(), _Reading(is_quoted=True))

    def add(self, line: bytes) -> None:
        """Read the next line."""
        for reading in self.readings:
            if reading.problem is None:
                reading.add(line, at_start=self.start == 0)


@dataclass(slots=True)
class _Reading:
    """How lines are read.

    Attributes:
        is_quoted: whether the next line begins within a quoted field.
        problem: what is wrong with the line that is `record`; None where nothing is.
        record: the last line in which a record begins that ends in a later one, or which has a problem.
        header: the first line that is not blank.
        is_crlf: whether the lines end in CRLF, and not LF; None where none is known that ends a record.
        odd: a line that ends in LF after others in CRLF, which only the last of a file does: it may have no end.
    """

    is_quoted: bool = False
    problem: str | None = None
    record: bytes = b""
    header: bytes = b""
    is_crlf: bool | None = None
    odd: bytes | None = None

    def add(self, line: bytes, *, at_start: bool) -> None:
        """Read the next line."""
        began_quoted = self.is_quoted
        # A line that begins or ends within a field is one as any other if the quote that is missing there is added.
        whole = b'"' + line if began_quoted else line
        is_complete = _CSV_LINE.fullmatch(whole) is not None
        is_crlf = line.endswith(b"\r")
        is_header = at_start and not self.header and bool(line.strip())
        if not began_quoted:
            self.record = line[: 4 * SHOWN]
        if self.odd is not None:
            self.problem, line = _ODD_END, self.odd
        elif not is_complete and _CSV_LINE.fullmatch(whole + b'"') is None:
            self.problem = "a quote, or the end of a line, is at no place for one"
        elif is_header and not is_complete:
            self.problem = "a column's name has the end of a line"
        elif is_complete and is_crlf and self.is_crlf is False:
            self.problem = _ODD_END
        else:
            try:
                line.decode()
            except UnicodeDecodeError:
                self.problem = "it is not UTF-8"
        if self.problem is not None:
            self.record = line[: 4 * SHOWN]
            return
        self.is_quoted = not is_complete
        if is_header:
            self.header = line
        if is_complete and self.is_crlf is None:
            self.is_crlf = is_crlf
        elif is_complete and self.is_crlf is not is_crlf:
            self.odd = line


def _check_parts(parts: list[_Part]) -> bytes:
    """Check all parts of a file, and return its first line."""
    parts.sort(key=lambda part: part.start)
    is_quoted = False
    record = b""
    for part in parts:
        reading = part.readings[is_quoted]
        record = reading.record or record
        if reading.problem is not None:
            _refuse(part.file, record, reading.problem)
        if reading.odd is not None and part is not parts[-1]:
            _refuse(part.file, reading.odd, _ODD_END)
        is_quoted = reading.is_quoted
    if is_quoted:
        _refuse(parts[0].file, record, "a quote of it is never closed")
    return parts[0].readings[False].header


def _names(header: bytes) -> list[str]:
    return next(csv.reader([header.decode()]), [])


def _check_names(file: str, names: list[str], expected: list[str], source: str) -> None:
    """Check the names of a file's columns; Spark takes them without regard to case."""
    for number, name in enumerate(names, 1):
        if not name:
            raise DecodeError(f"{file} has no name for its column {number}: give it one")
        if name.lower() in (other.lower() for other in names[: number - 1]):
            raise DecodeError(f"{file} has two columns {name}: rename one")
    if names and [name.lower() for name in names] != [name.lower() for name in expected]:
        raise DecodeError(
            f"{file} has the columns {', '.join(names)} where {source} {', '.join(expected)}: give the same names in"
            " the same order"
        )
