"""The write transactions of a log: new messages with everything that belongs to them, `apply` included."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gossiplog import core
from gossiplog.errors import CorruptLog, EncodeError, RefusedMessage
from gossiplog.log import encodings
from gossiplog.log.applying import WORKING_SECONDS, Applier, valid
from gossiplog.log.heads import Heads
from gossiplog.log.reading import raise_damage, raising_corrupt_log, write
from gossiplog.log.results import without_frames
from gossiplog.log.state import (
    INDEX_LAG,
    MOST_UNINDEXED_BYTES,
    MOST_UNINDEXED_PARENTS,
    State,
    States,
    UnindexedMessages,
)
from gossiplog.message import MAX_VALUE_LENGTH, SignedMessage
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch
from gossiplog.signer import Signer
from gossiplog.storage import Storage
from gossiplog.storage.base import PAGE_BYTES, Position, SequencesTaken, Transaction

_Result = TypeVar("_Result")

Committed: TypeAlias = Callable[[core.WritePlan, int], object]
"""Is called after a commit: the messages that it added, one at least, and the sequence of the last."""

# Messages, and bytes of payloads, that are signed in one transaction: about a twentieth of a second.
MOST_SIGNED = 1024
_SIGNED_BYTES = 4 * 2**20
# Members of link sets that are looked at in one transaction: about a tenth of a second.
_LINKING_WORK = 300_000
# The same on an event loop, which must not wait: about three milliseconds.
_LITTLE_LINKING_WORK = 10_000
# Link records that are kept in memory.
_MOST_LINKS = 2048


@dataclass(frozen=True, slots=True)
class _Written:
    """What a transaction has written.

    Attributes:
        plan: the messages.
        position: of the log after it.
        heads: of the log after it.
        state: of the log after it, if the index was written.
        is_partial: whether there was no time for the rest of the batch.
        first_children: of messages that nobody named before, the first that does, by their sequences.
    """

    plan: core.WritePlan
    position: Position
    heads: Heads
    state: State | None
    is_partial: bool
    first_children: Mapping[int, int] = field(default_factory=dict)


class Run(NamedTuple):
    """Payloads that one signer signs, one after the other.

    Attributes:
        signer: whose messages they become.
        codec: "dag-cbor" or "dag-json".
        payloads: values of the IPLD data model.
    """

    signer: Signer
    codec: str
    payloads: Sequence[Any]


class _TakesLong(Exception):
    """A transaction would take longer than its caller can wait, and is rolled back."""


class Writer:
    """Writes to a log.

    Args:
        applier: runs the application's `apply`.
        committed: is called after each commit that added messages.
    """

    def __init__(self, storage: Storage, states: States, topic: str, applier: Applier, committed: Committed) -> None:
        self._storage = storage
        self._states = states
        self._topic = topic
        self._applier = applier
        self._committed = committed
        # Link records of messages that this process has written, by their sequences.
        self._links: dict[int, bytes] = {}
        # The first child of messages that were heads until this process wrote it, by their sequences: without it, all
        # that two authors write at once on the same heads would be searched for these.
        self._first_children: dict[int, int] = {}
        # The number of messages that the index covers, as far as this process knows.
        self._indexed = 0
        # Parents and bytes of the messages that this process has written since it wrote the index.
        self._unindexed_parents = self._unindexed_bytes = 0
        # The position and the heads after the last write, and whether nobody else wrote between the last two appends.
        self._left: tuple[Position, Heads] | None = None
        self._is_alone = False
        # The author and the key of the last message that was appended.
        self._own: tuple[str, bytes] | None = None

    @property
    def applies(self) -> bool:
        """Whether the application has an `apply` function."""
        return self._applier.is_given

    def insert_at_once(self, verified: VerifiedBatch) -> InsertOutcome | None:
        """Insert a few messages as `insert` does, if nothing has to be waited for and it takes some milliseconds.

        Returns:
            None if it may take longer; then nothing was stored.
        """
        if self._applier.is_given or self.is_index_behind:
            return None
        with self._storage.lock_if_free() as is_locked:
            if not is_locked:
                return None
            try:
                return self._insert(verified, _LITTLE_LINKING_WORK, in_one=True)
            except _TakesLong:
                return None

    def insert(self, verified: VerifiedBatch) -> InsertOutcome:
        """Store the messages of a batch whose parents are in the log or in the batch.

        Args:
            verified: batch that the payload check has seen.

        Raises:
            CorruptLog: the value of a parent is damaged, or is not at its sequence. What an earlier transaction of the
                call stored stays.
            RefusedMessage: `apply` raised for a message that is stored already.
            StorageError: the database failed. What an earlier transaction of the call stored stays.
        """
        return self._insert(verified, _LINKING_WORK)

    def _insert(self, verified: VerifiedBatch, linking_work: int, *, in_one: bool = False) -> InsertOutcome:
        """Store messages as `insert` does.

        Args:
            verified: the batch.
            linking_work: members of link sets that are looked at in one transaction.
            in_one: whether to raise _TakesLong, with nothing stored, where one transaction is not enough.
        """
        batch, count = verified.batch, verified.count
        inserted: list[int] = []
        orphans: Sequence[tuple[int, Sequence[bytes]]] = ()
        refused = dict(verified.refused or {})
        sequences: list[range] = []

        def store(transaction: Transaction) -> _Written | None:
            position = self._states.position(transaction)
            if self._applier.is_behind(position):
                return None
            if position.count != count:
                batch.drop_known(transaction.sequences(batch.fresh_keys()).keys())
            heads = self._states.heads(transaction, position)
            keys = batch.parents()
            # Mostly these are heads.
            among = heads.among(keys)
            others = [key for key in keys if key not in among]
            parents, is_complete = self._states.sequences.find(transaction, others, PAGE_BYTES)
            if not is_complete:
                # The lock is held for one page of values.
                return None
            written = self._store(
                transaction, position, batch, heads, among | parents, [*among.values()], refused, linking_work
            )
            if in_one and written.is_partial:
                raise _TakesLong
            return written

        waiting = True
        while waiting:
            self._applier.catch_up_if_behind()
            self._replay_if_index_due(len(batch))
            written = self._write(store)
            if written is None:
                if in_one:
                    raise _TakesLong
                continue
            count = written.position.count
            self._publish(written)
            leaves = written.plan.leaves
            self._states.sequences.add(leaves)
            inserted += written.plan.order
            sequences.append(range(count + 1 - len(written.plan.order), count + 1))
            orphans = written.plan.orphans
            waiting = written.is_partial
            if waiting:
                batch.drop_known([key for key, _, _ in leaves])
        for error in refused.values():
            without_frames(error)
        duplicates = len(batch) - len(batch.invalid) - len(inserted) - len(orphans) - len(refused)
        return InsertOutcome(verified, inserted, orphans, refused, duplicates, sequences)

    def append(self, runs: Sequence[Run]) -> list[SignedMessage]:
        """Sign and store payloads in their order: as many as one transaction has time for, one at least.

        Args:
            runs: one at least, each with one payload at least; of more than MOST_SIGNED payloads, the first are taken.

        Returns:
            The messages; each names the one before as its parent, the first the heads of the log.

        Raises:
            EncodeError: a payload that no message can have, or a message that is too long. Nothing is stored.
            CorruptLog: heads that are missing, or no messages. Nothing is stored.
            RefusedMessage: `apply` raised, for one of the messages, or for a stored one. Nothing is stored.
        """
        runs, number = _first_payloads(runs)
        left, due = self._left, INDEX_LAG - number
        if self._is_alone and left is not None and left[0].count - left[0].indexed <= due:
            # Signed before the lock is taken, after the heads that are known: nothing is read.
            last, heads = left
            parents, batch, messages = self._sign(runs, heads)

            def store(transaction: Transaction) -> _Written:
                if self._states.is_reconnected:
                    raise SequencesTaken
                return self._store(transaction, last, batch, heads, parents, [*parents.values()], {}, None)

            try:
                written = write(self._storage, store)
            except SequencesTaken:
                self._is_alone = False
            else:
                return self._appended(written, messages)
        while True:
            self._applier.catch_up_if_behind()
            self._replay_if_index_due(number)
            signed = self._write(lambda transaction: self._append(transaction, runs))
            if signed is not None:
                before, written, messages = signed
                # With `apply`, there is its cursor to look at each time.
                self._is_alone = not self._applier.is_given and left is not None and left[0].count == before
                return self._appended(written, messages)

    def _replay_if_index_due(self, messages: int) -> None:
        """Bring the state up to date, without the lock, where so many messages more make the index due.

        Messages that stand in many places of the tree, as roots do, take long to replay.
        """
        if self._states.count + messages - self._indexed > INDEX_LAG:
            self._states.current()

    @property
    def is_index_behind(self) -> bool:
        """Whether the index is behind by half of what makes it due."""
        return (
            2 * (self._states.count - self._indexed) > INDEX_LAG
            or 2 * self._unindexed_parents > MOST_UNINDEXED_PARENTS
            or 2 * self._unindexed_bytes > MOST_UNINDEXED_BYTES
        )

    def index(self, unindexed: UnindexedMessages | None = None) -> None:
        """Write the index of all messages, so that the next ones need not.

        Args:
            unindexed: messages that are not read again under the lock: what `States.read_unindexed` has returned. Where
                another process has written the index since, nothing is written.

        Raises:
            CorruptLog: stored messages are damaged or missing.
            StorageError: the database failed.
        """

        def write_index(transaction: Transaction) -> State | int:
            position = self._states.position(transaction)
            if unindexed is not None and position.indexed > unindexed.indexed:
                return position.indexed
            return self._states.index(transaction, position, unindexed=unindexed)

        written = self._write(write_index)
        if isinstance(written, State):
            self._states.publish(written)
            written = written.count
        self.note_indexed(written)

    def note_indexed(self, indexed: int) -> None:
        """Note how many messages the index covers, which another process may have written."""
        if indexed > self._indexed:
            self._unindexed_parents = self._unindexed_bytes = 0
            self._indexed = indexed

    def _write(self, call: Callable[[Transaction], _Result]) -> _Result:
        """Call a function in a transaction; it must read the position first.

        Raises:
            CorruptLog: a message has a sequence above the count.
        """
        try:
            return write(self._storage, call)
        except SequencesTaken:
            problem = "the sequence after that of the last message is another message's"
        raise_damage(self._storage, CorruptLog([problem]))

    def _append(
        self, transaction: Transaction, runs: Sequence[Run]
    ) -> tuple[int, _Written, list[SignedMessage]] | None:
        """Sign and store payloads; return how many messages there were, what was written, and the messages.

        Returns:
            None where `apply` has to catch up first.
        """
        position = self._states.position(transaction)
        if self._applier.is_behind(position):
            return None
        heads = self._states.heads(transaction, position)
        if position.count and not heads:
            raise CorruptLog(["there are messages, but no heads"])
        self._states.check_parents(transaction, heads, position, self._own_key(runs[0].signer))
        parents, batch, messages = self._sign(runs, heads)
        refused: dict[int, RefusedMessage] = {}
        parent_heads = [*parents.values()]
        written = self._store(transaction, position, batch, heads, parents, parent_heads, refused, None)
        for error in refused.values():
            raise error
        return position.count, written, messages

    def _appended(self, written: _Written, messages: list[SignedMessage]) -> list[SignedMessage]:
        self._publish(written)
        self._own = (messages[-1].author, messages[-1].key)
        return messages

    def _own_key(self, signer: Signer) -> bytes | None:
        return self._own[1] if self._own is not None and self._own[0] == signer.did else None

    def _sign(self, runs: Sequence[Run], heads: Heads) -> tuple[Mapping[bytes, int], core.Batch, list[SignedMessage]]:
        """Return the heads that the first message follows, with their sequences; and the messages.

        The messages are returned as a batch and as objects.
        """
        parents = dict(heads.next_parents(self._own_key(runs[0].signer)))
        with raising_corrupt_log:
            batch = self._sign_runs(runs, [*parents])
        messages = [valid(message) for message in batch]
        for message in messages:
            length = len(message.value)
            if length > MAX_VALUE_LENGTH:
                raise EncodeError(f"a message of {length} bytes: peers read up to {MAX_VALUE_LENGTH}")
        return parents, batch, messages

    def _sign_runs(self, runs: Sequence[Run], parents: Sequence[bytes]) -> core.Batch:
        (signer, codec, payloads), *others = runs
        batch = signer.sign_chain(self._topic, parents, payloads, codec, _SIGNED_BYTES)
        if not others or len(batch) < len(payloads):
            return batch
        values = [valid(message).value for message in batch]
        for run in others:
            left = _SIGNED_BYTES - sum(map(len, values))
            if left <= 0:
                break
            batch = run.signer.sign_chain(self._topic, [batch.keys[-1]], run.payloads, run.codec, left)
            values += [valid(message).value for message in batch]
            if len(batch) < len(run.payloads):
                break
        return core.read_batch(values, self._topic)

    def _store(
        self,
        transaction: Transaction,
        position: Position,
        batch: core.Batch,
        heads: Heads,
        parents: Mapping[bytes, int],
        parent_heads: Sequence[int],
        refused: dict[int, RefusedMessage],
        linking_work: int | None,
    ) -> _Written:
        """Write what can be written, and add to `refused` what `apply` refuses.

        Args:
            transaction: to write in.
            position: at which the transaction begins.
            batch: of the messages.
            heads: at that position.
            parents: the sequences, by their keys, of those that the messages name.
            parent_heads: of these, the heads.
            refused: errors of messages by their indices.
            linking_work: members of link sets that are looked at; None if it may take any time.
        """

        def links(sequences: Sequence[int]) -> Sequence[bytes]:
            try:
                return [self._links[sequence] for sequence in sequences]
            except KeyError:
                return transaction.links(sequences)

        first = position.count + 1
        first_children = dict.fromkeys(parent_heads, first)
        if len(parents) > len(parent_heads):
            named = self._first_children
            first_children |= {parent: named[parent] for parent in parents.values() if parent in named}
        with raising_corrupt_log:
            plan = batch.plan(first, parents, links, refused, linking_work, first_children)
        late: Collection[int] = plan.late
        known = encodings.known_content_keys(transaction, position, plan)
        if self._applier.is_given and plan.order:
            deadline = time.monotonic() + (float("inf") if linking_work is None else WORKING_SECONDS)
            failed, unapplied = self._applier.run_new(transaction, batch, plan, known, deadline)
            refused.update(failed)
            late = [*unapplied, *late]
            if failed or unapplied:
                plan = batch.plan(first, parents, links, {*refused, *late}, first_children=first_children)
        if not plan.order:
            return _Written(plan, position, heads, None, is_partial=bool(late))
        count, applied, indexed = position.count + len(plan.order), position.applied, position.indexed
        duplicates = encodings.plan_duplicates(plan, known)
        state: State | None = None
        self._unindexed_parents += len(parents)
        is_due = count - indexed > INDEX_LAG or self._unindexed_parents > MOST_UNINDEXED_PARENTS
        if not is_due:
            self._unindexed_bytes += sum(len(value) for _, value, _ in plan.messages)
            is_due = self._unindexed_bytes > MOST_UNINDEXED_BYTES
        if is_due:
            self._unindexed_parents = self._unindexed_bytes = 0
            # Where nothing was read before this, another process may have written the index.
            fresh = transaction.position()
            if fresh.count != position.count:
                raise SequencesTaken
            state = self._states.index(transaction, fresh, plan, duplicates)
            heads, indexed = state.heads, count
        else:
            heads = heads.after(plan, duplicates)
        transaction.write(plan)
        alternative = plan.alternatives[-1][0] if plan.alternatives else position.alternative
        if self._applier.is_given:
            transaction.set_applied(count)
            applied = count
        # `dataclasses.replace` takes three times as long.
        fixed = position.generation, position.apply_version, position.rebuild
        position = Position(count, applied, indexed, alternative, *fixed)
        newly_named: Mapping[int, int] = {}
        if len(parents) > 1 and len(plan.order) <= INDEX_LAG:
            # Ascending: of the children of one, the first is the last that stays.
            newly_named = {
                parent: child
                for parent, child in reversed(plan.children)
                if parent >= first or first_children.get(parent, 0) >= first
            }
        return _Written(plan, position, heads, state, is_partial=bool(late), first_children=newly_named)

    def _publish(self, written: _Written) -> None:
        if not written.plan.order:
            return
        if written.state is not None:
            self._states.publish(written.state)
        else:
            self._states.publish_heads(written.position.count, written.heads)
            # The next messages are linked to these.
            if len(self._links) > _MOST_LINKS:
                self._links = {}
            self._links.update((sequence, record) for sequence, _, record in written.plan.messages)
        if written.first_children:
            if len(self._first_children) > _MOST_LINKS:
                self._first_children = {}
            self._first_children |= written.first_children
        self._states.publish_alternative(written.position.alternative)
        self._indexed = max(self._indexed, written.position.indexed)
        self._left = written.position, written.heads
        self._committed(written.plan, written.position.count)


def _first_payloads(runs: Sequence[Run]) -> tuple[Sequence[Run], int]:
    """Return as many payloads as are signed in one transaction at most, and how many they are."""
    number = sum(len(run.payloads) for run in runs)
    if number <= MOST_SIGNED:
        return runs, number
    first: list[Run] = []
    left = MOST_SIGNED
    for run in runs:
        first.append(run._replace(payloads=run.payloads[:left]))
        left -= len(first[-1].payloads)
        if not left:
            break
    return first, MOST_SIGNED
