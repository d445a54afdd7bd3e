"""Reads a stream of events as a browser does (HTML standard, "Server-sent events")."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sent:
    """An event of the stream."""

    id: str
    kind: str
    data: Any


def read(text: bytes) -> list[Sent]:
    """The events of a part of the stream that ends with a whole event."""
    assert text == b"" or text.endswith(b"\n\n")
    found = []
    for block in text.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append(Sent(fields["id"], fields["event"], json.loads(fields["data"])))
    return found
