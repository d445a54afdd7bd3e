"""Hubs, clients and peers: one type of `peers`, and callbacks."""

from __future__ import annotations

from typing import assert_type

import anyio
from pydantic import BaseModel

import gossiplog


class Note(BaseModel):
    text: str


texts: list[str] = []


def on_message(message: gossiplog.SignedMessage[Note]) -> None:
    texts.append(message.payload.text)


def on_event(event: gossiplog.Event) -> None:
    match event:
        case gossiplog.SyncEnded():
            assert_type(event.peer, str)
        case gossiplog.Committed():
            assert_type(event.inserted, int)
        case gossiplog.Connected() | gossiplog.Disconnected() | gossiplog.Subscribed() | gossiplog.Unsubscribed():
            assert_type(event.peer, str)
        case gossiplog.Defect() | gossiplog.Failed() | gossiplog.Grafted() | gossiplog.Pruned() | gossiplog.Served():
            pass
        case gossiplog.MessagesRefused() | gossiplog.RefusalsReported() | gossiplog.Rejected():
            pass
        case gossiplog.SyncStarted() | gossiplog.SyncProgressed():
            pass
        case _:
            # A later version may have more (docs/stability.md).
            pass


async def main() -> None:
    topic = "org.example.typing"
    signer = gossiplog.Signer.generate()
    with (
        gossiplog.open(":memory:", topic, payload=Note, signer=signer) as there,
        gossiplog.open(":memory:", topic, payload=Note) as here,
    ):
        there.append(Note(text="milk"))
        async with gossiplog.Hub(there, on_event=on_event) as hub, anyio.create_task_group() as tasks:
            address = await tasks.start(gossiplog.serve, hub)
            async with gossiplog.connect(here, address.url("ws"), on_message=on_message) as client:
                await client.synced()
                assert_type(client, gossiplog.Client)
                assert_type(client.peers, tuple[gossiplog.PeerInfo, ...])
                assert_type(hub.peers, tuple[gossiplog.PeerInfo, ...])
            tasks.cancel_scope.cancel()
        async with gossiplog.Peer(there) as peer:
            assert_type(peer.peers, tuple[gossiplog.PeerInfo, ...])
            assert_type(peer.addresses, tuple[str, ...])


anyio.run(main)
assert texts == ["milk"]
