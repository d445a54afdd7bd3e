from __future__ import annotations

from typing import Any

import pytest

import gossiplog
from gossiplog.types.counters import MAX_STEP
from tests.log.histories import SIGNERS, signed
from tests.places import Place
from tests.strategies import TOPIC, alternative
from tests.types.histories import ALL, VOTES, connected


def test_numbers_add_up_by_author(place: Place) -> None:
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        assert VOTES.get(database) == 0
        log.append(VOTES.add(5, key="a"), signer=SIGNERS[0])
        log.append(VOTES.add(-7, key="a"), signer=SIGNERS[1])
        log.append(VOTES.add(), signer=SIGNERS[1])
        log.append_many([VOTES.add(MAX_STEP, key="b")] * 10, signer=SIGNERS[0])
        assert VOTES.by_author(database, key="a") == {SIGNERS[0].did: 5, SIGNERS[1].did: -7}
        assert VOTES.all(database) == {"": 1, "a": -2, "b": 10 * MAX_STEP}
        assert type(VOTES.all(database)["b"]) is int


def test_encodings_of_one_message_count_once(place: Place) -> None:
    message = signed([], VOTES.add(1))
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup) as log, connected(place) as database:
        log.insert_many([alternative(message.value), message.value, alternative(message.value, 1)])
        assert (len(log), VOTES.get(database)) == (3, 1)


@pytest.mark.parametrize("amount", [True, 1.0, 2**31 + 1, -(2**31) - 1, 2**63, -(2**64), None, "1"])
def test_what_is_no_amount(amount: Any, place: Place) -> None:
    with pytest.raises((TypeError, ValueError), match="an amount"):
        VOTES.add(amount)
    with gossiplog.open(place.location, TOPIC, apply=ALL.apply, setup=ALL.setup, signer=SIGNERS[0]) as log:
        log.append({"object": "votes", "key": "", "add": amount})
        with connected(place) as database:
            # An integral float is an integer in dag-cbor.
            assert VOTES.get(database) == (1 if type(amount) is float else 0)
