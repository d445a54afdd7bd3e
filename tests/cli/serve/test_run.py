"""What `gossiplog serve` shows of what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gossiplog.cli.serve.run import _exposure, _show_event, _timed
from gossiplog.core import Node
from gossiplog.errors import RefusedMessage
from gossiplog.net import events
from gossiplog.protocol.sync import SyncStatistics


def test_a_key_of_tls_that_others_can_read_is_said(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch(mode=0o600)
    assert _exposure(key) == ""
    key.chmod(0o644)
    assert _exposure(key) == f"the private key {key} is open to other users: run chmod 600 {key}"


@pytest.mark.parametrize(("peer", "name"), [("[::1]:9", "[::1]:9"), ("", "no peer")])
def test_a_defect_is_shown(peer: str, name: str) -> None:
    shown: list[tuple[str, dict[str, Any]]] = []
    _show_event(
        lambda text, fields: shown.append((text, fields)), events.Defect(peer, "answering it", KeyError("a key"), 2)
    )
    assert shown == [
        (
            f"{name}: a defect of gossiplog, answering it: KeyError: 'a key'",
            {"event": "defect", "peer": peer, "doing": "answering it", "error": "KeyError: 'a key'", "times": 2},
        )
    ]


def test_refusals_are_shown_with_ids_and_reasons() -> None:
    shown: list[tuple[str, dict[str, Any]]] = []

    def show(text: str, fields: dict[str, Any]) -> None:
        shown.append((text, fields))

    _show_event(show, events.MessagesRefused((("a", RefusedMessage("no text", "a")),), "192.0.2.7:1", 2))
    _show_event(show, events.RefusalsReported("ws://hub", tuple((str(number), "ugly") for number in range(7)), 0))
    _show_event(show, events.SyncEnded("ws://hub", True, 0, 2, SyncStatistics(), "", (("a", "no text"),)))
    assert shown[0] == (
        "3 messages of 192.0.2.7:1 were refused: message a: no text",
        {"event": "refused", "peer": "192.0.2.7:1", "refused": [{"id": "a", "reason": "no text"}], "more": 2},
    )
    assert (
        shown[1][0]
        == "ws://hub refuses 7 messages of this log: "
        + "; ".join(f"message {number}: ugly" for number in range(5))
        + "; …"
    )
    assert shown[1][1]["refused"][6] == {"id": "6", "reason": "ugly"}
    assert shown[2][1]["reasons"] == [{"id": "a", "reason": "no text"}]


def test_commits_are_shown_with_their_origin_and_the_time() -> None:
    shown: list[tuple[str, dict[str, Any]]] = []
    show = _timed(lambda text, fields: shown.append((text, fields)))
    root = Node(0, None, bytes(16))
    _show_event(show, events.Committed(7, root, 3, {"192.0.2.7#4": 2}, ("did:key:z6MkA", "did:key:z6MkB")))
    ((text, fields),) = shown
    assert text == "7 messages, 3 new from 192.0.2.7#4, by did:key:z6MkA, did:key:z6MkB"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("time"))
    assert fields == {
        "event": "committed",
        "messages": 7,
        "inserted": 3,
        "peers": [{"peer": "192.0.2.7#4", "inserted": 2}],
        "authors": ["did:key:z6MkA", "did:key:z6MkB"],
        "root": {"level": 0, "hash": bytes(16).hex()},
    }
