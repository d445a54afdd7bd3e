"""The deliveries of a run as a file, for who wants to look closer than its summary does."""

from __future__ import annotations

import os
from pathlib import Path

from gossiplog.sim.routers.tally import Deliveries

COLUMNS = ("message", "node", "source", "latency", "hops")


def write_parquet(deliveries: Deliveries, path: Path) -> None:
    """Write a Parquet file with a row for each delivery; a file that is there is replaced when the new one is whole.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("writing Parquet needs pyarrow: pip install gossiplog[arrow]") from error
    kinds = {"i": pa.int32(), "d": pa.float64(), "B": pa.uint8()}
    columns = {name: getattr(deliveries, name) for name in COLUMNS}
    table = pa.table(
        {
            name: pa.Array.from_buffers(kinds[column.typecode], len(column), [None, pa.py_buffer(column)])
            for name, column in columns.items()
        }
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        parquet.write_table(table, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
