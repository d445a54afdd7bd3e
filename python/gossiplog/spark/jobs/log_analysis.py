"""The analysis of one log in one process: what `analyze` finds by Spark, for a log that a task has room for.

The messages are read once, with the columns of `analyze` but the payload: some 300 bytes each. Everything is counted as
there, over numbers in place of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gossiplog import core
from gossiplog.errors import CorruptLog
from gossiplog.log.forks import Forks
from gossiplog.log.results import Fork
from gossiplog.spark.jobs.analyze import (
    LIMIT,
    MAD,
    MEAN_AD,
    TOP,
    AlternativeEncodings,
    AnalyzeResult,
    Author,
    ClockRange,
    Totals,
    Width,
    clock_ranges,
)
from gossiplog.spark.source.batches import columns_of
from gossiplog.spark.source.fleet import OpenedLog
from gossiplog.spark.source.problems import lost_entries
from gossiplog.spark.source.reader import pages
from gossiplog.storage import Storage

_READ = columns_of("seq", "id", "clock", "author", "parents", "size", "canonical", "content_id")
_Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogAnalysis:
    """What there is to say of one log.

    Attributes:
        result: as `analyze` gives it, without frames.
        authors: all of them, with the columns author, messages, bytes, first_clock and last_clock.
        forks: all authors that forked.
        encodings: of each message that has an alternative one, with the columns content_id, number, id, seq and size.
    """

    result: AnalyzeResult
    authors: pa.Table
    forks: tuple[Fork, ...]
    encodings: pa.Table


def analyze_log(storage: Storage, log: OpenedLog) -> LogAnalysis:
    """Analyse a log.

    Args:
        storage: of the log, open.
        log: in the state that is read.

    Raises:
        CursorOutdated: it was rebased since.
        CorruptLog: it is damaged, or has lost messages.
        StorageError: it cannot be read.
    """
    stored = pa.Table.from_batches(pages(_READ, storage, log), _READ.schema)
    if len(stored) != log.count:
        raise CorruptLog([lost_entries(len(stored), log.count)])
    return _Analysis(storage, stored).found()


class _Analysis:
    """The messages of a log, numbered.

    A message is known by the number of its content id, a row by its place in the order of arrival.
    """

    def __init__(self, storage: Storage, stored: pa.Table) -> None:
        self._storage = storage
        stored = stored.sort_by("seq").combine_chunks()
        is_sound = pc.is_valid(stored["clock"])
        damaged = stored.filter(pc.invert(is_sound))
        self.damaged = len(damaged)
        self.first_damaged: int | None = pc.min(damaged["seq"]).as_py()
        rows = stored.filter(is_sound)
        self.rows = rows
        self.seq, self.clock, self.size = (_numbers(rows[name]) for name in ("seq", "clock", "size"))
        is_alternative = pc.invert(rows["canonical"])
        self.not_canonical: int = pc.sum(is_alternative).as_py() or 0
        contents = rows["content_id"].combine_chunks().dictionary_encode()
        self.names: pa.Array = contents.dictionary
        self.content = _numbers(contents.indices)
        # Of contents: whether they have an alternative encoding.
        self.several = np.zeros(len(self.names), dtype=bool)
        self.several[self.content[_booleans(is_alternative)]] = True
        # The place of each row among the encodings of its message.
        self.encoding = _ranks(self.content)
        self.first = self.encoding == 0
        authors = rows["author"].combine_chunks().dictionary_encode()
        self.author_names: list[str] = authors.dictionary.to_pylist()
        self.author = _numbers(authors.indices)
        self._name_parents(damaged["id"])

    def _name_parents(self, damaged: pa.ChunkedArray) -> None:
        """Find the messages that first encodings name as parents: pairs of a row and a content, ascending."""
        lists = self.rows["parents"].combine_chunks()
        named, owners = pc.list_flatten(lists), _numbers(pc.list_parent_indices(lists))
        self.parent_rows = pc.index_in(named, value_set=self.rows["id"].combine_chunks())
        self.owners = owners
        # Where the canonical encoding is not there, a parent may be named by it all the same.
        by_content = pc.index_in(named, value_set=self.names)
        by_row = pa.array(self.content).take(self.parent_rows)
        known = pc.coalesce(by_row, by_content.cast(pa.int64()))
        # What is not in the log as far as it is whole has numbers after those of the contents.
        others = pc.filter(named, pc.is_null(known)).dictionary_encode()
        numbers = np.array(pc.fill_null(known, -1))
        numbers[numbers < 0] = len(self.names) + _numbers(others.indices)
        self.lost = _booleans(pc.is_in(others.dictionary, value_set=damaged.combine_chunks()))
        self.contents = len(self.names) + len(others.dictionary)
        is_first = self.first[owners]
        self.base = max(self.contents, 1)
        self.edges = np.unique(owners[is_first] * self.base + numbers[is_first])
        self.children, self.parents = np.divmod(self.edges, self.base)
        self.parent_counts = np.bincount(self.children, minlength=len(self.seq))

    def found(self) -> LogAnalysis:
        authors = self._authors()
        widths, ranges = self._ranges()
        forks = self._forks()
        scored = _scored(authors)
        suspects = [each for each in scored if _score_of(each) > LIMIT]
        encodings = self._encodings()
        parents = self.parent_counts[self.first]
        totals = Totals(
            messages=int(self.first.sum()),
            damaged=self.damaged,
            bytes=int(self.size[self.first].sum()),
            authors=len(scored),
            longest_chain=int(self.clock.max(initial=0)),
            first=int((parents == 0).sum()),
            heads=ranges[-1].heads if ranges else 0,
            branches=sum(each.branches for each in ranges),
            merges=int((parents > 1).sum()),
            widest=max((each.widest for each in ranges), default=0),
            not_canonical=self.not_canonical,
            reencoded=int(self.several.sum()),
            suspects=len(suspects),
            forked=len(forks),
        )
        result = AnalyzeResult(
            totals=totals,
            ranges=ranges,
            widths=widths,
            authors=tuple(sorted(scored, key=lambda each: (-each.messages, each.author))[:TOP]),
            suspects=tuple(sorted(suspects, key=lambda each: (-_score_of(each), each.author))[:TOP]),
            hot_keys=None,
            alternative_encodings=_by_message(encodings),
            forks=tuple(sorted(forks, key=lambda each: (-each.messages, each.author))[:TOP]),
            frames={},
        )
        return LogAnalysis(result, authors, forks, encodings)

    def _authors(self) -> pa.Table:
        first = self.first
        table = pa.table({"author": self.rows["author"], "size": self.size, "clock": self.clock}).filter(
            pa.array(first)
        )
        found = table.group_by("author").aggregate(
            [("size", "count"), ("size", "sum"), ("clock", "min"), ("clock", "max")]
        )
        names = {"size_count": "messages", "size_sum": "bytes", "clock_min": "first_clock", "clock_max": "last_clock"}
        return found.rename_columns([names.get(name, name) for name in found.column_names])

    def _ranges(self) -> tuple[tuple[Width, ...], tuple[ClockRange, ...]]:
        clocks = clock_ranges(int(self.clock.max(initial=0)))
        if not clocks:
            return (), ()
        number, step = len(clocks), len(clocks[0])
        clock, size, author = (each[self.first] for each in (self.clock, self.size, self.author))
        part = (clock - 1) // step
        messages = np.bincount(part, minlength=number)
        merges = self.parent_counts[self.first] > 1
        # A row for each author of a range.
        pairs = np.unique(part * len(self.author_names) + author)
        widths = np.bincount(clock)
        used = np.flatnonzero(widths)
        widest = np.zeros(number, dtype=np.int64)
        np.maximum.at(widest, (used - 1) // step, widths[used])
        parents, children = np.unique(self.parents, return_counts=True)
        first_child = np.full(self.contents, np.iinfo(np.int64).max)
        np.minimum.at(first_child, self.parents, self.clock[self.children])
        is_sound = np.ones(self.contents, dtype=bool)
        is_sound[len(self.names) :] = ~self.lost
        parents, children = parents[is_sound[parents]], children[is_sound[parents]]
        ended_in = (first_child[parents] - 1) // step
        figures = zip(
            clocks,
            *(
                column.tolist()
                for column in (
                    messages,
                    _sums(part, size, number),
                    np.bincount(pairs // len(self.author_names), minlength=number),
                    widest,
                    np.bincount(part[merges], minlength=number),
                    np.bincount(ended_in[children > 1], minlength=number),
                )
            ),
            accumulate((messages - np.bincount(ended_in, minlength=number)).tolist()),
            strict=True,
        )
        ranges = tuple(ClockRange(within[0], within[-1], *row) for within, *row in figures)
        digits: dict[int, int] = {}
        for width in widths[used].tolist():
            digit = (width - 1).bit_length()
            digits[digit] = digits.get(digit, 0) + 1
        return tuple(Width(2 ** (n - 1) + 1 if n else 1, 2**n, count) for n, count in sorted(digits.items())), ranges

    def _forks(self) -> tuple[Fork, ...]:
        """Return the authors that forked, by the messages before the first damaged one."""
        usable = self.first if self.first_damaged is None else self.first & (self.seq < self.first_damaged)
        rows = np.flatnonzero(usable)
        # Each author's in the order of arrival: neighbours of whom one names the other are in a chain.
        ordered = rows[np.argsort(self.author[rows], kind="stable")]
        before, after = ordered[:-1], ordered[1:]
        same = self.author[before] == self.author[after]
        wanted = after[same] * self.base + self.content[before[same]]
        if np.isin(wanted, self.edges).all():
            return ()
        return self._looked_for()

    def _looked_for(self) -> tuple[Fork, ...]:
        """Go through the messages as `Log.verify` does: some author's do not name each other."""
        forks = Forks()
        last = len(self.seq) if self.first_damaged is None else int(np.searchsorted(self.seq, self.first_damaged))
        rows, contents, keys = self.seq.tolist(), self.content.tolist(), self.rows["id"].to_pylist()
        bounds = np.searchsorted(self.owners, np.arange(last + 1)).tolist()
        parent_rows = self.parent_rows.to_pylist()
        alternative = _booleans(pc.invert(self.rows["canonical"])).tolist()
        canonical = {contents[row]: rows[row] for row in np.flatnonzero(~np.array(alternative, dtype=bool)).tolist()}
        names = self.names
        with self._storage.reader(single=True) as reader:
            for row in range(last):
                if alternative[row]:
                    content = contents[row]
                    forks.add_encoding(rows[row], core.decode_id(names[content].as_py()), canonical.get(content))
                parents = [rows[parent] for parent in parent_rows[bounds[row] : bounds[row + 1]] if parent is not None]
                forks.add(
                    rows[row], core.decode_id(keys[row]), self.author_names[self.author[row]], parents, reader.links
                )
        return forks.found

    def _encodings(self) -> pa.Table:
        rows = np.flatnonzero(self.several[self.content]) if self.not_canonical else np.zeros(0, dtype=np.int64)
        places = pa.array(rows)
        return pa.table(
            {
                "content_id": self.rows["content_id"].take(places),
                "number": pa.array(self.encoding[rows] + 1, pa.int64()),
                "id": self.rows["id"].take(places),
                "seq": self.rows["seq"].take(places),
                "size": self.rows["size"].take(places),
            }
        )


