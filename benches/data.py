"""The histories that the benchmarks run on, made once and kept under `.bench`.

Each is a file of stored values, every one behind its length in four bytes. Keys, payloads and parents follow from the
seed alone, so a history is the same on every machine.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from gossiplog import core

TOPIC = "org.gossiplog.bench"
FOLDER = Path(__file__).parents[1] / ".bench"
AUTHORS = 100


def private_key(author: int) -> bytes:
    """The seed of an author's key pair."""
    return hashlib.sha256(b"gossiplog bench %d" % author).digest()


def rounds(count: int, widths: Iterator[int]) -> Iterator[bytes]:
    """A history in which the messages of a round name all messages of the round before as parents."""
    heads: list[str] = []
    made = 0
    clock = 0
    while made < count:
        clock += 1
        following = []
        for _ in range(min(next(widths), count - made)):
            payload = {"number": made, "text": f"message {made} of a benchmark, of about the usual length"}
            key, value = core.sign(TOPIC, clock, heads, payload, private_key(made % AUTHORS))
            following.append(core.encode_id(key))
            made += 1
            yield value
        heads = following


def mixed_widths() -> Iterator[int]:
    """One to three messages at once: concurrent authors who see one another after each."""
    choice = random.Random(1)
    while True:
        yield choice.choice((1, 1, 2, 3))


def constant_widths(width: int) -> Iterator[int]:
    """Always the same number of messages at once."""
    while True:
        yield width


def gossip(count: int) -> Iterator[bytes]:
    """A history by sixteen authors out of step: each message names its author's last one, and that of another."""
    choice = random.Random(4)
    tips: dict[int, tuple[int, str]] = {}
    for number in range(count):
        author = choice.randrange(16)
        parents = {tips[other] for other in (author, choice.randrange(16)) if other in tips}
        clock = 1 + max((clock for clock, _ in parents), default=0)
        payload = {"number": number, "text": f"message {number} of a benchmark, of about the usual length"}
        ids = sorted(id for _, id in parents)
        key, value = core.sign(TOPIC, clock, ids, payload, private_key(author))
        tips[author] = clock, core.encode_id(key)
        yield value


HISTORIES: dict[str, Callable[[int], Iterator[bytes]]] = {
    "mixed": lambda count: rounds(count, mixed_widths()),
    "chain": lambda count: rounds(count, constant_widths(1)),
    "braid": lambda count: rounds(count, constant_widths(16)),
    "gossip": gossip,
}


def history(name: str, count: int) -> list[bytes]:
    """The stored values of a history, in causal order.

    Args:
        name: `mixed` (one to three messages at once), `chain`, `braid` (sixteen at once, in step), or `gossip` (sixteen
            authors, not in step).
        count: how many messages.
    """
    path = FOLDER / f"{name}-{count}.values"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            for value in HISTORIES[name](count):
                file.write(struct.pack(">I", len(value)) + value)
        partial.rename(path)
    data = path.read_bytes()
    values = []
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from(">I", data, offset)
        values.append(data[offset + 4 : offset + 4 + length])
        offset += 4 + length
    return values
