"""`python -m gossiplog.sim`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gossiplog.sim import __main__ as module
from gossiplog.sim.whole import run as runs
from gossiplog.sim.whole.checks import BrokenInvariant


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(module.app, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
def test_one_seed_with_its_trace() -> None:
    code, out, _ = run("--seed", "3", "--peers", "4", "--trace")
    *trace, summary = out.splitlines()
    assert code == 0
    assert json.loads(summary)["messages"] > 0
    assert any("meets" in line for line in trace)
    _, silent, _ = run("--seed", "3", "--peers", "4")
    assert silent.splitlines() == [summary]


@pytest.mark.integration
def test_many_seeds() -> None:
    code, out, _ = run("--seeds", "0:3", "--peers", "4", "--processes", "1")
    assert code == 0
    assert json.loads(out)["seeds"] == 3


def broken(*_: object) -> None:
    raise BrokenInvariant("seed 1: at rest\nreplay: the command")


def test_a_broken_invariant_ends_with_1_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_seed", broken)
    monkeypatch.setattr(runs, "run_seed", broken)
    code, _, error = run("--seed", "1")
    assert (code, error) == (1, "seed 1: at rest\nreplay: the command\n")
    code, out, error = run("--seeds", "0:2", "--processes", "1")
    assert (code, json.loads(out)["failed"], error.count("replay: the command")) == (1, 2, 2)


@pytest.mark.parametrize("text", ["5", "5:5", "a:b", "-1:3"])
def test_what_is_no_range(text: str) -> None:
    code, _, error = run(f"--seeds={text}")
    assert code == 2
    assert "no range of seeds" in error
