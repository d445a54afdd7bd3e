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
    assert {"read", "rebase", "rebuild", "recover", "repair"} == set(completed(script, "gossiplog", "re"))
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


def run(shell: str, script: str, *words: str) -> list[str]:
    """The lines that a shell writes for a script."""
    if shutil.which(shell) is None:
        pytest.fail(f"{shell} is missing: make system installs it")
    call = subprocess.run([shell, "-c", script, *words], capture_output=True, text=True, check=True)
    assert call.stderr == ""
    return call.stdout.splitlines()


@pytest.mark.integration
def test_zsh_completes(program: Program) -> None:
    # What zsh offers only in an interactive session is replaced by what writes its arguments.
    shown = 'compdef() {}; _describe() { print -rl -- "${names[@]%%:*}" }; _files() { print files }\n'
    script = shown + program("completion", "zsh").out + 'words=("$0" "$@"); CURRENT=$#words; _gossiplog'
    assert {"read", "recover"} <= set(run("zsh", script, "gossiplog", "re"))
    assert "--after" in run("zsh", script, "gossiplog", "read", "notes.db", "--a")
    assert "reconcile" in run("zsh", script, "gossiplog", "pipeline", "")
    assert run("zsh", script, "gossiplog", "read", "") == ["files"]


@pytest.mark.integration
def test_fish_completes(program: Program) -> None:
    def completed(line: str) -> set[str]:
        script = program("completion", "fish").out + f"complete -C '{line}'"
        return {found.split("\t")[0] for found in run("fish", script)}

    assert {"read", "recover"} <= completed("gossiplog re")
    assert {"--after", "--author"} <= completed("gossiplog read notes.db --a")
    assert "reconcile" in completed("gossiplog pipeline ")


def test_another_shell(program: Program) -> None:
    result = program("completion", "csh")
    assert (result.code, result.out) == (2, "")
    assert "there is no completion for 'csh': expected one of bash, zsh, fish" in result.err
