"""`gossiplog.cli.simulated_events`, through `gossiplog simulate --record`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gossiplog.dashboard.events import Delivered, Noted, PeerStopped, Published
from gossiplog.dashboard.recording import check, read
from gossiplog.dashboard.state import NetworkState
from tests.cli.support import Program

SMALL = ("simulate", "--nodes", "20", "--messages", "4", "--connections", "5", "--wait", "2", "--connect-delay", "2")


@pytest.mark.parametrize("router", ["simsub", "floodsub", "gossipsub", "episub"])
def test_a_run_is_recorded(router: str, program: Program, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = program(*SMALL, "--router", router, "--fanout", "1", "--record", path, "--json")
    assert done.code == 0, done.err
    assert check(path).title == f"simulated: 20 nodes, {router}"
    events = list(read(path))
    counts = Counter(type(event) for event in events)
    assert counts[Published] == 4
    # To each node but the first, which was given the message.
    delivered = done.record["summary"]["deliver"]
    assert counts[Delivered] == delivered - 4 == 4 * 19
    state = NetworkState()
    for event in events:
        state.apply(event)
    assert len(state.peers) == 20
    assert {peer.agent for peer in state.peers.values()} == {router}
    assert (state.distinct_roots, {peer.messages for peer in state.peers.values()}) == (1, {4})
    links = [link for _, *both in state.edges.values() for link in both]
    assert links.count("mesh") >= 20


def test_it_changes_nothing_of_the_run(program: Program, tmp_path: Path) -> None:
    assert program(*SMALL, "--record", tmp_path / "run.jsonl").record == program(*SMALL).record


def test_failures_are_recorded(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert program(*SMALL, "--router", "gossipsub", "--churn", "0.2", "--record", path).code == 0
    events = list(read(path))
    assert any(isinstance(event, PeerStopped) for event in events)
    state = NetworkState()
    for event in events:
        state.apply(event)
        for peer in [event.peer] if isinstance(event, PeerStopped) else []:
            assert all(peer not in pair for pair in state.edges)
    assert not any(isinstance(event, Noted) for event in events)


def test_many_runs_are_not_recorded(program: Program, tmp_path: Path) -> None:
    done = program(*SMALL, "--seeds", "0:2", "--record", tmp_path / "run.jsonl")
    assert done.code == 2
    assert "--record is for one run" in done.err
