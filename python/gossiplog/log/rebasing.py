"""Rebasing: what an author has written to a log and another one lacks is signed anew on top of that other log.

It is the way back for a log with messages that others refuse: nobody who refuses one takes what descends from it. The
new log holds all of the target's messages, and of those that the target lacks:

- not the ones that are dropped;
- the author's others, signed anew, in causal order. The parents of a new message are the counterparts of its old
  parents. In place of one that is dropped stand the counterparts of that one's parents, and where nothing is left but
  what the target holds, the target's heads;
- those of other authors as they are, since nobody else can sign them, and so the author's own from which they descend.

What others have written on top of a dropped message cannot stay: it has to be dropped, too, on request.

Where a copy of the log was rebased before, the target has its messages under other ids. Nothing in them says so:
those that have the author and the payload of one that the target has are named.
"""

from __future__ import annotations

import hashlib
import shlex
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from gossiplog import core
from gossiplog.core import SignedMessage
from gossiplog.errors import EncodeError, RebaseError, UnknownMessage
from gossiplog.log.log import Log, replica_of
from gossiplog.log.opening import open
from gossiplog.log.results import RebaseResult
from gossiplog.message import MAX_PARENTS, MAX_VALUE_LENGTH, key_of
from gossiplog.reprs import frozen, listed
from gossiplog.signer import Signer
from gossiplog.storage.base import Progress
from gossiplog.storage.location import Location, replacement_at
from gossiplog.storage.sqlite.files import GENERATION_SUFFIX, REBASING_SUFFIX
from gossiplog.storage.sqlite.storage import SQLiteStorage

_BATCH = 1024
_MOST_COMPARED = 16
"""Parents that are compared with each other."""
_SHOWN = 20
"""Ids that an error names."""


class RebaseOutcome(Enum):
    """What a rebase does with a message that its target lacks.

    Examples:
        >>> [outcome.value for outcome in gossiplog.RebaseOutcome]
        ['dropped', 'signed anew', 'kept', 'held']
    """

    DROPPED = "dropped"
    SIGNED = "signed anew"
    KEPT = "kept"
    HELD = "held"
    """The target has another encoding of it."""


@frozen
class RebasedMessage:
    """A message that the target of a rebase lacks, and what becomes of it.

    Attributes:
        old: as it was.
        outcome: what becomes of it.
        new: the id of its counterpart: its own if it is kept, None if it is dropped.
        value: the stored value of the counterpart, for the new log; None where the target has it, or nobody.
        parents: of the counterpart, ids; none if it is dropped.
        same_payload: the id of a message of the target's by the same author with the same payload, if this one is
            signed anew. Each of the target's stands for one.

    Examples:
        >>> slip = log.append("a slip")
        >>> log.close()
        >>> hub = gossiplog.open("hub.db", "org.example.notes")
        >>> def show(rebased):
        ...     print(rebased.old.payload, rebased.outcome.value, rebased.new)
        >>> result = gossiplog.rebase("notes.db", hub, [slip.id], signer=alice, dry_run=True, on_rebased=show)
        a slip dropped None
    """

    old: SignedMessage
    outcome: RebaseOutcome
    new: str | None = None
    value: bytes | None = None
    parents: tuple[str, ...] = ()
    same_payload: str | None = None


@dataclass(frozen=True, slots=True)
class _Lacking:
    """What is remembered of a message that the target lacks."""

    author: str
    parents: tuple[bytes, ...]
    content: bytes


