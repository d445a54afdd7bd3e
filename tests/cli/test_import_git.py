"""`gossiplog import-git`: the history of a Git repository, read and imported."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import core
from gossiplog.cli import import_git
from gossiplog.cli.import_git import Commit, GitError, count_commits, read_history
from gossiplog.reference.canonical import write_cbor
from gossiplog.reference.ed25519 import sign_bytes
from tests.cli.support import Program, Repository


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


def test_no_commits_are_counted(repository: Repository) -> None:
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


def test_what_is_no_repository_cannot_be_counted(home: Path) -> None:
    with pytest.raises(GitError, match=f"cannot read the Git repository {home}: not a git repository"):
        count_commits(home)
    with pytest.raises(GitError, match="No such file or directory"):
        list(read_history(home / "nowhere"))


def test_no_git(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(GitError, match="git is not installed"):
        count_commits(home)


def test_a_huge_text_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_git, "_CHUNK", 10)
    monkeypatch.setattr(import_git, "_LONGEST_READ", 25)
    stream = io.BytesIO(b"a" * 1000 + b"\0short\0" + b"b" * 30 + b"\0")
    assert list(import_git._split(stream)) == [b"a" * 25, b"short", b"b" * 25]


def test_every_commit_becomes_a_message(program: Program, log: Path, branching: Repository) -> None:
    result = program("import-git", log, branching.path).record
    assert (result["commits"], result["inserted"], result["authors"], result["messages"]) == (9, 9, 4, 9)
    messages = {record["payload"]["message"]: record for record in program("read", log).records}
    octopus = messages["octopus\n\nwith a body"]
    assert set(octopus["parents"]) == {messages[f"arm {arm}"]["id"] for arm in range(3)}
    assert set(messages["Zusammenführung"]["parents"]) == {messages["left"]["id"], messages["right: ��"]["id"]}
    assert octopus["clock"] == 5
    assert messages[""]["parents"] == messages["begins with two byte order marks"]["parents"] == []
    assert octopus["payload"].keys() == {"commit", "author", "email", "time", "message"}
    info = program("info", log).record
    assert set(info["heads"]) == {octopus["id"], messages[""]["id"]}
    assert info["authors"] == 4
    assert program("verify", log).code == 0


def test_authors_have_keys_of_their_own(program: Program, log: Path, branching: Repository) -> None:
    program("import-git", log, branching.path)
    authors: dict[str, set[str]] = {}
    for record in program("read", log).records:
        authors.setdefault(record["payload"]["author"], set()).add(record["author"])
    assert authors.keys() == {"Ada", "B�n", "Kim", ""}
    assert all(len(keys) == 1 for keys in authors.values())
    assert len(set.union(*authors.values())) == 4


def test_importing_again_adds_only_new_commits(program: Program, log: Path, branching: Repository) -> None:
    program("import-git", log, branching.path)
    assert program("import-git", log, branching.path).record["inserted"] == 0
    tip = program("read", log, "--reverse", "--limit", "1").record
    branching.branch("main", branching.commit(b"new\n", tip["payload"]["commit"]))
    result = program("import-git", log, branching.path).record
    assert (result["commits"], result["inserted"], result["messages"]) == (10, 1, 10)
    assert program("read", log, "--reverse", "--limit", "1").record["parents"] == [tip["id"]]


def test_a_commit_is_known_from_any_importer(program: Program, log: Path, branching: Repository) -> None:
    program("import-git", log, branching.path)
    program("keygen", "other")
    assert program("import-git", log, branching.path, "--key", "other").record["inserted"] == 0


def test_the_same_importer_makes_the_same_messages(program: Program, log: Path, branching: Repository) -> None:
    program("import-git", log, branching.path)
    program("import-git", "second.db", branching.path, "--topic", "notes")
    assert program("info", "second.db").record["root"] == program("info", log).record["root"]


def test_what_only_looks_like_a_commit_is_none(program: Program, log: Path, repository: Repository) -> None:
    commit = repository.commit(b"true\n")
    repository.branch("main", commit)
    program("append", log, f'{{"commit": "{commit}"}}', '{"commit": []}', f'["{commit}"]')
    fields = f'"commit": "{commit}", "author": "Ada", "email": "ada@example.org", "time": 1700000060'
    program("append", log, f'{{{fields}, "message": "forged"}}')
    assert program("import-git", log, repository.path).record["inserted"] == 1


def test_hostile_payloads_are_passed_over(program: Program, log: Path, repository: Repository) -> None:
    """Signed by hand: this package writes nothing that is nested as deep as it reads."""
    repository.branch("main", repository.commit(b"true\n"))
    private_key = bytes(32)
    did = core.SigningKey(private_key).did
    time: Any = 0
    for _ in range(2100):
        time = [time]
    payload = {"author": "", "commit": "", "email": "", "message": "", "time": time}
    signed = write_cbor({"topic": "notes", "clock": 1, "parents": [], "payload": payload})
    value = write_cbor([["dag-cbor", did, sign_bytes(private_key, signed)], "notes", 1, [], payload])
    with gossiplog.open(log) as opened:
        assert opened.insert(value)
    assert program("import-git", log, repository.path).record["inserted"] == 1
    assert program("import-git", log, repository.path).record["inserted"] == 0


def test_two_importers_who_sync_later_have_everything_twice(program: Program, log: Path, branching: Repository) -> None:
    program("import-git", log, branching.path)
    program("keygen", "other")
    program("import-git", "second.db", branching.path, "--topic", "notes", "--key", "other")
    assert program("sync", log, "second.db").record["messages"] == 18


def test_a_long_message_is_cut(program: Program, log: Path, repository: Repository) -> None:
    repository.branch("main", repository.commit(("ü" * 1_000_000).encode()))
    assert program("import-git", log, repository.path).record["inserted"] == 1
    assert program("read", log).record["payload"]["message"] == "ü" * 262_144
    assert program("import-git", log, repository.path).record["inserted"] == 0


def test_a_repository_without_commits(program: Program, log: Path, repository: Repository) -> None:
    assert program("import-git", log, repository.path).record["commits"] == 0


def test_a_repository_s_own_configuration_runs_nothing(
    program: Program, log: Path, repository: Repository, home: Path
) -> None:
    """A missing object is not fetched: a repository's own configuration names the command that would fetch it."""
    repository.branch("main", repository.commit(b"true\n"))
    (repository.path / ".git" / "refs" / "heads" / "missing").write_text("1" * 40 + "\n")
    with (repository.path / ".git" / "config").open("a") as config:
        config.write(
            f"""
            [core]
                repositoryformatversion = 1
            [extensions]
                partialClone = origin
            [remote "origin"]
                promisor = true
                url = ext::touch {home}/fetched
            [protocol "ext"]
                allow = always
            """
        )
    imported = program("import-git", log, repository.path)
    assert not (home / "fetched").exists()
    assert imported.code == 1
    assert "cannot read the Git repository" in imported.err


def test_what_is_no_repository(program: Program, log: Path, home: Path) -> None:
    result = program("import-git", log, home)
    assert result.code == 1
    assert f"gossiplog: cannot read the Git repository {home}: not a git repository" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.slow
def test_several_batches(program: Program, log: Path, repository: Repository) -> None:
    last: list[str] = []
    for number in range(70):
        last = [repository.commit(b"%d\n" % number, *last)]
    repository.branch("main", last[0])
    assert program("import-git", log, repository.path).record["inserted"] == 70
    assert program("info", log).record["clock"] == 71


def test_few_commits_with_long_messages_are_signed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_git, "_BATCH_TEXT", 100)
    commits = [Commit(f"{number:040x}", (), "", "", 0, "m" * size) for number, size in enumerate((60, 40, 1, 200, 50))]
    sizes: list[int] = []
    with gossiplog.open(":memory:", "notes") as log:
        import_git.import_history(log, commits, bytes(32), sizes.append)
        assert (len(log), sizes) == (5, [2, 1, 1, 1])
