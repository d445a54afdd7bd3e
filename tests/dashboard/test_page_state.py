"""`page/state.js` against `state.py`: the same events make the same state, from a snapshot on and from batches, too."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog.dashboard
from gossiplog.dashboard import feed as feed_module
from gossiplog.dashboard.events import Committed, Event, Noted, PeerAdded, as_objects
from gossiplog.dashboard.feed import Feed
from gossiplog.dashboard.state import MOST_SAMPLES, NetworkState
from gossiplog.net.http import event_stream
from tests.dashboard.strategies import histories
from tests.net.http.event_streams import read
from tests.npm import NODE
from tests.strategies import repeatable

pytestmark = pytest.mark.integration

SCRIPT = Path(gossiplog.dashboard.__file__).parent / "page" / "state.js"


class Page:
    """The page's fold, in Node.js."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def fold(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return cast(dict[str, Any], json.loads(self._process.stdout.readline()))


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    script = Path(__file__).parent / "state_reader.mjs"
    command = [NODE, script, SCRIPT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        yield Page(process)
        assert process.stdin is not None
        process.stdin.close()


def neutral(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A snapshot whose edges are in one order, and name the lesser peer first by any order of texts."""
    edges = {}
    for edge in snapshot["edges"]:
        links = dict(zip(edge["peers"], edge["links"], strict=True))
        edges[frozenset(edge["peers"])] = edge["connected"], links
    return {**snapshot, "edges": edges}


def after(events: Sequence[Event]) -> dict[str, Any]:
    state = NetworkState()
    for event in events:
        state.apply(event)
    return {**state.snapshot(), "distinct": state.distinct_roots}


@given(data=st.data())
@repeatable(200)
def test_a_snapshot_at_any_point_and_later_events_make_the_whole_state(page: Page, data: st.DataObject) -> None:
    history = data.draw(histories())
    point = data.draw(st.integers(0, len(history)))
    snapshot = after(history[:point]) if point else None
    assert neutral(page.fold(snapshot=snapshot, events=as_objects(history[point:]))) == neutral(after(history))


@given(data=st.data())
@repeatable(200)
def test_a_snapshot_at_any_point_and_later_batches_make_the_state(page: Page, data: st.DataObject) -> None:
    """Although batches leave out what is replaced, and most pulses: all that a page shows is the same."""
    history = data.draw(histories())
    feed, begun = Feed("s"), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed_module, "MOST_PULSES", 1)
        patch.setattr(event_stream, "MOST_BEHIND", 1000)
        for event in history:
            feed.publish(event)
            if data.draw(st.booleans()):
                feed.flush()
                if begun is None and data.draw(st.booleans()):
                    begun = read(feed.batches.since(None))[0].data, feed.batches.position
        feed.flush()
        snapshot, position = begun or (None, 0)
        batches = [sent.data for sent in read(feed.batches.since(position))]
    found, expected = page.fold(snapshot=snapshot, batches=batches), after(history)
    for unseen in ("sampling", "recent"):
        # Samples come with batches, and the log of events grows by what it gets.
        del found[unseen], expected[unseen]
    assert neutral(found) == neutral(expected)


def test_charts_become_sparser_alike(page: Page) -> None:
    history: list[Event] = [PeerAdded(0, "__proto__", "constructor")]
    for number in range(4 * MOST_SAMPLES):
        history += [Committed(number / 4, "__proto__", number, f"{number:04x}"), Noted(number / 4 + 0.1, "x")]
    assert page.fold(events=as_objects(history)) == after(history)
