"""canvas-js's hub aborts a sync after two seconds: over a slow line, and what it had not brought comes all the same.

What it was asked for by then it still answers, since its queue has no bound; Abort comes after that.
"""

from __future__ import annotations

from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

import gossiplog
from tests.integration.conftest import Start
from tests.integration.slow_line import slow_line

pytestmark = pytest.mark.integration

COUNT = 400
MISSING = 20
# Bytes of the nodes of this log's tree, about: neither line below carries them before an Abort.
TREE = 19_000
SMALL = 2_000  # more bytes than a root and what is cut short


@pytest.mark.parametrize(
    ("shape", "abort", "seconds"), [("scattered", {}, 2.0), ("all", {"abort_after": 250}, 0.25)], ids=["2 s", "250 ms"]
)
def test_each_stream_goes_on_where_the_one_before_was_aborted(
    start: Start, topic: str, shape: str, abort: dict[str, Any], seconds: float
) -> None:
    """Sync client, 7."""
    hub, client = start("javascript", **abort), start("asyncio")
    if shape == "all":
        hub.append_numbers(0, COUNT)
    else:
        client.append_numbers(0, COUNT)
        assert hub.insert(client.values()) == []
        for number, parent in enumerate(Random(1).sample(client.ids(), MISSING)):
            hub.append({"missing": number}, parents=[parent])
    with gossiplog.open(":memory:", topic) as whole, gossiplog.open(":memory:", topic) as before:
        whole.insert_many(hub.values())
        before.insert_many(client.values())
        once = before.pull(whole)
    bandwidth = TREE / 1.75 / seconds
    with slow_line(urlsplit(hub.listen()).port, bandwidth) as port:
        client.connect(f"ws://127.0.0.1:{port}")
        client.wait(count=len(hub.ids()))
        syncs = client.syncs_ended()
    assert client.ids() == hub.ids()
    aborted = [sync for sync in syncs if not sync.complete]
    assert aborted
    assert {sync.error for sync in aborted} == {"the stream was ended early"}
    # Of all that came, next to nothing came twice: so each stream went on where the one before was aborted.
    assert sum(sync.statistics.values for sync in syncs) == once.inserted
    assert sum(sync.statistics.bytes_received for sync in syncs) <= once.bytes_received + SMALL * len(syncs)
