"""Compare both cores, and canvas-js beside them, on generated encodings: `make fuzz COUNT=… SEED=… MODE=…`.

Encodings come in batches, each from a seed of its own, so that a number and a seed name a run, and `--seed` with a
batch's number shows one batch again. What differs is shrunk and printed; then the exit status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TypeAlias

from tests import vectors
from tests.fuzzing.batches import plan_alike
from tests.fuzzing.encodings import Encodings
from tests.fuzzing.judging import (
    CODECS,
    TOPIC,
    Difference,
    Payload,
    decode_alike,
    insert_alike,
    parse_alike,
    verify_alike,
)
from tests.fuzzing.shrinking import shrink
from tests.integration.javascript import JavaScriptPeer, Process, install, start_shared_node

MODES = ("parse", "verify", "decode", "insert", "plan")
_BATCH = 500
_SECONDS_BETWEEN_REPORTS = 30.0

Compare: TypeAlias = Callable[[Sequence[Payload]], list[Difference]]


def payloads(seed: str, count: int) -> list[Payload]:
    """Generate the payloads of a batch."""
    recorded = [bytes.fromhex(row["input"]) for row in vectors.load("normalized") if len(row["input"]) < 1000]
    source = Encodings(seed, recorded)
    return [(source.payload(), source.random.choice(CODECS)) for _ in range(count)]


@contextmanager
def comparing(mode: str, process: Callable[[], Process]) -> Iterator[Compare]:
    """Give what compares in a mode; a process of canvas-js is asked for where it takes one."""
    if mode in ("parse", "verify"):
        yield parse_alike if mode == "parse" else verify_alike
        return
    with JavaScriptPeer(TOPIC, bytes(32), process=process()) as peer:
        if mode == "decode":
            yield decode_alike(peer.judge)
            return

        def insert(values: Sequence[bytes]) -> list[tuple[int, str]]:
            # Its inserts take longer with each head that the log has.
            with JavaScriptPeer(TOPIC, bytes(32), process=process()) as log:
                return log.insert(values)

        yield insert_alike(peer.judge, insert)


def run(mode: str, seed: str, count: int, process: Callable[[], Process]) -> Iterator[tuple[int, list[str]]]:
    """Compare so many encodings; yield after each batch how many it had, and what differed, as text."""
    if mode == "plan":
        for number in itertools.count():
            done, differences = plan_alike(f"{seed}-{number}")
            yield done, differences
            count -= done
            if count <= 0:
                return
    with comparing(mode, process) as compare:
        for number in range(-(-count // _BATCH)):
            size = min(_BATCH, count - number * _BATCH)
            found = compare(payloads(f"{seed}-{number}", size))
            yield size, [_shown(difference, compare, f"{seed}-{number}") for difference in found[:5]]


def _shown(difference: Difference, compare: Compare, batch: str) -> str:
    data, codec = difference.payload
    # Both, since the first of eight payloads is compared alone, too.
    smallest = shrink(data, lambda smaller: bool(compare([(smaller, codec)])), tries=500)
    shown = next(iter(compare([(smallest, codec)])), difference)
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
