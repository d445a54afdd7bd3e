"""The server of a sync within one process: a log that names its own damage."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gossiplog import core
from gossiplog.errors import CorruptLog, CorruptSource
from gossiplog.log.reading import raising_corrupt_log
from gossiplog.log.state import Snapshot
from gossiplog.protocol.sync import Server, SyncServerConfig


class LogServer:
    """Serve a log to another one of this process. What is damaged in it raises CorruptSource, with the reason.

    What can be answered before that is answered: the client has it when this raises.

    Args:
        snapshot: takes one of the log.
        config: the limits under which it serves.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], config: SyncServerConfig | None) -> None:
        try:
            taken = snapshot()
            served = _ServedUpToDamage(taken.storage, taken.state)
            # One answer at a time: where the next one raises, those before it are not lost.
            one = replace(config or SyncServerConfig(), output=1)
            self._server = Server(served, now=time.monotonic(), config=one)
        except CorruptLog as error:
            raise CorruptSource(error.problems) from error

    def receive(self, data: bytes, now: float) -> bytes:
        """As `Server.receive`."""
        try:
            with raising_corrupt_log:
                return self._server.receive(data, now)
        except CorruptLog as error:
            raise CorruptSource(error.problems) from error


class CompleteSnapshot(Snapshot):
    """A snapshot that knows of its own damage: a value that its tree lists and that is not there was lost."""

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        """As `Snapshot.values`.

        Raises:
            CorruptLog: a value is missing although the tree has its key.
        """
        try:
            return super().values(keys, limit)
        except KeyError as error:
            (key,) = error.args
            if self.leaves(key, key + b"\0", 1):
                raise CorruptLog([f"message {core.encode_id(key)} is in the tree, but is not stored"]) from None
            raise


class _ServedUpToDamage(CompleteSnapshot):
    """A snapshot that gives none of several values of which one is damaged: the client asks for fewer of them then."""

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        """As `CompleteSnapshot.values`, but raise CorruptLog only where one value is asked for.

        The keys come from the leaves of the tree, so that one that is not found is damaged.
        """
        try:
            return super().values(keys, limit)
        except (CorruptLog, KeyError) as error:
            if len(keys) > 1:
                return None
            if isinstance(error, CorruptLog):
                raise
            id = core.encode_id(keys[0])
            raise CorruptLog([f"message {id} is in the tree, but is not found by its key"]) from None
