"""The routes by which a hub or a peer is observed: `/metrics` for Prometheus, `/peers`, `/healthz` and `/readyz`.

The driver of the network counts in its own way, and hands out `NetworkCounters` when it is asked: nothing here is
updated while messages flow, and two of one process share nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata
from time import monotonic
from typing import Any, TypeAlias

import anyio
from anyio import to_thread
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gossiplog.errors import StorageError
from gossiplog.log import Log
from gossiplog.net.events import PeerInfo
from gossiplog.net.http.access import SCOPE_KEY, Allowed
from gossiplog.net.rate_limited_log import CERTIFICATE_KEY, SERVER_KEY
from gossiplog.net.replicator.telemetry import BOUNDS, REFUSALS, Latency, NetworkCounters
from gossiplog.threads import run_in_thread

HEALTH_SECONDS = 5.0
"""How long the log may take to answer."""
HEALTH_MEMORY_SECONDS = 1.0
"""Seconds for which the result of a health check is kept, since anybody may ask, and often."""
HEALTH_PATHS = ("/healthz", "/readyz")

# The values of labels, as `NetworkCounters` describes them.
_SOURCES = ("append", "gossip", "push", "sync")
_REASONS = ("host", "origin", "rate", "token")
_RESULTS = ("complete", "failed")
_ERRORS = ("CorruptLog", "NetworkError", "StorageError")
_DEFECTS = ("broadcast", "connection", "gossip", "push", "refusals", "serving", "storing", "sync")
_LATENCIES = ("storing", "sync", "validation")
# As the bundled server counts them: `connections`, `listener` and `uvicorn_internals`.
_DROPS = (
    "bad_handshakes",
    "bad_requests",
    "no_descriptors",
    "no_request",
    "server_errors",
    "too_many_connections",
    "too_many_from_address",
    "too_many_parts",
    "unread",
)

_Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
Peers: TypeAlias = Callable[[], Sequence[PeerInfo]]
"""Gives the peers that are connected now."""


def metric_routes(
    log: Log, counters: Callable[[], NetworkCounters], peers: Peers, unready: Callable[[], str]
) -> list[Route]:
    """Make the routes `/metrics`, `/healthz`, `/readyz` and `/peers`.

    Callers without the right to read (`gossiplog.net.http.access.Allowed`) get the status, and of a failure its kind.

    Args:
        log: it is used in worker threads only.
        counters: gives the hub or the peer as it is now; called on the event loop.
        peers: gives those that are connected; likewise.
        unready: gives why `/readyz` answers 503; "" if it does not; called on the event loop.
    """
    check = _HealthCheck(log)

    async def metrics(request: Request) -> Response:
        found = counters()
        try:
            messages = await _in_time(lambda: len(log))
        except StorageError:
            # The rest is worth more when the log fails, which its missing size shows.
            messages = None
        scope = request.scope
        snapshot = _Snapshot(found, messages, scope.get(SERVER_KEY, {}), scope.get(CERTIFICATE_KEY))
        # It reads files: the version's, and the system's about the process.
        return Response(await run_in_thread(snapshot.exposition), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def may_read(request: Request) -> bool:
        allowed: Allowed | None = request.scope.get(SCOPE_KEY)
        return allowed is None or allowed.read

    async def health(request: Request) -> Response:
        messages = await check.run()
        if messages is None:
            return JSONResponse({"error": "the log does not answer"}, 503)
        return JSONResponse({"status": "ok", **({"messages": messages} if may_read(request) else {})})

    async def readiness(request: Request) -> Response:
        if reason := unready():
            # What follows the colon may name messages and files.
            return JSONResponse({"error": reason if may_read(request) else reason.partition(":")[0]}, 503)
        return await health(request)

    async def connected(request: Request) -> Response:
        return JSONResponse([peer_json(peer) for peer in peers()])

    return [
        Route("/metrics", metrics),
        Route("/healthz", health),
        Route("/readyz", readiness),
        Route("/peers", connected),
    ]


def peer_json(info: PeerInfo) -> dict[str, Any]:
    """Return `peer`, `kind` and `replicates`, and of a peer of a mesh all but the protocols."""
    found = {"peer": info.name, **asdict(info)}
    shown = found.keys() - {"name", "protocols"} if info.kind == "mesh" else {"peer", "kind", "replicates"}
    return {name: value for name, value in found.items() if name in shown}


class _HealthCheck:
    """Checks whether a log answers, once for all callers that ask meanwhile."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._found: int | None = None
        self._holds_until = -math.inf
        self._looking: anyio.Event | None = None

    async def run(self) -> int | None:
        """Return how many messages the log holds, or held a moment ago; None if it does not answer."""
        while monotonic() >= self._holds_until:
            if self._looking is not None:
                await self._looking.wait()
                continue
            self._looking = anyio.Event()
            try:
                self._found = await _in_time(lambda: len(self._log))
            except StorageError:
                self._found = None
            finally:
                self._looking.set()
                self._looking = None
            self._holds_until = monotonic() + HEALTH_MEMORY_SECONDS
        return self._found


