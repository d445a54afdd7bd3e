"""Hypothesis strategies for events of a dashboard: of a few peers, so that they concern each other."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import strategies as st

from gossiplog.dashboard import events

PEERS = ("a", "b", "c", "<script>", "é")
names = st.sampled_from(PEERS)
messages = st.sampled_from(["m1", "m2", "m3"])
roots = st.sampled_from(["", "00" * 16, "ab" * 16, "ff" * 16])
texts = st.text(max_size=40)
counts = st.integers(0, 2**53 - 1)
seconds = st.floats(0, 1e6, allow_nan=False)

_fields: dict[str, st.SearchStrategy[Any]] = {
    "peer": names,
    "other": names,
    "source": names,
    "label": names,
    "agent": st.sampled_from(["", "gossipsub", "episub"]),
    "message": messages,
    "kind": st.sampled_from(["peer", "hub", "client", "bootstrap", "browser"]),
    "link": st.sampled_from(["none", "mesh", "lazy", "fanout"]),
    "by": st.sampled_from(["gossip", "push", "sync"]),
    "text": texts,
    "reason": texts,
    "error": texts,
    "messages": st.integers(0, 100),
    "inserted": st.integers(0, 100),
    "clock": counts,
    "bytes_sent": st.integers(0, 10**9),
    "bytes_received": st.integers(0, 10**9),
    "root": roots,
    "heads": st.lists(messages, max_size=3).map(tuple),
    "latency": st.none() | st.floats(0, 100),
    "rate": st.floats(0, events.MOST_RATE),
    "groups": st.lists(st.lists(names, max_size=3).map(tuple), max_size=3).map(tuple),
}


def fields_of(kind: type[Any]) -> list[str]:
    """The names of an event's fields, but for `at` and `event`."""
    return [field.name for field in fields(kind) if field.name not in ("at", "event")]


def event_at(at: st.SearchStrategy[float]) -> st.SearchStrategy[events.Event]:
    """Any event, at such a time."""
    kinds = [st.builds(kind, at=at, **{name: _fields[name] for name in fields_of(kind)}) for kind in events.KINDS]
    return st.one_of(kinds)


_EVENTS = event_at(st.just(0.0))


@st.composite
def histories(draw: st.DrawFn, most: int = 40) -> list[events.Event]:
    """Events in the order of their times, which mostly differ by little."""
    now = 0.0
    history = []
    for _ in range(draw(st.integers(0, most))):
        now += draw(st.sampled_from([0.0, 0.01, 0.3, 5.0, 1000.0]))
        history.append(replace(draw(_EVENTS), at=now))
    return history
