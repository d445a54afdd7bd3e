"""The suite of `gossiplog bench`, as it is: it starts processes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from gossiplog.cli.bench import logs, stage, suite

pytestmark = pytest.mark.integration


def test_every_benchmark_has_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the other tests' files are: each of some thousand commits would wait for a disk.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # Fewer than are measured; two rounds, as a second one may fail where the first does not.
    for module in (stage, logs):
        monkeypatch.setattr(module, "ROUNDS", 2)
    for module, name in ((suite, "_BATCH"), (logs, "_APPENDS"), (logs, "_QUESTIONS"), (suite, "_INSERTS")):
        monkeypatch.setattr(module, name, 100)
    results = list(suite.run(200))
    assert len({result.work for result in results}) == suite.RESULTS == 14
    for result in results:
        assert result.seconds > 0
        assert result.reached
        assert result.floor_seconds is None or result.floor_seconds > 0
