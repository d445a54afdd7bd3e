"""Spans for OpenTelemetry."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gossiplog import Log, Signer
from gossiplog.net import events
from gossiplog.net.replicator import tracing
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.tracing import span
from gossiplog.net.transport.network import Network
from tests.net.support import Heard, joined, until_equal

Open = Callable[..., Log]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("gossiplog"))
    yield exporter
    provider.shutdown()


@pytest.mark.anyio
async def test_syncs_and_batches_have_spans(
    network: Network, opened: Open, signer: Signer, spans: InMemorySpanExporter
) -> None:
    ours, theirs = opened(signer=signer), opened()
    ours.append_many(range(3))
    heard = Heard()
    with anyio.fail_after(60):
        async with Driver(ours) as client, Driver(theirs, on_event=heard) as server, joined(network, client, server):
            await heard.wait(events.SyncEnded)
            ours.append("pushed")
            await until_equal(ours, theirs)
            while len({found.name for found in spans.get_finished_spans()}) < 2:
                await anyio.sleep(0.01)
    found = {each.name: dict(each.attributes or {}) for each in spans.get_finished_spans()}
    assert found["gossiplog.sync"] == {"result": "finished", "messages": 3}
    assert found["gossiplog.store"] == {"messages": 1, "inserted": 1, "orphans": 0}


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    try:
        importlib.reload(tracing)
        with tracing.span("sync") as describe:
            assert describe({"messages": 1}) is None
    finally:
        monkeypatch.undo()
        importlib.reload(tracing)
    with span("sync") as describe:
        describe({})
