"""What Spark's Java process says."""

from __future__ import annotations

from gossiplog.spark.launching import without_remark


def test_the_remark_is_left_out() -> None:
    lines = [b"WARNING: Using incubator modules: jdk.incubator.vector\n", b"WARNING: something else\n"]
    assert list(without_remark(lines)) == lines[1:]
