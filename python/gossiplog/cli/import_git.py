"""`gossiplog import-git`: every commit of a Git repository becomes a message whose parents are its parents' messages.

The payload is `{"commit", "author", "email", "time", "message"}`. Each Git author gets a key of their own, derived from
the importer's: HMAC-SHA-256 (RFC 2104) of the author's name and address under the importer's private key. So the keys
need no keeping, an importer makes the same messages again, and a signature is the importer's word, not the author's.

A commit is known when the log has a message with the same payload, signed by any key: importing again adds only new
commits, also under another key, and nobody can pass off another text as a commit. Two importers who have not synced yet
do not know each other's messages: their logs, once synced, hold every commit twice.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from gossiplog import core
from gossiplog.cli.keys import Key, load_signer
from gossiplog.cli.logs import LogPath, NewTopic, open_log
from gossiplog.cli.output import Json, Output, Stopwatch, progress
from gossiplog.errors import GossipLogError
from gossiplog.log import Log
from gossiplog.reprs import counted
from gossiplog.signer import Signer

# Every ref, so that no branch is lost, but not what Git keeps in refs/ for itself. Replacements, signatures to check
# and output encodings from the user's configuration would make a history read differently on another machine.
_REFS = ("--exclude=refs/stash", "--exclude=refs/notes/*", "--all")
_LOG = ("log", "-z", "--reverse", "--topo-order", "--no-show-signature", "--no-color", "--encoding=UTF-8")
_LOG_FIELDS = ("%H", "%P", "%an", "%ae", "%at", "%B")
_CHUNK = 1 << 20
_LONGEST_READ = 1 << 22  # bytes of one text; what comes after them is passed over
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
    with _git(repository, *_LOG, "--format=tformat:" + "%x00".join(_LOG_FIELDS), *_REFS) as output:
        pieces = _split(output)
        for sha, parents, author, email, time, message in zip(*[pieces] * len(_LOG_FIELDS), strict=False):
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
    """Yield the pieces of a stream in which each is followed by a zero byte, each up to _LONGEST_READ."""
    rest = b""
    while chunk := stream.read(_CHUNK):
        *pieces, rest = (rest + chunk).split(b"\0")
        yield from (piece[:_LONGEST_READ] for piece in pieces)
        rest = rest[:_LONGEST_READ]


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").lstrip("\ufeff")


_BATCH = 4096  # messages: large enough for batched verification, small enough for a progress bar
_BATCH_TEXT = 1 << 23  # characters
_LONGEST = 1 << 18  # characters of one text; longer ones are cut, because a message must fit into a protocol frame
_FIELDS = frozenset({"commit", "author", "email", "time", "message"})


class ImportRefused(GossipLogError):
    """The log refuses the message of a commit."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did.

    Attributes:
        commits: how many the repository has.
        inserted: how many of them were new to the log.
        authors: how many Git authors there are.
    """

    commits: int
    inserted: int
    authors: int


def import_history(
    log: Log, commits: Iterable[Commit], private_key: bytes, advance: Callable[[int], None] = lambda steps: None
) -> ImportResult:
    """Insert the messages of commits that the log has not.

    Args:
        log: where to.
        commits: each after its parents; parents that are not among them are passed over.
        private_key: the importer's.
        advance: called with numbers of commits done.

    Raises:
        ImportRefused: the log refuses a message; the commits before are in it.
    """
    places = _known(log)
    signers: dict[tuple[str, str], Signer] = {}
    ids: dict[str, tuple[str, int]] = {}
    total = inserted = 0
    for batch in _batches(commits):
        values: list[bytes] = []
        names: list[str] = []
        for commit in batch:
            payload = describe(commit)
            author = (commit.author, commit.email)
            signer = signers.get(author) or signers.setdefault(author, Signer(author_key(private_key, *author)))
            place = places.get(_fingerprint(payload))
            if place is None:
                parents = [ids[sha] for sha in commit.parents if sha in ids]
                clock = 1 + max((clock for _, clock in parents), default=0)
                message, value = signer.sign(log.topic, clock, sorted({id for id, _ in parents}), payload)
                place = (core.encode_id(message), clock)
                values.append(value)
                names.append(commit.sha)
            ids[commit.sha] = place
        result = log.insert_many(values)
        if result.refused:
            index, reason = result.refused[0]
            raise ImportRefused(f"commit {names[index]}: {reason}")
        inserted += result.inserted
        total += len(batch)
        advance(len(batch))
    return ImportResult(total, inserted, len(signers))


def _batches(commits: Iterable[Commit]) -> Iterator[list[Commit]]:
    """Yield the commits in lists of up to _BATCH, each with _BATCH_TEXT characters at most or a single commit."""
    batch: list[Commit] = []
    left = _BATCH_TEXT
    for commit in commits:
        size = len(commit.author) + len(commit.email) + len(commit.message)
        if batch and (len(batch) == _BATCH or size > left):
            yield batch
            batch, left = [], _BATCH_TEXT
        batch.append(commit)
        left -= size
    if batch:
        yield batch


def describe(commit: Commit) -> dict[str, Any]:
    """Return the payload of a commit's message."""
    return {
        "commit": commit.sha,
        "author": commit.author[:_LONGEST],
        "email": commit.email[:_LONGEST],
        "time": commit.time,
        "message": commit.message[:_LONGEST],
    }


