"""A hub and its clients, in processes of their own, over sockets on loopback.

A line with a delay stands between them where a round trip matters. CPU seconds are beside the wall clock's: those do
not depend on what else the machine does.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import data
import pytest
from conftest import Results
from network import Process

from gossiplog.cli.bench import logs, suite
from gossiplog.cli.bench.stage import ROUNDS, TOPIC, Logs, Result, Stage, Turns, private_key, timed
from tests.integration.javascript import JavaScriptPeer, install

SMALL = 100_000
ROUND_TRIP = 0.05
JAVASCRIPT = 300
IDLE = 500
READERS = 20


@pytest.fixture
def stage(size: int, history: Callable[[str, int], list[bytes]], tmp_path: Path) -> Iterator[Stage]:
    """The others' stage, but for pytest-benchmark: what is timed here is timed in other processes."""
    data.FOLDER.mkdir(exist_ok=True)
    yield Stage(size, history, Logs(tmp_path, data.FOLDER), Turns())
    shutil.rmtree(tmp_path)


class Fill:
    """Fills fresh logs from one hub, again and again.

    Args:
        stage: of the benchmark.
        hub: to fill from.
        url: of the hub, or of a line to it.
    """

    def __init__(self, stage: Stage, hub: Process, url: str) -> None:
        self._stage = stage
        self._hub = hub
        self._url = url
        self.costs: list[tuple[float, float]] = []
        self.figures: list[dict[str, float]] = []

    def client(self) -> Process:
        """A process that is ready to connect."""
        return Process("client", self._stage.logs.path(), self._url)

    def run(self, client: Process) -> float:
        """Fills the client's log; the seconds that took."""
        before = self._hub.call("usage")["cpu"]
        figures = client.call("sync")
        self.figures.append(figures)
        self.costs.append((figures["cpu"], self._hub.call("usage")["cpu"] - before))
        return float(figures["seconds"])

    def whole(self) -> float:
        """Fills the log of a process that is made for it and ends after it."""
        with self.client() as client:
            return self.run(client)

    @property
    def cost(self) -> str:
        """CPU seconds."""
        client, hub = (statistics.median(column) for column in zip(*self.costs, strict=True))
        return f"CPU: {client:.2f} s in the client, {hub:.2f} s in the hub"


def test_fill(stage: Stage, results: Results) -> None:
    size = min(SMALL, stage.size)
    values = stage.mixed[:size]
    bare = logs.bare_insert(values)
    with Process("hub", stage.logs.full("mixed", values)) as hub:
        fill = Fill(stage, hub, hub.url)
        rounds = [(sum(bare(stage.logs.path())), fill.whole()) for _ in range(ROUNDS)]
        results.add(
            _beside(
                f"a fresh client fills its log with {size:,} messages from a hub",
                "2x the sum of verifying them and of one bare `executemany`",
                rounds,
                2,
                size,
                fill.cost,
            )
        )


def test_fill_from_afar(stage: Stage, results: Results) -> None:
    size = min(SMALL, stage.size)
    full = stage.logs.full("mixed", stage.mixed[:size])
    with Process("hub", full) as hub, Process("line", hub.url, ROUND_TRIP) as line:
        near, far = Fill(stage, hub, hub.url), Fill(stage, hub, line.url)
        rounds = [(near.whole(), far.whole()) for _ in range(ROUNDS)]
        results.add(
            _beside(
                f"a fresh client fills its log with {size:,} messages from a hub, 50 ms of round trip",
                "2x the same without a delay",
                rounds,
                2,
                size,
                f"{far.figures[-1]['round_trips']} round trips; {far.cost}",
            )
        )


def _beside(work: str, must: str, rounds: Sequence[tuple[float, float]], most: float, size: int, detail: str) -> Result:
    """A result of rounds of seconds (floor, work)."""
    ratio = statistics.median(spent / floor for floor, spent in rounds)
    floor, spent = (statistics.median(column) for column in zip(*rounds, strict=True))
    rates = f"{spent:.2f} s ({size / spent:,.0f}/s) beside {floor:.2f} s ({size / floor:,.0f}/s)"
    return Result(work, must, f"{ratio:.2f}x", ratio <= most, spent, floor, f"{rates}; {detail}")


def test_fill_canvas_js(stage: Stage, results: Results, tmp_path: Path) -> None:
    install()
    values = stage.mixed[:JAVASCRIPT]
    with ExitStack() as stack:
        hub = stack.enter_context(Process("hub", stage.logs.full("mixed", values)))
        javascript = stack.enter_context(JavaScriptPeer(TOPIC, private_key(0), directory=tmp_path / "hub"))
        javascript.insert(values)
        urls = javascript.listen(), hub.url

        def fill(url: str, name: str) -> float:
            with JavaScriptPeer(TOPIC, private_key(1), directory=tmp_path / name) as client:
                client.state()
                return timed(lambda: (client.connect(url), client.wait(count=JAVASCRIPT)))

        rounds = [(fill(urls[0], f"theirs {turn}"), fill(urls[1], f"ours {turn}")) for turn in range(ROUNDS)]
    results.add(
        _beside(
            f"canvas-js fills a fresh log with {JAVASCRIPT:,} messages from our hub",
            "1x the same from its own",
            rounds,
            1,
            JAVASCRIPT,
            "its client, on disk, is most of it",
        )
    )


