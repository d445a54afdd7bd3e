"""The check of a range of messages: values, keys, signatures, and what other ranges have to do with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from gossiplog import columns
from gossiplog.spark.jobs.root import entries_fragment

FOUND = "kind string, key binary, other binary, detail string"
"""What a range reports: defects, of which `key` is the message and `other` a parent, and rows of the kinds below."""
FOUND_ARROW = pa.schema([("kind", pa.string()), ("key", pa.binary()), ("other", pa.binary()), ("detail", pa.string())])
_LOST = "its value is gone: the log has its leaf alone"
# Its fragment (in `other`); parents that it lacks, each with the child there; messages that none there names.
FRAGMENT, OUTER, CHILDLESS = "fragment", "outer", "childless"


def check_partition(topic: str, count: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what a partition reports, for `mapInArrow`: rows of defects, outer parents, childless keys and a fragment.

    Args:
        topic: of the log.
        count: rows with a larger `seq` are passed over, where the batches have that column.
        batches: with the columns `key`, ascending, and `value`.
    """
    fragment = columns.Fragment()
    known: list[pa.Array] = []
    parents: list[pa.Array] = []
    children: list[pa.Array] = []
    for batch in batches:
        if count is not None and "seq" in batch.schema.names:
            batch = batch.filter(pc.less_equal(batch.column("seq"), count))
        keys, values = batch.column("key"), batch.column("value")
        verdicts = columns.verify(keys, values, topic, ["parent_keys"])
        # A storage reads the value of a message that was lost as one without bytes, which no message has.
        lost = pc.fill_null(pc.equal(pc.binary_length(values), 0), True)
        errors, parent_keys = verdicts.column("error"), verdicts.column("parent_keys")
        errors = pc.if_else(lost, pa.scalar(_LOST), errors)
        sound = pc.is_valid(parent_keys)
        for kind, those in (("signature", sound), ("value", pc.invert(sound))):
            defects = pc.and_(those, pc.is_valid(errors))
            yield _found(kind, keys.filter(defects), detail=errors.filter(defects))
        complete = pc.and_(pc.is_valid(keys), pc.invert(lost))
        entries = keys.filter(complete)
        fragment = fragment.join(entries_fragment(entries, columns.leaf_hashes(entries, values.filter(complete))))
        named = parent_keys.filter(sound)
        parents.append(pc.list_flatten(named))
        children.append(keys.filter(sound).take(pc.list_parent_indices(named)))
        known.append(keys.drop_null())
    here, there = (pa.chunked_array(arrays, pa.binary()).combine_chunks() for arrays in (known, parents))
    outer = pc.invert(pc.is_in(there, here))
    yield _found(OUTER, there.filter(outer), pa.chunked_array(children, pa.binary()).combine_chunks().filter(outer))
    yield _found(CHILDLESS, here.filter(pc.invert(pc.is_in(here, there))))
    yield _found(FRAGMENT, pa.nulls(1, pa.binary()), pa.array([fragment.to_bytes()], pa.binary()))


def _found(kind: str, keys: pa.Array, other: pa.Array | None = None, detail: pa.Array | None = None) -> pa.RecordBatch:
    rows = len(keys)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(kind, pa.string()), rows),
            keys,
            pa.nulls(rows, pa.binary()) if other is None else other,
            pa.nulls(rows, pa.string()) if detail is None else detail,
        ],
        schema=FOUND_ARROW,
    )
