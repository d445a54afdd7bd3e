"""What a dashboard's page may have a network do."""

from __future__ import annotations

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.schedule import AutoAppend


class NetworkControls:
    """The commands of a page, for a network (`gossiplog.dashboard.stream.Controls`). Peers are named as in events.

    Args:
        network: that is controlled.
        auto_append: what appends by itself, which has to run.
    """

    def __init__(self, network: LocalNetwork, auto_append: AutoAppend) -> None:
        self._network = network
        self._auto_append = auto_append

    async def append(self, peer: str) -> None:
        """Append a message at a peer.

        Raises:
            NetworkError: it holds no log, or is not there.
        """
        await self._network.append(self._network.member(peer))

    async def stop(self, peer: str) -> None:
        """Stop a peer, which keeps its log.

        Raises:
            NetworkError: it is not there.
        """
        await self._network.stop(self._network.member(peer))

    async def start(self, peer: str) -> None:
        """Start a peer that has stopped.

        Raises:
            NetworkError: it cannot be started, or is not there.
        """
        await self._network.start(self._network.member(peer))

    async def cut(self, peer: str, other: str) -> None:
        """Cut the connection of two peers, until `heal`.

        Raises:
            NetworkError: they are one, or not there.
        """
        await self._network.cut(self._network.member(peer), self._network.member(other))

    async def partition(self) -> None:
        """Part the network into two halves, until `heal`."""
        await self._network.partition()

    async def heal(self) -> None:
        """Undo all cuts and partitions."""
        await self._network.heal()

    async def add_peer(self) -> None:
        """Add a peer.

        Raises:
            NetworkError: there are as many as there may be, or it cannot be started.
        """
        await self._network.add_peer()

    async def auto_append(self, rate: float) -> None:
        """Append so many messages a second, at random peers; 0 ends it.

        Raises:
            NetworkError: a rate that cannot be.
        """
        try:
            self._auto_append.set_rate(rate)
        except ValueError as error:
            raise NetworkError(str(error)) from error
        self._network.report(dashboard_events.RateChanged(self._network.now(), rate))
