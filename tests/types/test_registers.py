from __future__ import annotations

from typing import Any

import pytest

import gossiplog
from gossiplog import core
from gossiplog.types import Map, Register
from tests.log.histories import SIGNERS, signed
from tests.places import Place
from tests.strategies import TOPIC
from tests.types.histories import ALL, SETTINGS, TEXT, TITLE, TODO, connected


def test_the_last_write_counts(place: Place) -> None:
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        first = log.append(TITLE.set("first"), signer=SIGNERS[0])
        assert TITLE.get(database) == "first"
        apart = [signed([first.id], TITLE.set(number), number) for number in range(3)]
        for message in apart:
            log.insert(message)
        assert TITLE.get(database) == max(apart, key=lambda message: message.id).payload["set"]
        log.append(TITLE.set(None), signer=SIGNERS[0])
        assert TITLE.get(database, "none") is None


def test_keys_are_deleted_and_come_back(place: Place) -> None:
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]) as log:
        for key in ("z", "é", "Z", "a"):
            log.append(SETTINGS.set(key, {"key": key}))
        log.append(SETTINGS.delete("a"))
        with connected(place) as database:
            # By their bytes, whatever the locale of the database is.
            assert [*SETTINGS.all(database)] == ["Z", "z", "é"]
            assert SETTINGS.get(database, "a", "gone") == "gone"
            assert SETTINGS.get(database, "é") == {"key": "é"}
            link = gossiplog.CID.parse("QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n")
            log.append(SETTINGS.set("a", [b"\0", "\0", 1.5, link]))
            assert SETTINGS.get(database, "a") == [b"\0", "\0", 1.5, link]


@pytest.mark.parametrize("flag", [False, None, 1, "true"])
def test_only_true_deletes(place: Place, flag: object) -> None:
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]) as log:
        log.append_many([SETTINGS.set("a", 1), SETTINGS.delete("a") | {"delete": flag}])
        with connected(place) as database:
            assert SETTINGS.all(database) == {"a": 1}
        log.append(SETTINGS.delete("a"))
        with connected(place) as database:
            assert SETTINGS.all(database) == {}


@pytest.mark.parametrize("key", ["\0", "k" * 1001, "\ud800"])
def test_keys_that_cannot_be_stored(key: str) -> None:
    for make in (lambda: SETTINGS.set(key, 1), lambda: SETTINGS.delete(key)):
        with pytest.raises(ValueError, match="a key of"):
            make()


def test_a_key_is_text() -> None:
    wrong: Any = 1
    with pytest.raises(TypeError, match="a key is 1: expected text"):
        Map("m").set(wrong, 1)
    assert Register("r").set(1) == {"object": "r", "set": 1}


@pytest.mark.parametrize("looks", [{"/": {"bytes": 1}}, {"/": {"bytes": "AA"}}, core.CID(b"\x12\x01a")])
def test_a_stranger_writes_nothing_that_is_read_as_another_value(place: Place, looks: object) -> None:
    """A map may look as dag-json has bytes, and be none."""
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        for payload in (
            {**TITLE.set(1), "set": looks},
            {**SETTINGS.set("key", 1), "set": [looks]},
            {**TODO.add(1), "add": looks},
            {**TEXT.insert(database, 0, 1), "insert": [looks]},
        ):
            log.append(payload, signer=SIGNERS[0])
        assert (TITLE.get(database), SETTINGS.all(database)) == (None, {})
        assert (TODO.all(database), TEXT.all(database)) == ({}, {})
