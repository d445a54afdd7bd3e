"""Compare both cores, and canvas-js beside them, on generated encodings: `make fuzz COUNT=… SEED=… MODE=…`.

Encodings come in batches, each from a seed of its own, so that a number and a seed name a run, and `--seed` with a
batch's number shows one batch again. What differs is shrunk and printed; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TypeAlias

from tests import vectors
from tests.fuzzing.batches import plan_alike
from tests.fuzzing.encodings import Encodings
from tests.fuzzing.judging import Difference, decode_alike, insert_alike, parse_alike, verify_alike
from tests.fuzzing.messages import TOPIC, Payload, draw_payload
from tests.fuzzing.shrinking import shrink
from tests.integration.javascript import JavaScriptPeer, Process, install, start_shared_node

MODES = ("parse", "verify", "decode", "insert", "plan")
_BATCH = 500
_SECONDS_BETWEEN_REPORTS = 30.0

#: Starts to compare payloads; returns what waits for the differences.
Start: TypeAlias = Callable[[Sequence[Payload]], Callable[[], list[Difference]]]


def payloads(seed: str, count: int, *, parents: bool = True) -> list[Payload]:
    """Generate the payloads of a batch, some of messages that name parents, unless there must be none."""
    recorded = [bytes.fromhex(row["input"]) for row in vectors.load("normalized") if len(row["input"]) < 1000]
    source = Encodings(seed, recorded)
    return [draw_payload(source, parents=parents) for _ in range(count)]


@contextmanager
def comparing(mode: str, process: Callable[[], Process]) -> Iterator[Start]:
    """Give what compares in a mode; a process of canvas-js is asked for where it takes one."""
    if mode in ("parse", "verify"):
        compare = parse_alike if mode == "parse" else verify_alike
        yield lambda batch: lambda: compare(batch)
        return
    with JavaScriptPeer(TOPIC, bytes(32), process=process()) as peer:
        yield decode_alike(peer.judge) if mode == "decode" else insert_alike(peer.judge, peer.insert_apart)


def batch_seeds(seed: str) -> Iterator[str]:
    """Yield the seeds of a run's batches; a seed that names a batch yields itself."""
    if re.fullmatch(r".+-\d+", seed):
        yield seed
    else:
        yield from (f"{seed}-{number}" for number in itertools.count())


def run(mode: str, seed: str, count: int, process: Callable[[], Process]) -> Iterator[tuple[int, list[str]]]:
    """Compare so many encodings; yield after each batch how many it had, and what differed, as text."""
    if mode == "plan":
        for batch in batch_seeds(seed):
            done, differences = plan_alike(batch)
            yield done, differences
            count -= done
            if count <= 0:
                return
        return
    with comparing(mode, process) as start:
        waiting: deque[tuple[str, int, Callable[[], list[Difference]]]] = deque()
        for done, batch in zip(range(0, count, _BATCH), batch_seeds(seed), strict=False):
            size = min(_BATCH, count - done)
            # canvas-js is at work on this one while the cores are on the one before.
            waiting.append((batch, size, start(payloads(batch, size, parents=mode != "insert"))))
            if len(waiting) > 1:
                yield _end(start, *waiting.popleft())
        while waiting:
            yield _end(start, *waiting.popleft())


def _end(start: Start, batch: str, size: int, end: Callable[[], list[Difference]]) -> tuple[int, list[str]]:
    return size, [_shown(difference, start, batch) for difference in end()[:5]]


def _shown(difference: Difference, start: Start, batch: str) -> str:
    payload = difference.payload
    smallest = shrink(payload.data, lambda smaller: bool(start([payload._replace(data=smaller)])()), tries=500)
    shown = next(iter(start([payload._replace(data=smallest)])()), difference)
    return f"batch {batch}: {shown}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--mode", choices=MODES, action="append", help="all of them, one after the other")
    parser.add_argument("--count", type=int, default=20_000, help="encodings for each mode")
    parser.add_argument("--seed", default=None, help="of the run; any number, if there is none")
    options = parser.parse_args(arguments)
    seed = options.seed or str(random.SystemRandom().randrange(10**9))
    differences = 0
    with ExitStack() as stack:
        started: list[Process] = []

        def process() -> Process:
            if not started:
                install()
                started.append(stack.enter_context(closing(start_shared_node())))
            return started[0]

        for mode in options.mode or MODES:
            begun = reported = time.monotonic()
            done = 0
            for size, found in run(mode, seed, options.count, process):
                done += size
                differences += len(found)
                for difference in found:
                    print(f"{mode}: {difference}", flush=True)
                now = time.monotonic()
                if now - reported > _SECONDS_BETWEEN_REPORTS:
                    reported = now
                    print(f"{mode}: {done:,} of {options.count:,}, {done / (now - begun):,.0f} a second", flush=True)
            seconds = time.monotonic() - begun
            print(
                f"{mode}: {done:,} encodings in {seconds:,.0f} s, seed {seed}, {differences} differences so far",
                flush=True,
            )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
