"""What the tests of `gossiplog doctor` share: logs, kinds of damage, and commands run as they were printed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import gossiplog
from gossiplog import Signer
from tests.cli.support import Program


def log_to_look_at(home: Path) -> Path:
    """Make a log of 20 messages, and return its path."""
    place = home / "notes.db"
    with gossiplog.open(place, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(20))
    return place


def found(program: Program, path: Path, code: int, *options: str) -> dict[str, tuple[str, str, str]]:
    result = program("doctor", path, *options)
    assert (result.code, result.err) == (code, "")
    return {row["about"]: (row["severity"], row["finding"], row["run"]) for row in result.records}


def run_as_printed(program: Program, commands: str, source: Path) -> str:
    """Run commands that the program has printed, with a replica for SOURCE; return the error of the last one."""
    words = {"SOURCE": str(source), "TOPIC": "org.example.test", "NEW": "new.db"}
    err = ""
    for command in commands.split(" && "):
        name, *arguments = [words.get(word, word) for word in shlex.split(command)]
        if name == "rm":
            for path in arguments:
                Path(path).unlink()
        elif name == "mv":
            # Nothing that may have messages is overwritten: a write-ahead log's header has 32 bytes.
            target = Path(arguments[1])
            assert not target.exists() or target.stat().st_size <= 32
            Path(arguments[0]).rename(target)
        else:
            assert name == "gossiplog"
            result = program(*arguments)
            assert (result.code == 0) == (result.err == "")
            err = result.err
    return err


def first_command(text: str) -> str:
    """Return the first command in the text of an error, with those that follow it after `&&`."""
    words = text[re.search(r"\b(gossiplog|mv|rm) [a-z/]", text).start() :].replace("`", " ;").split()  # type: ignore[union-attr]
    command: list[str] = []
    for before, word in pairwise(["", *words]):
        bare = word.rstrip(";,.:")
        is_part = bare in ("gossiplog", "mv", "rm", "&&") or before == "gossiplog" or re.match("/|--|[A-Z]+$", bare)
        if not is_part:
            break
        command.append(bare)
        if bare != word:
            break
    return " ".join(command)


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def without_count(damage: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        Path(f"{path}-count").unlink()
        damage(path)

    return change


def flip(place: float, suffix: str = "", *, at: int = 0) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        file = Path(f"{path}{suffix}")
        content = bytearray(file.read_bytes())
        content[int(place * len(content)) + at] ^= 4
        file.write_bytes(content)

    return change


def in_its_place(name: str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.with_name(name).read_bytes())


DAMAGE: dict[str, tuple[bool, Callable[[Path], None]]] = {
    # Whether the process that wrote it was killed, and what happens to the file then.
    **{f"{size} bytes left": (False, cut(size)) for size in (0, 1, 511, 4096, 8192)},
    **{f"{size} bytes left, no count": (False, without_count(cut(size))) for size in (0, 511)},
    "the header": (False, flip(0.0)),
    "the page size": (False, flip(0.0, at=16)),
    "half of it": (False, lambda path: os.truncate(path, path.stat().st_size // 2)),
    "half of it, and the write-ahead log": (True, lambda path: os.truncate(path, path.stat().st_size // 2)),
    "a page in the middle": (False, lambda path: path.write_bytes(path.read_bytes()[:20_000] + bytes(40_000))),
    "the write-ahead log": (True, flip(0.5, "-wal")),
    "no write-ahead log": (True, lambda path: Path(f"{path}-wal").unlink()),
    "an older copy": (True, in_its_place("older.db")),
    "a backup": (True, in_its_place("backup.db")),
}


def damaged(files: dict[bool, dict[str, bytes]], home: Path, damage: str) -> Path:
    """Lay out the files of a log, damage them, and return the path of the log."""
    path = home / "log.db"
    is_killed, change = DAMAGE[damage]
    for name, content in files[is_killed].items():
        (home / name).write_bytes(content)
    change(path)
    return path


def files_of_a_log(folder: Path) -> dict[bool, dict[str, bytes]]:
    """The files of a log with a replica, an older copy and a backup: as it is left by a kill or in order."""
    path, found = folder / "log.db", {}
    signer = Signer(bytes(32))
    with gossiplog.open(path, "org.example.test", signer=signer) as log:
        log.append_many(range(300))
        log.backup(folder / "backup.db")
    (folder / "older.db").write_bytes(path.read_bytes())
    with gossiplog.open(path, signer=signer) as log:
        log.append_many(range(300))
    with gossiplog.open(path, signer=signer) as log:
        log.append(1)
        log.append(2)
        log.backup(folder / "whole.db")
        found[True] = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".db-shm"}
    found[False] = {file.name: file.read_bytes() for file in folder.iterdir()}
    return found