class Rebase:
    """The plan of a rebase. It reads both logs and writes to neither.

    Args:
        log: to rebase.
        target: that it is rebased onto; neither changes meanwhile.
        drop: ids of messages to leave out.
        signers: of the messages that are signed anew.
        drop_descendants: whether what other authors have written on top of dropped messages is dropped as well.

    Raises:
        DecodeError: text that is no id.
        UnknownMessage: a message to drop is not in the log.
        RebaseError: the target has a message to drop, or others have written on top of one.
    """

    def __init__(
        self, log: Log, target: Log, drop: Iterable[str], signers: Sequence[Signer], *, drop_descendants: bool
    ) -> None:
        self._log = log
        self._target = target
        self._signers = {signer.did: signer for signer in signers}
        self._lacking = {
            message.key: _Lacking(message.author, tuple(map(key_of, message.parents)), key_of(message.content_id))
            for message in _messages_lacking(log, target)
        }
        self._held = replica_of(target).encodings([*{each.content for each in self._lacking.values()}])
        self._dropped = self._find_dropped(list(drop), drop_descendants)
        self._kept = self._find_kept()

    def _find_dropped(self, drop: Sequence[str], drop_descendants: bool) -> set[bytes]:
        contents = set()
        for id in drop:
            key = key_of(id)
            if id not in self._log:
                raise UnknownMessage(id)
            found = self._lacking.get(key)
            if found is None or found.content in self._held:
                raise RebaseError(
                    f"the target has message {id} itself, so that dropping it here would bring it back: rebase the"
                    f" target first, or leave out --drop {id}",
                    [id],
                )
            contents.add(found.content)
        # All encodings of one, which any relay can make.
        dropped = {key for key, each in self._lacking.items() if each.content in contents}
        tainted, others = set(dropped), []
        for key, each in self._lacking.items():
            if key in dropped or tainted.isdisjoint(each.parents):
                continue
            tainted.add(key)
            if each.author not in self._signers:
                others.append(key)
        if others and not drop_descendants:
            ids = [core.encode_id(key) for key in others]
            authors = sorted({self._lacking[key].author for key in others})
            raise RebaseError(
                "messages descend from dropped ones whose authors' keys were not given, so that they cannot be signed"
                f" anew: {listed(ids, _SHOWN)}, of {listed(authors, _SHOWN)}. Give these authors' keys (--key), or drop"
                " the messages as well (--drop-descendants)",
                ids,
                authors,
            )
        return dropped.union(others)

    def _find_kept(self) -> set[bytes]:
        """Return the keys of what stays as it is: others' messages, and what they descend from."""
        kept: set[bytes] = set()
        for key, each in reversed(self._lacking.items()):
            if key not in self._dropped and (each.author not in self._signers or key in kept):
                kept.add(key)
                kept.update(parent for parent in each.parents if parent in self._lacking)
        return kept

    @property
    def total(self) -> int:
        """How many messages the target lacks."""
        return len(self._lacking)

    def messages(self) -> Iterator[RebasedMessage]:
        """Yield what becomes of each message that the target lacks, parents first.

        Raises:
            RebaseError: a message becomes too long, since it has more parents than before.
        """
        heads = replica_of(self._target).next_parents()
        same_payload = self._find_same_payload()
        # By key: the messages that stand for one as a parent. One that is dropped has those of its parents; what the
        # target holds has none, since its heads stand for it.
        standing: dict[bytes, frozenset[bytes]] = {}
        # By key of a message that is signed anew, and by its content: its counterpart.
        signed: dict[bytes, RebasedMessage] = {}
        firsts: dict[bytes, bytes] = {}
        for message in replica_of(self._log).messages(list(self._lacking)):
            key, each = message.key, self._lacking[message.key]
            parents = frozenset(found for parent in each.parents for found in standing.get(parent, ()))
            if key in self._dropped:
                standing[key] = parents
                yield RebasedMessage(message, RebaseOutcome.DROPPED)
            elif key in self._kept:
                standing[key] = frozenset([key])
                yield RebasedMessage(message, RebaseOutcome.KEPT, message.id, message.value, message.parents)
            elif each.content in self._held:
                standing[key] = frozenset()
                yield RebasedMessage(message, RebaseOutcome.HELD, core.encode_id(self._held[each.content]))
            elif each.content in firsts:
                # Another encoding of what was signed anew before.
                standing[key] = frozenset([firsts[each.content]])
                yield replace(signed[firsts[each.content]], old=message, value=None, same_payload=None)
            else:
                standing[key] = frozenset([key])
                firsts[each.content] = key
                follows = self._latest(parents) if not self._dropped.isdisjoint(each.parents) else parents
                same = self._take_concurrent(message, same_payload[_fingerprint(message)]) if same_payload else None
                rebased = self._sign(message, self._new_parents(follows, heads, signed))
                signed[key] = replace(rebased, same_payload=same)
                yield signed[key]

    def _find_same_payload(self) -> defaultdict[bytes, deque[str]]:
        """Find what may be a counterpart of a message that is signed anew: return ids, ascending, by fingerprint.

        They are of the target's messages by the same authors after the last common one; the log may hold them by now.
        Of each message one encoding counts.
        """
        staying = self._dropped | self._kept
        authors = {each.author for key, each in self._lacking.items() if key not in staying}
        found: defaultdict[bytes, deque[str]] = defaultdict(deque)
        contents = set()
        for message in self._target.messages(after=self._last_common) if authors else ():
            if message.author in authors and message.content_id not in contents:
                contents.add(message.content_id)
                found[_fingerprint(message)].append(message.id)
        return found

    @property
    def _last_common(self) -> str | None:
        """The id of a message of both logs from which on the target may have counterparts; None for its beginning."""
        lacking = [each.parents for each in self._lacking.values() if self._lacking.keys().isdisjoint(each.parents)]
        # A counterpart follows what the message follows that both have.
        first = min((max(parents, default=b"") for parents in lacking), default=b"")
        return core.encode_id(first) if first else None

    def _take_concurrent(self, message: SignedMessage, candidates: deque[str]) -> str | None:
        """Take the first candidate out that a message does not follow; those that it follows are earlier messages."""
        while candidates:
            candidate = candidates.popleft()
            if candidate not in self._log or not self._log.is_ancestor(candidate, message.id):
                return candidate
        return None

    def _latest(self, keys: frozenset[bytes]) -> frozenset[bytes]:
        """Return those of some messages that no other of them follows."""
        if not 1 < len(keys) <= _MOST_COMPARED:
            return keys
        ids = {key: core.encode_id(key) for key in keys}
        return frozenset(
            key for key, id in ids.items() if not any(self._log.is_ancestor(id, other) for other in ids.values())
        )

    def _new_parents(
        self, follows: Collection[bytes], heads: Sequence[str], signed: Mapping[bytes, RebasedMessage]
    ) -> tuple[str, ...]:
        parents = {str(signed[key].new) if key in signed else core.encode_id(key) for key in follows}
        # What was signed anew follows the target's heads already.
        if not any(key in signed for key in follows):
            parents.update([head for head in heads if not self._precedes(head, parents)])
        return tuple(sorted(parents)[-MAX_PARENTS:])

    def _precedes(self, head: str, kept: Iterable[str]) -> bool:
        return head in self._log and any(self._log.is_ancestor(head, id) for id in kept)

    def _sign(self, message: SignedMessage, parents: tuple[str, ...]) -> RebasedMessage:
        clock = 1 + max((core.decode_clock(key_of(parent))[0] for parent in parents), default=0)
        signer = self._signers[message.author]
        try:
            key, value = signer.sign(message.topic, clock, parents, message.payload, message.codec)
            if len(value) > MAX_VALUE_LENGTH:
                raise EncodeError(f"{len(value)} bytes with its new parents: peers read up to {MAX_VALUE_LENGTH}")
        except EncodeError as error:
            raise RebaseError(f"message {message.id} cannot be signed anew: {error}", [message.id]) from error
        return RebasedMessage(message, RebaseOutcome.SIGNED, core.encode_id(key), value, parents)