@pytest.mark.parametrize("place", ["at the end", "scattered"])
def test_difference(place: str, stage: Stage, results: Results) -> None:
    shared, larger, missing = suite.difference(stage, place)
    figures = []
    with Process("hub", larger) as hub, Process("line", hub.url, ROUND_TRIP) as line:
        for _ in range(ROUNDS):
            with Process("client", stage.logs.copy(shared), line.url) as client:
                figures.append(client.call("sync"))
    trips = max(figure["round_trips"] for figure in figures)
    seconds, connected = (statistics.median(figure[name] for figure in figures) for name in ("sync_seconds", "seconds"))
    results.add(
        Result(
            f"a sync over 50 ms of round trip where {stage.size:,} are shared and {len(missing):,} differ: {place}",
            "at most 8 sequential round trips; below 1 s",
            f"{trips} round trips; {seconds:.2f} s",
            trips <= 8 and seconds < 1,
            seconds,
            None,
            f"{connected:.2f} s from connecting until both sides know that they hold the same; "
            f"{statistics.median(figure['cpu'] for figure in figures):.2f} s of CPU in the client",
        )
    )


def test_idle_clients(stage: Stage, results: Results) -> None:
    full = stage.logs.copy(stage.logs.full("mixed", stage.mixed[:SMALL]))
    with Process("hub", full) as hub, Process("listeners", hub.url) as listeners:
        before = hub.call("usage")
        listeners.call("listen", count=IDLE)
        resident = hub.call("usage")["resident"]
        delays = []
        for _ in range(ROUNDS):
            began = hub.call("append", count=1, pause=0, size=100)["began"]
            heard = listeners.call("heard", count=1)
            delays.append(max(chain.from_iterable(heard)) - began[0])
        cpu = hub.call("usage")["cpu"] - before["cpu"]
    delay = statistics.median(delays)
    results.add(
        Result(
            f"{IDLE} idle clients on one hub, then an append",
            "resident memory of the hub below 200 MB; all have it within 1 s",
            f"{resident / 1e6:.0f} MB; {delay:.2f} s",
            resident < 200e6 and delay < 1,
            delay,
            None,
            f"{before['resident'] / 1e6:.0f} MB without clients; {cpu:.2f} s of CPU in the hub for all of it",
        )
    )


def test_stalled_client(stage: Stage, results: Results) -> None:
    full = stage.logs.copy(stage.logs.full("mixed", stage.mixed[:SMALL]))
    rounds = []
    with Process("hub", full) as hub, Process("listeners", hub.url) as listeners:
        listeners.call("listen", count=50)
        for _ in range(ROUNDS):
            alone = _slowest(hub, listeners)
            with Process("line", hub.url, 0) as line, Process("listeners", line.url) as stalled:
                stalled.call("listen", count=1)
                line.call("stall")
                rounds.append((alone, _slowest(hub, listeners)))
        resident = hub.call("usage")["peak"]
    ratio = statistics.median(beside / alone for alone, beside in rounds)
    alone, beside = (statistics.median(column) for column in zip(*rounds, strict=True))
    results.add(
        Result(
            "50 clients get 300 messages of 32 KiB while another does not read its socket",
            "99 % of them within 2x the time without it",
            f"{ratio:.2f}x",
            ratio <= 2,
            beside,
            alone,
            f"{beside * 1e3:.0f} beside {alone * 1e3:.0f} ms; the hub's memory {resident / 1e6:.0f} MB at most",
        )
    )


def _slowest(hub: Process, listeners: Process) -> float:
    """The seconds within which 99 % of messages reach their clients."""
    began = hub.call("append", count=300, pause=0.02, size=2**15)["began"]
    heard = listeners.call("heard", count=len(began))
    delays = sorted(at - start for times in heard for at, start in zip(times, began, strict=True))
    return float(delays[len(delays) * 99 // 100])


def test_many_readers(stage: Stage, results: Results) -> None:
    path = stage.logs.copy(stage.logs.full("mixed", stage.mixed))
    with Process("hub", path) as hub, Process("listeners", hub.url) as listeners:
        before = hub.call("usage")["cpu"]
        listeners.tell("read", count=READERS)
        appended = hub.call("append", count=100, pause=0.05, size=100)
        read = listeners.answer()
        after = hub.call("usage")
    slowest = sorted(appended["took"])[-1]
    whole = min(read["values"]) >= stage.size
    results.add(
        Result(
            f"serving a log of {stage.size:,} to {READERS} clients at once",
            "resident memory of the hub below 500 MB; appends go on",
            f"{after['peak'] / 1e6:.0f} MB; {statistics.median(appended['took']) * 1e3:.0f} ms an append",
            whole and after["peak"] < 500e6,
            read["seconds"],
            None,
            f"{sum(read['values']) / read['seconds']:,.0f} messages/s in {read['seconds']:.1f} s, the slowest append "
            f"{slowest:.2f} s; CPU: {after['cpu'] - before:.1f} s in the hub, {read['cpu']:.1f} s in the clients",
        )
    )
