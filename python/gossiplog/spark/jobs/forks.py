"""Authors that forked, found on all cores: what `gossiplog.log.forks` finds in one process.

An author's messages are one chain exactly if each follows the one of them that arrived before it. Mostly that one is a
parent, which the rows of the messages say. Of the others a task asks the log, whose link records lead to ancestors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from gossiplog import core
from gossiplog.errors import CorruptLog, DecodeError
from gossiplog.spark.source.locations import identity
from gossiplog.spark.source.marks import replaced
from gossiplog.spark.source.opening import opened
from gossiplog.storage.base import Reader

_CONCURRENT = "author string, seq bigint, first array<string>"
# Sequences in a row that one task looks at.
_NEAR = 2**12
# Link records that a task keeps, of about 100 bytes each.
_MOST_RECORDS = 2**17


def forked_authors(messages: DataFrame, encodings: DataFrame, location: str) -> DataFrame:
    """Return the authors that forked, with the columns `author`, `messages` and `first`, as `Fork` has them.

    Args:
        messages: the first encoding of each, with the columns seq, id, author, content_id, and as parents the content
            ids of these.
        encodings: of messages that have several, with the columns content_id and seq.
        location: of the log that has them, wherever a task runs.
    """
    before = F.lag(F.struct("seq", "id", "content_id")).over(Window.partitionBy("author").orderBy("seq"))
    pairs = (
        messages.select("author", "seq", "id", "parents", before.alias("before"))
        .where("before IS NOT NULL AND NOT array_contains(parents, before.content_id)")
        .select(
            "author",
            "seq",
            F.array("before.id", "id").alias("first"),
            "before.content_id",
            F.col("before.seq").alias("last"),
        )
    )
    several = encodings.groupBy("content_id").agg(F.collect_list("seq").alias("sequences"))
    concurrent = (
        pairs.join(several, "content_id", "left")
        .select("author", "seq", "first", F.coalesce("sequences", F.array("last")).alias("before"))
        # One author may have written all messages; and what is near in the log has ancestors in common.
        .repartition(F.expr(f"seq div {_NEAR}"))
        .sortWithinPartitions("seq")
        .mapInArrow(partial(concurrent_rows, identity(location)), _CONCURRENT)
    )
    return concurrent.groupBy("author").agg(F.count("*").alias("messages"), F.min_by("first", "seq").alias("first"))


def concurrent_rows(location: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose message descends from none of those before, for `mapInArrow`.

    What damaged link records say of a message is not known: it has no row.

    Args:
        location: where each task opens the log.
        batches: with the columns author, seq, first, and as `before` a list of sequences.

    Raises:
        LogChanged: another log is in the place of the one that has these messages.
    """
    with opened(location) as (storage, _):
        for batch in batches:
            with storage.reader(single=True) as reader:
                _check_stored(location, reader, batch)
                links = _Links(reader)
                rows = zip(batch.column("seq").to_pylist(), batch.column("before").to_pylist(), strict=True)
                found = [not any(_may_follow(links, sequence, each) for each in before) for sequence, before in rows]
            yield batch.filter(pa.array(found, pa.bool_())).select(["author", "seq", "first"])


def _check_stored(location: str, reader: Reader, batch: pa.RecordBatch) -> None:
    """Check that a log has the messages of rows, with their sequences.

    Raises:
        LogChanged: it has not.
    """
    pairs = [[*map(core.decode_id, ids)] for ids in batch.column("first").to_pylist()]
    numbers = reader.sequences(sorted({key for pair in pairs for key in pair}))
    rows = zip(pairs, batch.column("seq").to_pylist(), batch.column("before").to_pylist(), strict=True)
    if not all(numbers.get(key) == last and numbers.get(earlier) in before for (earlier, key), last, before in rows):
        raise replaced(location)


def _may_follow(links: _Links, sequence: int, ancestor: int) -> bool:
    try:
        return core.is_ancestor(ancestor, sequence, links)
    except (CorruptLog, DecodeError):
        return True


class _Links:
    """Reads link records of a log, most of them once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._records: dict[int, bytes] = {}

    def __call__(self, sequences: Sequence[int]) -> Sequence[bytes]:
        known = self._records
        missing = [sequence for sequence in sequences if sequence not in known]
        if missing:
            if len(known) > _MOST_RECORDS:
                known.clear()
                missing = [*sequences]
            known.update(zip(missing, self._reader.links(missing), strict=True))
        return [known[sequence] for sequence in sequences]
