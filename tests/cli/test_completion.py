from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cli.support import Program

SHELLS = ["bash", "zsh", "fish"]


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    call = script + 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gossiplog; printf "%s\\n" "${COMPREPLY[@]}"\n'
    call += "complete -p gossiplog"
    run = subprocess.run(["bash", "-c", call, "bash", *words], capture_output=True, text=True, check=True)
    *found, registered = run.stdout.splitlines()
    assert run.stderr == ""
    assert registered == "complete -o bashdefault -o default -F _gossiplog gossiplog"
    return [word for word in found if word]


def test_bash_completes(program: Program) -> None:
    script = program("completion", "bash").out
    assert {"read", "recover"} == set(completed(script, "gossiplog", "re"))
    assert {"--after", "--author"} == set(completed(script, "gossiplog", "read", "notes.db", "--a"))
    assert "reconcile" in completed(script, "gossiplog", "pipeline", "")
    assert completed(script, "gossiplog", "pipeline", "read", "--out") == ["--output"]
    assert completed(script, "gossiplog", "-") == ["--version", "-V", "-h", "--help"]
    assert completed(script, "gossiplog", "completion", "z") == ["zsh"]
    # None: the shell goes on with files.
    assert completed(script, "gossiplog", "read", "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_has_every_command(program: Program, shell: str) -> None:
    result = program("completion", shell)
    assert (result.code, result.err) == (0, "")
    for name in ("import-git", "reconcile", "-V" if shell != "fish" else "-s V"):
        assert name in result.out


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_read_their_scripts(program: Program, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = program("completion", shell).out
    subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_another_shell(program: Program) -> None:
    result = program("completion", "csh")
    assert (result.code, result.out) == (2, "")
    assert "there is no completion for 'csh': expected one of bash, zsh, fish" in result.err
