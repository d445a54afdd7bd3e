"""Pictures of recordings, as the page of a dashboard shows them: the stills of docs/network.md.

    .venv/bin/python -m benches.dashboard_stills RECORDING SECONDS PICTURE.jpg [dark]

Seeks the recording to the time, plays on for a moment, so that messages are on their way, and writes the page as PNG or
JPEG, by the name of the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from anyio.from_thread import start_blocking_portal

from gossiplog.dashboard.recording import check
from gossiplog.dashboard.stream import player
from gossiplog.net.http.server import serve
from tests.integration.javascript import install, start_browser
from tests.integration.pages import Page

_SIZE = (1120, 660)
# Milliseconds until a layout has come to rest, and that is played on.
_REST = 4000
_MOMENT = 260


def main(recording: Path, seconds: float, picture: Path, *, dark: bool = False) -> None:
    """Write the picture."""
    install()
    summary = check(recording)
    process = start_browser()
    try:
        with start_blocking_portal() as portal:
            serving, address = portal.start_task(
                lambda *, task_status: serve(player(recording, summary.title), task_status=task_status)
            )
            with Page(process, address.url("http"), size=_SIZE, dark=dark) as page:
                page.until("globalThis.dashboard?.player?.length > 0")
                if page.evaluate("document.getElementById('play').textContent") == "Pause":
                    page.click("#play")
                page.evaluate(f"dashboard.player.seek({seconds})")
                page.evaluate(f"new Promise((done) => setTimeout(done, {_REST}))")
                page.click("#play")
                page.evaluate(f"new Promise((done) => setTimeout(done, {_MOMENT}))")
                page.screenshot(picture)
            serving.cancel()
    finally:
        process.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]).absolute(), dark="dark" in sys.argv[4:])
