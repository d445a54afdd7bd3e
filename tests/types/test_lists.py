"""Lists: what one writer does is what Python's lists do, and runs of several writers do not interleave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import ApplyTransaction, Log
from gossiplog.types import List
from gossiplog.types.lists import MAX_ELEMENTS
from tests.log.histories import SIGNERS
from tests.places import Place
from tests.strategies import TOPIC, repeatable
from tests.types.histories import TEXT, connected, rows


@contextmanager
def writing(path: Path, number: int = 0) -> Iterator[tuple[Log, Any]]:
    """A log with a list, and a connection to read it by."""
    with (
        gossiplog.open(path, TOPIC, apply=TEXT.apply, setup=TEXT.setup, signer=SIGNERS[number]) as log,
        connected(Place(path)) as database,
    ):
        yield log, database


@pytest.mark.slow
@given(st.data())
@repeatable(20)
def test_one_writer_has_a_list(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    with writing(tmp_path_factory.mktemp("list") / "log.db") as (log, database):
        expected: list[int] = []
        for number in range(data.draw(st.integers(1, 15))):
            index = data.draw(st.integers(0, len(expected)))
            if index < len(expected) and data.draw(st.booleans()):
                count = data.draw(st.integers(1, min(3, len(expected) - index)))
                log.append(TEXT.delete(database, index, count))
                del expected[index : index + count]
            else:
                new = [number * 10 + each for each in range(data.draw(st.integers(1, 3)))]
                log.append(TEXT.insert(database, index, *new))
                expected[index:index] = new
            assert TEXT.values(database) == expected


@pytest.mark.parametrize("backward", [False, True])
def test_runs_do_not_interleave(tmp_path: Path, backward: bool) -> None:
    """Two writers type in one place while apart, forwards or backwards: figures 1 and 2 of the article."""
    with writing(tmp_path / "a.db") as (one, read_one), writing(tmp_path / "b.db", 1) as (other, read_other):
        one.append(TEXT.insert(read_one, 0, "(", ")"))
        other.pull(one)
        for log, database, word in ((one, read_one, "milk"), (other, read_other, "eggs")):
            for place, letter in enumerate(reversed(word) if backward else word):
                log.append(TEXT.insert(database, 1 if backward else 1 + place, letter))
        one.pull(other)
        other.pull(one)
        found = "".join(TEXT.values(read_one))
        assert found == "".join(TEXT.values(read_other))
        assert found in ("(milkeggs)", "(eggsmilk)")


def test_a_deleted_element_keeps_its_place(tmp_path: Path) -> None:
    with writing(tmp_path / "a.db") as (one, read_one), writing(tmp_path / "b.db", 1) as (other, read_other):
        one.append(TEXT.insert(read_one, 0, "a", "b", "c"))
        other.pull(one)
        one.append(TEXT.delete(read_one, 1))
        other.append(TEXT.insert(read_other, 2, "B"))
        other.append(TEXT.delete(read_other, 1))
        one.pull(other)
        other.pull(one)
        assert TEXT.values(read_one) == TEXT.values(read_other) == ["a", "B", "c"]


def test_lists_by_key(tmp_path: Path) -> None:
    with writing(tmp_path / "a.db") as (log, database):
        log.append(TEXT.insert(database, 0, "mine", key="a"))
        log.append(TEXT.insert(database, 0, "yours", key="b"))
        # An element of another list is no place in this one, and is not deleted by its key.
        (row, _) = rows(Place(tmp_path / "a.db"), TEXT)['"text"']
        reference = f"{row[1]}.{row[2]}"
        other = "b" if row[0] == "a" else "a"
        log.append({"object": "text", "key": other, "insert": ["lost"], "parent": reference, "side": "left"})
        log.append({"object": "text", "key": other, "delete": [reference]})
        assert [TEXT.values(database, key=key) for key in "abc"] == [["mine"], ["yours"], []]


def test_a_long_list_is_read_without_recursion(tmp_path: Path) -> None:
    with writing(tmp_path / "a.db") as (log, database):
        log.append(TEXT.insert(database, 0, *range(1000)))
        log.append(TEXT.insert(database, 1000, *range(1000, 2000)))
        log.append(TEXT.insert(database, 0, *range(-1000, 0)))
        assert TEXT.values(database) == [*range(-1000, 2000)]
        log.append(TEXT.delete(database, 500, 1000))
        assert TEXT.values(database) == [*range(-1000, -500), *range(500, 2000)]


def test_mistakes_of_a_program(tmp_path: Path) -> None:
    with writing(tmp_path / "a.db") as (log, database):
        log.append(TEXT.insert(database, 0, "a"))
        for index in (-1, 2):
            with pytest.raises(IndexError, match=f"an index of {index} in a list of 1"):
                TEXT.insert(database, index, "x")
        for index, count in ((1, 1), (-1, 1), (0, 2)):
            with pytest.raises(IndexError, match=f"{count} elements from the index {index} in a list of 1"):
                TEXT.delete(database, index, count)
        with pytest.raises(ValueError, match="0 values: expected 1 to 1000"):
            TEXT.insert(database, 0)
        with pytest.raises(ValueError, match="1001 values"):
            TEXT.insert(database, 0, *range(MAX_ELEMENTS + 1))
        with pytest.raises(ValueError, match="a count of 0"):
            TEXT.delete(database, 0, 0)
        with pytest.raises(ValueError, match="a key of 1 characters"):
            TEXT.insert(database, 0, "x", key="\0")


def test_a_list_within_apply(tmp_path: Path) -> None:
    """The transaction of `apply` reads as a connection does."""
    texts: list[list[Any]] = []

    def apply(message: gossiplog.SignedMessage, transaction: ApplyTransaction) -> None:
        TEXT.apply(message, transaction)
        texts.append(TEXT.values(transaction))

    with gossiplog.open(tmp_path / "a.db", TOPIC, apply=apply, setup=TEXT.setup, signer=SIGNERS[0]) as log:
        log.append({"object": "text", "key": "", "insert": ["a"], "parent": "", "side": "right"})
    assert texts == [["a"]]
    assert List("text").tables() == TEXT.tables()
