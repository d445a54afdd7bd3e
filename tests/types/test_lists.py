"""Lists: what one writer does is what Python's lists do, what several do is what the article of Fugue says."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import gossiplog
from gossiplog import ApplyTransaction, Log
from gossiplog.core import SignedMessage
from gossiplog.types import List
from gossiplog.types.lists import MAX_ELEMENTS
from tests.log.histories import SIGNERS, History, arrivals, histories, signed
from tests.places import Place
from tests.strategies import TOPIC, repeatable
from tests.types import fugue
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
            assert TEXT.get(database) == expected


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
        found = "".join(TEXT.get(read_one))
        assert found == "".join(TEXT.get(read_other))
        assert found in ("(milkeggs)", "(eggsmilk)")


def edit(draw: st.DrawFn, before: Sequence[SignedMessage]) -> dict[str, Any]:
    """An operation of a list, mostly beside what others put something beside; its values say nothing of its id."""
    key = draw(st.sampled_from(["", "", "", "a"]))
    known = [f"{message.content_id}.{number}" for message in before[:6] for number in range(2)]
    if known and draw(st.integers(0, 4)) == 0:
        return {"object": "text", "key": key, "delete": draw(st.lists(st.sampled_from(known), max_size=3))}
    values = [draw(st.integers(0, 99)) * 100 + len(before) for _ in range(draw(st.integers(1, 2)))]
    place = {"parent": draw(st.sampled_from(["", "", *known])), "side": draw(st.sampled_from(["left", "right"]))}
    return {"object": "text", "key": key, "insert": values, **place}


@pytest.mark.slow
@given(histories(24, edit), st.data())
@settings(repeatable(100))
def test_a_list_is_that_of_the_article(
    tmp_path_factory: pytest.TempPathFactory, history: History, data: st.DataObject
) -> None:
    """Whichever encodings came in which order, and so is the place of an insertion before each of its elements."""
    with writing(tmp_path_factory.mktemp("list") / "log.db") as (log, database):
        # Each by itself: of encodings that come at once, the one with the lowest id is first.
        for message in data.draw(arrivals(history.messages)):
            log.insert(message)
        for key, tree in fugue.replayed(history.messages).items():
            shown = tree.shown()
            assert TEXT.get(database, key=key) == tree.values()
            for index in range(len(shown) + 1):
                made = TEXT.insert(database, index, "new", key=key)
                assert made == {"object": "text", "key": key, "insert": ["new"], **tree.place(index)}
            for index, id in enumerate(shown):
                made = TEXT.delete(database, index, key=key)
                assert made == {"object": "text", "key": key, "delete": [fugue.written(id)]}


class Writer:
    """Someone with a replica, who writes by the methods of the list, without a log, which takes long.

    Attributes:
        elements: of all writers, by their ids.
        name_of: the ids by their values, of which no two are equal.
    """

    elements: dict[fugue.Id, fugue.Element]
    name_of: dict[int, fugue.Id]

    def __init__(self, number: int, elements: dict[fugue.Id, fugue.Element], name_of: dict[int, fugue.Id]) -> None:
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        for table, columns in TEXT._tables().items():
            self._database.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        self._number = number
        self._messages: dict[str, SignedMessage] = {}
        self.elements, self.name_of = elements, name_of

    def everything(self) -> list[fugue.Id]:
        """The order of all elements, those deleted among them."""
        self._database.execute("BEGIN")
        self._database.execute(f'DELETE FROM "{TEXT.name}_deleted"')
        values = TEXT.get(self._database)
        self._database.execute("ROLLBACK")
        return [self.name_of[value] for value in values]

    def shown(self) -> list[fugue.Id]:
        return [self.name_of[value] for value in TEXT.get(self._database)]

    def insert(self, index: int, count: int = 1) -> None:
        values = [len(self.name_of) + number for number in range(count)]
        left = self.shown()[index - 1] if index else None
        everything = self.everything()
        after = 0 if left is None else everything.index(left) + 1
        right = everything[after] if after < len(everything) else None
        operation = TEXT.insert(self._database, index, *values)
        message = self._write(operation)
        is_right = operation["side"] == "right"
        for number, value in enumerate(values):
            id = (message.content_id, number)
            self.name_of[value] = id
            self.elements[id] = fugue.Element(id, left, right, is_right)
            left, is_right = id, True

    def delete(self, index: int) -> None:
        self._write(TEXT.delete(self._database, index))

    def pull(self, other: Writer) -> None:
        for id, message in other._messages.items():
            if id not in self._messages:
                self._take(message)

    def _write(self, operation: dict[str, Any]) -> SignedMessage:
        message = signed([*self._messages], operation, self._number % len(SIGNERS))
        self._take(message)
        return message

    def _take(self, message: SignedMessage) -> None:
        self._messages[message.id] = message
        transaction: Any = self._database
        TEXT.apply(message, transaction)

    def close(self) -> None:
        self._database.close()


@contextmanager
def writers(count: int) -> Iterator[list[Writer]]:
    elements: dict[fugue.Id, fugue.Element] = {}
    name_of: dict[int, fugue.Id] = {}
    made = [Writer(number, elements, name_of) for number in range(count)]
    try:
        yield made
    finally:
        for writer in made:
            writer.close()


_STEP = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["forwards", "backwards", "at once", "delete", "pull"]),
    # Where, mostly near the start, so that writers meet.
    st.integers(0, 4),
    st.integers(1, 3),
)


@pytest.mark.slow
@given(st.lists(_STEP, max_size=20))
@repeatable(300)
def test_runs_interleave_as_little_as_can_be(steps: list[tuple[int, str, int, int]]) -> None:
    """What the article proves, of any histories of three writers who insert and delete in each other's runs."""
    with writers(3) as made:
        for number, action, place, count in steps:
            writer = made[number]
            length = len(writer.shown())
            index = min(place, length)
            match action:
                case "pull":
                    writer.pull(made[(number + count) % 3])
                case "delete" if length:
                    writer.delete(min(place, length - 1))
                case "at once":
                    writer.insert(index, count)
                case "forwards" | "backwards":
                    for step in range(count):
                        writer.insert(index + (step if action == "forwards" else 0))
        for one, other in itertools.permutations(made, 2):
            one.pull(other)
        order, elements = made[0].everything(), made[0].elements
        assert [writer.everything() for writer in made] == [order] * 3
        assert len({writer.shown().__repr__() for writer in made}) == 1
        assert sorted(order) == sorted(elements)
        fugue.check_forward(order, elements)
        fugue.check_ties(order, elements)
        is_maximal = fugue.is_maximal_too(elements)
        event(f"maximal: {is_maximal}")
        if is_maximal:
            fugue.check_backward(order, elements)


