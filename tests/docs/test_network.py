"""The blocks of docs/network.md run, and each recording that they make shows what the page says of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gossiplog.dashboard import events as dashboard_events
from gossiplog.dashboard import recording
from gossiplog.dashboard.state import NetworkState
from tests.readme import DOCS, Shell, blocks, steps

PAGE = DOCS / "network.md"
TIMEOUT = 300
FEW = 8
"""Peers in place of the page's 16 or 32."""
FEW_MESSAGES = 10
"""Messages in place of the page's 20."""

pytestmark = pytest.mark.integration


def recorded(
    name: str, folder: Path, smaller: Sequence[tuple[str, str]] = ()
) -> tuple[Sequence[dashboard_events.Event], dict[str, Any]]:
    """Run the command of the page that makes a recording; return its events, and the state at its end.

    Args:
        name: of the recording.
        folder: for it.
        smaller: what to replace in the command and in what it prints: connections grow as the square of the peers.
    """
    (command,) = [block for block in blocks(PAGE) if f"--record {name}.jsonl" in block.text]
    with Shell(folder, TIMEOUT) as shell:
        for step in steps(command):
            for old, new in smaller:
                assert old in "".join(step)
                step = (step[0].replace(old, new), step[1].replace(old, new))
            shell.run(*step)
    events = list(recording.read(folder / f"{name}.jsonl"))
    state = NetworkState()
    for event in events:
        state.apply(event)
    return events, state.snapshot()


def kinds(state: dict[str, Any]) -> Counter[str]:
    return Counter(peer["kind"] for peer in state["peers"].values())


def roots(state: dict[str, Any]) -> set[str]:
    return {peer["root"] for peer in state["peers"].values() if peer["kind"] != "bootstrap"}


def test_every_block_is_a_run_or_plays_one() -> None:
    found = [re.search(r"--record (\w+)", block.text) for block in blocks(PAGE)]
    names = [match[1] for match in found if match is not None]
    assert names == ["hub", "automatic", "bootstrap", "gossip", "branches", "episub"]
    assert len(found) == len(names) + 1


def test_a_hub_whose_clients_append(tmp_path: Path) -> None:
    events, state = recorded("hub", tmp_path)
    assert kinds(state) == {"hub": 1, "client": 7}
    assert len(roots(state)) == 1
    published = [event for event in events if isinstance(event, dashboard_events.Published)]
    assert len(published) == 8
    came = Counter(event.message for event in events if isinstance(event, dashboard_events.Delivered))
    assert came == {event.message: 7 for event in published}
    # Each to one client at least; syncs bring some on a busy machine.
    pushed = [event for event in events if isinstance(event, dashboard_events.Delivered) and event.by == "push"]
    assert len(pushed) >= len(published)


def test_a_hub_whose_clients_append_all_the_time(tmp_path: Path) -> None:
    events, state = recorded("automatic", tmp_path)
    assert state["rate"] == 20
    assert kinds(state) == {"hub": 1, "client": 7}
    # 80 on an idle machine. One of each peer would be 8.
    assert max(event.messages for event in events if isinstance(event, dashboard_events.Committed)) > 8
    assert len({event.peer for event in events if isinstance(event, dashboard_events.Published)}) > 2


def test_peers_that_find_each_other(tmp_path: Path) -> None:
    # In two processes, as the page's 32 peers are.
    smaller = [("--peers 32", f"--peers {FEW} --processes 2"), ('"peers":32', f'"peers":{FEW}')]
    events, state = recorded("bootstrap", tmp_path, smaller)
    assert kinds(state) == {"bootstrap": 1, "peer": FEW}
    (bootstrap,) = [name for name, peer in state["peers"].items() if peer["kind"] == "bootstrap"]
    # Not all at the end: a connection that is not needed is closed.
    links = {frozenset((event.peer, event.other)) for event in events if isinstance(event, dashboard_events.Connected)}
    others = Counter(name for link in links if bootstrap not in link for name in link)
    assert len(others) == FEW
    assert min(others.values()) >= 3
    # Each was connected to the bootstrap.
    connected = [event for event in events if isinstance(event, dashboard_events.Connected)]
    assert len({event.other for event in connected if event.peer == bootstrap}) == FEW


def test_messages_travel_by_gossip(tmp_path: Path) -> None:
    smaller = [
        ("--peers 16", f"--peers {FEW}"),
        ('"complete_peers":16', f'"complete_peers":{FEW}'),
        ("--messages 20", f"--messages {FEW_MESSAGES}"),
        ('"messages":20', f'"messages":{FEW_MESSAGES}'),
    ]
    events, state = recorded("gossip", tmp_path, smaller)
    assert len(roots(state)) == 1
    delivered = [event for event in events if isinstance(event, dashboard_events.Delivered)]
    assert len(delivered) == FEW_MESSAGES * (FEW - 1)
    assert Counter(event.by for event in delivered)["gossip"] > len(delivered) / 2
    assert all(event.latency is not None and event.latency < 60 for event in delivered)
    assert any(isinstance(event, dashboard_events.LinkChanged) and event.link == "mesh" for event in events)


def test_branches_meet(tmp_path: Path) -> None:
    events, state = recorded("branches", tmp_path)
    assert len(roots(state)) == 1
    first: dict[str, str] = {}
    for event in events:
        if isinstance(event, dashboard_events.Committed):
            first.setdefault(event.peer, event.root)
    assert len(set(first.values())) == 8
    assert sum(event.inserted for event in events if isinstance(event, dashboard_events.SyncEnded)) > 0
    assert recording.check(tmp_path / "branches.jsonl").title == "8 peers, as a mesh"
    (check,) = [block for block in blocks(PAGE) if "--check" in block.text]
    with Shell(tmp_path, TIMEOUT) as shell:
        for line, expected in steps(check):
            shell.run(line, expected)


def test_messages_travel_along_episubs_tree(tmp_path: Path) -> None:
    events, state = recorded("episub", tmp_path)
    assert len(roots(state)) == 1
    assert {peer["agent"] for peer in state["peers"].values()} == {"", "episub"}
    assert {event.link for event in events if isinstance(event, dashboard_events.LinkChanged)} >= {"mesh", "lazy"}
    assert Counter(event.by for event in events if isinstance(event, dashboard_events.Delivered))["gossip"] > 0
    assert recording.check(tmp_path / "episub.jsonl").title == "8 peers, as a mesh, episub"
