"""Histories and logs that are made once and kept under `.bench`.

A history is a file of stored values, every one behind its length in four bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path

from gossiplog.cli.bench import stage

FOLDER = Path(__file__).parents[1] / ".bench"


def history(name: str, count: int) -> list[bytes]:
    """As `gossiplog.cli.bench.stage.history`."""
    path = FOLDER / f"{name}-{count}.values"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            for value in stage.history(name, count):
                file.write(struct.pack(">I", len(value)) + value)
        partial.rename(path)
    data = path.read_bytes()
    values = []
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from(">I", data, offset)
        values.append(data[offset + 4 : offset + 4 + length])
        offset += 4 + length
    return values
