"""A sample of the mutants: all of them are run by `make mutants`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.mutation import catalogue
from tests.mutation.__main__ import main, sample
from tests.mutation.catalogue import ROOT, CatalogueError

COUNT = 12


def run(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    command = [sys.executable, "-m", "tests.mutation", "--workers", "2", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.integration
def test_none_of_a_dozen_survives() -> None:
    """Which ones, the sources decide: what changes is tried with others."""
    code, (*rows, total) = run("--sample", str(COUNT))
    assert [row["mutant"] for row in rows if row["fate"] != "killed"] == []
    assert (code, len(rows), total["mutants"], total["killed"]) == (0, COUNT, COUNT, COUNT)


def test_a_sample_changes_with_the_lists() -> None:
    mutants = catalogue.read()
    assert sample(mutants, COUNT) == sample(mutants, COUNT)
    assert sample(mutants, COUNT) != sample(mutants[1:], COUNT)
    assert len(set(sample(mutants, COUNT))) == COUNT


def test_lists_that_do_not_fit_the_sources_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read() -> list[catalogue.Mutant]:
        raise CatalogueError("its old text stands 2 times")

    monkeypatch.setattr(catalogue, "read", read)
    assert main([]) == 1
    assert "stands 2 times" in capsys.readouterr().err