async def _in_time(count: Callable[[], int]) -> int:
    """Return what a call counts in a log.

    Raises:
        StorageError: the log fails, or does not answer in time.
    """
    with anyio.move_on_after(HEALTH_SECONDS):
        # Abandoned when it hangs: the thread ends when the database does answer.
        return await to_thread.run_sync(count, abandon_on_cancel=True)
    raise StorageError(f"the log did not answer within {HEALTH_SECONDS:g} s")


class _Snapshot(Collector):
    def __init__(
        self, counters: NetworkCounters, messages: int | None, server: Mapping[str, int], expiry: float | None
    ) -> None:
        self._counters = counters
        self._messages = messages
        self._server = server
        self._expiry = expiry

    def exposition(self) -> bytes:
        """Return everything in the classic text format, which every scraper reads."""
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterable[_Family]:
        found = self._counters
        yield _gauge("gossiplog_build_info", "The version of this package.", "version", {_version(): 1})
        if self._expiry is not None:
            help = "When the server's certificate expires, in seconds since the epoch."
            yield GaugeMetricFamily("gossiplog_certificate_not_after_seconds", help, self._expiry)
        if self._messages is not None:
            yield GaugeMetricFamily("gossiplog_messages", "Messages in the log.", self._messages)
        yield GaugeMetricFamily("gossiplog_connections", "Peers that are connected.", found.connections)
        help = "Connections that stand, whether or not messages are exchanged over them."
        yield _gauge("gossiplog_open_connections", help, "kind", found.open_connections)
        help = "Connections that there may be."
        yield _gauge("gossiplog_connections_limit", help, "kind", found.connection_limits)
        yield CounterMetricFamily("gossiplog_connected", "Peers that have connected.", found.connected)
        yield CounterMetricFamily("gossiplog_dropped_peers", "Peers that broke a rule.", found.dropped)
        refused = _zeros(REFUSALS, found.refused_connections)
        help = "WebSockets and connections of peers that were refused."
        yield _counter("gossiplog_refused_connections", help, "reason", refused)
        help = "Connections to clients and peers whose log has another topic."
        yield CounterMetricFamily("gossiplog_other_topics", help, found.other_topics)
        received, sent = found.bytes_received, found.bytes_sent
        yield CounterMetricFamily("gossiplog_received_bytes", "Bytes that peers sent.", received)
        yield CounterMetricFamily("gossiplog_sent_bytes", "Bytes that were sent to peers.", sent)
        yield _counter(
            "gossiplog_inserted_messages",
            "Messages that were new to the log.",
            "source",
            _zeros(_SOURCES, found.inserted),
        )
        requests = "HTTP requests that were refused."
        yield _counter("gossiplog_refused_requests", requests, "reason", _zeros(_REASONS, found.refused_requests))
        dropped = {"orphan": found.orphans, "invalid": found.invalid, "refused": found.refused}
        yield _counter("gossiplog_dropped_messages", "Messages that were not inserted.", "reason", dropped)
        help = "Messages of this log that peers say they refuse."
        yield CounterMetricFamily("gossiplog_reported_refusals", help, found.reported)
        yield _counter("gossiplog_syncs", "Syncs that have ended.", "result", _zeros(_RESULTS, found.syncs))
        yield _counter("gossiplog_errors", "Errors.", "kind", _zeros(_ERRORS, found.errors))
        help = "Defects of this package that peers' input brought to light."
        yield _counter("gossiplog_defects", help, "kind", _zeros(_DEFECTS, found.defects))
        yield GaugeMetricFamily("gossiplog_held_bytes", "Bytes that are kept in memory for peers.", found.held)
        yield GaugeMetricFamily("gossiplog_mesh_peers", "Peers with whom gossip is exchanged directly.", found.mesh)
        latencies = {**dict.fromkeys(_LATENCIES, Latency()), **found.latencies}
        yield _histogram("gossiplog_latency_seconds", "How long things took.", latencies)
        help = "Connections and streams, and failed attempts of peers, and limits that they exceeded."
        yield _counter("gossiplog_network", help, "event", found.network)
        help = "Connections that the bundled server has dropped."
        yield _counter("gossiplog_server_dropped_connections", help, "reason", _zeros(_DROPS, self._server))


@cache
def _version() -> str:
    return metadata.version("gossiplog")


def _histogram(name: str, help: str, latencies: Mapping[str, Latency]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, help, labels=["kind"])
    for kind, latency in sorted(latencies.items()):
        bounds = [*map(str, BOUNDS), "+Inf"]
        family.add_metric([kind], list(zip(bounds, latency.counts, strict=True)), latency.seconds)
    return family


def _gauge(name: str, help: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help, labels=[label])
    for value, number in sorted(values.items()):
        family.add_metric([value], number)
    return family


def _zeros(labels: Iterable[str], values: Mapping[str, int]) -> Mapping[str, int]:
    """Return values with a zero for what has not happened: `increase()` of PromQL misses the first event otherwise."""
    return {**dict.fromkeys(labels, 0), **values}


def _counter(name: str, help: str, label: str, values: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family
