"""What the tasks of `ingest` do: sign the messages of whole components, parents first; and merge heads.

The messages of a component are signed in *runs*: messages of one author, each of which has just the one before as its
parent. The core signs a run in one call. Signing is deterministic (RFC 8032, section 5.1.6), and so is which parents a
message has: signing the same events again makes the same bytes.

The key of an author is in the file of that name in a folder, with what is no letter, digit or one of `_.-~`
percent-encoded (RFC 3986, section 2.1), and `.key` behind it: `ann.key`, `ann%40example.org.key`. Each is as `gossiplog
keygen` writes it, and refused if others than its owner may read it. Executors read the files themselves, so the folder
must be one that they see, under the same path and the same user. Keys do not travel through Spark: what is broadcast,
Spark writes to its executors' scratch folders as it is, and every executor would hold the keys of all authors instead
of those that it signs for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from gossiplog import core
from gossiplog.errors import EncodeError, InvalidMessage, KeyFileError
from gossiplog.message import MAX_VALUE_LENGTH
from gossiplog.reprs import listed
from gossiplog.signer import Signer

# Bytes, on the file systems of Linux and macOS.
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A folder of key files. Only its path travels.

    Attributes:
        folder: its absolute path.
    """

    folder: str

    def path(self, author: str) -> str:
        """Of the author's key file, whether or not it is there.

        Raises:
            KeyFileError: a name that no file can have.
        """
        name = f"{quote(author, safe='')}.key"
        if not author or len(name) > _LONGEST_NAME:
            raise KeyFileError(f"an author's name of {len(author)} characters cannot name a key file in {self.folder}")
        return os.path.join(self.folder, name)

    def load(self, author: str) -> Signer:
        """Return the author's signer.

        Raises:
            KeyFileError: the author's key file is missing, damaged or open to others than its owner.
        """
        return Signer.load(self.path(author))


SIGNED = "key binary, value binary, head boolean, problem string, event string"
"""What `Signing` makes of an event, which `event` names: the key and stored value of its message, and whether no other
has it as a parent; or the problem for which it cannot become one."""
MERGED_HEADS = 32
"""Parents of a merge message."""

_MERGES = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("head", pa.bool_()),
        ("problem", pa.string()),
        ("event", pa.string()),
    ]
)
# Events that are signed together where their components are smaller.
_CHUNK = 8192
# Payloads in one call of the core.
_SIGNED_AT_ONCE = 1024
# Of a batch that goes back to Spark.
_BATCH_ROWS = 4096
_BATCH_BYTES = 2**24
# Events that a cycle is reported with.
_CYCLE_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Signing:
    """Signs events, for `mapInArrow`.

    Its batches have the columns component, author, sequence, id, parents and payload, and ascend by the first four of
    them; a component does not go beyond a task, which holds the largest of its components in memory.

    Attributes:
        keys: of the authors.
    """

    topic: str
    keys: KeyStore

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        size = 0
        for events in _components(batches):
            for row in _Graph(events, self.topic, self.keys).sign():
                rows.append(row)
                size += len(row["value"] or b"")
                if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
                    rows, size = [], 0
        yield pa.RecordBatch.from_pylist(rows, _SCHEMA)


@dataclass(frozen=True, slots=True)
class Merging:
    """Merges heads until one is left, for `mapInArrow`: from the column key, ascending, all in one task.

    It keeps no more than one key in 32 in memory. A merge message has null as its payload.

    Attributes:
        keys: of the authors.
        author: who signs the merge messages.
    """

    topic: str
    keys: KeyStore
    author: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        heads: Iterator[bytes] = (key for batch in batches for key in batch.column("key").to_pylist())
        signer: Signer | None = None
        while True:
            merged: list[bytes] = []
            rows: list[dict[str, bytes]] = []
            for group in _groups(heads):
                if len(group) == 1:
                    merged += group
                    continue
                signer = signer or self.keys.load(self.author)
                (message,) = signer.sign_chain(self.topic, sorted(group), [None])
                if isinstance(message, InvalidMessage):
                    raise message
                merged.append(message.key)
                rows.append({"key": message.key, "value": message.value})
                if len(rows) >= _BATCH_ROWS:
                    yield pa.RecordBatch.from_pylist(rows, _MERGES)
                    rows = []
            yield pa.RecordBatch.from_pylist(rows, _MERGES)
            if len(merged) <= 1:
                return
            heads = iter(merged)


