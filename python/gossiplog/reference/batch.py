"""Batches of stored values from outside: their verdicts, and what a transaction writes for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final, overload

from gossiplog.errors import InvalidMessage
from gossiplog.reference.ancestors import Ancestry, Links
from gossiplog.reference.canonical import cbor_encode
from gossiplog.reference.id import decode_clock, decode_id, encode_id
from gossiplog.reference.message import Parsed, SignedMessage, SigningKey, parse
from gossiplog.reference.node import leaf_hash

_Shown: TypeAlias = SignedMessage | InvalidMessage


@final
@dataclass(frozen=True, slots=True)
class WritePlan:
    """What one transaction writes for a batch: made by `Batch.plan`.

    Attributes:
        order: indices into the batch, in the order in which they get their sequences: causal (ascending keys).
        messages: rows (sequence, value, links), one for each of `order`.
        leaves: rows (key, leaf hash, sequence), one for each of `order`.
        alternatives: rows (sequence, key of the canonical encoding), ascending, of the messages that are alternative
            encodings.
        children: rows (parent's sequence, child's sequence), ascending, without duplicates.
        heads_added: rows (key, sequence), ascending by key.
        heads_removed: keys, ascending, named as parents here, that were in the log before.
        orphans: valid messages left out: (index, the keys, ascending, of the parents that are neither in the log nor in
            the plan); ascending by the messages' keys.
        late: indices of messages left for another plan, because linking the others took all the work that was allowed.
    """

    order: list[int]
    messages: list[tuple[int, bytes, bytes]]
    leaves: list[tuple[bytes, bytes, int]]
    alternatives: list[tuple[int, bytes]]
    children: list[tuple[int, int]]
    heads_added: list[tuple[bytes, int]]
    heads_removed: list[bytes]
    orphans: list[tuple[int, list[bytes]]]
    late: list[int]


@final
class Batch(Sequence[SignedMessage | InvalidMessage]):
    """The verdicts over a batch of values, in their order: made by `verify_batch`.

    A message is *fresh* when it is valid, not known before, and the first of its key in the batch.
    """

    __slots__ = ("_fresh", "_verdicts")

    def __init__(self, verdicts: Sequence[Parsed | InvalidMessage], fresh: Mapping[bytes, int]) -> None:
        self._verdicts = tuple(verdicts)
        # Keys, ascending, with their indices.
        self._fresh = {key: fresh[key] for key in sorted(fresh)}

    def __len__(self) -> int:
        return len(self._verdicts)

    @overload
    def __getitem__(self, index: int) -> SignedMessage | InvalidMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SignedMessage | InvalidMessage]: ...
    def __getitem__(self, index: int | slice) -> _Shown | Sequence[_Shown]:
        if isinstance(index, slice):
            return [_shown(verdict) for verdict in self._verdicts[index]]
        return _shown(self._verdicts[index])

    def __iter__(self) -> Iterator[SignedMessage | InvalidMessage]:
        return map(_shown, self._verdicts)

    @property
    def keys(self) -> list[bytes]:
        """One for each value; b"" where the value is too broken to have one."""
        return [_key(verdict) for verdict in self._verdicts]

    @property
    def fresh(self) -> int:
        """How many are fresh."""
        return len(self._fresh)

    @property
    def duplicates(self) -> list[int]:
        """Indices, ascending, of those known before, and of repetitions within the batch."""
        fresh = set(self._fresh.values())
        return [
            index for index, verdict in enumerate(self._verdicts) if isinstance(verdict, Parsed) and index not in fresh
        ]

    @property
    def invalid(self) -> list[tuple[int, InvalidMessage]]:
        """The invalid ones with their indices, ascending."""
        return [(index, verdict) for index, verdict in enumerate(self._verdicts) if isinstance(verdict, InvalidMessage)]

    def drop_known(self, known: Collection[bytes]) -> None:
        """Mark as duplicates the fresh messages with these keys: they came in since the batch was verified."""
        for key in known:
            self._fresh.pop(key, None)

    def fresh_keys(self) -> list[bytes]:
        """Return the keys of the fresh messages, ascending."""
        return list(self._fresh)

    def parents(self) -> list[bytes]:
        """Return the distinct keys, ascending, that fresh messages name as parents and that are not fresh here."""
        named = {parent for index in self._fresh.values() for parent in self._parsed(index).parent_keys}
        return sorted(named - self._fresh.keys())

    def plan(
        self,
        sequence: int,
        parents: Mapping[bytes, int],
        links: Links,
        refused: Collection[int] = (),
        work: int | None = None,
        first_children: Mapping[int, int] = MappingProxyType({}),
    ) -> WritePlan:
        """Order the fresh messages whose parents are in `parents` (key to sequence) or in the plan itself."""
        # A parent's clock is smaller than its child's, so ascending keys put parents first.
        order = [index for index in self._fresh.values() if index not in refused]
        heads = {parent for parent, child in first_children.items() if child >= sequence}
        ancestry = Ancestry(links, heads=heads, first_children={**first_children})

        def link(sequence: int, clock: int, parents: Sequence[int]) -> bytes | None:
            return None if work is not None and ancestry.work > work else ancestry.add(sequence, clock, parents)

        return self._gather(sequence, parents, order, link)

    def arrived(self, sequence: int, parents: Mapping[bytes, int]) -> WritePlan:
        """Return the plan of fresh messages that are in the log, and stand here in the order of their arrival."""
        return self._gather(sequence, parents, sorted(self._fresh.values()), lambda sequence, clock, parents: b"")

    def _gather(
        self,
        sequence: int,
        parents: Mapping[bytes, int],
        order: Sequence[int],
        link: Callable[[int, int, Sequence[int]], bytes | None],
    ) -> WritePlan:
        plan = WritePlan([], [], [], [], [], [], [], [], [])
        sequences = dict(parents)
        named: set[bytes] = set()
        for position, index in enumerate(order):
            parsed = self._parsed(index)
            key, value = parsed.message.key, parsed.message.value
            missing = {parent for parent in parsed.parent_keys if parent not in sequences}
            if missing:
                plan.orphans.append((index, sorted(missing)))
                continue
            own = sequence + len(plan.order)
            parent_sequences = sorted({sequences[parent] for parent in parsed.parent_keys})
            record = link(own, parsed.message.clock, parent_sequences)
            if record is None:
                plan.late.extend(order[position:])
                break
            plan.order.append(index)
            plan.messages.append((own, value, record))
            plan.leaves.append((key, leaf_hash(key, value), own))
            if not parsed.message.canonical:
                plan.alternatives.append((own, decode_id(parsed.message.content_id)))
            plan.children.extend((parent, own) for parent in parent_sequences)
            sequences[key] = own
            named.update(parsed.parent_keys)
        plan.children.sort()
        plan.heads_added.extend(sorted((key, own) for key, _, own in plan.leaves if key not in named))
        plan.heads_removed.extend(sorted(named & parents.keys()))
        return plan

    def _parsed(self, index: int) -> Parsed:
        verdict = self._verdicts[index]
        if isinstance(verdict, InvalidMessage):
            raise verdict
        return verdict


def verify_batch(
    values: Sequence[bytes], topic: str, known: Callable[[list[bytes]], Collection[bytes]] | None = None
) -> Batch:
    """Return the verdicts over stored values from outside.

    Args:
        values: in any order.
        topic: of the log.
        known: returns which of these keys are in the log; their signatures are not verified again.
    """
    verdicts = _parse(values, topic)
    first: dict[bytes, int] = {}
    for index, verdict in enumerate(verdicts):
        if isinstance(verdict, Parsed):
            first.setdefault(verdict.message.key, index)
    passed = set(known(sorted(first))) if known is not None and first else set()
    refused: dict[bytes, InvalidMessage] = {}
    fresh: dict[bytes, int] = {}
    for index, verdict in enumerate(verdicts):
        if isinstance(verdict, InvalidMessage):
            continue
        key = verdict.message.key
        if key not in passed:
            passed.add(key)
            try:
                verdict.check_signature()
                fresh[key] = index
            except InvalidMessage as error:
                refused[key] = error
        if key in refused:
            verdicts[index] = refused[key]
    return Batch(verdicts, fresh)


def sign_chain(
    signing_key: SigningKey,
    topic: str,
    parents: Sequence[bytes],
    payloads: Iterable[Any],
    codec: str = "dag-cbor",
    size: int | None = None,
) -> Batch:
    """Sign messages, the first of which follows the given parents, and each other one the message before it.

    Args:
        signing_key: of their author.
        topic: of the log.
        parents: keys.
        payloads: values of the IPLD data model, as for `cbor_encode`.
        codec: what to sign the messages in, `dag-cbor` or `dag-json`.
        size: bytes of encoded payloads; the one by which they are reached is the last that is signed.

    Returns:
        The messages, all of them fresh.

    Raises:
        EncodeError: a topic, payload or codec that no message can have.
        DecodeError: a parent that is no key.
    """
    following = [encode_id(key) for key in parents]
    first = 1 + max((decode_clock(key)[0] for key in parents), default=0)
    values: list[bytes] = []
    taken = 0
    for clock, payload in enumerate(payloads, first):
        key, value = signing_key.sign(topic, clock, following, payload, codec)
        values.append(value)
        following = [encode_id(key)]
        taken += len(cbor_encode(payload))
        if size is not None and taken >= size:
            break
    return read_batch(values, topic)


def read_batch(values: Sequence[bytes], topic: str) -> Batch:
    """Like `verify_batch`, for values that this process has just signed: everything is checked but the signatures."""
    verdicts = _parse(values, topic)
    fresh: dict[bytes, int] = {}
    for index, verdict in enumerate(verdicts):
        if isinstance(verdict, Parsed):
            fresh.setdefault(verdict.message.key, index)
    return Batch(verdicts, fresh)


def _parse(values: Sequence[bytes], topic: str) -> list[Parsed | InvalidMessage]:
    verdicts: list[Parsed | InvalidMessage] = []
    for value in values:
        try:
            verdicts.append(parse(value, topic))
        except InvalidMessage as error:
            verdicts.append(error)
    return verdicts


def _key(verdict: Parsed | InvalidMessage) -> bytes:
    if isinstance(verdict, Parsed):
        return verdict.message.key
    return b"" if verdict.id is None else decode_id(verdict.id)


def _shown(verdict: Parsed | InvalidMessage) -> SignedMessage | InvalidMessage:
    return verdict if isinstance(verdict, InvalidMessage) else verdict.message
