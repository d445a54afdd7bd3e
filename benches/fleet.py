"""Logs that are made once and kept out of the repository: large ones, and a fleet of hubs with thousands of small ones.

`.venv/bin/python -m benches.fleet FOLDER` makes in a folder, as far as they are not there yet:

- `fleet/hub-0/0000.db` and so on: ten hubs with replicas of the same `--topics` logs of 1,000 messages, each of which
  has a topic, authors and payloads of its own. Those of hub-0 are made, the others are copies of their files. Of every
  tenth topic the last hub's replica has 37 messages fewer, and is made;
- `large-N.db`, logs of N messages;
- `replica-N.db`, copies of these with 37 messages more.

So `fleet/hub-*/0000.db` are 10 logs, `fleet/hub-*/000?.db` 100, `fleet/hub-*/00??.db` 1,000, `fleet/hub-*/*.db` 10,000.

A message follows the heads that its author sees, as one to three authors write at once; in a large log four such groups
write at once, and see each other's messages now and then. Texts have 10 to 2,000 bytes, 120 in the median. Keys,
payloads and parents follow from the topic: the logs are the same everywhere.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import gossiplog.log
from gossiplog import Signer, core
from gossiplog.log.insertion import insert_many

LARGE = (100_000, 1_000_000, 10_000_000)
MESSAGES = 1000
"""Of each log of the fleet."""
HUBS = 10
LACKING = 37
"""Messages that some replicas lack."""
_TOPIC = "org.gossiplog.large"
_AUTHORS = 100
_GROUPS = 4
# Of each group, until the groups see each other's messages.
_STEP = 5000
_SENTENCE = "the kettle is on and nobody has seen the other half of this sentence since tuesday"
_LENGTHS = 997

Entry: TypeAlias = tuple[bytes, bytes]
"""The key and the value of a message."""


@dataclass(frozen=True, slots=True)
class Group:
    """Authors who see each other's messages at once, as far as they have come.

    Attributes:
        topic: of the log.
        keys: the seeds of their key pairs.
        heads: ids of the messages that the next ones follow.
        clock: of the last message.
        made: how many messages there are.
    """

    topic: str
    keys: tuple[bytes, ...]
    heads: tuple[str, ...] = ()
    clock: int = 0
    made: int = 0

    def write(self, count: int) -> tuple[list[Entry], Group]:
        """Return the next messages, in causal order, and what the group is then."""
        choice = random.Random(f"{self.topic} {self.keys[0].hex()} {self.made}")
        authors, (text, lengths) = [*map(_signing_key, self.keys)], _texts(self.topic)
        entries: list[Entry] = []
        heads, clock, made = [*self.heads], self.clock, self.made
        while len(entries) < count:
            clock += 1
            width = min(choice.choice((1, 1, 2, 3)), len(authors), count - len(entries))
            first = choice.randrange(len(authors))
            following = []
            for place in range(width):
                start = made * 31 % 4999
                payload = {"number": made, "text": text[start : start + lengths[made % _LENGTHS]]}
                entry = authors[(first + place) % len(authors)].sign(self.topic, clock, heads, payload)
                following.append(core.encode_id(entry[0]))
                entries.append(entry)
                made += 1
            heads = following
        return entries, replace(self, heads=tuple(heads), clock=clock, made=made)


@lru_cache(maxsize=1000)
def _signing_key(seed: bytes) -> core.SigningKey:
    return core.SigningKey(seed)


@lru_cache(maxsize=4)
def _texts(topic: str) -> tuple[str, list[int]]:
    """Return a text of which payloads are parts, and lengths of such parts."""
    choice = random.Random(topic)
    text = " ".join(choice.choices(_SENTENCE.split(), k=3000))
    return text, [min(2000, 10 + int(choice.lognormvariate(4.7, 0.8))) for _ in range(_LENGTHS)]


def _seeds(topic: str, first: int, end: int) -> tuple[bytes, ...]:
    return tuple(hashlib.sha256(f"{topic} {number}".encode()).digest() for number in range(first, end))


def _write(count: int, group: Group) -> tuple[list[Entry], Group]:
    return group.write(count)


def large_history(count: int, pool: ProcessPoolExecutor) -> Iterator[bytes]:
    """Yield the values of a large log in causal order: the groups write at once, each in a process."""
    share = _AUTHORS // _GROUPS
    groups = [Group(_TOPIC, _seeds(_TOPIC, number * share, (number + 1) * share)) for number in range(_GROUPS)]
    made = 0
    steps: list[Future[tuple[list[Entry], Group]]] = []

    def begin(groups: Sequence[Group]) -> None:
        steps[:] = [pool.submit(_write, _STEP, group) for group in groups]

    begin(groups)
    while made < count:
        done = [step.result() for step in steps]
        groups = [group for _, group in done]
        # Every group sees what another one wrote.
        seen = [
            replace(group, heads=tuple(sorted({*group.heads, *other.heads})), clock=max(group.clock, other.clock))
            for group, other in zip(groups, [*groups[1:], groups[0]], strict=True)
        ]
        begin(seen)
        # A message has a larger key than its parents.
        entries = sorted(entry for entries, _ in done for entry in entries)[: count - made]
        made += len(entries)
        yield from (value for _, value in entries)


def make(path: Path, topic: str, values: Iterator[bytes]) -> None:
    """Make a log; it has its name when it is complete."""
    unfinished = path.with_suffix(".partial")
    for old in path.parent.glob(f"{unfinished.name}*"):
        old.unlink()
    with gossiplog.log.open(unfinished, topic=topic) as log:
        # As `Log.insert_many`, without verifying signatures that were made a moment ago.
        insert_many(log._replica, values, signed=True)
    _publish(unfinished, path)


def _publish(unfinished: Path, path: Path) -> None:
    """Rename a log, with the count that stands beside it."""
    for part in sorted(path.parent.glob(f"{unfinished.name}?*")):
        part.rename(path.with_name(path.name + part.name.removeprefix(unfinished.name)))
    unfinished.rename(path)


def make_replica(path: Path, original: Path) -> None:
    """Make a copy of a large log with a few messages more."""
    unfinished = path.with_suffix(".partial")
    shutil.copyfile(original, unfinished)
    with gossiplog.log.open(unfinished, signer=Signer(_seeds(_TOPIC, 0, 1)[0])) as log:
        log.append_many([{"number": number, "text": "what the other replica lacks"} for number in range(LACKING)])
    _publish(unfinished, path)


def _make_topic(folder: Path, number: int) -> None:
    """Make the replicas of one topic."""
    topic = f"org.gossiplog.fleet.{number}"
    replicas = [folder / f"hub-{hub}" / f"{number:04}.db" for hub in range(HUBS)]
    if all(replica.exists() for replica in replicas):
        return
    # From three authors to forty.
    entries, _ = Group(topic, _seeds(topic, 0, 3 + number * 7 % 38)).write(MESSAGES)
    values = [value for _, value in entries]
    make(replicas[0], topic, iter(values))
    for replica in replicas[1:]:
        unfinished = replica.with_suffix(".partial")
        shutil.copyfile(replicas[0], unfinished)
        unfinished.rename(replica)
    if number % 10 == 0:
        make(replicas[-1], topic, islice(values, MESSAGES - LACKING))


def make_fleet(folder: Path, topics: int, processes: int) -> None:
    """Make the fleet, topic by topic."""
    for hub in range(HUBS):
        (folder / f"hub-{hub}").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes) as pool:
        for done, _ in enumerate(pool.map(partial(_make_topic, folder), range(topics), chunksize=5), 1):
            if done % 100 == 0:
                print(f"{done} topics", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--topics", type=int, default=1000, help="of the fleet, which has ten times as many logs")
    parser.add_argument("--large", type=int, nargs="*", default=LARGE, help="messages of the large logs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.topics:
        make_fleet(chosen.folder / "fleet", chosen.topics, chosen.processes)
    for count in chosen.large:
        path, replica = (chosen.folder / f"{name}-{count}.db" for name in ("large", "replica"))
        if not path.exists():
            with ProcessPoolExecutor(chosen.processes) as pool:
                make(path, _TOPIC, large_history(count, pool))
        if not replica.exists():
            make_replica(replica, path)
        print(path.name, flush=True)


if __name__ == "__main__":
    main()