def test_where_runs_may_mix_backwards() -> None:
    """Figure 7 of the article: Fugue satisfies Definition 2 in either order, and Definition 4 in one of them.

    Of three elements, which were inserted into an empty list at once, one writer knows the first and the third, and
    puts a run between them; another the first and the second.
    """
    outcomes = set()
    for length in range(1, 7):
        with writers(5) as made:
            *early, four, five = made
            for writer in early:
                writer.insert(0)
            first, second, third = sorted(made[0].elements)
            for writer, known in ((four, {first, third}), (five, {first, second})):
                for other in early:
                    if known.issuperset(other.shown()):
                        writer.pull(other)
                assert writer.shown() == sorted(known)
            four.insert(1, length)
            run = four.shown()[1:-1]
            five.insert(1)
            alone = five.shown()[1]
            for other in made:
                four.pull(other)
            order, elements = four.everything(), four.elements
            fugue.check_forward(order, elements)
            assert not fugue.is_maximal_too(elements)
            is_split = alone < run[0]
            assert order == [first, *([alone, *run] if is_split else [*run, alone]), second, third]
            if is_split:
                # What was put before the second is not beside it.
                with pytest.raises(AssertionError):
                    fugue.check_backward(order, elements)
            else:
                fugue.check_backward(order, elements)
            outcomes.add(is_split)
    assert outcomes == {False, True}


def test_nothing_is_before_the_root(tmp_path: Path) -> None:
    """No insertion of the algorithm stands left of it: one of a stranger would be before the index 0."""
    with writing(tmp_path / "a.db") as (log, database):
        log.append({"object": "text", "key": "", "insert": ["lost"], "parent": "", "side": "left"})
        assert TEXT.get(database) == []
        log.append(TEXT.insert(database, 0, "a"))
        assert TEXT.get(database) == ["a"]


def test_a_deleted_element_keeps_its_place(tmp_path: Path) -> None:
    with writing(tmp_path / "a.db") as (one, read_one), writing(tmp_path / "b.db", 1) as (other, read_other):
        one.append(TEXT.insert(read_one, 0, "a", "b", "c"))
        other.pull(one)
        one.append(TEXT.delete(read_one, 1))
        other.append(TEXT.insert(read_other, 2, "B"))
        other.append(TEXT.delete(read_other, 1))
        one.pull(other)
        other.pull(one)
        assert TEXT.get(read_one) == TEXT.get(read_other) == ["a", "B", "c"]


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
        assert [TEXT.get(database, key=key) for key in "abc"] == [["mine"], ["yours"], []]


def test_a_long_list_is_read_without_recursion(tmp_path: Path) -> None:
    with writing(tmp_path / "a.db") as (log, database):
        log.append(TEXT.insert(database, 0, *range(1000)))
        log.append(TEXT.insert(database, 1000, *range(1000, 2000)))
        log.append(TEXT.insert(database, 0, *range(-1000, 0)))
        assert TEXT.get(database) == [*range(-1000, 2000)]
        log.append(TEXT.delete(database, 500, 1000))
        assert TEXT.get(database) == [*range(-1000, -500), *range(500, 2000)]


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
        texts.append(TEXT.get(transaction))

    with gossiplog.open(tmp_path / "a.db", TOPIC, apply=apply, setup=TEXT.setup, signer=SIGNERS[0]) as log:
        log.append({"object": "text", "key": "", "insert": ["a"], "parent": "", "side": "right"})
    assert texts == [["a"]]
    assert List("text")._tables() == TEXT._tables()
