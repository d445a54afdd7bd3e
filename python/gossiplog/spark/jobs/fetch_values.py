"""Stored values by their keys, from whichever of several replicas has them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from gossiplog.columns import verify
from gossiplog.spark.source.locations import opened
from gossiplog.storage import Storage
from gossiplog.storage.base import PAGE_BYTES

_GATHERED = pa.schema(
    [
        ("key", pa.binary()),
        ("holders", pa.list_(pa.int32())),
        ("clock", pa.int64()),
        ("author", pa.string()),
        ("size", pa.int64()),
        ("value", pa.binary()),
        ("error", pa.string()),
    ]
)
_COLUMNS = "key binary, holders array<int>, clock long, author string, size long, value binary, error string"


@dataclass(frozen=True, slots=True)
class Replica:
    """A log as it is compared.

    Attributes:
        log: its location.
        messages: how many it has.
        level: of the root of its tree.
        root: the root's hash, hexadecimal.
    """

    log: str
    topic: str
    messages: int
    level: int
    root: str


def fetch_values(keys: DataFrame, replicas: Sequence[Replica]) -> DataFrame:
    """Read and verify the values of some keys.

    Args:
        keys: the columns `key` and `holders`, an array of the numbers of the replicas that have it; read the fastest
            where the keys ascend.
        replicas: of one log.

    Returns:
        Both columns with `clock`, `author`, `size` and `value`, which are null where `error` is not: no holder's value
        is that message.
    """
    return keys.select("key", "holders").mapInArrow(FetchTask(tuple(replicas)), _COLUMNS)


@dataclass(frozen=True, slots=True)
class FetchTask:
    """Fetch and verify values: one task of `fetch_values`.

    Attributes:
        replicas: of one log.
    """

    replicas: tuple[Replica, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read and verify the values of batches of keys and holders."""
        with ExitStack() as stack:

            @cache
            def storage(replica: int) -> Storage:
                found = self.replicas[replica]
                return stack.enter_context(opened(found.log, found.topic))[0]

            for batch in batches:
                yield from _gathered(batch, self.replicas, storage)


def _gathered(
    batch: pa.RecordBatch, replicas: Sequence[Replica], storage: Callable[[int], Storage]
) -> Iterator[pa.RecordBatch]:
    owners = pc.list_parent_indices(batch["holders"])
    holders = pc.list_flatten(batch["holders"])
    pending: npt.NDArray[np.bool_] = np.ones(len(batch), dtype=bool)
    for number in sorted(pc.unique(holders).to_pylist()):
        replica = replicas[number]
        rows = owners.filter(pc.equal(holders, number)).to_numpy()
        wanted = batch["key"].take(pa.array(rows[pending[rows]])).to_pylist()
        for found in _pages(storage(number), replica.messages, wanted):
            keys, values = pa.array(found.keys(), pa.binary()), pa.array(found.values(), pa.binary())
            verdicts = verify(keys, values, replica.topic, ["clock", "author", "size"])
            sound = pc.is_null(verdicts["error"])
            whole = verdicts.filter(sound)
            places = pc.index_in(whole["key"], batch["key"])
            pending[places.to_numpy()] = False
            columns = {name: whole[name] for name in ("key", "clock", "author", "size")}
            columns |= {"holders": batch["holders"].take(places), "value": values.filter(sound)}
            yield _row_batch(columns, len(whole))
    lost = batch.filter(pa.array(pending))
    error = pa.repeat(pa.scalar("what is stored under this key is not that message, in any replica"), len(lost))
    yield _row_batch({"key": lost["key"], "holders": lost["holders"], "error": error}, len(lost))


def _row_batch(columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in _GATHERED
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_GATHERED)


def _pages(storage: Storage, count: int, keys: list[bytes]) -> Iterator[dict[bytes, bytes]]:
    """Yield the values of those of the keys that are there, a limited number of bytes at a time."""
    with storage.reader(single=True) as reader:
        while keys:
            found = reader.values(keys, count, PAGE_BYTES)
            yield found
            if sum(map(len, found.values())) <= PAGE_BYTES:
                return
            keys = [key for key in keys if key not in found]
