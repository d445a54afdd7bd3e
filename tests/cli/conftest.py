"""What the tests of the command line share: the program, a user's home, Git repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossiplog.cli.main import main
from tests.cli.support import Program, Repository, Result


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything in it, which is the working folder too."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PAGER", "")
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str]) -> Program:
    """Runs the program in this process, with its output going elsewhere than to a terminal."""

    def run(*arguments: str | Path) -> Result:
        code = main([str(argument) for argument in arguments])
        written = capfd.readouterr()
        return Result(code, written.out, written.err)

    return run


@pytest.fixture
def log(program: Program, home: Path) -> Path:
    """An empty log of the topic "notes"."""
    path = home / "notes.db"
    assert program("init", path, "--topic", "notes").code == 0
    return path


@pytest.fixture
def repository(home: Path) -> Repository:
    """A repository without commits."""
    return Repository(home / "repository")


@pytest.fixture
def branching(repository: Repository) -> Repository:
    """A history of nine commits with a merge, an octopus merge, two roots and text that is not UTF-8."""
    ben = "Bén <ben@example.org>".encode("latin-1")
    root = repository.commit(b"\xef\xbb\xbf\xef\xbb\xbfbegins with two byte order marks\n")
    left = repository.commit(b"left\n", root)
    right = repository.commit(b"right: \xff\xfe\n", root, author=ben)
    merge = repository.commit("Zusammenführung\n".encode("latin-1"), left, right, encoding="ISO-8859-1")
    arms = [repository.commit(b"arm %d\n" % arm, merge, author=b"Kim <>") for arm in range(3)]
    octopus = repository.commit(b"octopus\n\nwith a body\n", *arms)
    other = repository.commit(b"", author=b" <nobody@example.org>")
    repository.branch("main", octopus)
    repository.branch("other", other)
    return repository
