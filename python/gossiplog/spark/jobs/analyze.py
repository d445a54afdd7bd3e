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
- Any relay can make alternative encodings of another's message, each with an id of its own. All figures but those of
  alternative encodings count a message once, as the encoding that arrived first; a parent that names another one counts
  as the same message. So heads may be fewer than the log's own, which are ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from gossiplog.errors import CorruptLog, SparkError
from gossiplog.log.results import Fork
from gossiplog.spark.failures import expression_error, worker_errors
from gossiplog.spark.jobs.forks import forked_authors
from gossiplog.spark.jobs.summary import AuthorShare, author_figures, expression
from gossiplog.spark.source.locations import shown
from gossiplog.spark.source.problems import lost_entries

COLUMNS = ("seq", "id", "clock", "author", "parents", "payload", "size", "canonical", "content_id")
"""The columns of the data source that an analysis looks at; `payload` only for hot keys."""
RANGES = 200
"""The most clock ranges: about as many as a plot has room for."""
_STEPS = (1, 2, 5, 10)
TOP = 20
"""Rows of authors, hot keys, suspects and alternative encodings that are named; the frames have all."""
LIMIT = 3.5
"""The modified z-score above which an author is a suspect."""
MAD = 0.6745
"""By which the distance from the median is multiplied, in median absolute deviations."""
MEAN_AD = 1.253314
"""By which the mean absolute deviation is multiplied, where the median one is 0."""
# What authors are compared by.
_MEASURES = ("messages", "bytes")


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
        not_canonical: stored values that are not the canonical encoding of their message.
        reencoded: messages that have such a value.
        suspects: authors who are outliers.
        forked: authors that forked; None where they were not looked for.
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
    reencoded: int
    suspects: int
    forked: int | None


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
class Author(AuthorShare):
    """An author's part, beside those of the others.

    Attributes:
        messages_ratio: its messages, in those of the median author.
        messages_score: the modified z-score by messages, None where all authors are alike.
        bytes_ratio: the same by bytes.
        bytes_score: likewise.
    """

    messages_ratio: float
    messages_score: float | None
    bytes_ratio: float
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
class AlternativeEncodings:
    """The encodings of a message that has an alternative one.

    Attributes:
        content_id: the id of the canonical encoding, whether the log has it or not.
        first: the id of the one that arrived first and counts.
        others: the ids of those that arrived next, in this order, TOP of them at most.
        encodings: how many there are in all.
        bytes: of all of them.
    """

    content_id: str
    first: str
    others: tuple[str, ...]
    encodings: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AnalyzeResult:
    """A log's history in figures, and where they come from in full.

    Attributes:
        totals: of all messages.
        ranges: ascending; RANGES at most, of 1, 2, 5, 10, 20, 50 or so on clocks each; the last may have fewer.
        widths: ascending, each twice as wide as the one before.
        authors: those with the most messages.
        suspects: those with the highest scores above LIMIT.
        hot_keys: those with the most messages; None where there was no expression.
        alternative_encodings: of the messages with the most encodings, TOP of them at most.
        forks: of the authors that forked, up to the first damaged message: those with the most messages that do not
            follow the one before, TOP of them at most; None where they were not looked for.
        frames: `authors`, `hot_keys`, `alternative_encodings` and `forks` in full, by these names, that of encodings
            with a row for each; computed when they are used; what they are computed from is on disk for as long as the
            session lasts.
    """

    totals: Totals
    ranges: tuple[ClockRange, ...]
    widths: tuple[Width, ...]
    authors: tuple[Author, ...]
    suspects: tuple[Author, ...]
    hot_keys: tuple[HotKey, ...] | None
    alternative_encodings: tuple[AlternativeEncodings, ...]
    forks: tuple[Fork, ...] | None
    frames: Mapping[str, DataFrame]


def analyze(
    messages: DataFrame, hot: str | None = None, *, location: str | None = None, count: int | None = None
) -> AnalyzeResult:
    """Analyse one log.

    Args:
        messages: of the log, in all their encodings, with the columns COLUMNS; `payload` only where there is an
            expression.
        hot: an expression of Spark's SQL over the columns, as "get_json_object(payload, '$.key')": messages for which
            it gives the same are about the same key.
        location: of the log, in which tasks look for authors that forked; None looks for none.
        count: how many messages the log says that it has. None takes the sequence of the last one, where there is a
            location.

    Raises:
        CorruptLog: the log has lost messages: it does not have as many.
        GossipLogError: as reading the log raises it.
        OptionError: an expression that Spark refuses.
        SparkError: Spark gave up, as where the expression fails for a message.
    """
    try:
        with worker_errors():
            return _analyze(messages, hot, location, count)
    except SparkError as error:
        if hot is None:
            raise
        raise expression_error(f"the expression for hot keys, {hot},", error) from error.__cause__