def _groups(keys: Iterator[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    for key in keys:
        group.append(key)
        if len(group) == MERGED_HEADS:
            yield group
            group = []
    if group:
        yield group


def _components(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield whole components, as many together as make a chunk, or a larger one alone."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not len(batch):
            continue
        last = batch["component"][len(batch) - 1]
        if held and held[-1]["component"][-1].equals(last):
            held.append(batch)
            continue
        # Where the last component begins, which may go on in the next batch.
        start = pc.index(batch["component"], last).as_py()
        whole = [*held, batch.slice(0, start)]
        if sum(map(len, whole)) >= _CHUNK:
            yield pa.Table.from_batches(whole)
            held = [batch.slice(start)]
        else:
            held.append(batch)
    if held:
        yield pa.Table.from_batches(held)


class _Graph:
    """Events of whole components, with what has become of them."""

    def __init__(self, events: pa.Table, topic: str, keys: KeyStore) -> None:
        self._topic = topic
        self._keystore = keys
        self._events = events
        self._authors: list[str] = events["author"].to_pylist()
        self._sequences: list[int | None] = events["sequence"].to_pylist()
        self._ids: list[str | None] = events["id"].to_pylist()
        self._parents = self._linked(events["parents"].to_pylist())
        self._keys: list[bytes | None] = [None] * len(events)
        self._problems: dict[int, str] = {}
        self._signers: dict[str, Signer] = {}

    def _linked(self, named: list[list[str] | None]) -> list[tuple[int, ...]]:
        """Return the parents of each event, by position: those that it names, and the author's event before."""
        positions = {id: position for position, id in enumerate(self._ids) if id is not None}
        links: list[tuple[int, ...]] = []
        for position, ids in enumerate(named):
            found = {positions[id] for id in ids or ()}
            if (
                position
                and self._sequences[position] is not None
                and self._authors[position - 1] == self._authors[position]
            ):
                found.add(position - 1)
            links.append(tuple(sorted(found)))
        return links

    def sign(self) -> Iterator[dict[str, Any]]:
        """Yield messages, parents before their children, and problems."""
        followed = {parent for parents in self._parents for parent in parents}
        for run in self._ordered_runs():
            for position, value in self._sign_run(run):
                named = self._name(position)
                yield _row(key=self._keys[position], value=value, head=position not in followed, event=named)
        for position, problem in self._problems.items():
            yield _row(problem=problem, event=self._name(position))
        if not self._problems:
            # Otherwise events may have been left because they follow one that has a problem.
            for cycle in self._cycles():
                names = [*map(self._name, cycle[:_CYCLE_SHOWN])]
                event = listed(names, _CYCLE_SHOWN, separator=" <- ", count=len(cycle))
                yield _row(problem="it descends from itself", event=event)

    def _ordered_runs(self) -> Iterator[list[int]]:
        """Yield the runs that can be signed, each when what it follows is signed. Those of cycles do not come."""
        next_of: dict[int, int] = {}
        for position, parents in enumerate(self._parents):
            if len(parents) == 1 and parents[0] not in next_of and self._same_author(position, parents[0]):
                next_of[parents[0]] = position
        continued = set(next_of.values())
        waiting = {
            position: len(parents) for position, parents in enumerate(self._parents) if position not in continued
        }
        dependents: dict[int, list[int]] = {}
        for position in waiting:
            for parent in self._parents[position]:
                dependents.setdefault(parent, []).append(position)
        ready = [position for position, count in reversed(waiting.items()) if count == 0]
        while ready:
            run = [ready.pop()]
            while (following := next_of.get(run[-1])) is not None:
                run.append(following)
            yield run
            for position in run:
                if self._keys[position] is None:
                    break
                for dependent in dependents.get(position, ()):
                    waiting[dependent] -= 1
                    if not waiting[dependent]:
                        ready.append(dependent)

    def _same_author(self, first: int, second: int) -> bool:
        return self._authors[first] == self._authors[second]

    def _sign_run(self, run: list[int]) -> Iterator[tuple[int, bytes]]:
        signer = self._signer(self._authors[run[0]])
        parents = sorted(self._key(parent) for parent in self._parents[run[0]])
        for start in range(0, len(run), _SIGNED_AT_ONCE):
            positions = run[start : start + _SIGNED_AT_ONCE]
            payloads = self._payloads(positions)
            try:
                batch = signer.sign_chain(self._topic, parents, payloads)
            except EncodeError:
                found = dict(_unencodable(positions, payloads))
                if not found:
                    raise
                self._problems.update(found)
                return
            for position, message in zip(positions, batch, strict=True):
                if isinstance(message, InvalidMessage):
                    raise message
                if len(message.value) > MAX_VALUE_LENGTH:
                    self._problems[position] = (
                        f"its message has {len(message.value)} bytes: peers read up to {MAX_VALUE_LENGTH}"
                    )
                    return
                self._keys[position] = message.key
                yield position, message.value
            parents = [self._key(positions[-1])]

    def _payloads(self, positions: Sequence[int]) -> list[Any]:
        column = self._events["payload"]
        if positions[-1] - positions[0] == len(positions) - 1:
            payloads: list[Any] = column.slice(positions[0], len(positions)).to_pylist()
            return payloads
        return [column[position].as_py() for position in positions]

    def _signer(self, author: str) -> Signer:
        if author not in self._signers:
            self._signers[author] = self._keystore.load(author)
        return self._signers[author]

    def _key(self, position: int) -> bytes:
        key = self._keys[position]
        assert key is not None, "an event is signed after its parents"
        return key

    def _cycles(self) -> Iterator[list[int]]:
        """Yield cycles among what could not be signed, one for each group of events that wait for the same."""
        seen: set[int] = set()
        for position, key in enumerate(self._keys):
            path: dict[int, None] = {}
            current: int | None = position if key is None else None
            while current is not None and current not in seen:
                seen.add(current)
                path[current] = None
                # Whatever was not signed waits for a parent that was not.
                current = next(parent for parent in self._parents[current] if self._keys[parent] is None)
            if current is not None and current in path:
                walked = list(path)
                yield walked[walked.index(current) :]

    def _name(self, position: int) -> str:
        fields = {"author": self._authors[position], "sequence": self._sequences[position], "id": self._ids[position]}
        return core.json_encode({name: value for name, value in fields.items() if value is not None}).decode()


def _row(**fields: Any) -> dict[str, Any]:
    return {"key": None, "value": None, "head": None, "problem": None, "event": None} | fields


def _unencodable(positions: Sequence[int], payloads: Sequence[Any]) -> Iterator[tuple[int, str]]:
    for position, payload in zip(positions, payloads, strict=True):
        try:
            core.cbor_encode(payload)
        except EncodeError as error:
            yield position, f"no message can have its payload: {error}"
