"""Histories of messages with branches, merges and alternative encodings, in any order that is causal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from hypothesis import strategies as st

from gossiplog import Log, Signer, core
from gossiplog.core import SignedMessage
from gossiplog.log import writing
from gossiplog.log.state import INDEX_LAG
from tests.strategies import TOPIC, alternative, longer_author

NewLog: TypeAlias = Callable[[], Log]
"""Opens a new log: the fixture `new_log`."""
SIGNERS = [Signer(bytes([number]) * 32) for number in range(3)]


@dataclass(frozen=True)
class History:
    """Messages, each after its parents, in the order in which they arrive.

    Attributes:
        messages: their values are stored.
    """

    messages: Sequence[SignedMessage]

    @property
    def past(self) -> Mapping[str, frozenset[str]]:
        """The ids of the proper ancestors of each message, by its id."""
        found: dict[str, frozenset[str]] = {}
        for message in self.messages:
            found[message.id] = frozenset().union(*(found[parent] | {parent} for parent in message.parents))
        return found

    @property
    def values(self) -> list[bytes]:
        return [message.value for message in self.messages]


def numbered(draw: st.DrawFn, before: Sequence[SignedMessage]) -> Any:
    """The payload of a message after others: its number."""
    return {"n": len(before)}


@st.composite
def histories(
    draw: st.DrawFn, largest: int = 24, payload: Callable[[st.DrawFn, Sequence[SignedMessage]], Any] = numbered
) -> History:
    """At least one message; some are further encodings of earlier ones, and others may name any encoding.

    Args:
        draw: of Hypothesis.
        largest: the most messages.
        payload: draws that of a message, given those before.
    """
    made: list[SignedMessage] = []
    recent = draw(st.integers(1, 8))
    for number in range(draw(st.integers(1, largest))):
        before = draw(st.sampled_from(made)) if made else None
        if before is not None and before.canonical and draw(st.integers(0, 4)) == 0:
            is_map = isinstance(before.payload, dict)
            encode = draw(st.sampled_from([alternative, longer_author])) if is_map else longer_author
            message = core.verify(encode(before.value), TOPIC)
        else:
            parents = draw(st.lists(st.sampled_from(made[-recent:]), max_size=3)) if made else []
            message = signed([*{parent.id for parent in parents}], payload(draw, made), number % 3)
        if all(message.id != other.id for other in made):
            made.append(message)
    return History(draw(arrivals(made)))


def signed(parents: Sequence[str], payload: object, author: int = 0) -> SignedMessage:
    """A message on top of others."""
    clock = 1 + max((core.decode_clock(core.decode_id(id))[0] for id in parents), default=0)
    _, value = SIGNERS[author].sign(TOPIC, clock, sorted(parents), payload)
    return core.verify(value, TOPIC)


@st.composite
def arrivals(draw: st.DrawFn, messages: Sequence[SignedMessage]) -> list[SignedMessage]:
    """Messages in another order in which each comes after its parents."""
    left = [*messages]
    there: set[str] = set()
    ordered: list[SignedMessage] = []
    while left:
        ready = [message for message in left if there.issuperset(message.parents)]
        message = ready[draw(st.integers(0, len(ready) - 1))]
        left.remove(message)
        there.add(message.id)
        ordered.append(message)
    return ordered


def index_lags() -> st.SearchStrategy[int]:
    """Messages that the index may be behind: none, some of those of a history, or all of them."""
    return st.sampled_from([0, 5, INDEX_LAG])


def fill(log: Log, history: History, lag: int = INDEX_LAG) -> None:
    """Insert each message by itself, so that they arrive in this order.

    Args:
        log: where to.
        history: what.
        lag: how many messages the index may be behind.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "INDEX_LAG", lag)
        for value in history.values:
            log.insert(value)


def grown(log: Log, chains: int, length: int) -> list[list[str]]:
    """Insert chains side by side: first their first messages, then ten of each in turns; a last one follows all."""
    made: list[list[SignedMessage]] = [[] for _ in range(chains)]
    for number, messages in enumerate(made):
        for _ in range(length):
            parents = [message.id for message in messages[-1:]]
            messages.append(signed(parents, {"n": len(messages), "chain": number}))
    log.insert_many([messages[0] for messages in made])
    for start in range(1, length, 10):
        for messages in made:
            log.insert_many(messages[start : start + 10])
    log.append("last")
    return [[message.id for message in messages] for messages in made]
