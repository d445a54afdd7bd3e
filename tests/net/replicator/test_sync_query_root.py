"""Asking for a root: peers that answer otherwise, or not at all."""

from __future__ import annotations

import anyio
import pytest

from gossiplog import core
from gossiplog.errors import NetworkError, ProtocolError
from gossiplog.net.replicator import sync
from gossiplog.net.transport.network import Connection, Network
from gossiplog.protocol import wire
from tests.net.support import connect_pair

pytestmark = pytest.mark.anyio

SYNC = "/canvas/v1/org.example.test/sync"
ROOT = core.Tree().root


@pytest.fixture
async def ends(network: Network) -> tuple[Connection, Connection]:
    return connect_pair(network, [SYNC])


async def ask(ends: tuple[Connection, Connection], answer: bytes | None) -> core.Node | None:
    """The root, from a peer that answers so; None leaves the stream open."""

    async def serve() -> None:
        _, stream = await ends[1].accept()
        if answer is not None:
            async with stream:
                await stream.send(answer)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        return await sync.query_root(ends[0], SYNC)


async def test_a_root_and_a_peer_that_is_busy(ends: tuple[Connection, Connection]) -> None:
    assert await ask(ends, wire.encode_answer(wire.Root(ROOT))) == ROOT
    assert await ask(ends, wire.encode_answer(wire.Abort(0))) is None


@pytest.mark.parametrize("answer", [b"\x03\xff\xff\xff", b"\xff" * 10, wire.encode_answer(wire.Found(None))])
async def test_what_is_no_answer(network: Network, answer: bytes) -> None:
    client, server = connect_pair(network, [SYNC])
    with pytest.RaisesGroup(ProtocolError):
        await ask((client, server), answer)


async def test_no_answer(ends: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(NetworkError, match="closed the stream without an answer")):
        await ask(ends, b"")
    monkeypatch.setattr(sync, "_ROOT_SECONDS", 0.05)
    with pytest.RaisesGroup(pytest.RaisesExc(NetworkError, match=r"did not send its root within 0\.05 s")):
        await ask(ends, None)
