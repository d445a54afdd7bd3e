"""All benchmarks, in the order of their results."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from gossiplog.cli.bench import arithmetic, logs, syncs
from gossiplog.cli.bench.histories import history
from gossiplog.cli.bench.stage import Logs, Result, Stage, Turns


def run(size: int) -> Iterator[Result]:
    """Run everything on logs of `size` messages, in a temporary folder; yield each result at once.

    Bare Rust to compare the core's arithmetic with is there only in a checkout.
    """
    values = functools.cache(lambda name, count: list(history(name, count)))
    with TemporaryDirectory(prefix="gossiplog-bench-") as folder:
        changed, kept = Path(folder, "changed"), Path(folder, "kept")
        changed.mkdir()
        kept.mkdir()
        files = Logs(changed, kept)

        def stage() -> Stage:
            return Stage(size, values, files, Turns())

        for benchmark in (
            arithmetic.verify_batch,
            arithmetic.build_tree,
            arithmetic.insert_into_tree,
            logs.insert_many,
            logs.insert_roots,
            logs.open_and_append,
            logs.append,
            logs.two_processes,
        ):
            yield benchmark(stage())
        for name in logs.BRAIDS:
            yield logs.is_ancestor(stage(), name)
        yield syncs.pull_everything(stage(), size)[0]
        yield syncs.pull_the_end(stage())
        yield syncs.pull_scattered(stage())