def author_key(private_key: bytes, name: str, email: str) -> bytes:
    """Return the private key that an importer signs a Git author's messages with."""
    identity = core.cbor_encode(["gossiplog import-git author", name, email])
    return hmac.new(private_key, identity, hashlib.sha256).digest()


def _known(log: Log) -> dict[bytes, tuple[str, int]]:
    """Return the id and clock of each message about a commit, by the fingerprint of its payload."""
    known: dict[bytes, tuple[str, int]] = {}
    for message in log.messages():
        payload = message.payload
        if _describes_a_commit(payload):
            known[_fingerprint(payload)] = (message.id, message.clock)
    return known


def _describes_a_commit(payload: Any) -> bool:
    """Return whether this could be from `describe`. Others may write anything under these names, however deep."""
    if not isinstance(payload, dict) or payload.keys() != _FIELDS:
        return False
    return all(type(value) is (int if name == "time" else str) for name, value in payload.items())


def _fingerprint(payload: dict[str, Any]) -> bytes:
    # Not dag-cbor: payloads from elsewhere may hold what this peer refuses to write.
    text = repr([payload[field] for field in sorted(_FIELDS)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def import_git(
    path: LogPath,
    repository: Annotated[Path, typer.Argument(metavar="REPOSITORY", help="The folder of the Git repository.")],
    topic: NewTopic = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Import the history of a Git repository: a message for each commit that the log has not yet.

    All branches, tags and remote branches are taken. Import once and let the others sync: two people who each import
    and then sync get every commit twice.
    """
    output = Output(json)
    total = count_commits(repository)
    private_key = load_signer(key).private_key
    with (
        open_log(path, topic, makes=True) as log,
        progress("Importing commits", total) as advance,
        Stopwatch() as watch,
    ):
        imported = import_history(log, read_history(repository), private_key, advance)
        messages = len(log)
    if output.json:
        output.record(
            {
                "commits": imported.commits,
                "inserted": imported.inserted,
                "authors": imported.authors,
                "messages": messages,
                "seconds": round(watch.seconds, 6),
            }
        )
    else:
        output.show(
            f"{imported.inserted:,} of {counted(imported.commits, 'commit was', 'commits were')} new, by"
            f" {counted(imported.authors, 'author')} in all; {counted(watch.rate(imported.commits), 'commit')} a"
            f" second; the log holds {counted(messages, 'message')}."
        )
