"""The values of messages in a file of Parquet, which a stranger may have written.

A few hundred bytes of Parquet can stand for gigabytes: pages are compressed, a dictionary has a value once for all
rows, and numbers of values are whatever the file says. So the headers of all pages are read before Arrow gets to them
(https://github.com/apache/parquet-format): a page or a number of rows that no file of messages needs is refused, and
rows are read in batches that stay small even if each row is as long as the largest page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gossiplog.errors import DecodeError, GossipLogError

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, ParquetFile

_COLUMN = "value"
_MOST_PAGE = 64 << 20  # bytes of a page that is not compressed
_BATCH = 32 << 20  # bytes that a batch of rows may take
_MOST_ROWS = 1024  # in a batch
_BUFFER = 1 << 20
_SHOWN_COLUMNS = 20
# A message has a signature of 64 bytes, which cannot be compressed. Some rows may repeat others.
_LEAST_ROW = 16

# Of the format's enumerations, PageType and Encoding.
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_PLAIN, _PLAIN_DICTIONARY, _DICTIONARY_INDICES = 0, 2, 8
# Of the compact protocol of Thrift.
_I32, _BINARY, _STRUCT = 5, 8, 12
_SKIPPED_NUMBERS = {4, 5, 6}
_MOST_HEADER = 1 << 16
_MOST_NESTING = 4


class NoValues(GossipLogError):
    """A path that holds no messages, or that cannot be read."""


class Rows:
    """The values of a Parquet file.

    Args:
        path: of the file.
        stream: of its bytes, which stays open as long as this is used.

    Attributes:
        rows: how many there are.

    Raises:
        NoValues: a file that cannot be read, that takes more memory than messages do, or that has no binary column
            `value`.
    """

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream
        with _parquet(path, stream) as file, _damage_named(path):
            self.rows: int | None = file.metadata.num_rows
            largest = _largest_page(path, file, stream)
        self._batch = max(1, min(_MOST_ROWS, _BATCH // max(1, largest)))

    def read(self, advance: Callable[[int], object]) -> Iterator[bytes]:
        """Yield all values, and b"" for null.

        Args:
            advance: called with numbers of values read.

        Raises:
            NoValues: the file is damaged.
        """
        with _parquet(self._path, self._stream) as file, _damage_named(self._path):
            # Threads would read ahead.
            for batch in file.iter_batches(self._batch, columns=[_COLUMN], use_threads=False):
                # One by one: all of them as objects would take the memory of the batch once more.
                yield from (value.as_py() or b"" for value in batch.column(0))
                advance(batch.num_rows)

    def place(self, index: int) -> dict[str, Any]:
        """Return the file and the row, from 0, of a value."""
        return {"file": str(self._path), "row": index}


def _parquet(path: Path, stream: IO[bytes]) -> ParquetFile:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise NoValues(
            f"{error}: gossiplog import needs it for Parquet; install it with: pip install 'gossiplog[arrow]'"
        ) from error
    try:
        file = parquet.ParquetFile(stream, buffer_size=_BUFFER)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise NoValues(f"{path} is neither JSON Lines nor Parquet: {error}") from error
    schema = file.schema_arrow
    kind = schema.field(_COLUMN).type if schema.get_field_index(_COLUMN) >= 0 else None
    if kind not in (pa.binary(), pa.large_binary()):
        file.close()
        more = ", …" if len(schema.names) > _SHOWN_COLUMNS else ""
        names = ", ".join(schema.names[:_SHOWN_COLUMNS]) + more
        raise NoValues(f"{path} has no binary column {_COLUMN!r}: its columns are {names}")
    return file


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Raise what Arrow raises in a block, such as UnicodeDecodeError for a name, as NoValues."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise NoValues(f"{path} is damaged: {error}") from error


def _largest_page(path: Path, file: ParquetFile, stream: IO[bytes]) -> int:
    """Return the most bytes that a page of the column takes when it is not compressed.

    Raises:
        DecodeError: the header of a page is damaged.
        NoValues: a page is larger than _MOST_PAGE, or has an encoding that may expand without bound; or there are more
            rows than a file of this size has messages.
    """
    metadata = file.metadata
    size = os.fstat(stream.fileno()).st_size
    column = [metadata.schema.column(number).path for number in range(metadata.num_columns)].index(_COLUMN)
    largest = row = 0
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(column)
        if max(metadata.num_rows, row + chunk.num_values) * _LEAST_ROW > size:
            raise NoValues(
                f"{path} has {max(metadata.num_rows, row + chunk.num_values):,} rows in {size:,} bytes, but a message"
                " takes 64 bytes at least, for its signature: write each message once"
            )
        for page, fault in _pages(stream, chunk):
            if fault:
                raise NoValues(
                    f"{path}, row group {number}, which begins with row {row}: {fault}; write the messages anew, with"
                    " smaller pages and the encoding PLAIN, or as JSON Lines with gossiplog export"
                )
            largest = max(largest, page)
        row += chunk.num_values
    return largest


def _pages(stream: IO[bytes], chunk: ColumnChunkMetaData) -> Iterator[tuple[int, str]]:
    """Yield the size of each page of a column in a row group, and why it is not read, or "".

    Raises:
        DecodeError: the header of a page is damaged, or the file ends before the last page.
    """
    position = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < (chunk.dictionary_page_offset or 0) < position:
        position = chunk.dictionary_page_offset
    values = pages = 0
    # As Arrow does, which does not stop where the column is said to end.
    while values < chunk.num_values:
        stream.seek(max(0, position))
        header = _Header(stream).read()
        kind, size, stored = (header.get(number, -1) for number in (1, 2, 3))
        fields, encoding = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}.get(kind, (0, 0))
        details = header.get(fields, {})
        count = details.get(1, -1) if fields else 0
        if kind not in (_DATA, _DATA_V2) and (kind != _DICTIONARY or pages):
            raise DecodeError(f"a page has the kind {kind}, which is not expected there")
        # Pages without rows could be any number.
        if size < 0 or stored < 0 or count < (kind != _DICTIONARY):
            raise DecodeError("the header of a page has a number that is too small")
        yield size, _fault(kind, size, count, details.get(encoding, -1))
        values += 0 if kind == _DICTIONARY else count
        pages += 1
        position = stream.tell() + stored


def _fault(kind: int, size: int, count: int, encoding: int) -> str:
    if size > _MOST_PAGE:
        return f"a page of {size:,} bytes, of {_MOST_PAGE:,} that are read"
    if kind == _DICTIONARY and count * 4 > size:
        return f"a dictionary of {count:,} values in {size:,} bytes"
    if encoding not in (_PLAIN, _PLAIN_DICTIONARY, _DICTIONARY_INDICES):
        return f"a page with the encoding {encoding}, which is not read"
    return ""


class _Header:
    """The header of a page: a struct in Thrift's compact protocol.

    It reads only the types that the format has there, so that it cannot take a header for another than Arrow does.

    Args:
        stream: from which bytes are read, none after the header.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = _MOST_HEADER

    def read(self) -> dict[int, Any]:
        """Return the fields by their numbers, of which those in use have numbers or structs.

        Raises:
            DecodeError: something that is no header, or a longer one than there are.
        """
        return self._struct(0)

    def _struct(self, nesting: int) -> dict[int, Any]:
        if nesting > _MOST_NESTING:
            raise DecodeError("the header of a page is nested too deeply")
        found: dict[int, Any] = {}
        last = 0
        while kind := self._byte():
            last = last + (kind >> 4) if kind >> 4 else self._number()
            if last in found:
                raise DecodeError("the header of a page has a field twice")
            found[last] = self._value(kind & 15, nesting)
            # Other readers pass over a field of another type.
            if nesting == 0 and last in (1, 2, 3, 5, 7, 8) and kind & 15 != (_I32 if last < 5 else _STRUCT):
                raise DecodeError("a field in the header of a page has another type")
        return found

    def _value(self, kind: int, nesting: int) -> Any:
        if kind in (1, 2):  # The type is the value, true or false.
            return 2 - kind
        if kind in _SKIPPED_NUMBERS:
            number = self._number()
            if kind == _I32 and not -(1 << 31) <= number < 1 << 31:
                raise DecodeError("a number in the header of a page is too large")
            return number
        if kind == _BINARY:
            self._bytes(self._varint())
            return -1
        if kind == _STRUCT:
            return self._struct(nesting + 1)
        raise DecodeError("a field in the header of a page has another type")

    def _number(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise DecodeError("a number in the header of a page is too long")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise DecodeError("the header of a page is too long")
        data = self._stream.read(size)
        if len(data) < size:
            raise DecodeError("the file ends in the header of a page")
        return data
