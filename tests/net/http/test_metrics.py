from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Iterator, Mapping

import anyio
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

import gossiplog
from gossiplog import Log, MemoryStorage, Signer
from gossiplog.net.events import PeerInfo
from gossiplog.net.http import connections, listener, metrics, server, uvicorn_internals
from gossiplog.net.http.access import SCOPE_KEY, Allowed
from gossiplog.net.http.metrics import HEALTH_PATHS, metric_routes
from gossiplog.net.rate_limited_log import CERTIFICATE_KEY, SERVER_KEY
from gossiplog.net.replicator.telemetry import Latency, NetworkCounters
from tests.net.asgi import call
from tests.net.support import TOPIC

pytestmark = pytest.mark.anyio

COUNTERS = NetworkCounters(
    connections=3,
    connected=7,
    dropped=1,
    refused_connections={"limit": 14},
    open_connections={"hub": 16},
    connection_limits={"hub": 17, "mesh": 18},
    refused_requests={"token": 15},
    bytes_received=1000,
    bytes_sent=2000,
    inserted={"local": 1, "push": 2, "sync": 3},
    orphans=4,
    invalid=5,
    refused=6,
    syncs={"complete": 8, "failed": 1},
    errors={'odd "kind"\n': 2},
    defects={"push": 3},
    held=12,
    network={"streams": 20, "streams_refused": 3},
    mesh=6,
    latencies={"sync": Latency(tuple(range(1, 17)), 4.5)},
)

SERVER = {"unread": 5}

MESH = PeerInfo(
    "12D3KooW", "mesh", True, False, "/ip4/192.0.2.7/tcp/1", "gossiplog", ("/ping",), True, False, -1.5, None
)
PEERS = (MESH, PeerInfo("192.0.2.8:5000", "client", replicates=True, dialer=False))


@pytest.fixture
def log() -> Iterator[Log]:
    with gossiplog.open(MemoryStorage(), topic=TOPIC, signer=Signer(bytes(32))) as log:
        yield log


def app_of(log: Log, counters: NetworkCounters = COUNTERS) -> Starlette:
    return Starlette(routes=metric_routes(log, lambda: counters, lambda: PEERS, lambda: ""))


async def samples(
    log: Log, counters: NetworkCounters = COUNTERS, server: Mapping[str, int] = SERVER, expiry: float | None = 19.5
) -> dict[tuple[str, ...], float]:
    """What a scraper reads: name and labels, value."""
    app = app_of(log, counters)

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, SERVER_KEY: server, CERTIFICATE_KEY: expiry}, receive, send)

    answer = await call(served, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.body.decode()))
    assert all(family.documentation.endswith(".") for family in families if family.name.startswith("gossiplog"))
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


async def test_a_scraper_reads_everything(log: Log) -> None:
    log.append_many(range(9))
    found = await samples(log)
    assert found["gossiplog_messages",] == 9
    assert found["gossiplog_connections",] == 3
    assert found["gossiplog_connected_total",] == 7
    assert found["gossiplog_dropped_peers_total",] == 1
    assert found["gossiplog_refused_connections_total", "limit"] == 14
    assert found["gossiplog_refused_connections_total", "banned"] == 0
    assert found["gossiplog_open_connections", "hub"] == 16
    assert [found["gossiplog_connections_limit", kind] for kind in ("hub", "mesh")] == [17, 18]
    assert found["gossiplog_build_info", gossiplog.__version__] == 1
    assert found["gossiplog_certificate_not_after_seconds",] == 19.5
    assert found["gossiplog_refused_requests_total", "token"] == 15
    assert found["gossiplog_received_bytes_total",] == 1000
    assert found["gossiplog_sent_bytes_total",] == 2000
    assert [found["gossiplog_inserted_messages_total", source] for source in ("local", "push", "sync")] == [1, 2, 3]
    reasons = ("orphan", "invalid", "refused")
    assert [found["gossiplog_dropped_messages_total", reason] for reason in reasons] == [4, 5, 6]
    assert found["gossiplog_syncs_total", "complete"] == 8
    assert found["gossiplog_errors_total", 'odd "kind"\n'] == 2
    assert found["gossiplog_defects_total", "push"] == 3
    assert found["gossiplog_held_bytes",] == 12
    assert found["gossiplog_network_total", "streams"] == 20
    assert found["gossiplog_network_total", "streams_refused"] == 3
    assert found["gossiplog_mesh_peers",] == 6
    assert found["gossiplog_latency_seconds_bucket", "sync", "0.0025"] == 2
    assert found["gossiplog_latency_seconds_bucket", "sync", "+Inf"] == 16
    assert found["gossiplog_latency_seconds_count", "sync"] == 16
    assert found["gossiplog_latency_seconds_sum", "sync"] == 4.5
    assert found["gossiplog_server_dropped_connections_total", "unread"] == 5