def _analyze(messages: DataFrame, hot: str | None, location: str | None, count: int | None) -> AnalyzeResult:
    named: Column = F.lit(None) if hot is None else expression(messages, "hot keys", hot)
    stored = messages.select(
        "seq",
        "id",
        "clock",
        "author",
        "size",
        F.when(~F.col("canonical"), F.col("content_id")).alias("alternative_of"),
        F.array_distinct("parents").alias("parents"),
        named.cast("string").alias("hot"),
    ).persist(StorageLevel.DISK_ONLY)
    found = counted = _whole(stored)
    first_damaged, last = found.pop("first_damaged"), found.pop("last")
    if count is None and location is not None:
        count = last
    has = found["messages"] + found["damaged"]
    if count is not None and count != has:
        stored.unpersist()
        problem = lost_entries(has, count)
        raise CorruptLog([problem if location is None else f"{shown(location)}: {problem}"])
    encodings = _encodings(stored)
    rows = stored.where("clock IS NOT NULL")
    damaged = stored.where("clock IS NULL").select(F.col("id").alias("damaged"))
    if found["not_canonical"]:
        encodings = encodings.persist(StorageLevel.DISK_ONLY)
        rows = _counted(rows, encodings).persist(StorageLevel.DISK_ONLY)
        counted = _whole(rows)
        del counted["first_damaged"], counted["last"]
        damaged = damaged.join(encodings, F.col("damaged") == F.col("content_id"), "left_anti")
    else:
        # Where every message is canonical, nothing needs to be read for it.
        encodings = encodings.limit(0)
    authors = _scored(rows)
    frames = {"authors": authors, "alternative_encodings": encodings}
    if hot is not None:
        frames["hot_keys"] = _hot_keys(rows)
    if location is not None:
        frames["forks"] = _forks(rows, encodings, location, first_damaged).persist(StorageLevel.DISK_ONLY)
    # Damaged and alternative encodings are of the log as it is stored, the others of what counts.
    stored_only = {name: found[name] for name in ("damaged", "not_canonical")}
    return _collect(rows, _children(rows, damaged), frames, counted | stored_only)


def _forks(rows: DataFrame, encodings: DataFrame, location: str, first_damaged: int | None) -> DataFrame:
    """Return the authors that forked, by the messages before the first damaged one, as `Log.verify` does."""
    if first_damaged is not None:
        rows = rows.where(F.col("seq") < first_damaged)
    content = F.coalesce("alternative_of", "id").alias("content_id")
    return forked_authors(rows.select("seq", "id", "author", "parents", content), encodings, location)


def _whole(rows: DataFrame) -> dict[str, Any]:
    """Return the figures of a log that need no more than one look at each row; damaged rows count as such alone."""
    is_sound = F.col("clock").isNotNull()
    figures = rows.agg(
        F.count_if(~is_sound).alias("damaged"),
        F.min(F.when(~is_sound, F.col("seq"))).alias("first_damaged"),
        F.coalesce(F.max("seq"), F.lit(0)).alias("last"),
        F.count("alternative_of").alias("not_canonical"),
        F.count_if(is_sound).alias("messages"),
        F.coalesce(F.sum(F.when(is_sound, F.col("size"))), F.lit(0)).alias("bytes"),
        F.coalesce(F.max("clock"), F.lit(0)).alias("longest_chain"),
        F.count_if(is_sound & (F.size("parents") == 0)).alias("first"),
        F.count_if(is_sound & (F.size("parents") > 1)).alias("merges"),
    ).first()
    assert figures is not None
    return figures.asDict()


