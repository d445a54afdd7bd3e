"""Connections and streams on both event loops: two ends of one process, joined by a pipe."""

from __future__ import annotations

import os
import socket
import threading

import anyio
import pytest

from gossiplog.errors import ConnectionLost, NetworkError, StreamRefused, StreamReset
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.network import Connection, Network, Stream, open_network
from tests.net.support import connect_pair

SYNC = "/canvas/v1/org.example.test/sync"
PUSH = "/canvas/v1/org.example.test/push"
PROTOCOLS = [PUSH, SYNC]

pytestmark = pytest.mark.anyio


async def open_pair(client: Connection, server: Connection, protocol: str = SYNC) -> tuple[Stream, Stream]:
    """A stream: the client's end, and the server's."""
    ours = await client.open_stream(protocol)
    accepted, theirs = await server.accept()
    assert accepted == theirs.protocol == ours.protocol == protocol
    return ours, theirs


async def receive_all(stream: Stream) -> bytes:
    parts = []
    while part := await stream.receive():
        parts.append(part)
    return b"".join(parts)


async def test_both_sides_open_streams_and_send(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    for ours, theirs in (await open_pair(client, server, PUSH), await open_pair(server, client, SYNC)):
        await ours.send(b"question")
        assert await theirs.receive() == b"question"
        await theirs.send(b"answer")
        await theirs.aclose()
        assert await receive_all(ours) == b"answer"
        await ours.aclose()
    assert network.counts()["streams"] == 4
    assert network.counts()["violations"] == 0


async def test_large_data_arrives_whole_while_both_send(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, theirs = await open_pair(client, server)
    data = os.urandom(3_000_000)
    received: dict[Stream, bytes] = {}

    async def receive(stream: Stream) -> None:
        received[stream] = b""
        while len(received[stream]) < len(data):
            received[stream] += await stream.receive()

    async with anyio.create_task_group() as tasks:
        for stream in (ours, theirs):
            tasks.start_soon(stream.send, data)
            tasks.start_soon(receive, stream)
    assert received == {ours: data, theirs: data}


async def test_a_slow_reader_holds_up_its_own_stream_alone(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    slow, unread = await open_pair(client, server)
    quick, read = await open_pair(client, server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow.send, bytes(1_000_000))
        for index in range(100):
            await quick.send(b"%03d" % index)
            assert await read.receive() == b"%03d" % index
        assert len(await unread.receive(10)) == 10
        tasks.cancel_scope.cancel()
    with pytest.raises(StreamReset, match="cancelled halfway"):
        await slow.send(b"more")
    with pytest.raises(StreamReset):
        await receive_all(unread)


async def test_a_cancelled_receive_loses_nothing(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, theirs = await open_pair(client, server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(theirs.receive)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    await ours.send(b"kept")
    assert await theirs.receive(1) == b"k"
    assert await theirs.receive() == b"ept"


async def test_two_receivers_of_one_stream_are_an_error(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, _ = await open_pair(client, server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ours.receive)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await ours.receive()
        tasks.cancel_scope.cancel()


async def test_a_protocol_that_is_not_offered(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    with pytest.raises(StreamRefused, match=r"no stream for /other/1: the peer does not offer the protocol"):
        await client.open_stream("/other/1")
    with pytest.raises(NetworkError, match='"other" is not the name of a protocol'):
        await client.open_stream("other")
    await open_pair(client, server)


async def test_a_reset_reaches_the_peer(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, theirs = await open_pair(client, server)
    await ours.send(b"begun")
    assert await theirs.receive() == b"begun"
    ours.reset()
    with pytest.raises(StreamReset, match="the peer reset the stream"):
        await theirs.receive()
    with pytest.raises(StreamReset, match="this side reset the stream"):
        await ours.receive()


async def test_an_exception_resets_and_a_good_end_closes(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, theirs = await open_pair(client, server)
    async with ours:
        await ours.send(b"good")
    assert await receive_all(theirs) == b"good"
    ours, theirs = await open_pair(client, server)
    with pytest.raises(ZeroDivisionError):
        async with ours:
            raise ZeroDivisionError
    with pytest.raises(StreamReset):
        await theirs.receive()


async def test_a_reset_wakes_this_sides_own_receiver(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, _ = await open_pair(client, server)

    async def receive() -> None:
        with pytest.raises(StreamReset, match="this side"):
            await ours.receive()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        ours.reset()


async def test_closing_ends_both_sides_and_delivers_what_was_sent(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, theirs = await open_pair(client, server)
    await ours.send(b"last words")
    await client.aclose()
    assert await theirs.receive() == b"last words"
    with pytest.raises(ConnectionLost, match="the peer closed the connection") as lost:
        await theirs.receive()
    assert lost.value.cause == "remote"
    closed = await server.wait_closed()
    assert (closed.cause, closed.reason) == ("remote", "the peer closed the connection")
    assert client.closed is not None
    assert client.closed.cause == "local"
    assert [stream async for stream in server] == []
    for connection in (client, server):
        with pytest.raises(ConnectionLost):
            await connection.open_stream(SYNC)


async def test_streams_opened_before_the_end_are_accepted_after_it(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    stream = await client.open_stream(PUSH)
    await stream.send(b"hello")
    await client.aclose()
    await server.wait_closed()
    ((protocol, inbound),) = [accepted async for accepted in server]
    assert protocol == PUSH
    assert await inbound.receive() == b"hello"
    await server.aclose()


async def test_a_violation_names_the_peer(network: Network) -> None:
    server = network.attach(PROTOCOLS, client=False)
    await server.feed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    closed = await server.wait_closed()
    assert closed.cause == "violation"
    assert "no yamux frame" in closed.reason
    assert network.counts()["violations"] == 1
    with pytest.raises(ConnectionLost) as lost:
        await server.accept()
    assert lost.value.cause == "violation"


async def test_bytes_that_stop_in_a_frame_blame_nobody(network: Network) -> None:
    server = network.attach(PROTOCOLS, client=False)
    await server.feed(bytes([0, 1, 0]))
    server.feed_eof()
    closed = await server.wait_closed()
    assert closed.cause == "transport"
    assert "in the middle of a yamux frame" in closed.reason


async def test_a_pipe_says_farewell_and_ends(network: Network) -> None:
    server = network.attach(PROTOCOLS, client=False)
    server.close()
    sent = b""
    while part := await server.drain(5):
        sent += part
    assert sent.endswith(bytes([0, 3, *[0] * 10]))
    assert (await server.wait_closed()).cause == "local"


async def test_a_pipe_that_nobody_drains_is_closed_in_time() -> None:
    async with open_network(Limits(closing_seconds=0.01)) as network, network.attach(PROTOCOLS, client=False) as server:
        server.close()
        assert (await server.wait_closed()).cause == "local"


async def test_a_full_pipe_makes_its_feeder_wait(network: Network) -> None:
    client, server = network.attach(PROTOCOLS, client=True), network.attach(PROTOCOLS, client=False)
    # A client that nobody feeds answers no ping; a server that nobody drains stops reading.
    pings = b"".join(bytes([0, 2, 0, 1, 0, 0, 0, 0]) + index.to_bytes(4) for index in range(50_000))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.feed, pings)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    client.feed_eof()
    assert (await client.wait_closed()).cause == "transport"


async def test_opening_fails_with_the_connection(network: Network) -> None:
    client = network.attach([], client=True)

    async def open_in_vain() -> None:
        with pytest.raises(ConnectionLost, match="no yamux frame") as lost:
            await client.open_stream(SYNC)
        assert lost.value.cause == "violation"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_in_vain)
        await anyio.wait_all_tasks_blocked()
        await client.feed(b"no frame, this")
    assert client._streams == {}


async def test_opening_is_cancelled_cleanly(network: Network) -> None:
    client = network.attach([], client=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.open_stream, SYNC)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert client._streams == {}


async def test_a_hub_that_is_not_there(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"ws://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConnectionLost, match=f"{url} cannot be reached") as lost:
        await network.dial(url, PROTOCOLS)
    assert lost.value.cause == "transport"
    for wrong in ("http://localhost", "localhost:8000"):
        with pytest.raises(NetworkError, match="expected something like ws://localhost:8000"):
            await network.dial(wrong, PROTOCOLS)
    assert network._connections == {}


async def test_dialling_is_cancelled_cleanly(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"ws://127.0.0.1:{server.getsockname()[1]}"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(network.dial, url, PROTOCOLS)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert network._connections == {}


async def test_limits_are_named() -> None:
    async with open_network(Limits(connections=2, streams=1)) as small:
        client, server = connect_pair(small, PROTOCOLS)
        await open_pair(client, server)
        with pytest.raises(NetworkError, match="1 streams are open on the connection"):
            await client.open_stream(SYNC)
        with pytest.raises(NetworkError, match="the network has its 2 connections"):
            small.attach(PROTOCOLS, client=True)


async def test_what_a_peer_does_in_vain_is_told(network: Network) -> None:
    told: list[tuple[str, int, str]] = []

    def tell(kind: str, count: int, text: str) -> None:
        told.append((kind, count, text))

    client, server = connect_pair(network, PROTOCOLS)
    for _ in range(2):
        with pytest.raises(StreamRefused):
            await client.open_stream("/other/1")
    # What came before somebody asked is not lost.
    await open_pair(client, server)
    server.watch(tell)
    with pytest.raises(StreamRefused):
        await client.open_stream("/other/1")
    await open_pair(client, server)
    offered = f"it opened a stream and spoke none of the protocols offered here: {', '.join(PROTOCOLS)}"
    assert {(kind, text) for kind, _, text in told} == {("streams_refused", offered)}
    assert sum(count for _, count, _ in told) == network.counts()["streams_refused"] == 3


async def test_what_is_held_for_a_stream_counts_until_it_is_let_go(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    _, theirs = await open_pair(client, server)
    theirs.reserve_memory(1000)
    theirs.reserve_memory(500)
    assert network.held() == 500
    theirs.reset()
    theirs.reserve_memory(1000)
    assert network.held() == 0


async def test_counts_outlive_the_network() -> None:
    async with open_network() as network:
        network.attach(PROTOCOLS, client=False)
    assert network.counts()["connections"] == 1
    assert network.held() == 0


async def test_an_exception_leaves_the_network_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_network():
            raise ZeroDivisionError


async def test_an_exception_comes_out_although_the_scope_around_is_cancelled() -> None:
    async def block(scope: anyio.CancelScope) -> None:
        async with open_network():
            scope.cancel()
            raise ZeroDivisionError

    with anyio.CancelScope() as scope, pytest.raises(ZeroDivisionError):
        await block(scope)
    with anyio.CancelScope() as scope:
        async with open_network():
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_leaving_the_network_wakes_everybody() -> None:
    errors: list[Exception] = []

    async def watch(stream: Stream) -> None:
        try:
            await stream.receive()
        except StreamReset as error:
            errors.append(error)

    async def wait(connection: Connection) -> None:
        try:
            await connection.accept()
        except ConnectionLost as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks, open_network() as network:
        client, server = connect_pair(network, PROTOCOLS)
        ours, theirs = await open_pair(client, server)
        tasks.start_soon(watch, ours)
        tasks.start_soon(watch, theirs)
        tasks.start_soon(wait, server)
        await anyio.wait_all_tasks_blocked()
    assert len(errors) == 3
    assert {str(error) for error in errors} == {"the network was stopped"}
    with pytest.raises(ConnectionLost):
        await client.accept()


def resources() -> tuple[int, int]:
    """Open file descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


@pytest.mark.slow
async def test_starting_and_stopping_leaves_nothing_behind() -> None:
    async def use() -> None:
        async with open_network() as network, open_network() as another:
            for one in (network, another):
                client, server = connect_pair(one, PROTOCOLS)
                ours, theirs = await open_pair(client, server)
                await ours.send(b"x")
                assert await theirs.receive() == b"x"

    await use()
    before = resources()
    for _ in range(50):
        await use()
    # Threads that end by themselves take their time. Less is possible: one of an earlier test may end meanwhile.
    with anyio.fail_after(60):
        while any(now > then for now, then in zip(resources(), before, strict=True)):
            await anyio.sleep(0.05)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_a_forked_process_is_told_to_start_its_own(network: Network) -> None:
    client, server = connect_pair(network, PROTOCOLS)
    ours, _ = await open_pair(client, server)
    core = network._core
    reading, writing = os.pipe()
    # The child has this thread alone: it makes no call that needs another, and leaves without ceremony.
    child = os.fork()
    if child == 0:
        told = 0
        calls = (core.poll, core.fileno, core.stop, core.counts, lambda: core.streams.read(ours._handle, 1))
        for call in calls:
            try:
                call()
            except NetworkError as error:
                told += "forked" in str(error)
        del core
        os.write(writing, b"%d of %d" % (told, len(calls)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"5 of 5"
    os.waitpid(child, 0)
    await ours.send(b"the parent goes on")


def test_a_network_can_be_dropped_without_stopping() -> None:
    from gossiplog import _core

    threads = threading.active_count()
    network = _core.Network(Limits())
    network.attach([SYNC], True)
    del network
    # One of an earlier test may end meanwhile.
    assert threading.active_count() <= threads
