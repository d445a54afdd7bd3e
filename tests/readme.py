"""The blocks of README.md and of the pages in docs/, for the tests that run them, and how they are run."""

from __future__ import annotations

import os
import queue
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from unittest.mock import patch

from pyspark.sql import SparkSession

from gossiplog.cli.main import main
from tests.namespaces import isolated
from tests.spark import java

README = Path(__file__).parent.parent / "README.md"
DOCS = README.parent / "docs"
# What a shell expands in double quotes is the group.
_QUOTED = re.compile(r"""'[^']*'|("[^"]*")""")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code.

    Attributes:
        language: what stands after the opening fence.
        text: the lines between the fences.
        line: the line of the page that the text begins on, from 1.
    """

    language: str
    text: str
    line: int


def blocks(page: Path = README) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def first_program() -> tuple[str, str]:
    """The first Python program, and what the README says that it prints."""
    found = blocks()
    index = next(index for index, block in enumerate(found) if block.language == "python")
    return found[index].text, found[index + 1].text


def steps(block: Block) -> list[tuple[str, str]]:
    """The commands behind `$ ` in a block, each with what it prints."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
    assert len(found) >= block.text.count("$ gossiplog") > 0
    return found


def fits(expected: str, printed: str) -> bool:
    """Whether this is what a page says is printed: `…` there stands for any text within a line."""
    pattern = re.escape(expected.strip()).replace("…", "[^\n]*")
    return re.fullmatch(pattern, printed.strip()) is not None


def words(command: str) -> list[str] | None:
    """The words of a simple command; None if only a shell knows what they mean."""
    unquoted = _QUOTED.sub(" ", command)
    expanded = "".join(_QUOTED.findall(command))
    if re.search(r"[|&;<>()$`*?~#{}!\\\[\]]", unquoted) or re.search(r"[`\\]|\$[\w({@*#?$!-]", expanded):
        return None
    return shlex.split(command)


def environment(home: Path, java_options: str = java.OPTIONS) -> dict[str, str]:
    """That of a user with nothing in a home folder."""
    programs = str(Path(sys.executable).parent)
    # Spark sets variables in the process that starts it.
    ours = re.compile("FORCE_COLOR|TTY_COMPATIBLE|SPARK_.*|PYSPARK_.*")
    inherited = {name: value for name, value in os.environ.items() if not ours.fullmatch(name)}
    return inherited | {
        "PATH": programs + os.pathsep + os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "SPARK_SUBMIT_OPTS": java_options,
    }


def run_program(text: str, folder: Path, timeout: float, stderr: str = "") -> str:
    """What a program prints that says this on stderr and succeeds."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=folder,
        env=environment(folder, java.archived() if "spark.session()" in text else java.OPTIONS),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert run.stderr == stderr
    assert run.returncode == 0
    return run.stdout


def run_program_here(text: str, folder: Path) -> str:
    """What a program prints that runs in this process, in the session of the tests, which goes on where it stops it."""
    with tempfile.TemporaryFile() as file:
        with patch.object(SparkSession, "stop"), chdir(folder), _writing_to(file.fileno()):
            exec(compile(text, "<a page>", "exec"), {"__name__": "__main__"})
        file.seek(0)
        return file.read().decode("utf-8")


def run_command(command: str, folder: Path, timeout: float) -> str:
    """What a command prints until it ends well."""
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=environment(folder, java.archived() if "gossiplog pipeline " in command else java.OPTIONS),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return _without_work_notes(run.stdout)


def _without_work_notes(printed: str) -> str:
    """Leave out what a job says once a minute: how many there are depends on the machine."""
    return re.sub(r"^gossiplog: \w+ has run for .*\n", "", printed, flags=re.MULTILINE)


def run_here(command: str, folder: Path, timeout: float) -> str:
    """Run a simple command as `run_command` does, but in this process; where it needs a shell, `run_command` does it.

    A job on Spark finds the session that runs in this process. By a relative path it means the same file as Spark does
    if the folder is the one that Spark was started in. `timeout`, in seconds, limits a command that needs a shell.
    """
    arguments = words(command)
    if arguments is None or arguments[0] != "gossiplog":
        return run_command(command, folder, timeout)
    with tempfile.TemporaryFile() as file:
        with (
            patch.dict(os.environ, environment(folder), clear=True),
            chdir(folder),
            _writing_to(file.fileno()),
        ):
            code = main(arguments[1:])
        file.seek(0)
        printed = _without_work_notes(file.read().decode("utf-8"))
    assert code == 0, printed
    return printed


def run_steps(block: Block, folder: Path, timeout: float) -> None:
    """Run the commands of a block in this process, each of which must print what the block says."""
    for command, expected in steps(block):
        printed = run_here(command, folder, timeout)
        assert fits(expected, printed), f"{command}\n{printed}"


class Shell:
    """A shell of a user with nothing in a home folder, who pastes one command after the other.

    Commands in the background go on meanwhile, and are interrupted at the end of the context. The shell has a network
    of its own, so that the ports of a page are free, whatever else runs here. Where the system does not allow that, it
    has the machine's, and these ports have to be free.

    Args:
        folder: that it works in.
        timeout: seconds for each command.
        name: by which the network knows the machine, too.
        java_options: of jobs on Spark.
    """

    def __init__(self, folder: Path, timeout: float, name: str = "", java_options: str = java.OPTIONS) -> None:
        self._timeout = timeout
        self._mark = f"end of the command {secrets.token_hex(8)}"
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            isolated(["bash", "--norc"], name),
            cwd=folder,
            env=environment(folder, java_options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        # Job control, as shells have it that people use: background jobs can be interrupted.
        self._tell("set -m")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._tell("kill -INT $(jobs -p); wait; exit")
        try:
            self._process.wait(self._timeout)
        finally:
            self._process.kill()
            self._process.communicate()
        self._reader.join()

    def run(self, command: str, expected: str) -> None:
        """Run a command, which must end well and print this; what is in the background prints nothing."""
        self._tell(f"{command}\nprintf '\\n%s %d\\n' '{self._mark}' $?")
        printed = []
        while not (line := self._next()).startswith(self._mark):
            printed.append(line)
        text = _without_work_notes("".join(printed))
        assert line.removeprefix(self._mark).strip() == "0", f"{command}\n{text}"
        assert fits(expected, text), f"{command}\n{text}"

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _next(self) -> str:
        line = self._lines.get(timeout=self._timeout)
        assert line is not None, "the shell ended"
        return line


@contextmanager
def background(command: str, folder: Path, timeout: float) -> Iterator[str]:
    """Yield the first line that a command prints; it is ended with Ctrl-C, and must end well."""
    with subprocess.Popen(
        shlex.split(command),
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=timeout)
        assert process.returncode == 0


@contextmanager
def _writing_to(descriptor: int) -> Iterator[None]:
    """Have what this process and its threads write go elsewhere for a block, as a shell's `>file 2>&1` does."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in before:
            os.dup2(descriptor, number)
        with (
            open(1, "w", encoding="utf-8", closefd=False) as out,
            open(2, "w", encoding="utf-8", closefd=False, buffering=1) as error,
            redirect_stdout(out),
            redirect_stderr(error),
        ):
            yield
    finally:
        for number, saved in before.items():
            os.dup2(saved, number)
            os.close(saved)
