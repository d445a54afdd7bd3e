"""How soon messages of 300 bytes reach every node of py-libp2p's gossipsub: all nodes in one process, nothing verified.

Usage: python gossip.py NODES MESSAGES RATE
"""

from __future__ import annotations

import logging
import struct
import sys
import time
from contextlib import AsyncExitStack

import multiaddr
import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.tools.anyio_service import background_trio_service

TOPIC = "bench"
LENGTH = 300
# From one node on, those so many further on the ring.
DIALLED = (1, 2, 5)
FORMING = 6
# Without a delivery for so long, what is missing is lost.
PATIENCE = 5.0
HEADER = struct.Struct("<dI")


async def main(nodes: int, messages: int, rate: float) -> None:
    logging.disable(logging.CRITICAL)
    async with AsyncExitStack() as stack:
        members = []
        for _ in range(nodes):
            host = new_host(key_pair=create_new_key_pair())
            router = GossipSub(["/meshsub/1.1.0"], degree=6, degree_low=4, degree_high=12, heartbeat_interval=1)
            pubsub = Pubsub(host, router, strict_signing=False)
            await stack.enter_async_context(host.run(listen_addrs=[multiaddr.Multiaddr("/ip4/127.0.0.1/tcp/0")]))
            await stack.enter_async_context(background_trio_service(pubsub))
            await stack.enter_async_context(background_trio_service(router))
            await pubsub.wait_until_ready()
            members.append((host, pubsub))
        subscriptions = [await pubsub.subscribe(TOPIC) for _, pubsub in members]
        for number, (host, _) in enumerate(members):
            for step in DIALLED:
                other, _ = members[(number + step) % nodes]
                await host.connect(info_from_p2p_addr(other.get_addrs()[0]))
        await trio.sleep(FORMING)
        latencies: list[float] = []
        last = time.perf_counter()

        async def read(number: int) -> None:
            nonlocal last
            while True:
                message = await subscriptions[number].get()
                sent, author = HEADER.unpack_from(message.data)
                if author != number:
                    last = time.perf_counter()
                    latencies.append(last - sent)

        async with trio.open_nursery() as nursery:
            for number in range(nodes):
                nursery.start_soon(read, number)
            start = time.perf_counter()
            for number in range(messages):
                await trio.sleep(max(0.0, start + number / rate - time.perf_counter()))
                data = HEADER.pack(time.perf_counter(), number % nodes).ljust(LENGTH, b"\0")
                await members[number % nodes][1].publish(TOPIC, data)
            expected = messages * (nodes - 1)
            while len(latencies) < expected and time.perf_counter() - last < PATIENCE:
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        latencies.sort()
        p50, p95 = (1000 * latencies[int(share * len(latencies))] for share in (0.5, 0.95))
        print(
            f"{nodes} nodes, {messages} messages, {rate:g} a second: {len(latencies)} of {expected} deliveries,"
            f" p50 {p50:.1f} ms, p95 {p95:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
