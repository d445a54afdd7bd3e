from __future__ import annotations

from typing import Any

import pytest

import gossiplog
from gossiplog import core
from tests.log.histories import SIGNERS, signed
from tests.places import Place
from tests.strategies import TOPIC, alternative
from tests.types.histories import ALL, TODO, connected, rows


@pytest.mark.parametrize("arrives_first", ["removal", "add"])
def test_an_add_wins_over_a_concurrent_removal(place: Place, arrives_first: str) -> None:
    first = signed([], TODO.add("milk"))
    removal = signed([first.id], TODO.remove("milk"), 1)
    again = signed([first.id], TODO.add("milk"), 2)
    later = signed([again.id, removal.id], TODO.remove("milk"))
    concurrent = (removal, again) if arrives_first == "removal" else (again, removal)
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        found = []
        for message in (first, *concurrent, later):
            log.insert(message)
            found.append(TODO.get(database))
        assert found == [["milk"], [] if arrives_first == "removal" else ["milk"], ["milk"], []]
        assert rows(place, TODO) == {'"order"': []}


def test_a_removal_takes_only_what_it_saw_of_concurrent_adds(place: Place) -> None:
    """It arrives after two adds, of which it follows one; and after adds of other elements and keys, which stay."""
    seen, unseen = signed([], TODO.add("milk")), signed([], TODO.add("milk"), 1)
    others = [signed([seen.id], TODO.add("eggs")), signed([seen.id], TODO.add("milk", key="b"))]
    removal = signed([seen.id, *(other.id for other in others)], TODO.remove("milk"), 2)
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        for message in (seen, unseen, *others, removal):
            log.insert(message)
        ids = {(key, element): id for key, element, id in rows(place, TODO)['"order"']}
        assert ids == {("", '"milk"'): unseen.id, ("", '"eggs"'): others[0].id, ("b", '"milk"'): others[1].id}
        assert TODO.get(database) == ["eggs", "milk"]


def test_a_removal_that_saw_another_encoding(place: Place) -> None:
    """It names the relay's encoding, and this replica has both, of which the author's came first."""
    first = signed([], TODO.add("milk"))
    relayed = gossiplog.core.verify(alternative(first.value), TOPIC)
    removal = signed([relayed.id], TODO.remove("milk"), 1)
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        log.insert(first)
        assert TODO.contains(database, "milk")
        log.insert_many([removal, relayed])
        assert not TODO.contains(database, "milk")


def test_what_adds_and_removes_does_neither(place: Place) -> None:
    """Else the order of the two would be a matter of the program."""
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]) as log:
        log.append_many([TODO.add("milk"), {**TODO.add("milk"), "remove": "milk"}])
        with connected(place) as database:
            assert TODO.get(database) == ["milk"]


def test_adding_again_takes_no_room(place: Place) -> None:
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]) as log:
        log.append_many([TODO.add("milk")] * 20)
        log.append_many([TODO.add("eggs", key="b"), TODO.add("eggs"), TODO.remove("eggs", key="c")])
        assert len(rows(place, TODO)['"order"']) == 3
        with connected(place) as database:
            assert (TODO.get(database), TODO.keys(database)) == (["eggs", "milk"], ["", "b"])


def test_adds_of_one_clock_are_not_searched_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them follows another: 500 of a stranger, in 92 KiB, cost each replica half a minute."""
    first = signed([], "first")
    adds = [signed([first.id], {**TODO.add("milk"), "n": number}, number % 3) for number in range(20)]
    searches: list[int] = []
    search = core.frontier

    def counted(sequence: int, clock: int, links: Any) -> list[int]:
        searches.append(clock)
        return search(sequence, clock, links)

    monkeypatch.setattr(core, "frontier", counted)
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log:
        log.insert_many([first, *adds])
        assert searches == []
        log.insert(signed([message.id for message in adds[:15]], TODO.remove("milk")))
        assert searches == [2]
        assert len(rows(place, TODO)['"order"']) == 5


def test_elements_that_are_too_long() -> None:
    for make in (TODO.add, TODO.remove):
        with pytest.raises(
            ValueError, match=r"^the value has 1002 bytes as dag-json: expected 1000 at most, or a Map$"
        ):
            make("x" * 1000)
