"""A hub behind the bundled server while strangers send and ask for what costs most: no callback of its event loop takes
long, what requests keep is within the limits, and cheap requests are answered."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from benches.attacks import ATTACKS, attack
from benches.attacks import TOPIC as ATTACKED_TOPIC
from gossiplog import Hub, Log, Signer, core
from gossiplog.errors import NetworkError
from gossiplog.message import PARENTS_OF_MANY_HEADS
from gossiplog.net.http.admission import Admission
from gossiplog.net.http.listener import Address
from gossiplog.net.http.server import serve
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.network import open_network
from gossiplog.protocol.push import Push
from gossiplog.protocol.wire import Protocols
from tests.forked import Forked
from tests.net.loops import LONGEST_CALLBACK, Callbacks, measured_callbacks
from tests.net.support import TOPIC, Heard

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

Open = Callable[..., Log]
LISTS = 2**20
"""In a payload, each a byte in the log, 3 in dag-json, and 64 as a Python object."""
LIMITS = Limits(peer_bytes=8 * 2**20, total_bytes=32 * 2**20)
PATIENCE = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def costly() -> bytes:
    """The stored value of a message with very many empty lists."""
    return costly_value(TOPIC)


@pytest.fixture(scope="module")
def costly_to_attacked() -> bytes:
    """The same of the topic that is attacked."""
    return costly_value(ATTACKED_TOPIC)


def costly_value(topic: str) -> bytes:
    _, value = Signer(bytes(32)).sign(topic, 1, [], [[]] * LISTS)
    return value


@asynccontextmanager
async def serving(hub: Hub, units: float = LONGEST_CALLBACK) -> AsyncIterator[tuple[Address, Callbacks]]:
    """Serve a hub; no callback takes longer than so many units of `tests.net.loops`."""
    async with hub, anyio.create_task_group() as tasks:
        address = await tasks.start(partial(serve, hub))
        with measured_callbacks() as callbacks:
            yield address, callbacks
        callbacks.assert_short(units)
        tasks.cancel_scope.cancel()


def ask(
    address: Address, path: str, body: bytes | None = None, media_type: str = "application/json"
) -> tuple[int, int]:
    """The status of an answer, and the length of its body."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE)
    connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    size = sum(map(len, iter(lambda: answer.read(2**16), b"")))
    connection.close()
    return answer.status, size


