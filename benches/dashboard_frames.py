"""How many frames a second the page of a dashboard draws, and how soon a late page shows the state.

    .venv/bin/python -m benches.dashboard_frames [NODES [EDGES [SECONDS]]]

A scripted network has messages all the time: each is delivered to every node, all roots change, and the page has as
many pulses as it draws at most. It is measured at rest, and while connections come and go, so that the layout moves.
The browser is headless Chromium, which draws by software, on the processors that everything else uses, too: a
screen's graphics processor is faster. Prints the figures, as JSON; ends with status 1 where there were fewer than 30
frames.
"""

from __future__ import annotations

import json
import sys
import time
from random import Random

import anyio
from anyio.from_thread import start_blocking_portal

from gossiplog.dashboard.events import Committed, Connected, Delivered, Disconnected, LinkChanged, PeerAdded, Published
from gossiplog.dashboard.stream import Dashboard
from tests.integration.javascript import install, start_browser
from tests.integration.pages import Page

LEAST_FRAMES = 30
MESSAGES = 10  # a second
_STEP_SECONDS = 0.1


class Load:
    """A network of nodes, whose events do not end.

    Args:
        nodes: how many.
        edges: how many.
    """

    def __init__(self, nodes: int, edges: int) -> None:
        self.moves = False
        self.names = [f"12D3KooW{number:04d}" for number in range(nodes)]
        self._random = Random(1)
        self._begun = time.monotonic()
        self.dashboard = Dashboard(f"{nodes} nodes, {edges} edges", clock=self.now)
        self.pairs: set[tuple[str, str]] = set()
        publish = self.dashboard.publish
        for number, name in enumerate(self.names):
            publish(PeerAdded(self.now(), name, str(number)))
            publish(Committed(self.now(), name, 0, "00" * 16))
        while len(self.pairs) < edges:
            self._connect()

    def now(self) -> float:
        return time.monotonic() - self._begun

    async def run(self) -> None:
        number = 0
        while True:
            await anyio.sleep(_STEP_SECONDS)
            for _ in range(round(MESSAGES * _STEP_SECONDS)):
                number += 1
                self._deliver(number)
            if self.moves:
                pair = self._random.choice(sorted(self.pairs))
                self.pairs.discard(pair)
                self.dashboard.publish(Disconnected(self.now(), *pair))
                self._connect()

    def _connect(self) -> None:
        publish, random = self.dashboard.publish, self._random
        one, other = pair = tuple(random.sample(self.names, 2))
        if (other, one) in self.pairs:
            return
        self.pairs.add((pair[0], pair[1]))
        publish(Connected(self.now(), one, other))
        if random.random() < 0.5:
            publish(LinkChanged(self.now(), one, other, "mesh"))
            publish(LinkChanged(self.now(), other, one, random.choice(["mesh", "none", "lazy"])))

    def _deliver(self, number: int) -> None:
        publish, random = self.dashboard.publish, self._random
        message, root = f"m{number}", random.randbytes(16).hex()
        publish(Published(self.now(), random.choice(self.names), message))
        for name in self.names:
            publish(Delivered(self.now(), name, message, random.choice(self.names), "gossip", random.random() / 10))
            publish(Committed(self.now(), name, number, root, (message,), number + 1))


def frames(page: Page, seconds: float) -> dict[str, float]:
    """What the page draws in so many seconds."""
    begun = page.evaluate("({...dashboard.drawn, at: performance.now()})")
    time.sleep(seconds)
    ended = page.evaluate("({...dashboard.drawn, at: performance.now()})")
    count = ended["frames"] - begun["frames"]
    return {
        "frames_per_second": round(count / (ended["at"] - begun["at"]) * 1000, 1),
        "milliseconds_per_frame": round((ended["milliseconds"] - begun["milliseconds"]) / max(count, 1), 2),
    }


def main(nodes: int = 200, edges: int = 2000, seconds: float = 10.0) -> int:
    """Measure, print the figures, and return the exit status."""
    install()
    load = Load(nodes, edges)
    process = start_browser()
    found: dict[str, object] = {"nodes": nodes, "edges": edges}
    try:
        with start_blocking_portal() as portal:
            serving, address = portal.start_task(lambda *, task_status: load.dashboard.serve(task_status=task_status))
            running = portal.start_task_soon(load.run)
            url = address.url("http")
            with Page(process, url) as page:
                page.until("globalThis.dashboard !== undefined && dashboard.state.peers.size > 0")
                page.evaluate("new Promise((done) => setTimeout(done, 4000))")
                found["at_rest"] = frames(page, seconds)
                load.moves = True
                found["moving"] = frames(page, seconds)
                load.moves = False
                with Page(process, url) as late:
                    found["late_page_seconds"] = round(
                        late.until("globalThis.dashboard?.firstState && dashboard.firstState / 1000"), 3
                    )
            for task in (running, serving):
                task.cancel()
    finally:
        process.close()
    print(json.dumps(found))
    return 0 if min(each["frames_per_second"] for each in (found["at_rest"], found["moving"])) >= LEAST_FRAMES else 1


if __name__ == "__main__":
    sys.exit(main(*(kind(text) for kind, text in zip((int, int, float), sys.argv[1:], strict=False))))
