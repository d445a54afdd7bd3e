"""The suite of `gossiplog bench`, as it is: it starts processes and waits for the disk."""

from __future__ import annotations

import pytest

from gossiplog.cli.bench import suite

pytestmark = pytest.mark.integration


def test_every_benchmark_has_a_result() -> None:
    results = list(suite.run(200))
    assert len({result.work for result in results}) == suite.RESULTS == 14
    for result in results:
        assert result.seconds > 0
        assert result.reached
        assert result.floor_seconds is None or result.floor_seconds > 0
