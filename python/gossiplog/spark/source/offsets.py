"""Offsets of streams: how far each log was read, in the form that Spark keeps in a checkpoint.

Spark has each offset in a file of the checkpoint, and the last hundred twice in the driver's memory, for the query's
progress. So the form is a short one: the logs of a folder are together, and a log that was not begun has no entry.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

from gossiplog.errors import StorageError
from gossiplog.storage import Storage

Offset: TypeAlias = dict[str, Any]
"""As JSON: `{"messages": 10, "logs": {"/data/": {"a.db": [10, "…", 0, "…"]}}, "turn": "/data/a.db"}`.

`messages` is the sum of what was read. A log has its sequence, its digest, its generation and its origin; at the end,
what is 0 or not known is left out, and former versions wrote no origin. `turn` is the log whose turn was the last one,
where a micro-batch had no room for all of them. Earlier versions wrote the logs alone, by their whole identities:
`{"/data/a.db": {"sequence": 10, "digest": "…", "generation": 0}}`, before that without a generation, and first of all a
plain integer, which is a sequence without a digest.
"""

_DIGEST_BYTES = 9
_ORIGIN_BYTES = 6
# Former versions wrote 16 bytes, as hexadecimal digits.
_FORMER_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a log was read.

    Attributes:
        sequence: of the last message; 0 where none was read.
        digest: of that message; None where a former version did not write it.
        generation: of the log.
        origin: from which the log has that message, and so the first ones up to it; None where that is not known.
    """

    sequence: int = 0
    digest: str | None = None
    generation: int = 0
    origin: str | None = None

    def is_of(self, value: bytes) -> bool:
        """Return whether this is the digest of a message with this value; a missing one is of any."""
        if self.digest is None:
            return True
        if len(self.digest) == 2 * _FORMER_DIGEST_BYTES:
            return self.digest == blake2b(value, digest_size=_FORMER_DIGEST_BYTES).hexdigest()
        return self.digest == digest(value)


NOTHING = Reached()
"""Of a log of which nothing was read."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """What an offset says.

    Attributes:
        logs: how far each was read, by its identity.
        turn: the log whose turn was the last one; "" before any had to wait.
    """

    logs: Mapping[str, Reached] = field(default_factory=dict)
    turn: str = ""

    def encode(self) -> Offset:
        """Return the offset, in which logs ascend by their identities."""
        folders: dict[str, dict[str, list[Any]]] = {}
        for log, reached in sorted(self.logs.items()):
            if reached.sequence:
                name = log[(end := log.rfind("/") + 1) :]
                listed = [reached.sequence, reached.digest, reached.generation, reached.origin]
                while not listed[-1]:
                    listed.pop()
                folders.setdefault(log[:end], {})[name] = listed
        offset: Offset = {"messages": sum(reached.sequence for reached in self.logs.values()), "logs": folders}
        return offset | {"turn": self.turn} if self.turn else offset


def decode(offset: object) -> StreamPosition:
    """Return what an offset says, of this or of a former version.

    Raises:
        StorageError: it is none, as in a checkpoint that is damaged or of another source.
    """
    try:
        if not isinstance(offset, dict):
            raise TypeError("it is no object")
        if "logs" not in offset:
            return StreamPosition({log: _former(reached) for log, reached in offset.items()})
        logs = {
            folder + name: _checked(*reached)
            for folder, names in offset["logs"].items()
            for name, reached in names.items()
        }
        turn = offset.get("turn", "")
        if not isinstance(turn, str):
            raise TypeError(f"the turn is {turn!r}")
        return StreamPosition(logs, turn)
    except (TypeError, KeyError, AttributeError) as error:
        raise StorageError(
            f"the query's checkpoint has an offset that is not one of logs, {str(offset)[:200]} ({error}): restore the"
            " checkpoint from a backup, or start the query with a new checkpointLocation and a new sink, which reads"
            " the logs from their start"
        ) from error


def digest(value: bytes) -> str:
    """Return the digest of a stored message."""
    return base64.urlsafe_b64encode(blake2b(value, digest_size=_DIGEST_BYTES).digest()).decode()


def origin(storage: Storage, sequence: int) -> str | None:
    """Return what tells the log from which another one has its first messages from all logs but its backups.

    Args:
        storage: of the log, open.
        sequence: of the last of these messages.

    Returns:
        The text; None where it is not known, as of a file that an earlier version wrote.
    """
    return base64.urlsafe_b64encode(storage.origin(sequence)[:_ORIGIN_BYTES]).decode() or None


def is_other_origin(one: str | None, other: str | None) -> bool:
    """Return whether the first messages of two logs are from different ones, as far as that is known."""
    return one is not None and other is not None and one != other


def _former(reached: Any) -> Reached:
    if isinstance(reached, int):
        return _checked(reached)
    return _checked(reached["sequence"], reached["digest"], reached.get("generation", 0))


def _checked(sequence: object, digest: object = None, generation: object = 0, origin: object = None) -> Reached:
    found = (sequence, digest, generation, origin)
    if not isinstance(sequence, int) or not isinstance(generation, int):
        raise TypeError(f"a log has {found!r}")
    if not isinstance(digest, str | None) or not isinstance(origin, str | None):
        raise TypeError(f"a log has {found!r}")
    if sequence < 0:
        raise TypeError(f"a log has the sequence {sequence}")
    return Reached(sequence, digest, generation, origin)
