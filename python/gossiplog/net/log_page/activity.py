"""What happened on a hub lately, as the page of its log shows it: syncs, refusals and failures, with the reasons.

It takes the hub's events, and keeps the last of them. Nothing here waits; the clock is the caller's.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from gossiplog.net import events
from gossiplog.reprs import escaped

MOST_SYNCS = 50
"""Syncs that are remembered, those that run among them."""
SERVED_SECONDS = 2.0
"""Within which answers to a peer count as one sync: for one it opens several streams, beside and after each other."""
MOST_TROUBLES = 100
"""Refusals and failures that are remembered."""
MOST_OF_EVENT = 10
"""Messages listed per event; the rest are counted."""
MOST_TEXT = 300
"""Characters of a name or a reason, which may be a stranger's."""

Kind: TypeAlias = Literal["message", "reported", "peer", "sync", "failure", "defect"]
"""What a trouble is about: a `message` that this side refuses, one that a peer `reported` as refused, a `peer` that was
dropped, a `sync` that failed, a `failure` of this side, or a `defect` of this package."""


def printable(text: str) -> str:
    """Return a text as the page shows it: short, what does not print escaped."""
    return escaped(text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…")


class Activity:
    """The last syncs and troubles.

    Args:
        clock: gives the time, in seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # By what makes two events be about one sync while it goes on: the peer, and who asks. The last changed is last.
        self._syncs: OrderedDict[tuple[str, int], dict[str, Any]] = OrderedDict()
        self._ended = 0
        self._troubles: deque[dict[str, Any]] = deque(maxlen=MOST_TROUBLES)

    @property
    def syncs(self) -> list[dict[str, Any]]:
        """The last syncs, the newest first, as values for JSON.

        Each has `at`, `peer`, `direction` ("in" for what this side asked for, "out" for what it was asked), `messages`,
        and `state`: "running", "complete" or "incomplete", for those that are asked for; and `error`.
        """
        return sorted(map(dict, reversed(self._syncs.values())), key=lambda sync: sync["at"], reverse=True)

    @property
    def troubles(self) -> list[dict[str, Any]]:
        """The last refusals and failures, the newest first, as values for JSON.

        Each has `at`, `kind`, `peer`, `what` and `reason`.
        """
        return [dict(trouble) for trouble in reversed(self._troubles)]

    def note(self, event: events.Event) -> None:
        """Take an event."""
        match event:
            case events.SyncStarted(peer):
                self._set_sync((peer, 0), peer, "in", messages=0, state="running", error="")
            case events.SyncProgressed(peer, inserted, _):
                self._set_sync((peer, 0), peer, "in", messages=inserted)
            case events.SyncEnded(peer, complete, inserted, refused, _, error, _):
                state = "complete" if complete else "incomplete"
                self._set_sync((peer, 0), peer, "in", messages=inserted, state=state, error=printable(error))
                self._end_sync((peer, 0))
                if error:
                    self._add("sync", peer, "", error)
                elif refused:
                    self._add("sync", peer, "", f"{refused} messages of it are refused, or descend from such")
            case events.Served(peer, messages):
                before = self._syncs.get((peer, 1))
                if before is not None and self._clock() - before["at"] > SERVED_SECONDS:
                    self._end_sync((peer, 1))
                    before = None
                count = 0 if before is None else before["messages"]
                self._set_sync((peer, 1), peer, "out", messages=count + messages)
            case events.MessagesRefused(refused, peer, more):
                self._add_messages("message", peer, ((id, error.reason) for id, error in refused), len(refused), more)
            case events.RefusalsReported(peer, reported, more):
                self._add_messages("reported", peer, reported, len(reported), more)
            case events.Rejected(peer, reason) | events.Disconnected(peer, reason, True):
                self._add("peer", peer, "", reason)
            case events.Failed(doing, error):
                self._add("failure", "", doing, str(error))
            case events.Defect(peer, doing, error, _):
                self._add("defect", peer, doing, f"{type(error).__name__}: {error}")
            case _:
                pass

    def _set_sync(self, key: tuple[str, int], peer: str, direction: str, **fields: Any) -> None:
        found = self._syncs.get(key)
        if found is None:
            found = self._syncs[key] = {"peer": printable(peer), "direction": direction, "state": "", "error": ""}
            if len(self._syncs) > MOST_SYNCS:
                self._syncs.popitem(last=False)
        found.update(fields, at=self._clock())
        self._syncs.move_to_end(key)

    def _end_sync(self, key: tuple[str, int]) -> None:
        """Have the next one of this peer's be another."""
        self._ended += 1
        self._syncs["", self._ended] = self._syncs.pop(key)

    def _add_messages(self, kind: Kind, peer: str, refused: Iterable[tuple[str, str]], count: int, more: int) -> None:
        for index, (id, reason) in enumerate(refused):
            if index == MOST_OF_EVENT:
                break
            self._add(kind, peer, id, reason)
        if (others := max(0, count - MOST_OF_EVENT) + more) > 0:
            self._add(kind, peer, "", f"{others} more messages like these")

    def _add(self, kind: Kind, peer: str, what: str, reason: str) -> None:
        self._troubles.append(
            {
                "at": self._clock(),
                "kind": kind,
                "peer": printable(peer),
                "what": printable(what),
                "reason": printable(reason),
            }
        )


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts above zero."""
    return {name: count for name, count in sorted(counts.items()) if count}
