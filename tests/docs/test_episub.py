"""Every block of docs/episub.md runs and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.readme import DOCS, blocks, fits, run_command, steps

PAGE = DOCS / "episub.md"
TIMEOUT = 120  # seconds


def test_the_session(tmp_path: Path) -> None:
    (session,) = blocks(PAGE)
    assert session.language == "console"
    for command, expected in steps(session):
        printed = run_command(command, tmp_path, TIMEOUT)
        assert fits(expected, printed), printed


def test_the_plots_are_those_of_the_session(tmp_path: Path) -> None:
    (session,) = blocks(PAGE)
    ((command, _),) = steps(session)
    run_command(f"{command} --plots plots", tmp_path, TIMEOUT)
    plots = re.findall(r"!\[.*\]\(episub/(.*)\)", PAGE.read_text(encoding="utf-8"))
    assert len(plots) == 3
    for plot in plots:
        assert (DOCS / "episub" / plot).read_text("utf-8") == (tmp_path / "plots" / plot).read_text("utf-8")
