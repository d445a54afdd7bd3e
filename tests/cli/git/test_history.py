from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from gossiplog.cli.git import history as git_history
from gossiplog.cli.git.history import GitError, count_commits, read_history
from tests.cli.support import Repository


def test_every_commit_comes_after_its_parents(branching: Repository) -> None:
    commits = list(read_history(branching.path))
    assert len(commits) == count_commits(branching.path) == 9
    seen: set[str] = set()
    for commit in commits:
        assert seen.issuperset(commit.parents)
        seen.add(commit.sha)
    assert sorted(len(commit.parents) for commit in commits) == [0, 0, 1, 1, 1, 1, 1, 2, 3]


def test_text(branching: Repository) -> None:
    commits = {commit.message: commit for commit in read_history(branching.path)}
    assert commits.keys() == {
        "begins with two byte order marks",
        "left",
        "right: ��",
        "Zusammenführung",
        "arm 0",
        "arm 1",
        "arm 2",
        "octopus\n\nwith a body",
        "",
    }
    assert commits["left"].author == "Ada"
    assert commits["left"].email == "ada@example.org"
    assert commits["left"].time == 1_700_000_120
    assert commits["right: ��"].author == "B�n"
    assert commits["arm 0"].email == ""
    assert commits[""].author == ""


def test_a_repository_without_commits(repository: Repository) -> None:
    assert count_commits(repository.path) == 0
    assert list(read_history(repository.path)) == []


def test_a_shallow_clone_begins_where_it_was_cut(branching: Repository, home: Path) -> None:
    clone = home / "clone"
    source = branching.path.as_uri()
    subprocess.run(["git", "clone", "--quiet", "--bare", "--depth=2", source, clone], check=True, capture_output=True)
    commits = list(read_history(clone))
    assert [len(commit.parents) for commit in commits] == [0, 0, 0, 3]


def test_a_message_longer_than_a_read(repository: Repository) -> None:
    message = b"x" * 3_000_000
    repository.branch("main", repository.commit(message))
    (commit,) = read_history(repository.path)
    assert commit.message == message.decode()


def test_stopping_early_stops_git(branching: Repository) -> None:
    history = read_history(branching.path)
    assert next(history).parents == ()
    history.close()


def test_what_is_no_repository(home: Path) -> None:
    with pytest.raises(GitError, match=f"cannot read the Git repository {home}: not a git repository"):
        count_commits(home)
    with pytest.raises(GitError, match="No such file or directory"):
        list(read_history(home / "nowhere"))


def test_no_git(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(GitError, match="git is not installed"):
        count_commits(home)


def test_a_huge_text_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_history, "_CHUNK", 10)
    monkeypatch.setattr(git_history, "_LONGEST", 25)
    stream = io.BytesIO(b"a" * 1000 + b"\0short\0" + b"b" * 30 + b"\0")
    assert list(git_history._split(stream)) == [b"a" * 25, b"short", b"b" * 25]
