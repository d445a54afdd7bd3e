"""What `gossiplog pipeline verify` says of what it found, without Spark."""

from __future__ import annotations

import pytest

from gossiplog.cli.pipeline.verify import _is_damaged
from gossiplog.spark import LogVerifyResult, Problem


@pytest.mark.parametrize(
    ("defects", "problem", "expected"),
    [
        ({}, None, False),
        ({"value": 1, "tree": 2}, None, True),
        ({"log": 1}, Problem("missing", "there is no log a.db"), False),
        ({"log": 1}, Problem("unreadable", "another process did not release its lock"), False),
        ({"log": 1}, Problem("damaged", "it has 2 keys"), True),
        ({"log": 1, "leaf": 1}, Problem("unreadable", "another process did not release its lock"), True),
    ],
)
def test_repair_is_advised_where_there_is_damage(
    defects: dict[str, int], problem: Problem | None, expected: bool
) -> None:
    assert _is_damaged(LogVerifyResult("a.db", None, None, defects, problem, 0.1)) == expected
