"""Some of the flips of `make rot`, which tries any number."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from tests.rot.__main__ import all_cells, change_of, flips, run
from tests.rot.judging import Flip, Known, know
from tests.rot.shapes import SHAPES, WAL, make

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def known_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Known]:
    """Returns the sound log of a shape, of which only copies are changed."""
    return cache(lambda shape: know(make(shape, tmp_path_factory.mktemp(shape) / "log")))


@pytest.mark.parametrize(("shapes", "count"), [([*SHAPES], 70), ([WAL], 15)], ids=["files", "write-ahead log"])
def test_every_flip_is_harmless_named_or_refused(
    known_of: Callable[[str], Known], tmp_path: Path, shapes: list[str], count: int
) -> None:
    known = [known_of(shape) for shape in shapes]
    outcomes = [*run(flips("make test", count, known), known, tmp_path, 1)]
    assert {str(outcome.change): outcome.failures for outcome in outcomes if outcome.failures} == {}
    assert len(outcomes) == count
    assert any(outcome.repaired for outcome in outcomes)


def test_every_column_may_have_any_value(known_of: Callable[[str], Known], tmp_path: Path) -> None:
    """A sample of `python -m tests.rot --cells`, over all tables, columns and values."""
    known = [known_of(shape) for shape in SHAPES]
    chosen = all_cells(known)
    outcomes = [*run(random.Random("make test").sample(chosen, 40), known, tmp_path, 1)]
    assert {str(outcome.change): outcome.failures for outcome in outcomes if outcome.failures} == {}
    with closing(sqlite3.connect(known[0].shape.folder / "log.db")) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE sql IS NOT NULL")}
    assert {cell.table for cell in chosen} == tables


@pytest.mark.parametrize(
    "cell",
    [
        # Two leaves of one key; one value at two sequences; the last two messages at one sequence.
        "linear:gossiplog_leaves.key:middle:other",
        "linear:gossiplog_messages.seq:last:other",
        "wide:gossiplog_messages.value:first:other",
        "unindexed:gossiplog_messages.seq:last:other",
        # Keys of no message, in the leaves and in the tree.
        "linear:gossiplog_leaves.key:first:blob",
        "unindexed:gossiplog_tree.key:middle:blob",
        # The sequence of a canonical encoding, so that a later one looked like the first.
        "encodings:gossiplog_leaves.seq:first:large",
    ],
)
def test_columns_that_were_not_named(known_of: Callable[[str], Known], tmp_path: Path, cell: str) -> None:
    change = change_of(cell)
    (outcome,) = run([change], [known_of(change.shape)], tmp_path, 1)
    assert outcome.failures == []
    assert outcome.fate in ("named", "refused")


@pytest.mark.parametrize(
    "flip",
    [
        # A child, a leaf's key out of order, a message's sequence, a leaf's sequence, a head's key that reads as null.
        Flip("linear", "log.db", 16415, 6),
        Flip("unindexed", "log.db", 65155, 1),
        Flip("unindexed", "log.db", 47446, 5),
        Flip("upgraded", "log.db", 107541, 3),
        Flip("encodings", "log.db", 20508, 2),
        # Leaves' keys: that misleads the search for others, at a boundary of the tree, of a canonical encoding.
        Flip("linear", "log.db", 75137, 0),
        Flip("wide", "log.db", 59645, 1),
        Flip("encodings", "log.db", 63961, 0),
        # Two rows of the tree, two of alternative encodings, and a value that reads as null.
        Flip("wide", "log.db", 28557, 2),
        Flip("upgraded", "log.db", 28528, 0),
        Flip("encodings", "log.db", 32525, 3),
        Flip("upgraded", "log.db", 151541, 7),
        Flip("upgraded", "log.db", 52262, 7),
        # A child and a leaf that are found under numbers and keys that they do not have; a page that comes twice.
        Flip("encodings", "log.db", 16703, 1),
        Flip("linear", "log.db", 71588, 2),
        Flip("linear", "log.db", 12266, 1),
        # The last sequences, the last of which is the number of messages.
        Flip("linear", "log.db", 67637, 3),
        Flip("linear", "log.db", 67637, 7),
        Flip("unindexed", "log.db", 75327, 5),
        Flip("encodings", "log.db", 76507, 2),
        # A record that ended the look for forks.
        Flip("encodings", "log.db", 54867, 1),
        # The header: the versions for writing and of the schema, and a number that makes an automatic vacuum.
        Flip("linear", "log.db", 18, 2),
        Flip("encodings", "log.db", 47, 5),
        Flip("application", "log.db", 55, 0),
        # A text of the schema that is no Unicode any more.
        Flip("linear", "log.db", 3084, 7),
        Flip("upgraded", "log.db", 3224, 7),
        # A statement of the schema that is no text.
        Flip("encodings", "log.db", 3121, 7),
    ],
    ids=str,
)
def test_flips_that_were_not_named(known_of: Callable[[str], Known], tmp_path: Path, flip: Flip) -> None:
    (outcome,) = run([flip], [known_of(flip.shape)], tmp_path, 1)
    assert outcome.failures == []
    assert outcome.fate in ("named", "refused")
