"""What `gossiplog network` runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import anyio

from gossiplog.cli.output import Output, failure, fields_table, note, watching
from gossiplog.cli.stopping import until_stopped
from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.net.garbage import collect_rarely
from gossiplog.net.service import background
from gossiplog.reprs import counted
from gossiplog.testnet.connection_graph import measure_graph
from gossiplog.testnet.controls import NetworkControls
from gossiplog.testnet.network import LocalNetwork
from gossiplog.testnet.plan import NetworkPlan
from gossiplog.testnet.schedule import AutoAppend, Churn, part_for

if TYPE_CHECKING:
    from rich.table import Table

    from gossiplog.dashboard.recording import Recorder
    from gossiplog.net.http.listener import Address

_SEVERAL = 3
"""Connections from which on a peer is not at the mercy of one other."""
_SHAPES = {
    "mesh": "as a mesh",
    "hub": "a hub and its clients",
    "mixed": "hubs and their clients",
    "line": "in a line",
    "ring": "in a ring",
}
# Of the page, which counts the peers itself: they become more while it is open.
_TITLES = {
    "mesh": "mesh of peers",
    "hub": "hub and its clients",
    "mixed": "hubs and their clients",
    "line": "line of peers",
    "ring": "ring of peers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a network is to do.

    Attributes:
        messages: to append once it has converged,
        rate: so many a second.
        until_converged: whether to end when all logs are equal,
        seconds: or to give up, or otherwise to end, after so long.
        auto_append: messages to append in a second, all the time.
        churn: peers to stop in a second, each for a while.
        partition: seconds for which the network is parted once all have joined; 0 for not at all.
    """

    messages: int = 0
    rate: float = 10.0
    until_converged: bool = False
    seconds: float = 120.0
    auto_append: float = 0.0
    churn: float = 0.0
    partition: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is to be seen of a network.

    Attributes:
        address: host and port at which to serve a page; None for no page.
        record: the file for a recording; None for none.
    """

    address: tuple[str, int] | None = None
    record: Path | None = None


class _Recording:
    """A recording that ends where it cannot be written any more; the network goes on.

    Args:
        path: of the file; None for none.

    Attributes:
        error: why it has ended.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._recorder: Recorder | None = None
        self.error: OSError | None = None

    def open(self, stack: AsyncExitStack, title: str) -> None:
        """Open the file, until the end of a context.

        Raises:
            OSError: it cannot be written, or is no recording.
        """
        if self._path is not None:
            from gossiplog.dashboard.recording import Recorder

            self._recorder = stack.enter_context(Recorder(self._path, title))

    def write(self, events: Iterable[dashboard_events.Event]) -> None:
        """Write events, unless that has failed before."""
        if self._recorder is None or self.error is not None:
            return
        try:
            self._recorder.write(events)
        except OSError as error:
            self.error = error
            note(f"the recording ends here, and the network goes on: {failure(error)}")


def run_network(plan: NetworkPlan, task: Task, view: View, output: Output) -> None:
    """Run a network of peers, and report how it went.

    Raises:
        NetworkError: it did not converge in time, or its peers were not connected.
        OSError: the recording could not be written to its end, or the page not be served.
    """
    collect_rarely()
    recording = _Recording(view.record)
    found = anyio.run(_run, plan, task, view, recording, output, backend="asyncio")
    if output.json:
        output.record(found)
    else:
        output.show(_table(found))
    if recording.error is not None:
        raise recording.error
    if task.until_converged and not found["converged"]:
        raise NetworkError(
            f"the network did not converge within {task.seconds:g} s: {found['complete_peers']} of {plan.peers} logs"
            f" have all {counted(found['messages'], 'message')}"
        )
    if task.until_converged and plan.topology == "mesh" and "seconds_to_connect" not in found:
        least = min(_SEVERAL, plan.peers - 1)
        raise NetworkError(
            f"the logs are equal, but within {task.seconds:g} s not every peer was connected to {least} others:"
            f" one is to {found['connections']['least']}; --seconds gives them longer"
        )


async def _run(plan: NetworkPlan, task: Task, view: View, recording: _Recording, output: Output) -> dict[str, Any]:
    found: dict[str, Any] = {"peers": plan.peers, "topology": plan.topology, "router": plan.router, "converged": False}
    async with AsyncExitStack() as stack:
        network, auto_append = await _enter(stack, plan, task, view, recording, output)
        with (
            watching("Peers whose logs have all messages", lambda: (network.complete, network.peers)),
            anyio.move_on_after(task.seconds) as time,
        ):
            async with background() as tasks:
                if math.isinf(task.seconds):
                    tasks.start_soon(_end_when_stopped, time)
                connected, healed = anyio.Event(), anyio.Event()
                tasks.start_soon(auto_append.run)
                tasks.start_soon(_disturb, network, task, healed)
                if plan.topology == "mesh":
                    tasks.start_soon(_connect, network, found, connected)
                else:
                    connected.set()
                await healed.wait()
                await network.converged()
                found["seconds_to_converge"] = _since(network)
                if task.messages:
                    # On a network that stands: what comes to a peer that joins later is no delivery.
                    await connected.wait()
                    await _append(network, task, found)
                found["converged"] = True
                if not task.until_converged:
                    await anyio.sleep_forever()
                await connected.wait()
        if view.record is not None:
            await network.settled()
        found |= _figures(network)
    return found