def hang_up(address: Address) -> None:
    """Asks for the messages, and is gone when the answer begins."""
    with socket.create_connection((address.host, address.port), PATIENCE) as client:
        client.sendall(b"GET /api/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(100)


async def test_readers_of_a_costly_message(opened: Open, costly: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened()
    log.insert(costly)
    hub, kept = Hub(log, limits=LIMITS), list[int]()
    resize = Admission.resize

    def noted(admission: Admission, reservation: object, size: int) -> None:
        resize(admission, reservation, size)  # type: ignore[arg-type]
        kept.append(admission.kept)

    monkeypatch.setattr(Admission, "resize", noted)

    async def read(address: Address) -> None:
        for _ in range(2):
            status, size = await to_thread.run_sync(ask, address, "/api/messages")
            assert status == 200
            assert size > 3 * LISTS
            await to_thread.run_sync(hang_up, address)

    async with serving(hub) as (address, _):
        async with anyio.create_task_group() as readers:
            for _ in range(4):
                readers.start_soon(read, address)
            for path in ("/api/clock", "/healthz", "/metrics", "/peers", "/api/connections"):
                assert (await to_thread.run_sync(ask, address, path))[0] == 200
        assert 0 < max(kept) <= LIMITS.request_bytes
        # The last to hang up is found out when its connection is.
        with anyio.fail_after(PATIENCE):
            while hub.counters.held:
                await anyio.sleep(0.01)


BODIES = {
    "lists": b"[" + b"[]," * (4 * 2**20 // 3 - 2) + b"[]]",
    "nested": b"[" * (4 * 2**20),
    "spaces": b" " * (4 * 2**20),
    "keys": b"{" + b",".join(b'"%d":0' % number for number in range(300_000)) + b"}",
    "escapes": b'"' + b"\\u0001" * (4 * 2**20 // 6 - 1) + b'"',
}


def body_of(**fields: object) -> bytes:
    body = {
        "signature": {"codec": "dag-cbor", "publicKey": "did:key:z6Mk", "signature": {"/": {"bytes": ""}}},
        "message": {"topic": TOPIC, "clock": 1, "parents": [], "payload": None},
    }
    for path, value in fields.items():
        part, _, name = path.partition("_")
        body[part][name] = value
    return json.dumps(body, separators=(",", ":")).encode()


# What is wrong with them is shown in the answer.
LONG = "\1" * 600_000
BODIES |= {
    "topic": body_of(message_topic=LONG),
    "codec": body_of(signature_codec=LONG),
    "author": body_of(signature_publicKey=LONG),
    "parent": body_of(message_parents=[LONG]),
    "repeated key": b'{"%b":0,"%b":0}' % (b"\xf3\xa0\x81\xbf" * 500_000, b"\xf3\xa0\x81\xbf" * 500_000),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_costly_bodies(opened: Open, body: bytes) -> None:
    """Reading them takes from 10 to 50 units, but for two, and what the event loop does for one takes less than one."""
    async with serving(Hub(opened(), limits=LIMITS), units=5.0) as (address, _):
        status, size = await to_thread.run_sync(ask, address, "/api/messages", body)
        assert status == 400
        assert size < 10_000


async def test_a_costly_message_that_is_posted(opened: Open, costly: bytes) -> None:
    """It is read once more for those who hear of new messages."""
    heard = Heard()
    body = core.MessageJson([costly], TOPIC, is_list=False).read(2**30)
    async with serving(Hub(opened(), limits=LIMITS, on_message=heard.message)) as (address, _):
        assert (await to_thread.run_sync(ask, address, "/api/messages", body))[0] == 201
        with anyio.fail_after(PATIENCE):
            (message,) = await heard.wait_for_messages(1)
        assert message.value == costly


async def test_very_many_heads(opened: Open, signer: Signer) -> None:
    log = opened()
    log.insert_many(signer.sign(TOPIC, 1, [], number)[1] for number in range(5_000))
    async with serving(Hub(log, limits=LIMITS)) as (address, _):
        status, size = await to_thread.run_sync(ask, address, "/api/clock")
    assert (status, size) == (
        200,
        len(json.dumps({"clock": 2, "parents": list(log.heads[-PARENTS_OF_MANY_HEADS:])}, separators=(",", ":"))),
    )


def push(address: Address, frames: bytes) -> None:
    """Pushes to a hub, from an event loop of this thread."""

    async def run() -> None:
        protocols = Protocols(TOPIC)
        async with open_network() as network:
            connection = await network.dial(address.url("ws"), protocols.all)
            stream = await connection.open_stream(protocols.push)
            # Until the hub has handled it all, or has dropped this peer for it.
            with suppress(NetworkError):
                await stream.send(frames)
                await stream.aclose()
                await connection.wait_closed()
            await connection.leave()

    asyncio.run(run())


def made(kind: str, signer: Signer) -> bytes:
    encoder = Push()
    missing = core.encode_id(core.encode_clock(1) + bytes(19))
    match kind:
        case "small":
            messages = [signer.sign(TOPIC, 1, [], number) for number in range(1_000)]
        case "orphans":
            messages = [signer.sign(TOPIC, 2, [missing], number) for number in range(1_000)]
        case "duplicates":
            messages = [signer.sign(TOPIC, 1, [], 0)] * 5_000
        case "garbage":
            messages = [(encode_key(number), b"x") for number in range(5_000)]
        case _:
            keys = [encode_key(number) for number in range(2_000)]
            return encoder.update(keys) * 5 + b"".join(encoder.update([key]) for key in keys)
    return b"".join(encoder.insert(key, value) for key, value in messages)


def encode_key(number: int) -> bytes:
    return core.encode_clock(1) + number.to_bytes(19)


@pytest.mark.parametrize("kind", ["small", "orphans", "duplicates", "garbage", "heads"])
async def test_what_is_pushed(opened: Open, signer: Signer, kind: str) -> None:
    frames = made(kind, signer)
    async with serving(Hub(opened(), limits=LIMITS)) as (address, _):
        await to_thread.run_sync(push, address, frames)


STEPS = 20
"""Of an attack: messages, requests or connections."""
FEW_STEPS = {"unsorted": 4, "whole_readers": 4, "readers": 4, "posts": 4, "stalled_readers": 0}
"""Of attacks that send or wait for megabytes, of which one lasts 8 s."""
ATTACK_SECONDS = 0.5
"""How long an attack goes on after its steps."""


@pytest.mark.parametrize("name", ATTACKS)
async def test_attacks_that_are_measured(opened: Open, costly_to_attacked: bytes, tmp_path: Path, name: str) -> None:
    """Those of `benches.attacks`, each from a process of its own, at the address that has no limits."""
    log = opened(topic=ATTACKED_TOPIC)
    log.insert(costly_to_attacked)
    report = tmp_path / "steps"
    async with serving(Hub(log)) as (address, _):
        process = Forked(anyio.run, attack, name, address.host, address.port, report)
        try:
            with anyio.fail_after(PATIENCE):
                while not report.exists() or int(report.read_text()) < FEW_STEPS.get(name, STEPS):
                    assert process.returncode is None
                    await anyio.sleep(0.05)
            await anyio.sleep(ATTACK_SECONDS)
            assert process.returncode is None
            assert (await to_thread.run_sync(ask, address, "/api/clock"))[0] == 200
        finally:
            process.kill()
            await to_thread.run_sync(process.communicate)
