"""What the docstrings of tests cite: lines of the checklists, as "Seed 002, 7 and 12", and rules of the protocol's
machines, as "Broadcast, 3". The machines' modules number their rules.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Rule: TypeAlias = tuple[str, int]
"""A document, and the number of a line or rule in it."""

MACHINES = {
    "Broadcast": "protocol/broadcast/machine.py",
    "Push": "protocol/push.py",
    "Refusals": "protocol/refusals.py",
    "Sync client": "protocol/sync/client.py",
    "Sync server": "protocol/sync/server.py",
}
"""The sources whose docstrings number the rules of a machine."""

_CITATION = re.compile(rf"(Seed \d{{3}}|{'|'.join(MACHINES)}),\s+((?:\d+(?:,\s+|\s+and\s+)?)+)")


def cited(docstring: str) -> set[Rule]:
    """Return the rules that a docstring cites."""
    return {
        (document, int(number))
        for document, numbers in _CITATION.findall(docstring)
        for number in re.findall(r"\d+", numbers)
    }


def numbered(text: str) -> list[int]:
    """Return the numbers of the lines of a document that begin with one."""
    return [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
