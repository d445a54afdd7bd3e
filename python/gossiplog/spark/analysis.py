"""The history of one log in figures: its authors, its rates, its concurrency, and what is suspicious in it.

Everything is aggregated by Spark: what reaches the driver is a table of clock ranges, a fixed number of them, and the
tops of longer tables.

How things are counted:

- A message's clock is one more than the largest of its parents', so the largest clock is the length of the longest
  chain, and messages with the same clock are concurrent.
- A message is a head from its own clock on until that of its first child. So the heads after a clock are the messages
  up to it, less those that have a child up to it.
- Suspects are outliers among the authors, upwards, by the modified z-score (B. Iglewicz, D. C. Hoaglin: How to Detect
  and Handle Outliers, 1993) of the natural logarithm of their messages or bytes: 0.6745 times the distance from the
  median, by the median absolute deviation; where this is 0, the distance by 1.2533 times the mean absolute deviation.
  They recommend 3.5 as the limit. Where all authors but one are alike, it takes five to make that one an outlier.
- Twins are messages with one signature under several ids: anybody can make them of another's message, by encoding it in
  a way that is not canonical.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gossiplog import core
from gossiplog.message import SignedMessage
from gossiplog.spark.failures import worker_errors

COLUMNS = ("id", "clock", "topic", "author", "parents", "payload", "value", "size", "canonical")
"""The columns of the data source that an analysis looks at; `payload` only for hot keys."""
RANGES = 200
"""The most clock ranges: about as many as a plot has room for."""
TOP = 20
"""Rows of authors, hot keys, suspects and twins that are named; the frames have all."""
LIMIT = 3.5
"""The modified z-score above which an author is a suspect."""
_MAD = 0.6745
_MEAN_AD = 1.253314


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole log.

    Attributes:
        messages: how many there are, without damaged ones.
        damaged: how many have a stored value that is not theirs; nothing else covers them.
        bytes: of stored values.
        authors: how many there are.
        longest_chain: messages in the longest chain; the largest clock.
        first: messages without parents.
        heads: messages without children.
        branches: messages with several children.
        merges: messages with several parents.
        widest: the most messages with one clock.
        not_canonical: messages whose value is not the canonical encoding.
        twins: signatures that several messages have.
        suspects: authors who are outliers.
    """

    messages: int
    damaged: int
    bytes: int
    authors: int
    longest_chain: int
    first: int
    heads: int
    branches: int
    merges: int
    widest: int
    not_canonical: int
    twins: int
    suspects: int


@dataclass(frozen=True, slots=True)
class ClockRange:
    """A range of clocks.

    Attributes:
        first_clock: the least clock.
        last_clock: the largest.
        messages: with such a clock.
        bytes: of their stored values.
        authors: of them.
        widest: the most of them with one clock.
        merges: those of them with several parents.
        branches: messages with several children, the first of which is in the range.
        heads: how many messages had no child yet at the end of the range.
    """

    first_clock: int
    last_clock: int
    messages: int
    bytes: int
    authors: int
    widest: int
    merges: int
    branches: int
    heads: int


@dataclass(frozen=True, slots=True)
class Width:
    """How many clocks have so many messages.

    Attributes:
        least: messages with one clock,
        most: up to so many.
        clocks: how many clocks have them.
    """

    least: int
    most: int
    clocks: int


@dataclass(frozen=True, slots=True)
class Author:
    """An author's part.

    Attributes:
        author: a did:key URI.
        messages: how many.
        bytes: of their stored values.
        first_clock: the least of their clocks.
        last_clock: the largest.
        messages_score: the modified z-score by messages, None where all authors are alike.
        bytes_score: the same by bytes.
    """

    author: str
    messages: int
    bytes: int
    first_clock: int
    last_clock: int
    messages_score: float | None
    bytes_score: float | None


@dataclass(frozen=True, slots=True)
class HotKey:
    """What many messages are about.

    Attributes:
        key: what the expression gave, as text; None where it gave null.
        messages: how many.
        bytes: of their stored values.
    """

    key: str | None
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Twins:
    """Messages that have one signature.

    Attributes:
        signature: hexadecimal.
        canonical: the id of the canonical one, None where the log does not have it.
        others: the ids of the others, ascending, TOP of them at most.
        messages: how many there are in all.
    """

    signature: str
    canonical: str | None
    others: tuple[str, ...]
    messages: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """A log's history in figures, and where they come from in full.

    Attributes:
        totals: of the log.
        ranges: ascending; RANGES at most, of equal numbers of clocks but for rounding.
        widths: ascending, each twice as wide as the one before.
        authors: those with the most messages.
        suspects: those with the highest scores above LIMIT.
        hot_keys: those with the most messages; None where there was no expression.
        twins: ascending by signature, TOP of them at most.
        frames: `authors`, `hot_keys` and `twins` in full, by these names, computed when they are used; what they
            are computed from is on disk for as long as the session lasts.
    """

    totals: Totals
    ranges: tuple[ClockRange, ...]
    widths: tuple[Width, ...]
    authors: tuple[Author, ...]
    suspects: tuple[Author, ...]
    hot_keys: tuple[HotKey, ...] | None
    twins: tuple[Twins, ...]
    frames: Mapping[str, DataFrame]