def _fingerprint(message: SignedMessage) -> bytes:
    """Return what messages of one author with one payload have in common, whichever codec they have."""
    return hashlib.sha256(message.author.encode() + b"\0" + core.cbor_encode(message.payload)).digest()


Fill = Callable[[Log], object]
"""Brings all of the target's messages into an empty log."""


def rebase_file(
    location: Location,
    fill: Fill,
    drop: Iterable[str],
    signers: Sequence[Signer],
    *,
    drop_descendants: bool = False,
    dry_run: bool = False,
    on_rebased: Callable[[RebasedMessage], object] | None = None,
    progress: Progress | None = None,
) -> RebaseResult:
    """Rebase a log; see `gossiplog.rebase`.

    Args:
        location: of the log.
        fill: brings the target's messages into the new log.
        drop: ids of messages to leave out.
        signers: of the messages that are signed anew.
        drop_descendants: as `Rebase` has it.
        dry_run: whether everything stays as it is.
        on_rebased: is called with what becomes of each message that the target lacks, parents first.
        progress: `progress(done, total)` is called with numbers of these messages.
    """
    drop = list(drop)
    replacement = replacement_at(location, REBASING_SUFFIX)
    # Before its write-ahead log is moved into the file: a damaged one is what `gossiplog repair` starts from.
    open(replacement.path, read_only=True).close()
    with replacement, open(replacement.path, read_only=True) as log:
        position = replica_of(log).position()
        tables = replacement.other_tables
        # The disk need not have it before it gets its name.
        with open(SQLiteStorage(replacement.new, synchronous="off"), log.topic) as new:
            fill(new)
            rebase = Rebase(log, new, drop, signers, drop_descendants=drop_descendants)
            counts, mapping, same_payload = dict.fromkeys(RebaseOutcome, 0), {}, {}
            batch: list[bytes] = []
            for done, each in enumerate(rebase.messages(), 1):
                counts[each.outcome] += 1
                if on_rebased is not None:
                    on_rebased(each)
                if progress is not None and (done % _BATCH == 0 or done == rebase.total):
                    progress(done, rebase.total)
                if each.outcome is RebaseOutcome.SIGNED and each.new is not None:
                    mapping[each.old.id] = each.new
                if each.same_payload is not None:
                    same_payload[each.old.id] = each.same_payload
                if each.value is not None and not dry_run:
                    batch.append(each.value)
                    if len(batch) >= _BATCH:
                        _insert(new, batch)
                        batch.clear()
            _insert(new, batch)
            messages = len(new) + (counts[RebaseOutcome.KEPT] + len(set(mapping.values())) if dry_run else 0)
        # On the same parents, a message that is signed anew is the same.
        changes = counts[RebaseOutcome.DROPPED] > 0 or any(old != new for old, new in mapping.items())
        if not changes:
            counts[RebaseOutcome.KEPT] += counts[RebaseOutcome.SIGNED]
            mapping, same_payload = {}, {}
        former = None
        if changes and not dry_run:
            meta = {"generation": position.generation + 1, "apply_version": position.apply_version}
            former = replacement.publish(f"{GENERATION_SUFFIX}{position.generation}", meta)
    return RebaseResult(
        signed=MappingProxyType(mapping),
        dropped=counts[RebaseOutcome.DROPPED],
        kept=counts[RebaseOutcome.KEPT],
        messages=messages,
        generation=position.generation + (former is not None),
        former=former,
        tables=tuple(tables) if former is not None else (),
        same_payload=MappingProxyType(same_payload),
    )


def _insert(log: Log, values: Sequence[bytes]) -> None:
    for index, error in log.insert_many(values).refused:
        id = core.read_message(values[index], log.topic).id
        raise RebaseError(f"message {id} cannot be stored in the new log: {error}", [id]) from error


def _messages_lacking(log: Log, target: Log) -> Iterator[SignedMessage]:
    """Yield the messages of a log that another one lacks, ascending by key."""
    for keys in replica_of(log).lacking(replica_of(target)):
        yield from replica_of(log).messages(keys)


def rebase_command(log: str, target: str, drop: Sequence[str], options: Sequence[str] = ()) -> str:
    """Return the command that rebases a log without some messages, for a shell; "" where no other process finds it.

    Args:
        log: as `Storage.argument` has it.
        target: to rebase onto.
        drop: ids of the messages.
        options: more arguments.
    """
    if not drop or not log:
        return ""
    drops = [part for id in drop for part in ("--drop", id)]
    return f"gossiplog rebase {log} {shlex.join(['--onto', target, *options, *drops])}"