def _collect(
    rows: DataFrame,
    children: DataFrame,
    frames: Mapping[str, DataFrame],
    whole: Mapping[str, int],
) -> AnalyzeResult:
    authors, encodings, forks = frames["authors"], frames["alternative_encodings"], frames.get("forks")
    widths, ranges = _ranges(rows, children, whole["longest_chain"])
    score = F.greatest("messages_score", "bytes_score")
    counts = authors.agg(F.count("*").alias("authors"), F.count_if(score > LIMIT).alias("suspects")).first()
    assert counts is not None
    suspects = authors.where(score > LIMIT).orderBy(F.desc(score), "author")
    hot_keys = frames.get("hot_keys")
    top_forks, forked = (None, None) if forks is None else _forks_and_count(forks)
    return AnalyzeResult(
        totals=Totals(
            **whole,
            authors=counts.authors,
            heads=ranges[-1].heads if ranges else 0,
            branches=sum(part.branches for part in ranges),
            widest=max((part.widest for part in ranges), default=0),
            reencoded=encodings.where("number = 1").count() if whole["not_canonical"] else 0,
            suspects=counts.suspects,
            forked=forked,
        ),
        ranges=ranges,
        widths=widths,
        authors=_authors(authors.orderBy(F.desc("messages"), "author")),
        suspects=_authors(suspects) if counts.suspects else (),
        hot_keys=None if hot_keys is None else _top(hot_keys),
        alternative_encodings=_by_message(encodings) if whole["not_canonical"] else (),
        forks=top_forks,
        frames=frames,
    )


def _authors(authors: DataFrame) -> tuple[Author, ...]:
    return tuple(Author(**row.asDict()) for row in authors.limit(TOP).collect())


def _top(keys: DataFrame) -> tuple[HotKey, ...]:
    return tuple(HotKey(**row.asDict()) for row in keys.orderBy(F.desc("messages"), "key").limit(TOP).collect())


def _forks_and_count(forks: DataFrame) -> tuple[tuple[Fork, ...], int]:
    """Return the first of the authors that forked, and how many there are."""
    rows = forks.orderBy(F.desc("messages"), "author").limit(TOP).collect()
    # All have come, if they are fewer than were asked for.
    count = len(rows) if len(rows) < TOP else forks.count()
    return tuple(Fork(row.author, row.messages, (row.first[0], row.first[1])) for row in rows), count


def _ranges(rows: DataFrame, children: DataFrame, last: int) -> tuple[tuple[Width, ...], tuple[ClockRange, ...]]:
    """Return how many clocks have so many messages, and the ranges of clocks up to the last."""
    clocks = clock_ranges(last)
    if not clocks:
        return (), ()

    def part(clock: str) -> Column:
        return F.expr(f"({clock} - 1) div {len(clocks[0])}").alias("part")

    had = rows.groupBy(part("clock")).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.countDistinct("author").alias("authors"),
        F.count_if(F.size("parents") > 1).alias("merges"),
    )
    # The number of binary digits of width - 1: 1 | 2 | 3-4 | 5-8 | ...
    digits = F.when(F.col("width") == 1, 0).otherwise(F.length(F.bin(F.col("width") - 1))).alias("digits")
    per_clock = rows.groupBy("clock").agg(F.count("*").alias("width"))
    wide = per_clock.groupBy(part("clock"), digits).agg(F.max("width").alias("widest"), F.count("*").alias("clocks"))
    ended = children.groupBy(part("first_child")).agg(
        F.count_if("is_sound").alias("ended"),
        F.count_if(F.col("is_sound") & (F.col("children") > 1)).alias("branches"),
    )
    nothing = {"messages": 0, "bytes": 0, "authors": 0, "merges": 0, "widest": 0, "branches": 0, "ended": 0}
    filled = [dict(nothing) for _ in clocks]
    clocks_by_digits: Counter[int] = Counter()
    # One job for the three. The rows of widths have the column clocks.
    together = had.unionByName(ended, allowMissingColumns=True).unionByName(wide, allowMissingColumns=True)
    for row in together.collect():
        figures = {name: figure for name, figure in row.asDict().items() if figure is not None}
        of_range = filled[figures.pop("part")]
        if "clocks" in figures:
            of_range["widest"] = max(of_range["widest"], figures["widest"])
            clocks_by_digits[figures["digits"]] += figures["clocks"]
        else:
            of_range.update(figures)
    heads = accumulate(figures["messages"] - figures.pop("ended") for figures in filled)
    ranges = tuple(
        ClockRange(first_clock=within[0], last_clock=within[-1], heads=after, **figures)
        for within, after, figures in zip(clocks, heads, filled, strict=True)
    )
    widths = tuple(Width(2 ** (n - 1) + 1 if n else 1, 2**n, count) for n, count in sorted(clocks_by_digits.items()))
    return widths, ranges