async def _enter(
    stack: AsyncExitStack, plan: NetworkPlan, task: Task, view: View, recording: _Recording, output: Output
) -> tuple[LocalNetwork, AutoAppend]:
    """Start a network, and before it what shows and records it."""
    if view.address is None and view.record is None:
        network = LocalNetwork(plan)
        return await stack.enter_async_context(network), AutoAppend(network.append_anywhere, task.auto_append)
    # The page takes a while to load, which other runs need not wait for.
    from gossiplog.dashboard.stream import Dashboard

    more = "" if plan.router == "libp2p" else f", {plan.router}"
    if plan.browsers:
        more += f", {counted(plan.browsers, 'browser')}"
    network = LocalNetwork(plan, lambda event: dashboard.publish(event), apart=view.address is not None)
    auto_append = AutoAppend(network.append_anywhere, task.auto_append)
    recording.open(stack, f"{counted(plan.peers, 'peer')}, {_SHAPES[plan.topology]}{more}")
    record = recording.write if view.record is not None else None
    dashboard = Dashboard(f"{_TITLES[plan.topology]}{more}", NetworkControls(network, auto_append), network.now, record)
    tasks = await stack.enter_async_context(background())
    if view.address is None:
        tasks.start_soon(dashboard.run)
    else:
        address: Address = await tasks.start(dashboard.serve, *view.address)
        url = address.url("http")
        if not ip_address(address.host).is_loopback:
            note(f"everybody who reaches {url}/ commands this network: there is no token")
        if output.json:
            output.record({"dashboard": f"{url}/"})
            output.flush()
        else:
            output.show(f"The dashboard is at {url}/")
    if auto_append.rate:
        network.report(dashboard_events.RateChanged(network.now(), auto_append.rate))
    return await stack.enter_async_context(network), auto_append


def _figures(network: LocalNetwork) -> dict[str, Any]:
    members = [member for member in network.members if member.has_log]
    connections = sorted(map(network.connections, members))
    found: dict[str, Any] = {
        "messages": network.total,
        "complete_peers": network.complete,
        "roots": dict(network.roots),
        "connections": {
            "least": connections[0],
            "median": statistics.median_low(connections),
            "most": connections[-1],
        },
        "times_connected": sum(member.connected for member in members),
        "syncs": sum(member.syncs for member in members),
        "seconds": _since(network),
    }
    graph = network.graph
    if network.plan.topology == "mesh" and len(graph) > 2:
        # The bootstrap, which all know, is a short way between any two.
        found["graph"] = asdict(measure_graph(graph, without=next(iter(graph)), seed=network.plan.seed))
    return found


async def _end_when_stopped(scope: anyio.CancelScope) -> None:
    await until_stopped()
    scope.cancel()


async def _disturb(network: LocalNetwork, task: Task, healed: anyio.Event) -> None:
    """Run what happens to the network by itself."""
    random = Random(network.plan.seed)
    async with anyio.create_task_group() as tasks:
        if task.churn:
            stoppable, stop, start = lambda: network.stoppable, network.stop, network.start
            churn = Churn(stoppable, stop, start, network.note, rate=task.churn, random=random)
            tasks.start_soon(churn.run)
        if task.partition:
            await network.joined()
            await part_for(task.partition, network.partition, network.heal)
        healed.set()


async def _connect(network: LocalNetwork, found: dict[str, Any], connected: anyio.Event) -> None:
    await network.connected(_SEVERAL)
    found["seconds_to_connect"] = _since(network)
    connected.set()


async def _append(network: LocalNetwork, task: Task, found: dict[str, Any]) -> None:
    start = anyio.current_time()
    latencies = sorted(await network.flow(task.messages, task.rate))
    taken = anyio.current_time() - start
    found["appended"] = {
        "messages": task.messages,
        "seconds": round(taken, 3),
        "messages_per_second": round(task.messages / taken, 1),
        "latency_ms": {
            name: round(1000 * latencies[min(int(share * len(latencies)), len(latencies) - 1)], 2)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("most", 1.0))
        },
    }
    await network.converged()


def _since(network: LocalNetwork) -> float:
    return round(anyio.current_time() - network.started, 3)


def _table(found: dict[str, Any]) -> Table:
    connections, appended = found["connections"], found.get("appended")
    rows = {
        "peers": f"{found['peers']:,}, {_SHAPES[found['topology']]}",
        **({"router": found["router"]} if found["router"] != "libp2p" else {}),
        "messages": f"{found['messages']:,}",
        "roots": "one on all peers" if len(found["roots"]) == 1 else f"{len(found['roots']):,} different",
        "converged": f"after {found['seconds_to_converge']:.1f} s" if found["converged"] else "not yet",
        "connections": f"{connections['least']} to {connections['most']} a peer, {connections['median']} in the middle",
        "syncs": f"{found['syncs']:,}" if found["syncs"] else "none were needed",
    }
    if (connected := found.get("seconds_to_connect")) is not None:
        rows["connected"] = f"each peer to {_SEVERAL} others or more, after {connected:.1f} s"
    if appended is not None:
        latency = appended["latency_ms"]
        rows["delivery"] = (
            f"{counted(appended['messages'], 'message')}, {appended['messages_per_second']:,.0f} a second:"
            f" median {latency['p50']:.1f} ms, 95 % within {latency['p95']:.1f} ms, all within {latency['most']:.1f} ms"
        )
    if (graph := found.get("graph")) is not None:
        diameter = (
            "not all connected" if graph["diameter"] is None else f"{counted(graph['diameter'], 'connection')} at most"
        )
        spread = " ".join(f"{bucket['connections']:.1f}" for bucket in graph["buckets"])
        rows["without the bootstrap"] = (
            f"{diameter} from any peer to another, {graph['distance']:.1f} on average;"
            f" by bucket, the farthest first: {spread}"
        )
    table = fields_table()
    for name, text in rows.items():
        table.add_row(name, text)
    return table
