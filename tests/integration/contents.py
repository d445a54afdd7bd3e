"""What logs hold in the tests between implementations: each writes itself into any replica."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gossiplog import CID
from tests import vectors
from tests.integration.replica import Replica

# Every kind of the IPLD data model, at the edges of what JavaScript and dag-json tell apart.
PAYLOADS: list[Any] = [
    None,
    [False, True],
    [0, -1, 23, 24, 255, 256, 2**31, 2**32, 2**53 - 1, -(2**53) + 1],
    [2**53, -(2**53), 2**63, 2**64 - 1, -(2**64)],
    [0.5, -0.1, 1e300, 5e-324, 2.0**53, 2.0**53 + 2, 1e21, 123456789012345680000.0],
    ["", "text", "é", '\u2028\x7f\x00"\\', "\U0001f980", "\ue000"],
    [b"", bytes(range(256))],
    [CID.parse("QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n")],
    [CID.parse("bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy")],
    {"": 1, "b": 2, "aa": 3, "\ue000": 4, "\U0001f980": 5, "nested": {"list": [{}, [], [[]]]}},
    "x" * 100_000,
]


CONTENTS_TOPIC = "org.example.contents"
# The first number of a chain, found by trying.
FOUR_LEVELS_START = 890


def numbers(count: int, replica: Replica) -> None:
    """A chain."""
    replica.append_numbers(0, count)


def kinds(codec: str, replica: Replica) -> None:
    """Payloads of every kind, signed in one codec."""
    for payload in PAYLOADS:
        replica.append(payload, codec=codec)


def four_levels(replica: Replica) -> None:
    """A chain whose tree has four levels, as a thousand messages mostly have; its last clock takes two bytes.

    It has them under CONTENTS_TOPIC, signed by the first or second peer of a test or by its `signer`.
    """
    replica.append_numbers(FOUR_LEVELS_START, 128)
    assert replica.state().root.level == 3


def branches(replica: Replica) -> None:
    """Two branches, one of each codec, that meet; one more from the very first message; in the end two heads."""
    first = left = right = replica.append("first")
    for number in range(15):
        left = replica.append({"left": number}, parents=[left])
        right = replica.append({"right": number}, parents=[right], codec="dag-json")
    both = replica.append("both", parents=[left, right])
    replica.append("late", parents=[first])
    replica.append("all heads")
    replica.append("apart", parents=[both])
    replica.append("a second first", parents=[])
    replica.append("all heads again", parents=sorted([both, first]))


Content = Callable[[Replica], None]

CONTENTS: dict[str, Content] = {
    "nothing": partial(numbers, 0),
    "1 message": partial(numbers, 1),
    "127 messages": partial(numbers, 127),
    "128 messages": partial(numbers, 128),
    "four levels": four_levels,
    "branches": branches,
    "every kind in dag-cbor": partial(kinds, "dag-cbor"),
    "every kind in dag-json": partial(kinds, "dag-json"),
}

_VERDICTS = vectors.load("verdicts")
_ACCEPTED = {verdict["name"]: verdict["value"] for verdict in _VERDICTS["verdicts"] if verdict["accepted"]}

ALTERNATIVES_TOPIC: str = _VERDICTS["topic"]
# Stored values that canvas-js accepts, parents first; most of them are not canonical.
ALTERNATIVES = [bytes.fromhex(value) for value in (*_VERDICTS["before"], *_ACCEPTED.values())]
# Without those that canvas-js accepts into IndexedDB, but cannot read again there: maps with the key "/". While it
# holds one, it refuses most other messages, because it reads stored ones to insert them.
LEGIBLE_ALTERNATIVES = [
    bytes.fromhex(value)
    for value in (*_VERDICTS["before"], *(value for name, value in _ACCEPTED.items() if "/" not in name))
]
