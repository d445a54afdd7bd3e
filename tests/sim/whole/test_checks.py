"""`gossiplog.sim.whole.checks`: each of them can fail."""

from __future__ import annotations

import pytest

from gossiplog import SignedMessage, Signer, core
from gossiplog.sim.whole.checks import BrokenInvariant, Checks

SIGNER = Signer(bytes(32))


def message(clock: int, *parents: SignedMessage) -> SignedMessage:
    _, value = SIGNER.sign("test", clock, tuple(parent.id for parent in parents), clock, "dag-cbor")
    return core.read_message(value, "test")


FIRST = message(1)
SECOND = message(2, FIRST)


@pytest.fixture
def checks() -> Checks:
    watched = Checks()
    for node in (1, 2):
        watched.add(node)
    return watched


def test_apply_runs_once_and_after_the_parents(checks: Checks) -> None:
    with pytest.raises(BrokenInvariant, match=f"node 1 applied {SECOND.id} before its parent {FIRST.id}"):
        checks.apply(1, SECOND)
    checks.apply(1, FIRST)
    checks.apply(1, SECOND)
    with pytest.raises(BrokenInvariant, match=f"node 1 applied {FIRST.id} twice"):
        checks.apply(1, FIRST)


def test_what_is_forwarded_is_held_with_its_parents(checks: Checks) -> None:
    with pytest.raises(BrokenInvariant, match="which it does not hold"):
        checks.forward(1, FIRST.key, 1)
    checks.apply(1, FIRST)
    checks.apply(1, SECOND)
    checks.forward(1, SECOND.key, 3)
    assert checks.pushes == 4
    del checks.applied[1][FIRST.key]
    with pytest.raises(BrokenInvariant, match=f"without its parent {FIRST.id}"):
        checks.forward(1, SECOND.key, 1)


def test_an_orphan_can_be_repaired_from_its_sender(checks: Checks) -> None:
    checks.apply(1, FIRST)
    with pytest.raises(BrokenInvariant, match=f"node 2 cannot get {SECOND.id} from node 1"):
        checks.orphan(2, 1, SECOND.key, [FIRST.key])
    checks.apply(1, SECOND)
    checks.orphan(2, 1, SECOND.key, [FIRST.key])
    checks.orphan(2, 77, FIRST.key, [SECOND.key])


def test_syncs_are_few_and_one_a_source(checks: Checks) -> None:
    checks.sync(1, 2, [3], 2, 0.0)
    with pytest.raises(BrokenInvariant, match="second sync with node 2"):
        checks.sync(1, 2, [2], 2, 0.0)
    with pytest.raises(BrokenInvariant, match="beside 2 others; 2 are allowed"):
        checks.sync(1, 2, [3, 4], 2, 0.0)
    for number in range(40):
        checks.sync(1, 9, [], 2, number * 0.3)
    for number in range(19):
        checks.sync(1, 8, [], 2, number * 0.2)
    with pytest.raises(BrokenInvariant, match="20 syncs with the hostile node 8 within 5 s"):
        checks.sync(1, 8, [], 2, 4.9)


def test_honest_nodes_are_not_blamed(checks: Checks) -> None:
    checks.blame(1, 9, "garbage")
    with pytest.raises(BrokenInvariant, match="node 1 blames the honest node 2: a reason"):
        checks.blame(1, 2, "a reason")


def test_a_restart_loses_nothing(checks: Checks) -> None:
    checks.apply(1, FIRST)
    checks.restart(1, 1)
    with pytest.raises(BrokenInvariant, match="restarts with 0 messages; it applied 1"):
        checks.restart(1, 0)


def test_at_rest_all_hold_the_same_and_every_append(checks: Checks) -> None:
    with pytest.raises(BrokenInvariant, match=r"nodes \[2\] have other roots than node 1"):
        checks.rest(lambda: [(1, "root"), (2, "another")])
    checks.acknowledged[2].append(FIRST.key)
    with pytest.raises(BrokenInvariant, match=f"lost: {FIRST.id} and 0 more that node 2 appended"):
        checks.rest(lambda: [(1, "root"), (2, "root")])
    checks.apply(1, FIRST)
    checks.rest(lambda: [(1, "root"), (2, "root")])
