"""The first inputs of `make fuzz-rust`, made of the vectors: `python -m tests.fuzzing.corpus FOLDER`."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import vectors
from tests.fuzzing.encodings import Encodings

#: The targets, and what they take before an input: a message its kind, what is cut how.
TARGETS: Mapping[str, Sequence[bytes]] = {
    "cbor": [b""],
    "json": [b""],
    "message": [b"\0", b"\1", b"\3"],
    "answer": [b""],
    "frames": [b"\1", b"\6"],
    "ledger": [b"\6"],
    "websocket": [b"\2", b"\3"],
}
_VECTORS = ("clocks", "http", "log", "messages", "normalized", "passing", "pubsub", "verdicts")
_LONGEST = 4096
_GENERATED = 500
#: Inputs of a target, about: more would take longer to read than they help.
_MOST = 2000


def inputs() -> Iterator[bytes]:
    """Yield the bytes and texts in the vectors, and some payloads of the generator."""
    for name in _VECTORS:
        yield from _collect(vectors.load(name))
    source = Encodings("corpus")
    for _ in range(_GENERATED):
        yield source.payload()


def _collect(value: Any) -> Iterator[bytes]:
    match value:
        case str():
            yield value.encode()
            with suppress(ValueError):
                yield bytes.fromhex(value)
        case dict():
            for item in value.values():
                yield from _collect(item)
        case list():
            for item in value:
                yield from _collect(item)


def write(folder: Path) -> None:
    """Write a folder of inputs for each target."""
    found = {data for data in inputs() if len(data) <= _LONGEST}
    for target, prefixes in TARGETS.items():
        own = folder / target
        own.mkdir(parents=True, exist_ok=True)
        for data in sorted(found)[:: max(1, len(found) // _MOST)]:
            for prefix in prefixes:
                whole = prefix + data
                (own / hashlib.sha256(whole).hexdigest()[:16]).write_bytes(whole)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
