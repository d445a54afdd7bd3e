"""`gossiplog.rebase` and `gossiplog.repair` with a log that a hub or a peer has."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import gossiplog
from gossiplog import Access, ConnectionLost, Hub, Log, NetworkError, Peer, RebaseError, RefusedByPeer, Signer, Token
from gossiplog.net import client as client_module
from gossiplog.net import fetching
from tests.net.support import LISTEN, TOPIC, serving, until_longer

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SETTLED_SECONDS", 0.1)


def only_texts(payload: Any) -> None:
    if not isinstance(payload, str):
        raise TypeError(f"{payload} is no text")


def write(path: Path, signer: Signer) -> str:
    """One bad message, and 20 good ones that descend from it; the id of the bad one."""
    with gossiplog.open(path, TOPIC, signer=signer) as log:
        bad = log.append(5)
        log.append_many(f"good {number}" for number in range(20))
        return bad.id


def payloads(log: Log) -> list[Any]:
    return [message.payload for message in log.messages()]


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_the_way_back_to_a_hub(opened: Open, signer: Signer, other_signer: Signer, tmp_path: Path) -> None:
    path, theirs = tmp_path / "my log.db", opened(payload=only_texts, signer=other_signer)
    theirs.append("theirs")
    bad = write(path, signer)
    async with serving(Hub(theirs)) as url:
        with gossiplog.open(path) as log:
            async with gossiplog.connect(log, url) as client:
                with pytest.raises(RefusedByPeer) as error:
                    await client.synced()
        assert error.value.refused == ((bad, "its payload is refused: 5 is no text"),)
        # What the command of the error says.
        program, command, place, *options = shlex.split(error.value.command)
        assert (program, command, place) == ("gossiplog", "rebase", str(path))
        assert options == ["--onto", url, "--drop", bad]
        result = await anyio.to_thread.run_sync(partial(gossiplog.rebase, place, url, [bad], signer=signer))
        assert (len(result.signed), result.dropped, result.messages) == (20, 1, 21)
        with gossiplog.open(path, signer=signer) as log:
            async with gossiplog.connect(log, url) as client:
                await client.synced()
                log.append("more")
                await until_longer(theirs, 21)
            assert log.root == theirs.root
    assert payloads(theirs) == ["theirs", *(f"good {number}" for number in range(20)), "more"]


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_way_back_to_a_hub_with_a_token(opened: Open, signer: Signer, tmp_path: Path) -> None:
    path, theirs, token = tmp_path / "mine.db", opened(payload=only_texts), "a-token-0123456789"
    bad = write(path, signer)
    hub, file = Hub(theirs, access=Access(read_token=Token(token))), tmp_path / "my token"
    file.touch(0o600)
    file.write_text(token, encoding="utf-8")
    async with serving(hub) as url:
        with gossiplog.open(path) as log:
            for options, shown in [({"token": token}, "FILE"), ({"token_file": file}, f"'{file}'")]:
                async with gossiplog.connect(log, url, **options) as client:
                    with pytest.raises(RefusedByPeer) as error:
                        await client.synced()
                assert error.value.command == f"gossiplog rebase {path} --onto {url} --token-file {shown} --drop {bad}"
        call = partial(gossiplog.rebase, path, url, [bad], signer=signer)
        with pytest.raises(NetworkError, match="401"):
            await anyio.to_thread.run_sync(call)
        with pytest.raises(ValueError, match="both token and token_file"):
            await anyio.to_thread.run_sync(partial(call, token=token, token_file=file))
        result = await anyio.to_thread.run_sync(partial(call, token_file=file))
        assert len(result.signed) == 20


@pytest.mark.integration
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_way_back_to_a_peer(opened: Open, signer: Signer, tmp_path: Path) -> None:
    path, theirs = tmp_path / "mine.db", opened(payload=only_texts)
    bad = write(path, signer)
    async with Peer(theirs, listen=[LISTEN]) as peer:
        (address,) = peer.addresses
        with gossiplog.open(path) as log:
            async with Peer(log, listen=()) as ours:
                await ours.dial(address)
                with pytest.raises(RefusedByPeer) as error:
                    await ours.synced()
        assert error.value.command == f"gossiplog rebase {path} --onto {address} --drop {bad}"
        result = await anyio.to_thread.run_sync(partial(gossiplog.rebase, path, address, [bad], signer=signer))
        assert len(result.signed) == 20
        with gossiplog.open(path) as log:
            async with Peer(log, listen=()) as ours:
                await ours.dial(address)
                await ours.synced()
    assert payloads(theirs) == [f"good {number}" for number in range(20)]


def damage(path: Path, *sequences: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for sequence in sequences:
            connection.execute("UPDATE gossiplog_messages SET value = zeroblob(100) WHERE seq = ?", [sequence])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_hub_with_a_damaged_log_is_given_up(
    signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_STALLED_SECONDS", 0.2)
    path, theirs = tmp_path / "mine.db", tmp_path / "theirs.db"
    write(path, signer)
    write(theirs, signer)
    with gossiplog.open(theirs) as log:
        # The index covers all: the hub itself does not read the value.
        assert log.root.level > 0
        damage(theirs, 7)
        async with serving(Hub(log)) as url:
            with pytest.raises(NetworkError, match=f"{url} sent no message for 0.2 s, and its log differs"):
                await anyio.to_thread.run_sync(partial(gossiplog.rebase, path, url, signer=signer))
    assert {each.name for each in tmp_path.iterdir()} == {
        each.name for name in ("mine.db", "theirs.db") for each in tmp_path.glob(f"{name}*")
    }


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kind", ["hub", "peer"])
async def test_a_log_is_repaired_from_where_a_replica_is(
    opened: Open, signer: Signer, tmp_path: Path, kind: str
) -> None:
    """Also where the other side lacks messages of the log, and may not take them."""
    path, theirs = tmp_path / "mine.db", opened()
    write(path, signer)
    theirs.pull(path)
    with gossiplog.open(path, signer=signer) as log:
        log.append("only here")
        root = log.root
    damage(path, 7, 9)
    async with AsyncExitStack() as stack:
        if kind == "hub":
            hub = Hub(theirs, access=Access(write_token=Token("a-token-0123456789")))
            source = await stack.enter_async_context(serving(hub))
        else:
            peer = await stack.enter_async_context(Peer(theirs, listen=[LISTEN]))
            (source,) = peer.addresses
        result = await anyio.to_thread.run_sync(partial(gossiplog.repair, path, source))
    assert (result.fetched, result.moved, result.messages, result.root) == (2, 0, 22, root)
    with gossiplog.open(path) as log:
        log.verify()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kind", ["hub", "peer"])
@pytest.mark.parametrize("command", ["repair", "rebase"])
async def test_another_topic_ends_a_repair_and_a_rebase_at_once(
    opened: Open, signer: Signer, tmp_path: Path, kind: str, command: str
) -> None:
    path, theirs = tmp_path / "mine.db", opened(topic="org.example.another")
    write(path, signer)
    async with AsyncExitStack() as stack:
        if kind == "hub":
            source = await stack.enter_async_context(serving(Hub(theirs)))
        else:
            (source,) = (await stack.enter_async_context(Peer(theirs, listen=[LISTEN]))).addresses
        if command == "repair":
            damage(path, 7)
            call: Callable[[], object] = partial(gossiplog.repair, path, source)
        else:
            call = partial(gossiplog.rebase, path, source, signer=signer)
        names = f"serves the topic 'org.example.another'; this log's is '{TOPIC}'"
        with anyio.fail_after(fetching._STALLED_SECONDS / 2), pytest.raises(ConnectionLost, match=names) as error:
            await anyio.to_thread.run_sync(call)
    assert error.value.cause == "topic"
    assert {each.name for each in tmp_path.glob("mine.db*")} <= {"mine.db", "mine.db-count"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_hub_that_cannot_be_reached_changes_nothing(signer: Signer, tmp_path: Path, port: int) -> None:
    path = tmp_path / "mine.db"
    write(path, signer)
    with pytest.raises(NetworkError):
        await anyio.to_thread.run_sync(partial(gossiplog.rebase, path, f"ws://127.0.0.1:{port}", signer=signer))
    assert {each.name for each in tmp_path.iterdir()} == {"mine.db", "mine.db-count"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_peers_that_hold_what_was_dropped_bring_it_back(opened: Open, signer: Signer, tmp_path: Path) -> None:
    path, theirs, holder = tmp_path / "mine.db", opened(), opened()
    bad = write(path, signer)
    holder.pull(path)
    await anyio.to_thread.run_sync(partial(gossiplog.rebase, path, theirs, [bad], signer=signer))
    with gossiplog.open(path) as log:
        assert len(log) == 20
        log.pull(holder)
        assert bad in log
        assert len(log) == 41


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_log_onto_itself(signer: Signer, tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    bad = write(path, signer)
    assert (await anyio.to_thread.run_sync(partial(gossiplog.rebase, path, path, signer=signer))).former is None
    with pytest.raises(RebaseError, match="the target has message"):
        await anyio.to_thread.run_sync(partial(gossiplog.rebase, path, path, [bad], signer=signer))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_key_file_is_no_signer(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a signer is a gossiplog"):
        gossiplog.rebase(tmp_path / "mine.db", tmp_path / "target.db", signer=["key"])  # type: ignore[list-item]


def test_another_log_may_be_one_for_coroutines(tmp_path: Path, opened: Open, signer: Signer) -> None:
    """`rebase` named `pull`, which nobody had called, and `repair` of a sound log took anything."""
    write(tmp_path / "log.db", signer)
    other = gossiplog.AsyncLog(opened())
    assert gossiplog.rebase(tmp_path / "log.db", other, signer=signer, dry_run=True).kept == 21
    assert gossiplog.repair(tmp_path / "log.db", other).messages == 21
    text = r"is 5: expected a log, or the path, URL or multiaddr of one$"
    with pytest.raises(TypeError, match=f"^onto {text}"):
        gossiplog.rebase(tmp_path / "log.db", 5, signer=signer)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"^source {text}"):
        gossiplog.repair(tmp_path / "log.db", 5)  # type: ignore[arg-type]
