"""What `gossiplog serve` shows of what happens."""

from __future__ import annotations

from typing import Any

import pytest

from gossiplog.cli.serve_hub import _complaints, _show_event
from gossiplog.net import events
from gossiplog.net.incidents import Incidents
from gossiplog.net.record import LOGGER


@pytest.mark.parametrize(("peer", "name"), [("[::1]:9", "[::1]:9"), ("", "no peer")])
def test_a_defect_is_shown(peer: str, name: str) -> None:
    shown: list[tuple[str, dict[str, Any]]] = []
    _show_event(
        lambda text, fields: shown.append((text, fields)), events.Defect(peer, "answering it", KeyError("a key"), 2)
    )
    assert shown == [
        (
            f"{name}: a defect of gossiplog, answering it: KeyError: 'a key'",
            {"event": "defect", "peer": peer, "doing": "answering it", "error": "KeyError: 'a key'", "times": 2},
        )
    ]


def test_the_traceback_of_a_defect_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    incidents = Incidents(LOGGER)
    with _complaints():
        incidents.note("dropped", "[::1]:8", "it is shown as an event")
        try:
            raise KeyError("a key")
        except KeyError as error:
            incidents.note("defects", "[::1]:9", "a defect of gossiplog", error=error)
    lines = capfd.readouterr().err.splitlines()
    assert lines[:2] == ["gossiplog: [::1]:9: a defect of gossiplog", "Traceback (most recent call last):"]
    assert lines[-1] == "KeyError: 'a key'"