def _numbers(column: pa.Array | pa.ChunkedArray) -> _Numbers:
    return np.asarray(
        column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    ).astype(np.int64)


def _booleans(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.cast(column, pa.uint8())).astype(bool)


def _sums(part: _Numbers, values: _Numbers, number: int) -> _Numbers:
    sums = np.zeros(number, dtype=np.int64)
    np.add.at(sums, part, values)
    return sums


def _ranks(values: _Numbers) -> _Numbers:
    """Return for each value how many like it stand before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[order] = np.arange(len(values)) - np.repeat(starts, np.diff(starts, append=len(values)))
    return ranks


def _scored(authors: pa.Table) -> list[Author]:
    """Return authors with what compares them with the median one."""
    compared: list[Any] = []
    for measure in ("messages", "bytes"):
        values = np.log(np.array(authors[measure], dtype=np.float64))
        distances = values - np.median(values) if len(values) else values
        scores = modified_scores(distances)
        compared += [np.exp(distances).tolist(), scores]
    rows = zip(*(authors[name].to_pylist() for name in authors.column_names), *compared, strict=True)
    return [Author(*row) for row in rows]


def modified_scores(distances: npt.NDArray[np.float64]) -> list[float | None]:
    """Return the modified z-scores of distances from the median; None for each where all are alike."""
    if not len(distances):
        return []
    absolute = np.abs(distances)
    if middle := np.median(absolute):
        return list((MAD * distances / middle).tolist())
    if mean := absolute.mean():
        return list((distances / (MEAN_AD * mean)).tolist())
    return [None] * len(distances)


def _score_of(author: Author) -> float:
    scores = [score for score in (author.messages_score, author.bytes_score) if score is not None]
    return max(scores, default=0.0)


def _by_message(encodings: pa.Table) -> tuple[AlternativeEncodings, ...]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in encodings.to_pylist():
        found.setdefault(row["content_id"], []).append(row)

    def named(content: str, rows: Sequence[dict[str, Any]]) -> AlternativeEncodings:
        ids = [row["id"] for row in rows]
        return AlternativeEncodings(
            content, ids[0], tuple(ids[1 : TOP + 1]), len(rows), sum(row["size"] for row in rows)
        )

    most = sorted(found, key=lambda content: (-len(found[content]), content))[:TOP]
    return tuple(named(content, found[content]) for content in most)
