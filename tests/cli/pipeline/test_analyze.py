"""What `gossiplog pipeline analyze` says of what it found, without Spark."""

from __future__ import annotations

import pytest

from gossiplog.cli.output import Output
from gossiplog.cli.pipeline.analyze import _show_analysis


def test_a_folder_holds_nothing_that_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    figures = {"report": "new\x1b]0;title\x07", "totals": {"messages": 4, "forked": 0}, "suspects": [], "forks": []}
    _show_analysis(Output(False), figures)
    shown = capsys.readouterr().out
    assert r"new\u001b]0;title\u0007/report.html" in shown
    assert "\x1b]" not in shown
    assert "\x07" not in shown
