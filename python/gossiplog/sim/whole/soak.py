"""Many seeds, in several processes."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gossiplog.sim.whole.checks import BrokenInvariantError
from gossiplog.sim.whole.run import RunResult, run_seed

_CHUNK = 4


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed whose run broke an invariant; the text has the command that shows it again."""

    seed: int
    text: str


def soak(seeds: Sequence[int], peers: int, processes: int) -> Iterator[RunResult | Failure]:
    """Run seeds, and yield what became of each, in their order.

    Args:
        seeds: to run.
        peers: honest ones in each run.
        processes: at a time; 1 is this one.
    """
    jobs = [(seed, peers) for seed in seeds]
    if processes == 1:
        yield from map(_run, jobs)
        return
    # Spawned, because the core's threads do not survive a fork. Ctrl-C is this process's, which ends the others.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap(_run, jobs, chunksize=_CHUNK if len(jobs) > _CHUNK * processes else 1)


def _run(job: tuple[int, int]) -> RunResult | Failure:
    seed, peers = job
    try:
        return run_seed(seed, peers)
    except BrokenInvariantError as error:
        return Failure(seed, str(error))
