"""Braided histories: messages of several authors who see one another's only now and then."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gossiplog
from gossiplog import SignedMessage, Signer, core
from gossiplog.storage import MemoryStorage
from tests.strategies import alternative, longer_author


def braided(seed: int, messages: int, topic: str, authors: int = 4) -> list[SignedMessage]:
    """A history in the order of ids: payloads put keys, count and take elements out; some messages only merge."""
    chance = random.Random(seed)
    made: list[SignedMessage] = []
    logs = [
        gossiplog.open(MemoryStorage(), topic, signer=Signer(bytes([author + 1]) * 32)) for author in range(authors)
    ]
    try:
        for number in range(messages):
            log = chance.choice(logs)
            if chance.random() < 0.1:
                log.insert_many(chance.choice(logs).messages())
            made.append(log.append(_payload(chance, number)))
    finally:
        for log in logs:
            log.close()
    return sorted(made, key=lambda message: message.key)


def _payload(chance: random.Random, number: int) -> Any:
    if chance.random() < 0.1:
        return None
    return {"key": f"k{chance.randrange(6)}", "value": chance.randrange(5), "out": chance.random() < 0.3, "n": number}


def with_alternatives(seed: int, messages: list[SignedMessage]) -> list[SignedMessage]:
    """The history with further encodings of every third of the messages, in no order."""
    chance = random.Random(seed)
    made = list(messages)
    for message in messages:
        if message.payload is not None and chance.random() < 0.33:
            encodings = [alternative(message.value), alternative(message.value, 1), longer_author(message.value)]
            values = chance.sample(encodings, chance.randint(1, 3))
            made += [core.verify(value, message.topic) for value in values]
    return made


def shuffled(seed: int, messages: list[SignedMessage]) -> list[SignedMessage]:
    """The history in another order in which parents come before their children."""
    chance = random.Random(seed)
    waiting = list(messages)
    known: set[str] = set()
    arrived: list[SignedMessage] = []
    while waiting:
        ready = [message for message in waiting if known.issuperset(message.parents)]
        # One branch for some time, so that the others come late by many messages.
        message = max(chance.sample(ready, min(2, len(ready))), key=lambda one: one.clock)
        waiting.remove(message)
        known.add(message.id)
        arrived.append(message)
    return arrived


def insert(path: Path, topic: str, messages: list[SignedMessage]) -> None:
    """Inserts messages one by one, so that they arrive in this order."""
    with gossiplog.open(path, topic, synchronous="off") as log:
        for message in messages:
            assert log.insert(core.verify(message.value, topic))
