"""The histories that the benchmarks run on. Keys, payloads and parents follow from the seed alone: equal everywhere."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator

from gossiplog import core

TOPIC = "org.gossiplog.bench"
AUTHORS = 100
_BRAID = 16


def private_key(author: int) -> bytes:
    """Return the seed of an author's key pair: 32 bytes."""
    return hashlib.sha256(b"gossiplog bench %d" % author).digest()


def payload(number: int) -> dict[str, object]:
    """Return what a message of the benchmarks says."""
    return {"number": number, "text": f"message {number} of a benchmark, of about the usual length"}


def history(name: str, count: int) -> Iterator[bytes]:
    """Return the stored values of a history, in causal order.

    Args:
        name: `mixed` (one to three messages at once), `chain`, `braid` (sixteen at once, in step), `gossip` (sixteen
            authors, not in step), or `roots` (messages without parents).
        count: how many messages.
    """
    return _HISTORIES[name](count)


def _rounds(count: int, widths: Iterator[int]) -> Iterator[bytes]:
    """Yield a history in which the messages of a round name all messages of the round before as parents."""
    heads: list[str] = []
    made = 0
    clock = 0
    while made < count:
        clock += 1
        following = []
        for _ in range(min(next(widths), count - made)):
            key, value = core.sign(TOPIC, clock, heads, payload(made), private_key(made % AUTHORS))
            following.append(core.encode_id(key))
            made += 1
            yield value
        heads = following


def _mixed_widths() -> Iterator[int]:
    """Yield one to three, the messages at once: concurrent authors who see one another after each."""
    choice = random.Random(1)
    while True:
        yield choice.choice((1, 1, 2, 3))


def _constant_widths(width: int) -> Iterator[int]:
    while True:
        yield width


def _gossip(count: int) -> Iterator[bytes]:
    """Yield a history of authors out of step: each message names its author's last one, and that of another."""
    choice = random.Random(4)
    tips: dict[int, tuple[int, str]] = {}
    for number in range(count):
        author = choice.randrange(_BRAID)
        parents = {tips[other] for other in (author, choice.randrange(_BRAID)) if other in tips}
        clock = 1 + max((clock for clock, _ in parents), default=0)
        ids = sorted(id for _, id in parents)
        key, value = core.sign(TOPIC, clock, ids, payload(number), private_key(author))
        tips[author] = clock, core.encode_id(key)
        yield value


_HISTORIES: dict[str, Callable[[int], Iterator[bytes]]] = {
    "mixed": lambda count: _rounds(count, _mixed_widths()),
    "chain": lambda count: _rounds(count, _constant_widths(1)),
    "braid": lambda count: _rounds(count, _constant_widths(_BRAID)),
    "gossip": _gossip,
    "roots": lambda count: _rounds(count, _constant_widths(count)),
}