def analyze(messages: DataFrame, hot: str | None = None) -> Analysis:
    """Analyses one log.

    Args:
        messages: of the log, with the columns COLUMNS; `payload` only where there is an expression.
        hot: an expression of Spark's SQL over the columns, as "get_json_object(payload, '$.key')": messages for which
            it gives the same are about the same key.

    Raises:
        GossipLogError: as reading the log raises it.
        SparkError: an expression that Spark refuses.
    """
    with worker_errors():
        named: Column = F.lit(None) if hot is None else F.expr(hot)
        all_rows = messages.select(
            "id",
            "clock",
            "author",
            "size",
            "canonical",
            F.array_distinct("parents").alias("parents"),
            named.cast("string").alias("hot"),
        ).persist(StorageLevel.DISK_ONLY)
        rows = all_rows.where("clock IS NOT NULL")
        authors = _scored(rows).persist(StorageLevel.DISK_ONLY)
        children = _children(all_rows).persist(StorageLevel.DISK_ONLY)
        frames = {"authors": authors, "twins": _twins(messages, rows)}
        if hot is not None:
            frames["hot_keys"] = _hot_keys(rows)
        found = _collect(all_rows, rows, children, frames)
        children.unpersist()
        return found


def _collect(all_rows: DataFrame, rows: DataFrame, children: DataFrame, frames: Mapping[str, DataFrame]) -> Analysis:
    whole = all_rows.agg(
        F.count("clock").alias("messages"),
        F.count_if(F.col("clock").isNull()).alias("damaged"),
        F.coalesce(F.sum(F.when(F.col("clock").isNotNull(), F.col("size"))), F.lit(0)).alias("bytes"),
        F.coalesce(F.max("clock"), F.lit(0)).alias("longest_chain"),
        F.count_if(F.size("parents") == 0).alias("first"),
        F.count_if(F.size("parents") > 1).alias("merges"),
        F.count_if(~F.col("canonical")).alias("not_canonical"),
    ).first()
    assert whole is not None
    # Where every message is canonical, nothing needs to be read for twins.
    twins = frames["twins"] if whole.not_canonical else frames["twins"].limit(0)
    authors = frames["authors"]
    per_clock = rows.groupBy("clock").agg(F.count("*").alias("width"))
    widths = _widths(per_clock)
    ranges = _ranges(rows, per_clock, children, whole.longest_chain)
    is_suspect = F.greatest("messages_score", "bytes_score") > LIMIT
    suspects = authors.where(is_suspect)
    hot_keys = frames.get("hot_keys")
    return Analysis(
        totals=Totals(
            **whole.asDict(),
            authors=authors.count(),
            heads=ranges[-1].heads if ranges else 0,
            branches=sum(part.branches for part in ranges),
            widest=max((part.widest for part in ranges), default=0),
            twins=twins.count(),
            suspects=suspects.count(),
        ),
        ranges=ranges,
        widths=widths,
        authors=_authors(authors.orderBy(F.desc("messages"), "author")),
        suspects=_authors(suspects.orderBy(F.desc(F.greatest("messages_score", "bytes_score")), "author")),
        hot_keys=None if hot_keys is None else _top(hot_keys),
        twins=tuple(
            Twins(row.signature, row.canonical, tuple(row.others[:TOP]), len(row.others) + (row.canonical is not None))
            for row in twins.orderBy("signature").limit(TOP).collect()
        ),
        frames={**frames, "twins": twins},
    )


def _authors(authors: DataFrame) -> tuple[Author, ...]:
    return tuple(Author(**row.asDict()) for row in authors.limit(TOP).collect())


def _top(keys: DataFrame) -> tuple[HotKey, ...]:
    return tuple(HotKey(**row.asDict()) for row in keys.orderBy(F.desc("messages"), "key").limit(TOP).collect())


def _widths(per_clock: DataFrame) -> tuple[Width, ...]:
    # The number of binary digits of width - 1: 1 | 2 | 3-4 | 5-8 | ...
    digits = F.when(F.col("width") == 1, 0).otherwise(F.length(F.bin(F.col("width") - 1)))
    rows = per_clock.groupBy(digits.alias("digits")).count().orderBy("digits").collect()
    return tuple(Width(2 ** (row.digits - 1) + 1 if row.digits else 1, 2**row.digits, row["count"]) for row in rows)


