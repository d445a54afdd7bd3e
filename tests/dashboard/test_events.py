"""`gossiplog.dashboard.events`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from gossiplog.dashboard import events
from gossiplog.dashboard.events import Committed, Delivered, Event, Noted, Refused, all_to_json, from_json, to_json
from gossiplog.errors import DecodeError
from tests.dashboard.strategies import event_at, seconds
from tests.strategies import repeatable

DELIVERED = Delivered(1.5, "a", "m1", "b", "gossip", 0.01)


@pytest.mark.slow
@given(event=event_at(seconds))
@repeatable(300)
def test_what_is_written_is_read(event: Event) -> None:
    text = to_json(event)
    assert b"\n" not in text
    assert from_json(text) == event
    assert all_to_json([event, DELIVERED]) == b"[%b,%b]" % (text, to_json(DELIVERED))


def test_every_event_is_known_by_a_name_of_its_own() -> None:
    names = {kind.__dataclass_fields__["event"].default for kind in events.KINDS}
    assert len(names) == len(events.KINDS)
    assert {"peer_added", "link_changed", "sync_ended"} < names


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"event": "borrowed"}, "'borrowed'"),
        ({"at": "1.5"}, "delivered.at: Input should be a valid number"),
        ({"at": True}, "delivered.at"),
        ({"at": -1}, "delivered.at: Input should be greater than or equal to 0"),
        ({"at": 1e300}, "delivered.at"),
        ({"peer": ""}, "delivered.peer"),
        ({"peer": 5}, "delivered.peer: Input should be a valid string"),
        ({"peer": "a" * 201}, "at most 200 characters"),
        ({"by": "pigeon"}, "'gossip', 'push' or 'sync'"),
        ({"latency": "no"}, "delivered.latency"),
        ({"colour": "red"}, "delivered.colour: Unexpected keyword argument"),
        ({"co\nlour": "red"}, r"delivered.co\nlour"),
        ({"colour" * 1000: "red"}, "colourcol"),
        ({"colour": "red", "peer": 1}, " (and 1 more)"),
    ],
)
def test_another_object_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DecodeError) as caught:
        from_json(json.dumps({**json.loads(to_json(DELIVERED)), **changes}))
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Committed, {"root": "abc"}),
        (Committed, {"root": "ZZ"}),
        (Committed, {"messages": -1}),
        (Committed, {"messages": 1.5}),
        (Committed, {"messages": 2**53}),
        (Committed, {"heads": ["m"] * 17}),
        (Committed, {"heads": "m1"}),
        (Noted, {"text": "a" * 1001}),
    ],
)
def test_fields_are_held_to_their_bounds(kind: type[Any], changes: dict[str, Any]) -> None:
    sound = Committed(1.0, "a", 3, "ab", ("m1",)) if kind is Committed else Noted(1.0, "text")
    assert from_json(to_json(sound)) == sound
    with pytest.raises(DecodeError):
        from_json(json.dumps({**json.loads(to_json(sound)), **changes}))


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"event":"healed","at":NaN}', b'{"event":"healed"}']
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError, match="no event of a dashboard: "):
        from_json(text)


def test_what_others_wrote_is_cut_to_what_can_be_read() -> None:
    """A reason may be a stranger's text: a reporter need not look at it."""
    refused = Refused(1.0, "a", "\ud800" + "é" * 2000, "m1")
    assert refused.reason == "?" + "é" * 998 + "…"
    assert from_json(to_json(refused)) == refused
    committed = Committed(1.0, "a", 100, "ab", tuple(f"m{number}" for number in range(100)))
    assert committed.heads == tuple(f"m{number}" for number in range(16))


def test_no_text_turns_around_how_it_is_shown() -> None:
    assert Noted(0.0, "a\u202egpj.exe").text == "a\\u202egpj.exe"
