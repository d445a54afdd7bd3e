"""`gossiplog import`: stored values from Parquet, as repair sets and `gossiplog pipeline read --output` hold them.

A set is a Parquet file with a binary column `value`, or a folder of such files, which are taken in the order of their
names. Other columns do not matter, because a message is all in its value; each is verified as if a peer had sent it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog.cli.logs import LogPath, open_log
from gossiplog.cli.output import Json, Output, Stopwatch, printable, progress
from gossiplog.errors import GossipLogError, ValuesRefused

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_COLUMN = "value"
_ROWS = 256  # read at a time; each may have as many bytes as a message has
_SHOWN = 20  # refusals on a terminal


class NoValues(GossipLogError):
    """A path that holds no stored values, or that cannot be read."""


def import_values(
    path: LogPath,
    sets: Annotated[
        list[Path],
        typer.Argument(metavar="SET...", help="Parquet with a column `value`: files, or folders of them."),
    ],
    topic: Annotated[str | None, typer.Option(help="The topic, where the log is to be made.")] = None,
    json: Json = False,
) -> None:
    """Import stored values, as a repair set has them; end with 1 where any is refused.

    Every message is verified. The sets may hold their messages in any order; what the log has is no error.
    """
    output = Output(json)
    values = _Values([file for each in sets for file in _files(each)])
    with open_log(path, topic) as log, progress("Importing", values.rows) as advance, Stopwatch() as watch:
        inserted = log.insert_many(values.read(advance))
        messages, root = len(log), log.root
    refused = [
        values.place(index) | {"id": getattr(error, "id", None), "error": str(error)}
        for index, error in inserted.refused
    ]
    if output.json:
        output.record(
            {
                "log": str(path),
                "values": values.rows,
                "inserted": inserted.inserted,
                "duplicates": inserted.duplicates,
                "refused": refused,
                "messages": messages,
                "root": {"level": root.level, "hash": root.hash.hex()},
                "seconds": round(watch.seconds, 6),
            }
        )
    else:
        for refusal in refused[:_SHOWN]:
            output.show(printable("{file}, row {row}: {error}".format_map(refusal)))
        output.show(
            f"{inserted.inserted:,} of {values.rows:,} messages were new, {inserted.duplicates:,} were there,"
            f" {len(refused):,} were refused; the log holds {messages:,} messages."
        )
    if refused:
        raise ValuesRefused(f"{len(refused)} of {values.rows} values were refused; the others are in {path}")


class _Values:
    """The values in Parquet files, one file behind the other.

    Args:
        paths: of the files.

    Attributes:
        rows: how many there are.

    Raises:
        NoValues: a file that cannot be read, or that has no binary column `value`.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._starts: list[int] = []
        self.rows = 0
        for path in paths:
            self._starts.append(self.rows)
            with _opened(path) as file:
                self.rows += file.metadata.num_rows

    def read(self, advance: Callable[[int], None]) -> Iterator[bytes]:
        """All values; one that is null is empty, which no message is.

        Args:
            advance: called with numbers of values read.

        Raises:
            NoValues: a damaged file.
        """
        for path in self._paths:
            with _opened(path) as file:
                for column in _columns(path, file):
                    yield from (value or b"" for value in column)
                    advance(len(column))

    def place(self, index: int) -> dict[str, Any]:
        """The file and the row, from 0, of a value."""
        file = bisect_right(self._starts, index) - 1
        return {"file": str(self._paths[file]), "row": index - self._starts[file]}


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise NoValues(f"there is no file or folder {path}")
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.parquet"))
    if not found:
        sets = sorted({file.parent for file in path.glob("*/*.parquet")})
        hint = f": name one of the sets in it, as {sets[0]}" if sets else ""
        raise NoValues(f"{path} has no files named *.parquet{hint}")
    return found


def _opened(path: Path) -> ParquetFile:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise NoValues(
            f"{error}: gossiplog import needs it; install it with: pip install 'gossiplog[arrow]'"
        ) from error
    try:
        file = parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise NoValues(f"{path} cannot be read as Parquet: {error}") from error
    schema = file.schema_arrow
    kind = schema.field(_COLUMN).type if schema.get_field_index(_COLUMN) >= 0 else None
    if kind not in (pa.binary(), pa.large_binary()):
        file.close()
        raise NoValues(f"{path} has no binary column {_COLUMN!r}: its columns are {', '.join(schema.names)}")
    return file


def _columns(path: Path, file: ParquetFile) -> Iterator[list[bytes | None]]:
    import pyarrow as pa

    try:
        for batch in file.iter_batches(_ROWS, columns=[_COLUMN]):
            yield batch.column(0).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise NoValues(f"{path} is damaged: {error}") from error
