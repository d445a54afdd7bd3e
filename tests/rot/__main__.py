"""Flip bits in logs, or change their columns, use the logs, and repair them: `make rot FLIPS=… SEED=…`.

Every change has to be harmless, named or refused, and a repair from a replica has to make the log what it was. A table
shows what became of them, by the shape of the log and what the change belongs to; each failure comes with the command
that shows it again. The exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gossiplog.storage.sqlite.pages import HEADER
from tests.rot.cells import Cell, cells
from tests.rot.judging import Change, Flip, Known, Outcome, judge, know
from tests.rot.owners import owner_of
from tests.rot.shapes import SHAPES, WAL, make

_FATES = ("harmless", "named", "refused")
_known: dict[str, Known] = {}


def flips(seed: str, count: int, known: Sequence[Known]) -> list[Flip]:
    """Choose bits, about as many of each log."""
    chosen: list[Flip] = []
    for number, log in enumerate(known):
        chance = random.Random(f"{seed} {log.shape.name}")
        file = "log.db-wal" if log.shape.name == WAL else "log.db"
        size = (log.shape.folder / file).stat().st_size
        share = count * (number + 1) // len(known) - count * number // len(known)
        chosen += [Flip(log.shape.name, file, chance.randrange(size), chance.randrange(8)) for _ in range(share)]
    return chosen


def header_flips(known: Sequence[Known]) -> list[Flip]:
    """Return every bit of the headers of the logs' files."""
    return [
        Flip(log.shape.name, "log.db", offset, bit) for log in known for offset in range(HEADER) for bit in range(8)
    ]


def all_cells(known: Sequence[Known]) -> list[Cell]:
    """Return every column of some rows of all tables, with every value that it may have read as."""
    return [cell for log in known for cell in cells(log.shape.name, log.shape.folder / "log.db")]


def change_of(text: str) -> Change:
    """Return the change that a failure names."""
    shape, place, row, value = text.rsplit(":", 3)
    if row.isdecimal():
        return Flip(shape, place, int(row), int(value))
    return Cell(shape, *place.split("."), row, value)


def run(chosen: Sequence[Change], known: Sequence[Known], folder: Path, workers: int) -> Iterator[Outcome]:
    """Judge changes in processes of their own, and yield the outcomes as they come."""
    _known.update({log.shape.name: log for log in known})
    if workers == 1:
        for change in chosen:
            yield _judge((change, folder))
        return
    with multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(_judge, [(change, folder) for change in chosen], chunksize=4)


def _judge(task: tuple[Change, Path]) -> Outcome:
    change, folder = task
    work = folder / f"work {os.getpid()}"
    try:
        return judge(change, _known[change.shape], work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(prog="make rot", description=__doc__)
    parser.add_argument("--flips", type=int, default=10_000, help="bits of files")
    parser.add_argument("--wal-flips", type=int, default=2_000, help="bits of write-ahead logs")
    parser.add_argument("--seed", default=None, help="of the run; any number, if there is none")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--only", metavar="CHANGE", help="one flip or column, as a failure names it")
    parser.add_argument("--header", action="store_true", help="every bit of the headers of the files instead")
    parser.add_argument("--cells", action="store_true", help="every column of some rows of all tables instead")
    options = parser.parse_args(arguments)
    seed = options.seed or str(random.SystemRandom().randrange(10**9))
    # In memory where there is such a folder: each flip writes some files.
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rot-", dir=place) as name:
        folder = Path(name)
        if options.only:
            change = change_of(options.only)
            log = know(make(change.shape, folder / change.shape))
            outcomes = [*_reported(run([change], [log], folder, 1), 1)]
            known = {change.shape: log}
        elif options.header or options.cells:
            logs = [know(make(shape, folder / shape)) for shape in SHAPES]
            known = {log.shape.name: log for log in logs}
            chosen: Sequence[Change] = header_flips(logs) if options.header else all_cells(logs)
            outcomes = [*_reported(run(chosen, logs, folder, options.workers), len(chosen))]
        else:
            logs = [know(make(shape, folder / shape)) for shape in SHAPES] if options.flips else []
            wal = [know(make(WAL, folder / WAL))] if options.wal_flips else []
            chosen = [*flips(seed, options.flips, logs), *flips(seed, options.wal_flips, wal)]
            known = {log.shape.name: log for log in (*logs, *wal)}
            outcomes = [*_reported(run(chosen, [*known.values()], folder, options.workers), len(chosen))]
        _show(outcomes, known)
    outcomes = [outcome for outcome in outcomes if outcome.fate != "none"]
    failed = [outcome for outcome in outcomes if outcome.failures]
    print(f"{len(outcomes):,} changes, seed {seed}, {len(failed):,} failures")
    return 1 if failed else 0


def _reported(outcomes: Iterator[Outcome], total: int) -> Iterator[Outcome]:
    """Print each failure as it comes, and now and then how far the run is."""
    reported = begun = time.monotonic()
    for done, outcome in enumerate(outcomes, 1):
        yield outcome
        for failure in outcome.failures:
            print(f"{failure}\n  python -m tests.rot --only '{outcome.change}'", flush=True)
        now = time.monotonic()
        if now - reported > 30:
            reported = now
            print(f"{done:,} of {total:,}, {done / (now - begun):,.1f} a second", flush=True)


def _show(outcomes: Sequence[Outcome], known: dict[str, Known]) -> None:
    counts: dict[tuple[str, str], Counter[str]] = {}
    owners = {name: owner_of(log.shape.folder / "log.db") for name, log in known.items()}
    for outcome in outcomes:
        change = outcome.change
        if isinstance(change, Cell):
            owner = f"{change.table}.{change.column}"
        else:
            owner = owners[change.shape](change.offset) if change.file == "log.db" else "write-ahead log"
        counter = counts.setdefault((change.shape, owner), Counter())
        counter[outcome.fate] += 1
        counter["repaired"] += outcome.repaired
        counter["failed"] += bool(outcome.failures)
    table = Table("log", "part", *_FATES, "repaired", "failed")
    for (shape, owner), counter in sorted(counts.items()):
        table.add_row(shape, owner, *(f"{counter[name]:,}" for name in (*_FATES, "repaired", "failed")))
    total = sum(counts.values(), Counter[str]())
    table.add_row("all", "", *(f"{total[name]:,}" for name in (*_FATES, "repaired", "failed")))
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main())
