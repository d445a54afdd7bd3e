"""Syncs whose server cuts every stream off early: they go on where they were, until both logs are equal."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog import core
from gossiplog.protocol import wire
from gossiplog.protocol.sync import SyncClientConfig, SyncServerConfig, client
from gossiplog.protocol.sync.hints import hints
from tests.protocol.cut_off import Attempt, Line, Log, attempt, entries, sync
from tests.strategies import repeatable

SHAPES = ("all", "scattered", "tail", "both apart", "both scattered")
UNLIMITED = {"requests": 2**40, "bytes": 2**50, "time_limit": 1e9, "idle": 1e9}


# Two cases in a row share their logs of 100,000 entries.
@lru_cache(maxsize=1)
def logs(shape: str, count: int, size: int, seed: int) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The entries of the client and of the server, which has `count`."""
    random = Random(seed)
    theirs = entries(range(1, count + 1), seed, size)
    ours = {key: value for key, value in entries(range(1, count + 1), seed + 1, size).items() if random.random() < 0.02}
    tail = sorted(theirs)[-max(1, count // 50) :]
    mostly = {key: value for key, value in theirs.items() if random.random() > 0.02}
    match shape:
        case "all":
            return {}, theirs
        case "scattered":
            return mostly, theirs
        case "tail":
            return {key: theirs[key] for key in theirs.keys() - set(tail)}, theirs
        case "both apart":
            return {key: theirs[key] for key in theirs.keys() - set(tail)} | ours, theirs
        case _:
            return mostly | ours, theirs


def cost(attempts: list[Attempt]) -> tuple[int, int, int]:
    """Requests that reached the server, requests that were sent, and bytes of answers."""
    statistics = [a.client.statistics for a in attempts]
    read = sum(len(a.requests) for a in attempts)
    return read, sum(s.requests for s in statistics), sum(s.bytes_received for s in statistics)


def budgets(size: int) -> st.SearchStrategy[tuple[SyncServerConfig, Line]]:
    """What a server, or the line to it, allows a stream: always a path to a leaf, and its node's values."""
    least = 4 * 2000 + 32 * size

    def limited(**limits: float) -> SyncServerConfig:
        return SyncServerConfig(**{**UNLIMITED, **limits})  # type: ignore[arg-type]

    @st.composite
    def timed(draw: st.DrawFn) -> tuple[SyncServerConfig, Line]:
        bandwidth, round_trip = draw(st.floats(16e3, 1e7)), draw(st.floats(0.0, 2.0))
        seconds = (7 * round_trip + 3 * least / bandwidth) * draw(st.floats(1.0, 20.0))
        if draw(st.booleans()):
            return limited(), Line(bandwidth, round_trip, seconds)
        return limited(time_limit=seconds), Line(bandwidth, round_trip)

    return st.one_of(
        st.integers(8, 400).map(lambda requests: (limited(requests=requests), Line())),
        st.integers(max(16_000, least), 400_000).map(lambda allowed: (limited(bytes=allowed), Line())),
        timed(),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Log, Log, SyncServerConfig, Line]:
    size = draw(st.integers(60, 1500))
    ours, theirs = logs(draw(st.sampled_from(SHAPES)), draw(st.integers(30, 3000)), size, draw(st.integers(0, 99)))
    return (Log(ours), Log(theirs), *draw(budgets(size)))


@pytest.mark.slow
@repeatable(60)
@given(cases())
def test_every_budget_brings_a_sync_to_its_end(case: tuple[Log, Log, SyncServerConfig, Line]) -> None:
    """Sync client, 7."""
    local, remote, limits, line = case
    both = local.entries | remote.entries
    requests, _, received = cost(sync(Log(local.entries), remote, SyncServerConfig(**UNLIMITED), Line()))
    attempts = sync(local, remote, limits, line)
    assert local.entries == both
    # The root, one node of each level, values, and what was cut short.
    path = remote.tree.root.level + 4
    read, sent, bytes_received = cost(attempts)
    assert read <= requests + len(attempts) * path
    assert sent <= 2 * requests + len(attempts) * path
    assert bytes_received <= 1.1 * received + len(attempts) * path * 2000


@pytest.mark.parametrize(
    ("limits", "count"), [({"requests": 8}, 20_000), ({"requests": 300}, 100_000), ({"bytes": 60_000}, 100_000)]
)
@pytest.mark.integration
def test_a_long_log_through_small_budgets(limits: dict[str, int], count: int) -> None:
    """Sync client, 7."""
    ours, theirs = logs("both apart", count, 100, seed=7)
    local = Log(ours)
    sync(local, Log(theirs), SyncServerConfig(**{**UNLIMITED, **limits}), Line())
    assert local.entries == ours | theirs


@pytest.mark.parametrize(
    "limits",
    [
        *({"requests": requests} for requests in (8, 20, 40, 80, 100, 150)),
        *({"bytes": bytes} for bytes in (16_000, 50_000, 200_000)),
    ],
)
def test_every_stream_brings_a_message(limits: dict[str, int]) -> None:
    """Sync client, 2 and 7: the first one, too."""
    ours, theirs = logs("all", 5000, 170, seed=7)
    attempts = sync(Log(ours), Log(theirs), SyncServerConfig(**{**UNLIMITED, **limits}), Line())
    assert len(attempts) > 1
    assert all(a.received for a in attempts)


@pytest.mark.parametrize("limits", [{"requests": 100}, {"bytes": 200_000}])
def test_the_first_stream_leaves_few_requests_unanswered(limits: dict[str, int]) -> None:
    """Sync client, 2: of a log of many nodes."""
    ours, theirs = logs("all", 20_000, 170, seed=7)
    stream = attempt(Log(ours), Log(theirs), SyncClientConfig(), SyncServerConfig(**{**UNLIMITED, **limits}), Line())
    assert stream.client.statistics.requests - len(stream.requests) <= 256


@pytest.mark.parametrize(("shape", "flights"), [("all", 8), ("scattered", 8), ("tail", 4), ("both apart", 8)])
def test_the_walk_widens(shape: str, flights: int) -> None:
    """Sync client, 2: where the first leaves lack nothing, too, as in "both apart"."""
    ours, theirs = logs(shape, 5000, 170, seed=7)
    stream = attempt(Log(ours), Log(theirs), SyncClientConfig(), SyncServerConfig(**UNLIMITED), Line(round_trip=1.0))
    assert stream.finished
    assert stream.seconds <= flights


def test_more_requests_are_under_way_when_many_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 2."""
    monkeypatch.setattr(client, "_FIRST_ASKED", 8)
    ours, theirs = logs("all", 5000, 170, seed=7)
    stream = attempt(Log(ours), Log(theirs), SyncClientConfig(), SyncServerConfig(**UNLIMITED), Line(round_trip=1.0))
    assert stream.finished
    assert stream.seconds < 16 < len(stream.requests) / 8


def test_long_values_are_not_asked_for_two_at_a_time() -> None:
    """Sync client, 2: where a window holds few of them, also after few came in one answer."""
    ours, theirs = logs("all", 600, 20_000, seed=7)
    line = Line(bandwidth=25e6, round_trip=0.3)
    stream = attempt(Log(ours), Log(theirs), SyncClientConfig(keys=16), SyncServerConfig(**UNLIMITED), line)
    assert stream.finished
    assert stream.seconds < 4


@pytest.mark.slow
def test_few_requests_are_lost_when_a_stream_is_cut_off() -> None:
    """Sync client, 7: no more than the first stream, and later ones, leave unanswered."""
    ours, theirs = logs("all", 20_000, 60, seed=1)
    limits = SyncServerConfig(**{**UNLIMITED, "requests": 40})
    _, *later = sync(Log(ours), Log(theirs), limits, Line())
    lost = [a.client.statistics.requests - len(a.requests) for a in later]
    assert len(lost) > 10
    assert max(lost) <= 30
    assert sum(lost) <= 25 * len(lost)


def test_more_requests_are_tried_while_they_bring_more() -> None:
    """Sync client, 7: where time cuts off each stream after few round trips."""
    ours, theirs = logs("all", 5000, 100, seed=6)
    limits = SyncServerConfig(**{**UNLIMITED, "time_limit": 2.0})
    attempts = sync(Log(ours), Log(theirs), limits, Line(1e7, 0.7))
    assert max(a.client.next_config.most_asked or 0 for a in attempts) >= 18


def test_more_requests_are_under_way_while_a_stream_lasts() -> None:
    """Sync client, 7: a stream that goes on where one broke at its start is as fast in the end."""
    ours, theirs = logs("all", 5000, 100, seed=6)
    stream = attempt(
        Log(ours), Log(theirs), SyncClientConfig(most_asked=1), SyncServerConfig(**UNLIMITED), Line(round_trip=1.0)
    )
    assert stream.finished
    assert stream.seconds < 25 < len(stream.requests) / 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limits", [{"requests": 30}, {"bytes": 20_000}])
def test_children_are_asked_for_once(limits: dict[str, int], shape: str) -> None:
    """Sync client, 7: of a node, but for the request at which each stream was cut off, and for guesses of the first."""
    ours, theirs = logs(shape, 4000, 100, seed=4)
    attempts = sync(Log(ours), Log(theirs), SyncServerConfig(**{**UNLIMITED, **limits}), Line())
    assert len(attempts) > 2 or shape == "tail"
    answered = [request for a in attempts for request in (a.requests if a.finished else a.requests[:-1])]
    walked = Counter((request.level, request.key) for request in answered if isinstance(request, wire.GetChildren))
    walked.subtract(hints(core.Tree().insert(ours.items())))
    assert max(walked.values()) <= 1


def test_children_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 7: a sync some of whose are lost goes on all the same."""
    monkeypatch.setattr(client, "_MOST_KNOWN", 200)
    ours, theirs = logs("both scattered", 4000, 100, seed=4)
    local, remote = Log(ours), Log(theirs)
    limits = SyncServerConfig(**{**UNLIMITED, "requests": 30})
    first = attempt(local, remote, SyncClientConfig(), limits, Line()).client.next_config
    second = attempt(local, remote, first, limits, Line()).client.next_config
    for config in (first, second):
        assert 100 < sum(map(len, config.known.values())) <= 200
    assert list(first.known) == sorted(first.known, key=lambda node: (node.key or b"", -node.level))
    assert second.known.keys() - first.known.keys()
    sync(local, remote, limits, Line(), config=second)
    assert local.entries.keys() >= remote.entries.keys()


def test_children_that_were_used_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync client, 7."""
    limits = SyncServerConfig(**{**UNLIMITED, "requests": 30})
    remotes = [Log(logs("all", 2000, 100, seed)[1]) for seed in (1, 2)]
    used, stale = (
        attempt(Log({}), remote, SyncClientConfig(), limits, Line()).client.next_config for remote in remotes
    )
    known = {**used.known, **stale.known}
    monkeypatch.setattr(client, "_MOST_KNOWN", sum(map(len, known.values())))
    last = attempt(Log({}), remotes[0], replace(used, known=known), limits, Line()).client.next_config
    assert last.known.keys() > used.known.keys()


def test_children_below_which_nothing_is_lacking_are_not_remembered() -> None:
    """Sync client, 7: it is enough that the node lacks nothing."""
    ours, theirs = logs("both apart", 4000, 100, seed=3)
    config = attempt(
        Log(ours), Log(theirs), SyncClientConfig(), SyncServerConfig(**UNLIMITED), Line()
    ).client.next_config
    assert config.complete
    assert not config.complete & config.known.keys()


def test_nothing_is_guessed_where_children_are_known() -> None:
    """Sync client, 7."""
    ours, theirs = logs("tail", 2000, 100, seed=5)
    local, remote = Log(ours), Log(theirs)
    first = attempt(local, remote, SyncClientConfig(), SyncServerConfig(**{**UNLIMITED, "requests": 14}), Line())
    assert any(isinstance(request, wire.GetNode) for request in first.requests)
    config = first.client.next_config
    assert config.known
    for resuming in (config, SyncClientConfig(known=config.known), SyncClientConfig(most_asked=8)):
        second = attempt(local, remote, resuming, SyncServerConfig(**UNLIMITED), Line())
        assert second.finished
        assert not any(isinstance(request, wire.GetNode) for request in second.requests)


def test_children_of_another_tree_are_not_used() -> None:
    """Sync client, 7: a node that has changed has another hash."""
    ours, theirs = logs("all", 2000, 100, seed=5)
    local, remote = Log(ours), Log(theirs)
    limits = SyncServerConfig(**{**UNLIMITED, "requests": 30})
    config = attempt(local, remote, SyncClientConfig(), limits, Line()).client.next_config
    remote.insert(entries(range(1, 2000, 40), 99, 100))
    sync(local, remote, limits, Line(), config=config)
    assert local.entries == remote.entries


@pytest.mark.slow
def test_values_are_asked_for_in_numbers_that_came() -> None:
    """Sync client, 7: also where time cuts off each stream after few round trips, as canvas-js does."""
    ours, theirs = logs("all", 4000, 100, seed=6)
    local, remote = Log(ours), Log(theirs)
    attempts = sync(local, remote, SyncServerConfig(**{**UNLIMITED, "time_limit": 2.0}), Line(1e7, 0.7))
    keys = [a.client.next_config.keys for a in attempts]
    assert keys == sorted(keys)
    assert keys[0] == 32 < 450 < keys[-1]
    assert len(attempts) <= 9
    # An answer of 160 values takes longer than a stream lasts.
    local = Log(ours)
    attempts = sync(local, remote, SyncServerConfig(**UNLIMITED), Line(16e3, 0.0, breaks=1.0))
    assert local.entries == theirs
    assert max(a.asked[0] for a in attempts if a.asked) < 160


def test_nodes_that_lack_nothing_are_walked_once() -> None:
    """Sync client, 7."""
    ours, theirs = logs("both apart", 4000, 100, seed=3)
    local, remote = Log(ours), Log(theirs)
    first = attempt(local, remote, SyncClientConfig(), SyncServerConfig(**{**UNLIMITED, "requests": 40}), Line())
    assert not first.received
    config = first.client.next_config
    assert config.complete
    without = attempt(local, remote, replace(config, complete=frozenset()), SyncServerConfig(**UNLIMITED), Line())
    second = attempt(local, remote, config, SyncServerConfig(**UNLIMITED), Line())
    assert second.received == without.received
    assert len(second.requests) < len(without.requests)


def test_what_the_application_skips_is_not_complete() -> None:
    """Sync client, 7."""
    ours, theirs = logs("all", 300, 100, seed=3)
    skip = frozenset(theirs)
    stream = attempt(Log(ours), Log(theirs), SyncClientConfig(skip=skip), SyncServerConfig(**UNLIMITED), Line())
    assert stream.finished
    assert not stream.received
    assert not stream.client.next_config.complete


def test_a_node_that_changed_is_walked_again() -> None:
    """Sync client, 7."""
    ours, theirs = logs("both apart", 2000, 100, seed=5)
    local, remote = Log(ours), Log(theirs)
    first = attempt(local, remote, SyncClientConfig(), SyncServerConfig(**{**UNLIMITED, "requests": 30}), Line())
    assert first.client.next_config.complete
    early = entries([2, 3], 99, 100)
    remote.insert(early)
    sync(local, remote, SyncServerConfig(**UNLIMITED), Line(), config=first.client.next_config)
    assert local.entries.keys() >= remote.entries.keys()
