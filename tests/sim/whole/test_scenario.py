"""`gossiplog.sim.whole.scenario`."""

from __future__ import annotations

import pytest

from gossiplog.sim.whole.scenario import draw


def test_a_scenario_is_a_function_of_its_seed() -> None:
    assert draw(1, 30) == draw(1, 30) != draw(2, 30)


@pytest.mark.parametrize("peers", [2, 3, 30, 400])
def test_all_peers_are_connected_and_all_actors_exist(peers: int) -> None:
    shapes = set()
    for seed in range(40):
        scenario = draw(seed, peers)
        shapes.add(scenario.shape)
        neighbours: dict[int, set[int]] = {peer: set() for peer in range(peers)}
        for edge in scenario.edges:
            assert edge.dialler != edge.listener
            neighbours[edge.dialler].add(edge.listener)
            neighbours[edge.listener].add(edge.dialler)
        reached = [0]
        for peer in reached:
            reached += sorted(neighbours[peer] - set(reached))
        assert sorted(reached) == list(range(peers))
        actors = [append.peer for append in scenario.appends] + [crash.peer for crash in scenario.crashes]
        actors += [peer for _, targets in scenario.hostile for peer in targets]
        actors += [peer for lag in scenario.lags for peer in (lag.source, lag.target)]
        assert set(actors) <= set(range(peers))
    assert len(shapes) >= 3


def test_meshes_are_sparse_or_dense_and_ids_are_forgotten_or_not() -> None:
    drawn = [draw(seed, 30).gossip for seed in range(100)]
    assert {config.d for config in drawn} == {1, 2, 3, 6}
    assert {config.lazy for config in drawn} >= {0, 1, 6}
    assert {config.seen_ttl for config in drawn} == {20.0, 30.0, 120.0}
    assert len({config.heartbeat_interval for config in drawn}) == 3


def test_one_peer_is_no_network() -> None:
    with pytest.raises(ValueError, match="1 peers: expected 2 or more"):
        draw(0, 1)
