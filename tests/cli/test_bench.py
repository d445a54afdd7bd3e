from __future__ import annotations

from tests.cli.support import Program


def test_bench(program: Program) -> None:
    results = {record["work"]: record for record in program("bench", "--size", "100").records}
    assert results.keys() == {
        "verify_batch",
        "build a tree",
        "insert_many",
        "pull into an empty log",
        "append, durably",
        "is_ancestor",
    }
    for result in results.values():
        assert result["seconds"] > 0
        assert (result["ratio"] is None) == (result["floor"] is None)


def test_a_size_that_is_too_small(program: Program) -> None:
    assert program("bench", "--size", "1").code == 2
