"""What the Rust core offers. `gossiplog.reference` offers the same in pure Python, `gossiplog.core` chooses."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, final, overload

from gossiplog.errors import InvalidMessage

Codec: TypeAlias = Literal["dag-cbor", "dag-json"]
# The leaves (key, 16-byte hash) with start <= key < end, ascending; an end of None is the end of the tree.
Leaves: TypeAlias = Callable[[bytes, bytes | None], Sequence[tuple[bytes, bytes]]]
# For arrival sequences, the link records that `Plan.messages` held for them, in the same order.
Links: TypeAlias = Callable[[Sequence[int]], Sequence[bytes]]

MAX_CLOCK: Final[int]  # 2**53 - 1
MAX_DEPTH: Final[int]  # nesting that is accepted from others
MAX_OWN_DEPTH: Final[int]  # nesting that encoding and signing allow (500)
KEY_LENGTH: Final[int]  # 20
HASH_LENGTH: Final[int]  # 16

def encode_clock(clock: int) -> bytes: ...
def decode_clock(data: bytes) -> tuple[int, int]: ...
def encode_id(key: bytes) -> str: ...
def decode_id(id: str) -> bytes: ...
def cbor_encode(value: Any) -> bytes: ...
def cbor_decode(data: bytes) -> Any: ...
def json_encode(value: Any) -> bytes: ...
def json_decode(data: bytes) -> Any: ...

@final
class CID:
    """An IPLD link. Takes the binary form, normalised as wire-format says (a version 0 is a bare multihash)."""

    def __new__(cls, data: bytes) -> CID: ...
    @staticmethod
    def parse(text: str) -> CID: ...
    def __bytes__(self) -> bytes: ...
    def __str__(self) -> str: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def public_key(private_key: bytes) -> bytes: ...
def encode_did(public_key: bytes) -> str: ...
def sign(
    topic: str, clock: int, parents: Sequence[str], payload: Any, private_key: bytes, codec: str = "dag-cbor"
) -> tuple[bytes, bytes]: ...

@final
class SignedMessage:
    @property
    def key(self) -> bytes: ...
    @property
    def id(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def clock(self) -> int: ...
    @property
    def parents(self) -> tuple[str, ...]: ...
    @property
    def payload(self) -> Any: ...
    @property
    def author(self) -> str: ...
    @property
    def codec(self) -> str: ...
    @property
    def signature(self) -> bytes: ...
    @property
    def value(self) -> bytes: ...
    @property
    def canonical(self) -> bool: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def verify(value: bytes, topic: str) -> SignedMessage: ...
def read_message(value: bytes, topic: str) -> SignedMessage:
    """A stored value whose signature was verified when it came in: everything is checked but the signature."""

@final
class Plan:
    """What one transaction writes for a batch: made by `Batch.plan`."""

    @property
    def order(self) -> list[int]:
        """Indices into the batch, in the order in which they get their sequences: causal (ascending keys)."""
    @property
    def messages(self) -> list[tuple[int, bytes, bytes]]:
        """Rows (sequence, value, links), one for each of `order`."""
    @property
    def leaves(self) -> list[tuple[bytes, bytes, int]]:
        """Rows (key, leaf hash, sequence), ascending by key, one for each of `order`."""
    @property
    def children(self) -> list[tuple[int, int]]:
        """Rows (parent's sequence, child's sequence), without duplicates."""
    @property
    def heads_added(self) -> list[bytes]: ...
    @property
    def heads_removed(self) -> list[bytes]:
        """Keys, named as parents here, that were in the log before."""
    @property
    def orphans(self) -> list[tuple[int, list[bytes]]]:
        """Valid messages left out: (index, the keys of the parents that are neither in the log nor in the plan)."""

@final
class Batch:
    """The verdicts over a batch of values, in their order; objects are made only on access.

    A message is *fresh* when it is valid, not known before, and the first of its key in the batch.
    """

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[SignedMessage | InvalidMessage]: ...
    @overload
    def __getitem__(self, key: int, /) -> SignedMessage | InvalidMessage: ...
    @overload
    def __getitem__(self, key: slice, /) -> Sequence[SignedMessage | InvalidMessage]: ...
    @property
    def keys(self) -> list[bytes]:
        """One for each value; b"" where the value is too broken to have one."""
    @property
    def fresh(self) -> int:
        """How many are fresh."""
    @property
    def duplicates(self) -> list[int]:
        """Indices of those known before, and of repetitions within the batch."""
    @property
    def invalid(self) -> list[tuple[int, InvalidMessage]]: ...
    def drop_known(self, known: Collection[bytes]) -> None:
        """Marks as duplicates the fresh messages with these keys: they came in since the batch was verified."""
    def fresh_keys(self) -> list[bytes]:
        """The keys of the fresh messages, ascending."""
    def parents(self) -> list[bytes]:
        """The distinct keys, ascending, that fresh messages name as parents and that are not fresh here."""
    def plan(
        self,
        sequence: int,
        parents: Mapping[bytes, int],
        links: Links,
        refused: Collection[int] = (),
    ) -> Plan:
        """Orders the fresh messages whose parents are in `parents` (key to sequence) or in the plan itself.

        Args:
            sequence: the first sequence to hand out.
            parents: those of `parents()` that are in the log.
            links: reads link records of messages in the log.
            refused: indices to leave out, and with them (as orphans) all that descends from them.
        """

def verify_batch(
    values: Sequence[bytes], topic: str, known: Callable[[list[bytes]], Collection[bytes]] | None = None
) -> Batch: ...
def read_batch(values: Sequence[bytes], topic: str) -> Batch:
    """Like `verify_batch`, for values that this process has just signed: everything is checked but the signatures."""

def frontier(sequence: int, clock: int, links: Links) -> list[int]:
    """The sequences, ascending, of the maximal proper ancestors at or before `clock` of the message `sequence`."""

def is_ancestor(ancestor: int, sequence: int, links: Links) -> bool:
    """Whether the message `ancestor` is a proper ancestor of `sequence`."""

def link_record(sequence: int, record: bytes) -> tuple[int, list[list[int]]]:
    """What a link record holds: the clock, and for each k with 2**k dividing it the frontier at clock - 2**k.

    A frontier is the sequences of its messages, ascending; empty where it was too wide to store.
    """

def leaf_hash(key: bytes, value: bytes) -> bytes: ...

@final
class Node:
    """A node of the tree: (level, key, hash). The anchor of a level has the key None."""

    def __new__(cls, level: int, key: bytes | None, hash: bytes) -> Node: ...
    @property
    def level(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def hash(self) -> bytes: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def is_boundary(hash: bytes) -> bool: ...
def check_children(parent: Node, end: bytes | None, children: Sequence[Node]) -> None:
    """Holds an untrusted answer to GetChildren against the rules of the tree.

    Args:
        parent: the node that was asked for.
        end: the key at which the parent's range ends (exclusive), or None at the end of the tree.
        children: the answer.

    Raises:
        TreeError: an empty answer; a child whose level is not the parent's less one, whose key is not in the range or
            not above the one before; a first child that has not the parent's key; another that is no boundary
            (level 1 and up) or, inside the span, is one; hashes that do not hash to the parent's.
    """

@final
class Tree:
    """A prolly tree: immutable, sharing structure with the trees it was made from.

    A tree holds its level 1 and what is above it. The leaves are held in memory by a tree made by `Tree()`, and read by
    the loader `leaves` given to the call by one made by `Tree.open`.
    """

    def __new__(cls) -> Tree: ...
    @staticmethod
    def open(level1: Iterable[tuple[bytes, bytes]], count: int) -> Tree:
        """From stored rows (key, hash), ascending, the anchor's key being b"", and the number of entries."""
    def insert(self, entries: Iterable[tuple[bytes, bytes]], leaves: Leaves | None = None) -> Tree:
        """With the entries (key, value) as well. An entry that is there already changes nothing.

        Raises:
            TreeError: an empty key, or a key that is there with another value.
        """
    def insert_leaves(
        self, entries: Sequence[tuple[bytes, bytes, int]], leaves: Leaves | None = None
    ) -> tuple[Tree, list[tuple[bytes, bytes]]]:
        """With the rows of `Plan.leaves` as well (their third column is passed over).

        The loader gives the leaves of this tree, not those that are added.

        Returns:
            The new tree, and the level-1 rows that changed or are new.
        """
    def refresh(self, level1: Iterable[tuple[bytes, bytes]], count: int) -> Tree:
        """With level-1 rows that another process wrote, and the number of entries now."""
    @property
    def root(self) -> Node: ...
    def node(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> Node | None: ...
    def children(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> list[Node]:
        """Raises KeyError for a node that is not there, ValueError for level 0."""
    def nodes(self, level: int, leaves: Leaves | None = None) -> list[Node]: ...
    def next_key(self, level: int, key: bytes | None) -> bytes | None:
        """The key of the node after this one on its level (1 and up): where its range ends; None for the last one."""
    def last(self, level: int) -> Node:
        """The last node of a level from 1 to the root's."""
    def __len__(self) -> int: ...
    def diff(self, other: Tree, leaves: Leaves | None = None, other_leaves: Leaves | None = None) -> Iterator[bytes]:
        """The keys that only `other` has, ascending. Costs grow with the difference."""
