"""Functions that Spark's workers run in tests.

A worker imports the module of a function, so this one imports nothing that workers do not need: with pytest and the
rest of a test's own module a worker would take a second to begin, and longer after each task, when it collects garbage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossiplog import SignedMessage


def trail(state: list[int] | None, message: SignedMessage) -> list[int]:
    """Depends on the order of all messages, and is not to be continued from any but the last."""
    return [*(state or []), message.payload["n"] * (len(state or []) + 1)][-5:]


def clocks_seen(state: list[int] | None, message: SignedMessage) -> list[int]:
    return [*(state or []), message.clock]


def largest(state: int | None, message: SignedMessage) -> int:
    number: int = message.payload["number"]
    return max(state or 0, number)


def last_and_count(state: Any, message: SignedMessage) -> Any:
    return {"count": (state["count"] if state else 0) + 1, "last": message.id}


def set_of_two(state: Any, message: SignedMessage) -> set[int]:
    """Return what dag-json cannot encode."""
    return {1, 2}


def double(number: int) -> int:
    return 2 * number
