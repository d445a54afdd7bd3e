from __future__ import annotations

import pytest

import gossiplog
from tests.log.histories import SIGNERS, signed
from tests.places import Place
from tests.strategies import TOPIC, alternative
from tests.types.histories import ALL, TODO, connected, rows


def test_an_add_wins_over_a_concurrent_removal(place: Place) -> None:
    first = signed([], TODO.add("milk"))
    removal = signed([first.id], TODO.remove("milk"), 1)
    again = signed([first.id], TODO.add("milk"), 2)
    later = signed([again.id, removal.id], TODO.remove("milk"))
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        found = []
        for message in (first, removal, again, later):
            log.insert(message)
            found.append(TODO.elements(database))
        assert found == [["milk"], [], ["milk"], []]
        assert rows(place, TODO) == {'"order"': []}


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


def test_adding_again_takes_no_room(place: Place) -> None:
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]) as log:
        log.append_many([TODO.add("milk")] * 20)
        log.append_many([TODO.add("eggs", key="b"), TODO.add("eggs"), TODO.remove("eggs", key="c")])
        assert len(rows(place, TODO)['"order"']) == 3
        with connected(place) as database:
            assert (TODO.elements(database), TODO.keys(database)) == (["eggs", "milk"], ["", "b"])


def test_elements_that_are_too_long() -> None:
    for element in ("x" * 1000, "\ud800", float("nan")):
        with pytest.raises(ValueError, match="no dag-json form of up to 1000 bytes"):
            TODO.add(element)
        with pytest.raises(ValueError, match="no dag-json form of up to 1000 bytes"):
            TODO.remove(element)