def clock_ranges(last: int) -> list[range]:
    """Divide the clocks from 1 on into ranges of one round width, RANGES at most; the last may be narrower.

    Ranges whose widths differ by one would look like a pattern in the log.
    """
    least = -(-last // RANGES)
    power = 10 ** (len(str(least)) - 1)
    width = next(power * step for step in _STEPS if power * step >= least)
    return [range(first, min(first + width, last + 1)) for first in range(1, last + 1, width)]


def _children(rows: DataFrame, damaged: DataFrame) -> DataFrame:
    """Return, of each message with children, their number, the clock of the first, and whether it is itself sound."""
    return (
        rows.select("clock", F.explode("parents").alias("parent"))
        .groupBy("parent")
        .agg(F.min("clock").alias("first_child"), F.count("*").alias("children"))
        .join(damaged, F.col("parent") == F.col("damaged"), "left")
        .select("first_child", "children", F.col("damaged").isNull().alias("is_sound"))
    )


def _scored(rows: DataFrame) -> DataFrame:
    """Return the authors, with their modified z-scores, and beside each the ratio to the median author."""
    authors = rows.groupBy("author").agg(*author_figures()).persist(StorageLevel.DISK_ONLY)
    # As literals: joined to the authors, they would be computed anew, within one another, by each use of the scores.
    middles = authors.agg(*(F.median(F.ln(measure)).alias(measure) for measure in _MEASURES)).first()
    assert middles is not None
    distances = {measure: F.ln(measure) - F.lit(middles[measure]) for measure in _MEASURES}
    spreads = authors.agg(
        *(F.median(F.abs(distance)).alias(f"{measure}_median") for measure, distance in distances.items()),
        *(F.avg(F.abs(distance)).alias(f"{measure}_mean") for measure, distance in distances.items()),
    ).first()
    assert spreads is not None
    return authors.select(
        "*",
        *(
            column
            for measure, distance in distances.items()
            for column in (
                F.exp(distance).alias(f"{measure}_ratio"),
                _score(distance, spreads[f"{measure}_median"], spreads[f"{measure}_mean"]).alias(f"{measure}_score"),
            )
        ),
    )


def _score(distance: Column, median_deviation: float | None, mean_deviation: float | None) -> Column:
    """Return the modified z-score; null where all authors are alike, or where there are none."""
    if median_deviation:
        return F.lit(MAD) * distance / F.lit(median_deviation)
    if mean_deviation:
        return distance / F.lit(MEAN_AD * mean_deviation)
    return F.lit(None).cast("double")


def _hot_keys(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.col("hot").alias("key")).agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))


def _encodings(stored: DataFrame) -> DataFrame:
    """Return the encodings of each message that has an alternative one, numbered from 1 as they arrived."""
    contents = stored.where("alternative_of IS NOT NULL").select(F.col("alternative_of").alias("content_id")).distinct()
    number = F.row_number().over(Window.partitionBy("content_id").orderBy("seq")).alias("number")
    return (
        stored.where("clock IS NOT NULL")
        .select(F.coalesce("alternative_of", "id").alias("content_id"), "id", "seq", "size")
        .join(contents, "content_id", "left_semi")
        .select("content_id", number, "id", "seq", "size")
    )


def _counted(rows: DataFrame, encodings: DataFrame) -> DataFrame:
    """Return the first encoding of each message. Parents are content ids."""
    first = rows.join(encodings.where("number > 1").select("seq"), "seq", "left_anti")
    alternatives = encodings.where("id != content_id").select(F.col("id").alias("parent"), "content_id")
    contents = F.map_from_entries(F.collect_list(F.struct("parent", "content_id"))).alias("contents")
    # Of the messages that name an alternative encoding, which are few.
    named = (
        first.select("seq", F.explode("parents").alias("parent"))
        .join(alternatives, "parent")
        .groupBy("seq")
        .agg(contents)
    )
    parents = F.transform("parents", lambda parent: F.coalesce(F.try_element_at("contents", parent), parent))
    return (
        first.join(named, "seq", "left")
        .withColumn(
            "parents", F.when(F.col("contents").isNull(), F.col("parents")).otherwise(F.array_distinct(parents))
        )
        .drop("contents")
    )


def _by_message(encodings: DataFrame) -> tuple[AlternativeEncodings, ...]:
    numbered = F.when(F.col("number").between(2, TOP + 1), F.struct("number", "id"))
    rows = encodings.groupBy("content_id").agg(
        F.max(F.when(F.col("number") == 1, F.col("id"))).alias("first"),
        F.array_sort(F.collect_list(numbered))["id"].alias("others"),
        F.count("*").alias("encodings"),
        F.sum("size").alias("bytes"),
    )
    return tuple(
        AlternativeEncodings(row.content_id, row.first, tuple(row.others), row.encodings, row.bytes)
        for row in rows.orderBy(F.desc("encodings"), "content_id").limit(TOP).collect()
    )
