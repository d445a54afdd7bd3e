"""The write transactions of a log: new messages with everything that belongs to them, and the runs of `apply`.

The rules of `apply`, from the architecture ("The log is synchronous"):

- It runs once for each message, in the order of sequences, in the transaction that stores the message, in a savepoint.
- If it raises, the message is not stored here, and what descends from it waits as for a missing parent.
- A cursor in the database says how far it has run; a process without `apply` leaves the cursor where it is. So a
  process with `apply` first runs it over the messages that the cursor has not passed. They are stored: an exception
  then ends the call, and the next one tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gossiplog import core
from gossiplog.errors import CorruptLog, EncodeError, InvalidMessage, Refused, StorageError
from gossiplog.log.results import without_frames
from gossiplog.log.state import State, States, damage_is_corrupt, read_stored
from gossiplog.message import MAX_PARENTS, MAX_VALUE_LENGTH, SignedMessage, ids_of
from gossiplog.signer import Signer
from gossiplog.storage import Storage
from gossiplog.storage.base import ApplyTransaction, Position, Transaction

Apply: TypeAlias = Callable[[SignedMessage, ApplyTransaction], object]

LOCK_SECONDS = 0.25
"""How long one transaction may hold the lock."""

# What a transaction that has begun still has to do takes time as well.
_WORKING_SECONDS = LOCK_SECONDS / 2
_CATCH_UP_PAGE = 256


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A batch that was verified, and may be written.

    Attributes:
        batch: of messages.
        count: the messages of the log among which known ones are marked in the batch.
        refused: indices of messages that the application's payload check refuses.
    """

    batch: core.Batch
    count: int
    refused: dict[int, Refused] = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """What became of a batch.

    Attributes:
        inserted: indices.
        orphans: (index, keys of the missing parents).
        refused: indices, and the errors of `apply` or of the payload check.
        duplicates: how many were in the log before, or stand in the batch twice.
    """

    inserted: list[int]
    orphans: list[tuple[int, list[bytes]]]
    refused: dict[int, Refused]
    duplicates: int = 0