def test_the_zeros_of_dropped_connections_are_all_kinds_of_the_server() -> None:
    source = "".join(map(inspect.getsource, (connections, listener, server, uvicorn_internals)))
    assert [kind for kind in metrics._DROPS if f'"{kind}"' not in source] == []
    assert set(re.findall(r'(?:\.note|_note|drop)\(\s*"(\w+)"', source)) <= set(metrics._DROPS)


async def test_a_hub_that_has_done_nothing(log: Log) -> None:
    found = {
        name: value
        for name, value in (await samples(log, NetworkCounters(), {}, None)).items()
        if name[0].startswith("goss")
    }
    assert found.pop(("gossiplog_build_info", gossiplog.__version__)) == 1
    assert set(found.values()) == {0}
    # What `increase` of PromQL compares the first event with.
    assert {("gossiplog_errors_total", "StorageError"), ("gossiplog_syncs_total", "failed")} <= found.keys()


async def test_the_peers_are_listed(log: Log) -> None:
    answer = await call(app_of(log), "/peers")
    mesh = {
        "peer": "12D3KooW",
        "kind": "mesh",
        "replicates": True,
        "dialer": False,
        "address": "/ip4/192.0.2.7/tcp/1",
        "agent": "gossiplog",
        "subscribed": True,
        "in_mesh": False,
        "score": -1.5,
        "rtt": None,
    }
    client = {"peer": "192.0.2.8:5000", "kind": "client", "replicates": True}
    assert (answer.status, json.loads(answer.body)) == (200, [mesh, client])


async def test_a_log_that_answers_is_healthy(log: Log) -> None:
    log.append("hi")
    answer = await call(app_of(log), "/healthz")
    assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok", "messages": 1})


async def test_who_may_not_read_learns_of_the_health_alone(log: Log) -> None:
    app = app_of(log)

    async def let_in(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, SCOPE_KEY: Allowed(read=False, write=False)}, receive, send)

    for path in HEALTH_PATHS:
        answer = await call(let_in, path)
        assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok"})


async def test_who_takes_no_clients_is_healthy_and_not_ready(log: Log) -> None:
    reason = "it is full"
    app = Starlette(routes=metric_routes(log, lambda: COUNTERS, lambda: PEERS, lambda: reason))
    answer = await call(app, "/readyz")
    assert (answer.status, answer.error) == (503, "it is full")
    assert (await call(app, "/healthz")).status == 200
    reason = ""
    answer = await call(app, "/readyz")
    assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok", "messages": 0})


async def test_a_log_is_asked_once_for_all_who_ask_meanwhile(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], 0
    release = threading.Event()

    def count(log: Log) -> int:
        nonlocal asked
        asked += 1
        release.wait()
        return asked

    monkeypatch.setattr(metrics, "monotonic", lambda: now[0])
    monkeypatch.setattr(Log, "__len__", count)
    app, found = app_of(log), []

    async def ask(path: str) -> None:
        found.append(json.loads((await call(app, path)).body).get("messages"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            # Who asked first may go away.
            first = anyio.CancelScope()

            async def give_up() -> None:
                with first:
                    await ask("/healthz")

            tasks.start_soon(give_up)
            while not asked:
                await anyio.sleep(0.001)
            for path in [*HEALTH_PATHS] * 10:
                tasks.start_soon(ask, path)
            await anyio.wait_all_tasks_blocked()
            first.cancel()
            release.set()
        assert found == [2] * 20
        now[0] += 0.99
        await ask("/healthz")
        now[0] += 0.01
        await ask("/healthz")
    assert found[20:] == [2, 3]


async def test_a_closed_log_is_not(log: Log) -> None:
    log.close()
    answer = await call(app_of(log), "/healthz")
    assert (answer.status, answer.error) == (503, "the log does not answer")
    assert ("gossiplog_messages",) not in await samples(log)


async def test_a_log_that_hangs_is_not(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "HEALTH_SECONDS", 0.01)
    release = threading.Event()
    monkeypatch.setattr(Log, "__len__", lambda self: release.wait() and 0)
    try:
        with anyio.fail_after(60):
            answer = await call(app_of(log), "/healthz")
        assert answer.status == 503
    finally:
        release.set()


async def test_files_are_read_on_a_thread(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, generate = list[int](), metrics.generate_latest

    def generate_latest(registry: CollectorRegistry) -> bytes:
        threads.append(threading.get_ident())
        return generate(registry)

    monkeypatch.setattr(metrics, "generate_latest", generate_latest)
    await samples(log)
    assert threading.get_ident() not in threads
    assert len(threads) == 1
