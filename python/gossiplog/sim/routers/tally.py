"""What happened in a simulation of routers: counts of packets, degrees of meshes, and deliveries, also as a file."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MOST_HOPS = 255
COLUMNS = ("message", "node", "source", "latency", "hops")
"""Of a file of deliveries."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """The neighbours that the nodes had at a time.

    Attributes:
        at: seconds since the start of the run.
        mean: over the nodes that were up.
        least: of any node.
        most: of any node.
    """

    at: float
    mean: float
    least: int
    most: int


@dataclass(slots=True)
class Deliveries:
    """Columns, with one row for each message that a node's application was handed, in the order of time.

    Attributes:
        message: its number.
        node: that got it.
        source: the node that it came from; -1 for the node's own or what came from outside.
        latency: seconds since it was published.
        hops: how many nodes passed it on, up to 255.
    """

    message: array[int] = field(default_factory=lambda: array("i"))
    node: array[int] = field(default_factory=lambda: array("i"))
    source: array[int] = field(default_factory=lambda: array("i"))
    latency: array[float] = field(default_factory=lambda: array("d"))
    hops: array[int] = field(default_factory=lambda: array("B"))


class Tally:
    """Counts.

    Args:
        nodes: how many there are.
        names: of the kinds of packets.

    Attributes:
        sent: packets of each kind, one for each peer that it was sent to.
        bytes: of them.
        published: messages given to nodes, one for each node.
        injected: of them, those that count as sent.
        lost: messages with a payload that did not arrive.
        deliveries: all of them.
        degrees: of the mesh, over time.
    """

    def __init__(self, nodes: int, names: Sequence[str]) -> None:
        self.sent = dict.fromkeys(names, 0)
        self.bytes = 0
        self.published = 0
        self.injected = 0
        self.lost = 0
        self.deliveries = Deliveries()
        self.degrees: list[Degrees] = []
        self._nodes = nodes
        self._hops: dict[int, bytearray] = {}  # of each message, by node
        self._times: dict[int, float] = {}

    def publish(self, number: int, now: float) -> None:
        """Note that a message is published."""
        self._times[number] = now
        self._hops[number] = bytearray(self._nodes)

    def deliver(self, number: int, node: int, source: int, now: float) -> None:
        """Note that a message came to a node's application: from a peer, or from outside where `source` is negative."""
        hops = self._hops[number]
        passed = 0 if source < 0 else min(hops[source] + 1, _MOST_HOPS)
        hops[node] = passed
        rows = self.deliveries
        rows.message.append(number)
        rows.node.append(node)
        rows.source.append(source)
        rows.latency.append(now - self._times[number])
        rows.hops.append(passed)

    def sample(self, now: float, degrees: Sequence[int]) -> None:
        """Note the degrees of all nodes that are up."""
        if degrees:
            self.degrees.append(Degrees(now, sum(degrees) / len(degrees), min(degrees), max(degrees)))


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