def _ranges(rows: DataFrame, per_clock: DataFrame, children: DataFrame, last: int) -> tuple[ClockRange, ...]:
    parts = min(RANGES, last)
    if not parts:
        return ()

    def by_range(frame: DataFrame, clock: str, *figures: Column) -> dict[int, dict[str, Any]]:
        part = F.expr(f"({clock} - 1) * {parts} div {last}").alias("part")
        return {row.part: row.asDict() for row in frame.groupBy(part).agg(*figures).collect()}

    had = by_range(
        rows,
        "clock",
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.countDistinct("author").alias("authors"),
        F.count_if(F.size("parents") > 1).alias("merges"),
    )
    wide = by_range(per_clock, "clock", F.max("width").alias("widest"))
    ended = by_range(
        children,
        "first_child",
        F.count_if("is_sound").alias("ended"),
        F.count_if(F.col("is_sound") & (F.col("children") > 1)).alias("branches"),
    )
    nothing = {"messages": 0, "bytes": 0, "authors": 0, "merges": 0, "widest": 0, "branches": 0, "ended": 0}
    filled = [nothing | had.get(part, {}) | wide.get(part, {}) | ended.get(part, {}) for part in range(parts)]
    heads = accumulate(figures["messages"] - figures["ended"] for figures in filled)
    return tuple(
        ClockRange(
            first_clock=-(-part * last // parts) + 1,
            last_clock=-(-(part + 1) * last // parts),
            heads=after,
            **{name: value for name, value in figures.items() if name not in ("part", "ended")},
        )
        for part, (figures, after) in enumerate(zip(filled, heads, strict=True))
    )


def _children(all_rows: DataFrame) -> DataFrame:
    """Messages with children: the number of these, the clock of the first, and whether the message itself is sound."""
    damaged = all_rows.where("clock IS NULL").select(F.col("id").alias("damaged"))
    return (
        all_rows.select("clock", F.explode("parents").alias("parent"))
        .groupBy("parent")
        .agg(F.min("clock").alias("first_child"), F.count("*").alias("children"))
        .join(damaged, F.col("parent") == F.col("damaged"), "left")
        .select("first_child", "children", F.col("damaged").isNull().alias("is_sound"))
    )


def _scored(rows: DataFrame) -> DataFrame:
    """The authors, with their modified z-scores."""
    authors = rows.groupBy("author").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.min("clock").alias("first_clock"),
        F.max("clock").alias("last_clock"),
    )
    for measure in ("messages", "bytes"):
        middle = authors.agg(F.median(F.ln(measure)).alias("middle"))
        distant = authors.crossJoin(F.broadcast(middle)).withColumn("distance", F.ln(measure) - F.col("middle"))
        spread = distant.agg(
            F.median(F.abs("distance")).alias("median_deviation"), F.avg(F.abs("distance")).alias("mean_deviation")
        )
        score = F.when(F.col("median_deviation") > 0, _MAD * F.col("distance") / F.col("median_deviation")).when(
            F.col("mean_deviation") > 0, F.col("distance") / (_MEAN_AD * F.col("mean_deviation"))
        )
        authors = (
            distant.crossJoin(F.broadcast(spread))
            .withColumn(f"{measure}_score", score)
            .drop("middle", "distance", "median_deviation", "mean_deviation")
        )
    return authors


def _hot_keys(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.col("hot").alias("key")).agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))


def _twins(messages: DataFrame, rows: DataFrame) -> DataFrame:
    """Signatures that several messages have. Twins have one clock, so only beside those that are not canonical is
    looked for them.
    """
    clocks = rows.where(~F.col("canonical")).select("clock").distinct()
    signed = (
        messages.select("id", "clock", "topic", "canonical", "value")
        .join(clocks, "clock", "left_semi")
        .mapInArrow(_signatures, "id string, canonical boolean, signature string")
    )
    ids = F.sort_array(F.collect_list(F.when(~F.col("canonical"), F.col("id"))))
    return (
        signed.groupBy("signature")
        .agg(F.min(F.when(F.col("canonical"), F.col("id"))).alias("canonical"), ids.alias("others"))
        .where(F.size("others") + F.col("canonical").isNotNull().cast("int") > 1)
    )


def _signatures(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([("id", pa.string()), ("canonical", pa.bool_()), ("signature", pa.string())])
    for batch in batches:
        if len(batch):
            read = core.read_batch(batch["value"].to_pylist(), batch["topic"][0].as_py())
            signatures = [message.signature.hex() if isinstance(message, SignedMessage) else None for message in read]
            columns = [batch["id"], batch["canonical"], pa.array(signatures, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
