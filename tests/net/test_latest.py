from __future__ import annotations

from gossiplog.net.latest import MOST_REMEMBERED, keep_latest


def test_the_oldest_is_forgotten_first() -> None:
    kept: dict[int, str] = {}
    for key in range(MOST_REMEMBERED):
        keep_latest(kept, key, "")
    keep_latest(kept, 0, "again")
    keep_latest(kept, MOST_REMEMBERED, "")
    assert len(kept) == MOST_REMEMBERED
    assert 1 not in kept
    assert kept[0] == "again"
    assert [*kept][-2:] == [0, MOST_REMEMBERED]


def test_a_caller_may_have_fewer_kept() -> None:
    kept: dict[int, None] = {}
    for key in range(5):
        keep_latest(kept, key, None, 2)
    assert [*kept] == [3, 4]
