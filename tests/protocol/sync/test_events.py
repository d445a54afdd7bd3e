"""Broadcast, 8 and 9: what explains the orphans of a sync."""

from __future__ import annotations

from gossiplog.protocol.sync.events import SkippedMessages


def test_an_orphan_is_explained_by_what_was_skipped() -> None:
    skipped = SkippedMessages({b"a"})
    assert skipped.hole([b"a", b"b", b"c"]) == b"b"
    skipped.add(b"b")
    assert skipped.hole([b"a", b"b", b"c"]) == b"c"
    assert skipped.hole([b"a", b"b", b"c"], {b"c"}) is None
    assert (len(skipped), skipped.is_forgetful) == (1, False)


def test_what_was_forgotten_may_explain_anything() -> None:
    skipped = SkippedMessages(limit=1)
    assert not skipped
    for key in (b"a", b"b"):
        skipped.add(key)
    assert (len(skipped), skipped.is_forgetful) == (1, True)
    assert skipped.hole([b"z"]) is None


def test_a_pull_forgets_nothing() -> None:
    skipped = SkippedMessages()
    for number in range(5000):
        skipped.add(bytes([number // 256, number % 256]))
    assert (len(skipped), skipped.is_forgetful) == (5000, False)
    assert skipped.hole([b"z"]) == b"z"
