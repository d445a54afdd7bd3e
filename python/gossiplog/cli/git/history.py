"""Reads the history of a Git repository: one `git log` for all of it, however many commits it has."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gossiplog.errors import GossipLogError

# Every ref, so that no branch is lost, but not what Git keeps in refs/ for itself. Replacements, signatures to check
# and output encodings from the user's configuration would make a history read differently on another machine.
_REFS = ("--exclude=refs/stash", "--exclude=refs/notes/*", "--all")
_LOG = ("log", "-z", "--reverse", "--topo-order", "--no-show-signature", "--no-color", "--encoding=UTF-8")
_FIELDS = ("%H", "%P", "%an", "%ae", "%at", "%B")
_CHUNK = 1 << 20
_LONGEST = 1 << 22  # bytes of one text; what comes after them is passed over
# Set inside Git's own hooks, and stronger there than the folder that is asked for.
_REMOVED = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE"})
# A repository's own configuration may name a command that fetches missing objects. The first is for Git 2.45 and later.
_SET = {"LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}


class GitError(GossipLogError):
    """Git is missing, or cannot read the repository."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, in text that any log takes: invalid UTF-8 became U+FFFD, and no text begins with U+FEFF.

    Attributes:
        sha: its name, in hexadecimal.
        parents: the names of its parents, in Git's order, without repetition.
        author: the name of its author.
        email: the address of its author.
        time: when it was authored, in seconds since 1970.
        message: subject and body. As the other texts, it ends after 4 MiB of UTF-8.
    """

    sha: str
    parents: tuple[str, ...]
    author: str
    email: str
    time: int
    message: str


def count_commits(repository: Path) -> int:
    """Return how many commits `read_history` will yield.

    Raises:
        GitError: as in `read_history`.
    """
    with _git(repository, "rev-list", "--count", *_REFS) as output:
        return int(output.read() or 0)


def read_history(repository: Path) -> Iterator[Commit]:
    """Yield the commits that any branch, tag or remote branch reaches, each after all its parents.

    In a shallow clone the commits at the edge have no parents.

    Args:
        repository: a work tree, a folder in one, or a bare repository.

    Raises:
        GitError: Git is not installed, or `repository` is not a repository that it can read.
    """
    with _git(repository, *_LOG, "--format=tformat:" + "%x00".join(_FIELDS), *_REFS) as output:
        pieces = _split(output)
        for sha, parents, author, email, time, message in zip(*[pieces] * len(_FIELDS), strict=False):
            yield Commit(
                sha=sha.decode("ascii"),
                parents=tuple(dict.fromkeys(parents.decode("ascii").split())),
                author=_text(author),
                email=_text(email),
                time=int(time or 0),
                message=_text(message).rstrip("\n"),
            )


@contextmanager
def _git(repository: Path, *arguments: str) -> Iterator[IO[bytes]]:
    """Run Git on the repository, for a block that reads what it prints.

    Raises:
        GitError: it is missing, or failed; on leaving the block, because it may fail at the end.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED} | _SET
    # A pipe for the complaints too would block Git when it has many while nobody reads them.
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                ["git", "--no-pager", "--no-replace-objects", "-C", str(repository), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
            )
        except FileNotFoundError as error:
            raise GitError("git is not installed, or not on the PATH") from error
        with process:
            if process.stdout is None:
                raise GitError("git was started without a pipe to read from")
            try:
                yield process.stdout
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            complaints.seek(0)
            lines = _text(complaints.read()).splitlines()
            reason = lines[0].removeprefix("fatal: ") if lines else f"git ended with {process.returncode}"
            raise GitError(f"cannot read the Git repository {repository}: {reason}")


def _split(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a stream in which each is followed by a zero byte, each up to _LONGEST."""
    rest = b""
    while chunk := stream.read(_CHUNK):
        *pieces, rest = (rest + chunk).split(b"\0")
        yield from (piece[:_LONGEST] for piece in pieces)
        rest = rest[:_LONGEST]


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").lstrip("\ufeff")
