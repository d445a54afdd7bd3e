"""Run the mutants, each against the tests that cite the rule that it breaks: `make mutants`.

On a terminal a bar shows how far it is; otherwise each mutant is a line of JSON, and the last line sums them up. The
exit status is 1 if one survives, if a rule has no test that could be run, or if the lists of those that run do not fit
the sources.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.mutation import catalogue
from tests.mutation.catalogue import CatalogueError, Mutant
from tests.mutation.running import Fate, Outcome, run


def sample(mutants: Sequence[Mutant], count: int) -> list[Mutant]:
    """Choose some mutants: others when a source or a list has changed, the same ones otherwise."""
    digest = hashlib.sha256()
    for mutant in mutants:
        digest.update(repr(mutant).encode())
    for path in sorted({mutant.path for mutant in mutants}):
        digest.update((catalogue.PACKAGE / path).read_bytes())
    return random.Random(digest.digest()).sample(list(mutants), min(count, len(mutants)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=None, help="run so many, chosen by the sources")
    parser.add_argument("--only", default="", help="run those whose description has this text")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    options = parser.parse_args(arguments)
    try:
        listed = catalogue.read()
        mutants = [mutant for mutant in listed if not mutant.equivalent and options.only in str(mutant)]
        if options.sample is not None:
            mutants = sample(mutants, options.sample)
        # test_each_mutant_changes_its_source applies all.
        for mutant in mutants:
            mutant.apply(catalogue.source_of(mutant))
    except CatalogueError as error:
        print(error, file=sys.stderr)
        return 1
    out = sys.stdout
    console = Console(file=out)
    outcomes: list[Outcome] = []
    columns = (
        TextColumn("mutants"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, auto_refresh=False) as progress:
        task = progress.add_task("", total=len(mutants))

        def report(outcome: Outcome) -> None:
            outcomes.append(outcome)
            if not console.is_terminal:
                row = {"mutant": str(outcome.mutant), "fate": outcome.fate.value, "by": outcome.by}
                print(json.dumps({**row, "cpu_seconds": round(outcome.seconds, 2)}), file=out, flush=True)
            elif outcome.fate is not Fate.KILLED:
                progress.console.print(f"{outcome.fate.value}: {outcome.mutant}", markup=False, highlight=False)
            left = sum(each.fate is not Fate.KILLED for each in outcomes)
            progress.update(task, advance=1, description=f"{left} not killed", refresh=True)

        seconds = run(mutants, report, options.workers)
    counts = Counter(outcome.fate for outcome in outcomes)
    total = {
        "mutants": len(mutants),
        **{fate.name.lower(): counts[fate] for fate in Fate},
        "seconds": round(seconds, 1),
    }
    print(", ".join(f"{count} {name}" for name, count in total.items()) if console.is_terminal else json.dumps(total))
    return 0 if counts[Fate.KILLED] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
