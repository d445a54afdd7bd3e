"""`gossiplog.sim.whole.hostile`: each kind is dropped by who can prove it, and does no harm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossiplog.sim.whole.hostile import UNPROVABLE, Kind
from gossiplog.sim.whole.run import Run
from gossiplog.sim.whole.scenario import draw

WHY = {
    Kind.GARBAGE: "event|frame|key|Insert|Update",
    Kind.FORGER: "invalid",
    Kind.MISKEYED: "its key is another message's|invalid messages by gossip",
    Kind.ORPHANS: "advertised messages that it does not have",
    Kind.LIAR: "is one of message",
    Kind.FORGED_LOG: "invalid message",
}


@pytest.mark.parametrize("kind", list(Kind), ids=[kind.name for kind in Kind])
def test_each_kind(kind: Kind) -> None:
    run = Run(replace(draw(2, 4), hostile=((kind, (0, 1, 2, 3)),)))
    assert run.run().messages > 0
    reasons = [peer.banned.get(4, "") for peer in run.peers]
    if kind in UNPROVABLE:
        assert not any(reasons)
    else:
        assert any(reasons)
        for reason in filter(None, reasons):
            assert any(part in reason for part in WHY[kind].split("|")), reason


def test_a_forger_in_the_mesh_is_dropped_by_gossip() -> None:
    scenario = draw(2, 4)
    edges = tuple(replace(edge, gossips=True) for edge in scenario.edges)
    run = Run(replace(scenario, edges=edges, hostile=((Kind.FORGER, (0, 1, 2, 3)),)))
    run.run()
    assert {peer.banned.get(4) for peer in run.peers} == {"it sent 7 invalid messages by gossip"}
