"""Kills a rebase before each of its steps, and looks at the log after each; run by test_kill.py.

    python kill_rebase.py FOLDER

A step is what Python's audit hooks report of files (opened, linked, renamed, removed, their modes; of reads of one
file that follow each other, the first), each fsync, and each transaction of a log. A fork rebases a copy of one log,
and is killed before its step 1, 2, 3, ... until it comes to its end. After each kill another fork opens the log,
verifies it, and rebases it.
This process runs no batch of the core itself: its threads would be missing in the forks. Prints JSON: kills, and how
many left the former and the new log.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gossiplog
from gossiplog import Signer
from gossiplog.log import arrival_check, audit, pulling  # noqa: F401 - each fork would import them anew
from gossiplog.log.log import replica_of
from gossiplog.log.rebasing import rebase_file
from gossiplog.storage.sqlite.storage import SQLiteStorage

_TOPIC = "kill"
_US, _THEM = Signer(b"\1" * 32), Signer(b"\2" * 32)
_STEPS = frozenset(["open", "os.link", "os.rename", "os.remove", "os.chmod", "os.chown", "sqlite3.connect"])
_KILLED = -signal.SIGKILL
_MOST_STEPS = 1000


class Steps:
    """Counts the steps of this process, and kills it before one of them."""

    def __init__(self, last: int) -> None:
        self.left = last
        self._former: object = None
        sys.addaudithook(self._hear)
        fsync, transaction = os.fsync, SQLiteStorage.transaction

        def counted_fsync(descriptor: int) -> None:
            self.step()
            fsync(descriptor)

        def counted_transaction(storage: SQLiteStorage) -> Any:
            self.step()
            return transaction(storage)

        os.fsync = counted_fsync
        SQLiteStorage.transaction = counted_transaction  # type: ignore[method-assign]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Nothing changes between two reads of a file.
        is_read = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if event in _STEPS and not (is_read and (event, arguments) == self._former):
            self.step()
            self._former = event, arguments

    def step(self) -> None:
        """Note that a step is about to be taken."""
        self._former = None
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def in_a_fork(call: Callable[[], object], meanwhile: Callable[[int], object] = lambda _: None) -> int:
    """Run a call in a fork of this process; return its exit code, or minus the signal that killed it.

    Args:
        call: is made in the fork.
        meanwhile: is called in this process, with the number of the fork's.
    """
    process = os.fork()
    if process == 0:
        try:
            call()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a fork must not go on with its parent's work
            traceback.print_exc()
            os._exit(1)
    meanwhile(process)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)


def prepare(folder: Path) -> None:
    """Make the log, the target, and a list of what is dropped and of both roots."""
    with gossiplog.open(folder / "target.db", _TOPIC, signer=_THEM) as target:
        target.append_many(range(10))
    with gossiplog.open(folder / "log.db", _TOPIC, signer=_US) as log:
        bad = log.append("bad")
        log.append_many(range(60))
        former = log.root.hash.hex()
    shutil.copytree(folder, folder / "whole")
    rebase(folder / "whole", bad.id)
    with gossiplog.open(folder / "whole" / "log.db") as log:
        new = log.root.hash.hex()
    facts = {"bad": bad.id, "former": former, "new": new}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    shutil.rmtree(folder / "whole")


def rebase(folder: Path, bad: str) -> None:
    """Rebase the log in a folder onto the target there."""
    rebase_file(folder / "log.db", lambda new: new.pull(folder / "target.db"), [bad], [_US])


def check(folder: Path, facts: dict[str, str]) -> None:
    """Check that one of the two logs is there, whole, and that a rebase comes to its end; write which it is."""
    with gossiplog.open(folder / "log.db") as log:
        root = log.verify().root.hash.hex()
        generation = replica_of(log).position().generation
    expected = {facts["former"]: 0, facts["new"]: 1}
    if expected.get(root) != generation:
        raise AssertionError(f"the log has the root {root} and generation {generation}")
    if generation == 0:
        rebase(folder, facts["bad"])
        with gossiplog.open(folder / "log.db") as log:
            if log.verify().root.hash.hex() != facts["new"]:
                raise AssertionError("another rebase made another log")
    with gossiplog.open(folder / "log.db.generation-0", read_only=True) as former:
        if former.verify().root.hash.hex() != facts["former"]:
            raise AssertionError("the former file is another one")
    left = {each.name for each in folder.iterdir()} - {
        "target.db",
        "log.db",
        "log.db.generation-0",
        "target.db-count",
        "log.db-count",
    }
    if {name for name in left if not name.startswith("target.db-")}:
        raise AssertionError(f"files are left: {sorted(left)}")
    (folder / "found").write_text(str(generation), encoding="ascii")


def main(folder: Path) -> None:
    """Kill a rebase before each step."""
    made = folder / "made"
    made.mkdir()
    if in_a_fork(lambda: prepare(made)):
        raise SystemExit("the logs were not made")
    facts = json.loads((made / "facts.json").read_text(encoding="utf-8"))
    found = [0, 0]
    for step in range(1, _MOST_STEPS):
        copy = folder / f"step-{step}"
        copy.mkdir()
        for name in ("target.db", "log.db"):
            shutil.copy(made / name, copy / name)

        def attempt(step: int = step, copy: Path = copy) -> None:
            Steps(step)
            rebase(copy, facts["bad"])

        status = in_a_fork(attempt)
        if status not in (0, _KILLED):
            raise SystemExit(f"the rebase ended with status {status}, step {step}")
        if in_a_fork(lambda copy=copy: check(copy, facts)):
            raise SystemExit(f"after a kill before step {step} the log is not whole: {copy}")
        if status == 0:
            sys.stdout.write(json.dumps({"kills": step - 1, "former": found[0], "new": found[1]}))
            return
        found[int((copy / "found").read_text(encoding="ascii"))] += 1
        shutil.rmtree(copy)
    raise SystemExit("the rebase has too many steps")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