class Writer:
    """Writes to a log.

    Args:
        storage: of the log.
        states: of the log.
        topic: of the log.
        apply: the application's function, or None.
        committed: called after each commit that added messages.
    """

    def __init__(
        self, storage: Storage, states: States, topic: str, apply: Apply | None, committed: Callable[[], None]
    ) -> None:
        self._storage = storage
        self._states = states
        self._topic = topic
        self._apply = apply
        self._committed = committed

    def catch_up(self) -> None:
        """Runs `apply` over the stored messages that it has not seen.

        Raises:
            Refused: it raised; its exception is the cause. It has run for the messages before.
            CorruptLog: a stored message is damaged. It has run for those before.
        """
        if self._apply is None:
            return
        behind = True
        while behind:
            with self._storage.transaction() as transaction:
                behind, failure = self._catch_up_some(transaction, self._apply)
            # Only now: what came before it is committed.
            if failure is not None:
                raise failure

    def write(self, verdicts: Verdicts) -> Outcome:
        """Stores the messages of a batch whose parents are in the log or in the batch.

        Raises:
            Refused: `apply` raised for a message that is stored already.
            StorageError: the database failed. What an earlier transaction of the call stored stays.
        """
        batch, count = verdicts.batch, verdicts.count
        outcome = Outcome([], [], dict(verdicts.refused))
        waiting = True
        while waiting:
            self.catch_up_if_behind()
            with self._storage.transaction() as transaction:
                position = transaction.position()
                if self._is_behind(position):
                    continue
                state = self._states.of(transaction, position)
                if state.count != count:
                    batch.drop_known(transaction.sequences(batch.fresh_keys()).keys())
                plan, waiting, state = self._store(transaction, state, batch, outcome.refused)
            count = state.count
            self._publish(state)
            outcome.inserted += plan.order
            outcome.orphans = plan.orphans
            if waiting:
                batch.drop_known({batch.keys[index] for index in plan.order})
        for error in outcome.refused.values():
            without_frames(error)
        others = len(batch.invalid) + len(outcome.inserted) + len(outcome.orphans) + len(outcome.refused)
        outcome.duplicates = len(batch) - others
        return outcome

    def catch_up_if_behind(self) -> None:
        """Catches up, if this process has an `apply` and it is behind."""
        if self._apply is not None:
            with self._storage.reader() as reader:
                behind = self._is_behind(reader.position())
            if behind:
                self.catch_up()

    def append(self, payloads: Sequence[Any], signer: Signer, codec: str) -> list[SignedMessage]:
        """Signs and stores as many of the payloads as one transaction has time for, one at least.

        Returns:
            The messages; each names the one before as its parent, the first the heads of the log.

        Raises:
            EncodeError: a payload that no message can have, or a message that is too long. Nothing is stored.
            CorruptLog: heads that are missing, or no messages. Nothing is stored.
            Refused: `apply` raised, for one of the messages, or for one that is stored already. Nothing is stored.
        """
        while True:
            self.catch_up_if_behind()
            with self._storage.transaction() as transaction:
                position = transaction.position()
                if self._is_behind(position):
                    continue
                state = self._states.of(transaction, position)
                heads = transaction.heads(MAX_PARENTS)
                if state.count and not heads:
                    raise CorruptLog(["there are messages, but no heads"])
                values = self._sign(payloads, heads, signer, codec)
                batch = core.read_batch(values, self._topic)
                messages = [_valid(message) for message in batch]
                refused: dict[int, Refused] = {}
                plan, _, state = self._store(transaction, state, batch, refused, patient=True)
                for error in refused.values():
                    raise error
                for _, missing in plan.orphans:
                    raise CorruptLog([f"the head {core.encode_id(missing[0])} is no message of the log"])
            self._publish(state)
            return messages

    def _sign(self, payloads: Sequence[Any], heads: Sequence[bytes], signer: Signer, codec: str) -> list[bytes]:
        deadline = time.monotonic() + _WORKING_SECONDS / 2
        values: list[bytes] = []
        with damage_is_corrupt():
            parents = ids_of(heads)
            clock = 1 + max((core.decode_clock(key)[0] for key in heads), default=0)
        for payload in payloads:
            key, value = signer.sign(self._topic, clock, parents, payload, codec)
            if len(value) > MAX_VALUE_LENGTH:
                raise EncodeError(f"a message of {len(value)} bytes: peers read up to {MAX_VALUE_LENGTH}")
            values.append(value)
            parents = ids_of([key])
            clock += 1
            if time.monotonic() > deadline:
                break
        return values

    def _store(
        self,
        transaction: Transaction,
        state: State,
        batch: core.Batch,
        refused: dict[int, Refused],
        *,
        patient: bool = False,
    ) -> tuple[core.Plan, bool, State]:
        """Writes what can be written, and adds to `refused` what `apply` refuses.

        Returns:
            What was written, whether there was no time for the rest, and the state after the commit.
        """
        parents = transaction.sequences(batch.parents())
        with damage_is_corrupt():
            plan = batch.plan(state.count + 1, parents, transaction.links, refused)
        late: Collection[int] = ()
        if self._apply is not None and plan.order:
            deadline = time.monotonic() + (float("inf") if patient else _WORKING_SECONDS)
            failed, late = self._apply_new(transaction, self._apply, batch, plan, deadline)
            refused.update(failed)
            if failed or late:
                plan = batch.plan(state.count + 1, parents, transaction.links, {*refused, *late})
        if not plan.order:
            return plan, bool(late), state
        with damage_is_corrupt():
            tree, level1 = state.tree.insert_leaves(
                plan.leaves, lambda start, end: transaction.leaves(start, end, state.count)
            )
        new = State(state.count + len(plan.order), tree)
        transaction.write(plan, level1)
        if self._apply is not None:
            transaction.set_applied(new.count)
        return plan, bool(late), new

    def _publish(self, state: State) -> None:
        self._states.publish(state)
        self._committed()

    def _is_behind(self, position: Position) -> bool:
        if position.applied > position.count:
            raise CorruptLog([f"`apply` ran up to sequence {position.applied} of {position.count}"])
        return self._apply is not None and position.applied < position.count

    def _apply_new(
        self, transaction: Transaction, apply: Apply, batch: core.Batch, plan: core.Plan, deadline: float
    ) -> tuple[dict[int, Refused], list[int]]:
        """Runs `apply` over a plan's messages: which it refuses, and which were left when time was up."""
        failed: dict[int, Refused] = {}
        lost: set[str] = set()
        for position, index in enumerate(plan.order):
            message = _valid(batch[index])
            if lost and not lost.isdisjoint(message.parents):
                lost.add(message.id)
                continue
            try:
                with transaction.savepoint():
                    _run(apply, message, transaction)
            except Refused as error:
                failed[index] = error
                lost.add(message.id)
            if time.monotonic() > deadline:
                return failed, plan.order[position + 1 :]
        return failed, []

    def _catch_up_some(self, transaction: Transaction, apply: Apply) -> tuple[bool, Refused | CorruptLog | None]:
        """Runs `apply` over stored messages: whether there are more, and what ended it."""
        deadline = time.monotonic() + _WORKING_SECONDS
        position = transaction.position()
        applied = position.applied
        failure: Refused | CorruptLog | None = None
        try:
            while applied < position.count and time.monotonic() < deadline:
                for sequence, value in transaction.arrivals(applied, _CATCH_UP_PAGE):
                    message = read_stored(value, self._topic)
                    with transaction.savepoint():
                        _run(apply, message, transaction)
                    applied = sequence
                    if time.monotonic() > deadline:
                        break
        except (Refused, CorruptLog) as error:
            failure = error
        if applied > position.applied:
            transaction.set_applied(applied)
        return applied < position.count, failure


def _run(apply: Apply, message: SignedMessage, transaction: ApplyTransaction) -> None:
    try:
        apply(message, transaction)
    except StorageError:
        raise
    except Exception as error:
        raise Refused(f"`apply` raised {type(error).__name__}: {error}", message.id) from error


def _valid(verdict: SignedMessage | InvalidMessage) -> SignedMessage:
    if isinstance(verdict, InvalidMessage):
        raise verdict
    return verdict
