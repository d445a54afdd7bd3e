"""A short animation of a recording, as the page of a dashboard plays it: that of docs/network.md.

    .venv/bin/python -m benches.dashboard_animation RECORDING FROM UNTIL ANIMATION.webp

Seeks the recording to a time in seconds, plays it at half speed, takes pictures as fast as Chromium gives them, and
writes them as a WebP whose pictures stay for as long as they did on the page. It needs Pillow, which is no requirement
of the package: `pip install --target FOLDER pillow`, with the folder in PYTHONPATH.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anyio.from_thread import start_blocking_portal

from gossiplog.dashboard.recording import check
from gossiplog.dashboard.stream import player
from gossiplog.net.http.server import serve
from tests.integration.javascript import install, start_browser
from tests.integration.pages import Page

_SIZE = (1120, 660)
# The picture of the network, without what is beside it.
_PART = (0, 48, 716, 592)
_WIDTH = 560
_SPEED = "0.5"
# Milliseconds until a layout has come to rest.
_REST = 4000
_QUALITY = 45


def take_pictures(recording: Path, start: float, end: float, folder: Path) -> tuple[list[Path], list[int]]:
    """Return the pictures of a recording from one time to another, and for how many milliseconds each was shown."""
    install()
    paths, times = [], []
    with ExitStack() as stack:
        process = start_browser()
        stack.callback(process.close)
        portal = stack.enter_context(start_blocking_portal())
        app = player(recording, check(recording).title)
        serving, address = portal.start_task(lambda *, task_status: serve(app, task_status=task_status))
        stack.callback(serving.cancel)
        page = stack.enter_context(Page(process, address.url("http"), size=_SIZE))
        page.until("globalThis.dashboard?.player?.length > 0")
        if page.evaluate("document.getElementById('play').textContent") == "Pause":
            page.click("#play")
        page.evaluate(f"dashboard.player.seek({start})")
        page.evaluate(
            f"""(() => {{ const speed = document.getElementById("speed"); speed.value = "{_SPEED}";
            speed.dispatchEvent(new Event("input", {{ bubbles: true }})); }})()"""
        )
        page.evaluate(f"new Promise((done) => setTimeout(done, {_REST}))")
        page.click("#play")
        while page.evaluate("dashboard.player.time") < end:
            times.append(page.evaluate("performance.now()"))
            paths.append(folder / f"{len(paths):04d}.png")
            page.screenshot(paths[-1])
        times.append(page.evaluate("performance.now()"))
    return paths, [round(later - earlier) for earlier, later in itertools.pairwise(times)]


def main(recording: Path, start: float, end: float, animation: Path) -> None:
    """Write the animation."""
    # Its types are not installed where the checks run.
    image: Any = __import__("PIL.Image").Image
    with TemporaryDirectory() as folder:
        paths, durations = take_pictures(recording, start, end, Path(folder))
        frames = [image.open(path).convert("RGB").crop(_PART) for path in paths]
        size = (_WIDTH, round(_WIDTH * frames[0].height / frames[0].width))
        first, *others = (frame.resize(size, image.Resampling.LANCZOS) for frame in frames)
        first.save(
            animation, save_all=True, append_images=others, duration=durations, loop=0, quality=_QUALITY, method=6
        )
    print(f"{animation}: {len(paths)} pictures, {sum(durations) / 1000:.1f} s, {animation.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]).absolute())
