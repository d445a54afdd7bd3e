"""A driver's own transactions on a log that cannot be written for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import anyio
import pytest

from gossiplog import Log
from gossiplog.errors import StorageError
from gossiplog.net.replicator import log_writer
from gossiplog.net.replicator.change_feed import ChangeFeed
from gossiplog.net.replicator.log_writer import LogWriter
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.replication.batches import VerifiedBatch

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


async def test_a_log_that_cannot_be_written_is_tried_again(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    replica, telemetry = opened().replica, Telemetry(None)
    workers = WorkerPool()
    feed = ChangeFeed(replica, workers, telemetry, lambda event: None, lambda: False, None)
    made = LogWriter(replica, workers, telemetry, feed)
    failures, tried = [StorageError("the disk is full")] * 3, 0
    write = replica.try_writing

    def fail() -> None:
        nonlocal tried
        tried += 1
        if failures:
            raise failures.pop()
        write()

    def insert(batch: VerifiedBatch) -> NoReturn:
        raise StorageError("the disk is full")

    monkeypatch.setattr(replica, "try_writing", fail)
    monkeypatch.setattr(replica, "insert", insert)
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.retry)
        await anyio.wait_all_tasks_blocked()
        assert (tried, telemetry.cannot_store) == (0, False)
        with pytest.raises(StorageError):
            await made.insert_values([b"a value"])
        assert telemetry.cannot_store
        while telemetry.cannot_store:
            await anyio.sleep(0)
        assert tried == 4
        tasks.cancel_scope.cancel()
