"""What `gossiplog serve` shows of what happens."""

from __future__ import annotations

from typing import Any

import pytest

from gossiplog.cli.serve_run import _show_event
from gossiplog.net import events


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
