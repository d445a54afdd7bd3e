"""What the Rust core offers. `gossiplog.reference` offers the same in pure Python, `gossiplog.core` chooses.

What has no docstring here has it there. Attributes that are `Final` are read-only properties.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any, Final, Generic, Literal, TypeAlias, final, overload

from typing_extensions import TypeVar

from gossiplog.errors import Cause, InvalidMessage

Codec: TypeAlias = Literal["dag-cbor", "dag-json"]
# The leaves (key, 16-byte hash) with start <= key < end, ascending; an end of None is the end of the tree.
Leaves: TypeAlias = Callable[[bytes, bytes | None], Sequence[tuple[bytes, bytes]]]
# For arrival sequences, the link records that `WritePlan.messages` held for them, in the same order.
Links: TypeAlias = Callable[[Sequence[int]], Sequence[bytes]]

_Payload = TypeVar("_Payload", default=Any)
_PayloadOut = TypeVar("_PayloadOut", covariant=True, default=Any)

MAX_CLOCK: Final[int]  # 2**53 - 1
MAX_DEPTH: Final[int]  # nesting that is accepted from others
MAX_OWN_DEPTH: Final[int]  # nesting that encoding and signing allow (500)
KEY_LENGTH: Final[int]  # 20
HASH_LENGTH: Final[int]  # 16
__version__: Final[str]

class PanicException(BaseException):
    """A panic of the core's: a defect of this package."""

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
    """An IPLD link. Takes the binary form, normalised (wire format, "Links"): a version 0 is a bare multihash.

    Args:
        data: the binary form.

    Raises:
        DecodeError: it is none, or there is more behind it.

    Examples:
        >>> photo = gossiplog.CID.parse("bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e")
        >>> log.append({"photo": photo}).payload["photo"] == photo
        True
    """

    def __new__(cls, data: bytes) -> CID: ...
    @staticmethod
    def parse(text: str) -> CID:
        """Read a link from its text.

        Args:
            text: as base32 or base58btc writes it.
        """
    def __bytes__(self) -> bytes: ...
    def __str__(self) -> str: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class SigningKey:
    """An Ed25519 key pair, made once for many signatures. The private key is the 32-byte seed of RFC 8032."""

    def __new__(cls, private_key: bytes) -> SigningKey: ...
    public_key: Final[bytes]
    did: Final[str]
    def sign(
        self, topic: str, clock: int, parents: Sequence[str], payload: Any, codec: str = "dag-cbor"
    ) -> tuple[bytes, bytes]: ...
    def sign_bytes(self, bytes: bytes) -> bytes:
        """Return the signature, 64 bytes, of bytes of another protocol, which say what they are for."""

def sign(
    topic: str, clock: int, parents: Sequence[str], payload: Any, private_key: bytes, codec: str = "dag-cbor"
) -> tuple[bytes, bytes]: ...

@final
class SignedMessage(Generic[_PayloadOut]):
    """A message whose signature was verified. It is what `append` returns and what a log is read as.

    Equal to another if both have the same bytes. It can be pickled; what comes back has `raw_payload` as its `payload`.

    Attributes:
        key: the 20 bytes that `id` is the text of.
        id: the id, as text: ids sort in causal order.
        topic: the topic of the log that it is for.
        clock: 1 + the largest clock of its parents.
        parents: the ids of the messages that it follows.
        payload: what its author appended, read anew by each look: changing it changes nothing. In a log that was opened
            with a type as `payload`, it is of this type, and InvalidPayload is raised where it cannot be read so.
        raw_payload: the same as values of the IPLD data model, whatever type the log has for payloads.
        author: the `did:key` of the key that signed it.
        codec: the codec of the bytes that were signed: "dag-cbor" or "dag-json".
        signature: the 64 bytes of the signature.
        value: what a log stores and peers exchange: `Log.insert` takes it.
        canonical: whether it is encoded as its author encoded it; False for a relay's other encoding of it.
        content_id: the id that all encodings of the message have in common.

    Examples:
        >>> message = log.append({"text": "The kettle is on."})
        >>> message.clock, message.parents, message.payload, message.author == alice.did
        (1, (), {'text': 'The kettle is on.'}, True)
    """

    key: Final[bytes]
    id: Final[str]
    topic: Final[str]
    clock: Final[int]
    parents: Final[tuple[str, ...]]
    @property
    def payload(self) -> _PayloadOut:
        """The payload, as the log's type for payloads reads it; without a type, the value that the author gave."""
    raw_payload: Final[Any]
    author: Final[str]
    codec: Final[str]
    signature: Final[bytes]
    value: Final[bytes]
    canonical: Final[bool]
    content_id: Final[str]
    def with_reader(self, reader: Callable[[SignedMessage], _Payload]) -> SignedMessage[_Payload]:
        """Return the same message, whose `payload` is what a function returns for it.

        Args:
            reader: is called with the message at each access to `payload`.
        """

    def __class_getitem__(cls, key: Any, /) -> GenericAlias: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def verify(value: bytes, topic: str) -> SignedMessage: ...
def verify_bytes(public_key: bytes, signature: bytes, bytes: bytes) -> bool: ...
def read_message(value: bytes, topic: str) -> SignedMessage:
    """Return the message in a stored value that was verified when it came in: all but the signature is checked."""

@final
class MessageJson:
    """The dag-json of stored messages, in pieces: the maps `{id, signature, message}` of the HTTP API.

    Args:
        values: stored values, whose signatures are not verified again.
        topic: of the log.
        is_list: whether a list is written; otherwise there must be one value, which is written by itself.

    Raises:
        EncodeError: the first message has no dag-json form: a link in it has no text.
        InvalidMessage: a value that no message has.
    """

    def __new__(cls, values: Sequence[bytes], topic: str, is_list: bool = True) -> MessageJson: ...
    count: Final[int]
    """How many of the messages are written: those before the first that has no dag-json form."""
    held: Final[int]
    """Bytes that are kept in memory for it, about."""
    def read(self, limit: int) -> bytes:
        """Return the next piece, of about so many bytes; b"" at the end. Other threads run meanwhile."""

def read_message_line(line: bytes) -> bytes: ...
def read_message_map(data: bytes, codec: str) -> bytes: ...

@final
class WritePlan:
    """What one transaction writes for a batch: made by `Batch.plan`."""

    order: Final[list[int]]
    """Indices into the batch, in the order in which they get their sequences: causal (ascending keys)."""
    messages: Final[Sequence[tuple[int, bytes, bytes]]]
    """Rows (sequence, value, links), one for each of `order`."""
    leaves: Final[Sequence[tuple[bytes, bytes, int]]]
    """Rows (key, leaf hash, sequence), one for each of `order`."""
    alternatives: Final[list[tuple[int, bytes]]]
    """Rows (sequence, key of the canonical encoding), ascending, of the messages that are alternative encodings."""
    children: Final[list[tuple[int, int]]]
    """Rows (parent's sequence, child's sequence), ascending, without duplicates."""
    heads_added: Final[list[tuple[bytes, int]]]
    """Rows (key, sequence), ascending by key: those that no other message of the plan names as a parent."""
    heads_removed: Final[list[bytes]]
    """Keys, named as parents here, that were in the log before."""
    orphans: Final[list[tuple[int, list[bytes]]]]
    """Valid messages left out: (index, the keys of the parents that are neither in the log nor in the plan)."""
    late: Final[list[int]]
    """Indices of messages left for another plan, because linking the others took all the work that was allowed."""

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
    keys: Final[list[bytes]]
    """One for each value; b"" where the value is too broken to have one."""
    fresh: Final[int]
    """How many are fresh."""
    duplicates: Final[list[int]]
    """Indices of those known before, and of repetitions within the batch."""
    invalid: Final[list[tuple[int, InvalidMessage]]]
    def drop_known(self, known: Collection[bytes]) -> None:
        """Mark as duplicates the fresh messages with these keys: they came in since the batch was verified."""
    def fresh_keys(self) -> list[bytes]:
        """Return the keys of the fresh messages, ascending."""
    def parents(self) -> list[bytes]:
        """Return the distinct keys, ascending, that fresh messages name as parents and that are not fresh here."""
    def plan(
        self,
        sequence: int,
        parents: Mapping[bytes, int],
        links: Links,
        refused: Collection[int] = (),
        work: int | None = None,
        first_children: Mapping[int, int] = {},
    ) -> WritePlan:
        """Order the fresh messages whose parents are in `parents` (key to sequence) or in the plan itself.

        Args:
            sequence: the first sequence to hand out.
            parents: those of `parents()` that are in the log.
            links: reads link records of messages in the log.
            refused: indices to leave out, and with them (as orphans) all that descends from them.
            work: about how many members of link sets may be looked at: above very many concurrent messages, each new
                one costs thousands. One message is always planned.
            first_children: sequences of parents with that of the first message that names each, as far as they are
                known; `sequence` or more where no message of the log does. Nothing is read then to find out that heads
                are no ancestors of others, and nothing from before a first child for that of another parent.
        """
    def arrived(self, sequence: int, parents: Mapping[bytes, int]) -> WritePlan: ...

def verify_batch(
    values: Sequence[bytes], topic: str, known: Callable[[list[bytes]], Collection[bytes]] | None = None
) -> Batch: ...
def sign_chain(
    signing_key: SigningKey,
    topic: str,
    parents: Sequence[bytes],
    payloads: Iterable[Any],
    codec: str = "dag-cbor",
    size: int | None = None,
) -> Batch: ...
def read_batch(values: Sequence[bytes], topic: str) -> Batch:
    """Like `verify_batch`, for values that this process has just signed: everything is checked but the signatures."""

def misplaced(keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]: ...
def frontier(sequence: int, clock: int, links: Links) -> list[int]:
    """Return the sequences, ascending, of the maximal proper ancestors of `sequence` at or before `clock`."""

def is_ancestor(ancestor: int, sequence: int, links: Links) -> bool: ...
def link_record(sequence: int, record: bytes) -> tuple[int, list[list[int]]]: ...
def leaf_hash(key: bytes, value: bytes) -> bytes: ...

@final
class Node:
    """A node of the tree: (level, key, hash). The anchor of a level has the key None.

    Attributes:
        level: 0 for a leaf, and one more than that of its children for every other.
        key: of its first leaf, 20 bytes; None for the anchor.
        hash: 16 bytes, over its children's, or of the leaf's key and value.

    Examples:
        >>> message = log.append("hello")
        >>> log.root.key is None, len(log.root.hash)
        (True, 16)
    """

    def __new__(cls, level: int, key: bytes | None, hash: bytes) -> Node: ...
    level: Final[int]
    key: Final[bytes | None]
    hash: Final[bytes]
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Nodes:
    """Nodes in a row, as an answer to GetChildren holds them: an object for each is made only on access."""

    def __new__(cls, nodes: Iterable[Node]) -> Nodes: ...
    @staticmethod
    def decode(data: bytes) -> Nodes | None: ...
    def encode(self) -> bytes:
        """Return the protobuf message `Response.GetChildren` of the wire format, "Frames"."""
    keys: Final[list[bytes]]
    """Those that the nodes have, in their order: an anchor has none."""
    def lacking(self, stored: Iterable[tuple[bytes, bytes]]) -> list[bytes]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Node]: ...
    def __eq__(self, value: object, /) -> bool: ...

def is_boundary(hash: bytes) -> bool: ...
def check_children(parent: Node, end: bytes | None, children: Iterable[Node]) -> None: ...

@final
class ChildrenCheck:
    """`check_children` for an answer that comes in parts: it holds none of them."""

    def __new__(cls, parent: Node, end: bytes | None) -> ChildrenCheck: ...
    def add(self, children: Iterable[Node]) -> None:
        """Take the next children; raise TreeError as `check_children`, but for what only the whole answer can show."""
    count: Final[int]
    """How many children there were."""
    is_complete: Final[bool]
    """Whether they are all: they hash to the parent's hash."""
    def finish(self) -> None:
        """End the answer; raise TreeError where it is empty or not complete."""

@final
class Tree:
    def __new__(cls) -> Tree: ...
    @staticmethod
    def open(level1: Iterable[tuple[bytes, bytes]], count: int) -> Tree:
        """From stored rows (key, hash), ascending, the anchor's key being b"", and the number of entries."""
    def insert(self, entries: Iterable[tuple[bytes, bytes]], leaves: Leaves | None = None) -> Tree: ...
    def insert_leaves(
        self, entries: Sequence[tuple[bytes, bytes, int]], leaves: Leaves | None = None
    ) -> tuple[Tree, list[tuple[bytes, bytes]]]:
        """With the rows of `WritePlan.leaves` as well (their third column is passed over).

        The loader gives the leaves of this tree, not those that are added.

        Returns:
            The new tree, and the level-1 rows that changed or are new.
        """
    def level1(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """Return the level-1 rows, ascending, that the insertion of these keys can have changed."""
    root: Final[Node]
    def node(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> Node | None: ...
    def children(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> list[Node]:
        """Return the nodes one level below; raise KeyError for a node that is not there, ValueError for level 0."""
    def span(self, level: int, key: bytes | None, leaves: Leaves | None = None) -> Nodes:
        """Return the children in one object; raise as `children` does."""
    def differing(self, nodes: Nodes, end: bytes | None) -> list[tuple[Node, bytes | None]]: ...
    def nodes(self, level: int, leaves: Leaves | None = None) -> list[Node]: ...
    def next_key(self, level: int, key: bytes | None) -> bytes | None: ...
    def last(self, level: int) -> Node:
        """Return the last node of a level from 1 to the root's."""
    def __len__(self) -> int: ...
    def diff(self, other: Tree, leaves: Leaves | None = None, other_leaves: Leaves | None = None) -> Iterator[bytes]:
        """Return the keys that only `other` has, ascending. Costs grow with the difference."""

def redacted_url(url: str) -> str:
    """Return a URL for messages and logs, without what may be a secret.

    That is its query, or all but its scheme if it holds an `@`.
    """

def check_address(text: str) -> None:
    """Check that a host can use a multiaddr; raise ValueError."""

def check_peer_id(text: str) -> None:
    """Check that a text is a peer's id; raise ValueError."""

@final
class Fragment:
    """What a run of neighbouring entries contributes to a tree: immutable, a few KB, whatever the number of entries.

    Fragments of runs that were read apart are joined from left to right; joining is associative, and the empty fragment
    its neutral element.
    """

    def __new__(cls, leaves: Iterable[tuple[bytes, bytes]] = ()) -> Fragment: ...
    def join(self, right: Fragment) -> Fragment: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(data: bytes) -> Fragment: ...
    root: Final[Node]
    """The root of the tree that has these entries and no others."""
    count: Final[int]
    """The number of entries."""
    first: Final[bytes | None]
    """The lowest key; None without entries."""
    last: Final[bytes | None]
    """The highest key; None without entries."""
    def __eq__(self, value: object, /) -> bool: ...

@final
class ArrowArray:
    """An array for any library that takes arrays through the Arrow PyCapsule interface."""

    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

# `gossiplog.columns` says what these do. They take objects with `__arrow_c_array__`, and raise ColumnError.
def gather_columns(
    rows: Iterator[tuple[int | bytes, ...]], columns: Sequence[tuple[str, type[int | bytes]]], most: int, size: int
) -> ArrowArray: ...
def decode_columns(values: object, topic: str, columns: Sequence[str] | None = None) -> ArrowArray: ...
def verify_columns(keys: object | None, values: object, topic: str, columns: Sequence[str]) -> ArrowArray: ...
def leaf_hash_column(keys: object, values: object) -> ArrowArray: ...
def fragment_of_columns(keys: object, hashes: object) -> Fragment: ...

@final
class Closed:
    """How a connection ended, or why a stream could not be opened, as in `ConnectionLost`."""

    cause: Final[Cause]
    reason: Final[str]
    status: Final[int | None]

@final
class ConnectionEvent:
    """What happened to a connection since the last poll."""

    connection: Final[int]
    established: Final[bool]
    """A dialled connection is established; on a host, also one that a peer dialled."""
    hello: Final[list[tuple[str, str]]]
    """With `established`: what a hub said of itself, the names in lower case and the values of headers."""
    readable: Final[bool]
    """Draining is worth trying again."""
    writable: Final[bool]
    """Feeding is worth trying again."""
    incidents: Final[list[tuple[str, int, str]]]
    """Failed attempts of the peer: the kind, how often, and what it did the last time.

    The kind is the name that `Network.counts` has for it.
    """
    closed: Final[Closed | None]

@final
class StreamEvent:
    """What happened to a stream since the last poll."""

    stream: Final[int]
    connection: Final[int]
    protocol: Final[str | None]
    """Both sides agreed on it: the stream is open."""
    inbound: Final[bool]
    """The peer opened the stream."""
    readable: Final[bool]
    """Reading is worth trying again."""
    writable: Final[bool]
    """Writing is worth trying again."""
    failed: Final[Closed | None]
    """Why it could not be opened."""

@final
class Streams:
    """The connections of a network or a host, and their streams, by their handles. No call waits.

    They raise what `gossiplog.net.transport.stream` documents.
    """

    def close(self, connection: int) -> None:
        """Begin to close a connection: what was written goes out first, if the peer takes it in time.

        A host closes all its connections to the peer, and does not dial it by itself for the next minutes.
        """
    def release(self, connection: int) -> None:
        """Release a connection and its streams; end it if it has not ended.

        Does nothing for an unknown handle.
        """
    def open(self, connection: int, protocol: str) -> int:
        """Begin to open a stream; return its handle. An event reports how it went."""
    def read(self, stream: int, limit: int) -> bytes | None:
        """Take what a stream received: None if there is nothing now, b"" if the peer sent all it had to."""
    def write(self, stream: int, data: bytes, start: int = 0) -> int:
        """Write bytes to a stream, those from `start` on; return how many were taken: 0 if there is no room now."""
    def reserve_memory(self, stream: int, bytes: int) -> None:
        """Set how many bytes the caller itself keeps for a stream; they count as those do that were not read."""
    def finish(self, stream: int) -> None:
        """Release a stream: all that was written is sent, and the peer has `closing_seconds` to end its direction."""
    def reset(self, stream: int) -> None:
        """Release a stream at once: the peer sees a reset. Like `finish`, does nothing for an unknown handle."""

@final
class Network:
    """Connections and their streams, driven on a thread of their own. No call waits.

    Handles are integers, never used again. A call that finds nothing to do says so, and `poll` reports when it is worth
    trying again: never before it was tried. Every call raises NetworkError in a process that was forked from the
    network's own, and after `stop`; so do those of `streams`.

    Beside what `peer_bytes` and `total_bytes` limit, a connection has at most 192 KiB a stream in memory that was
    written and not sent, and 8 MiB of buffers and book-keeping, most of it only if the peer sends very many small
    frames.

    `gossiplog.net.transport.limits.Limits` documents the arguments. Connections that ended count until they are
    released. A peer that exceeds `peer_bytes` is closed with the cause "violation", and the one that has most with
    "overload" when all exceed `total_bytes`. A quarter of `peer_bytes` is what the windows of a connection's streams
    may grow by.
    """

    def __new__(cls, limits: object) -> Network: ...
    streams: Final[Streams]
    def fileno(self) -> int:
        """Return a file descriptor (on Windows a socket handle) that is readable when `poll` has something."""
    def poll(self) -> list[ConnectionEvent | StreamEvent]:
        """Return what happened since the last call: one event a handle, a connection's before its streams'."""
    def counts(self) -> dict[str, int]:
        """Return what was counted since the start, by name.

        The names are `connections` and `streams` (established), `violations` (connections closed because the peer broke
        the rules), `streams_over_limit`, `streams_refused` and `negotiations_timed_out` (inbound streams that came to
        nothing), `overloads` (connections closed because all together had too many bytes kept), `defects` (connections
        closed by an error of this package), and `bytes_sent` and `bytes_received`: of connections that were dialled, as
        WebSockets carry them. What `feed` and `drain` move, their caller counts.
        """
    def held(self) -> int:
        """Return the bytes that are kept for all peers now.

        They were received and not read, or are reserved, or are those of `set_external_bytes`.
        """
    def set_external_bytes(self, bytes: int) -> None:
        """Set the bytes kept outside of connections.

        They count against `total_bytes`; when the total is exceeded, the peer with the most bytes is disconnected.
        """
    def attach(self, protocols: Sequence[str], client: bool) -> int:
        """Open a connection over a pipe whose other end is `feed` and `drain`; return its handle.

        `gossiplog.net.transport.network.Network.attach` documents the arguments.
        """
    def dial(
        self,
        url: str,
        protocols: Sequence[str],
        headers: Sequence[tuple[str, str]] = (),
        ca_file: str | os.PathLike[str] | None = None,
        connect_timeout: float = 10.0,
        keepalive: float = 20.0,
        max_message: int = 1048576,
    ) -> int:
        """Begin to connect to a WebSocket, as yamux's client; return the handle. An event reports how it went.

        `gossiplog.net.transport.network.Network.dial` documents the arguments.
        """
    def feed(self, connection: int, data: bytes, start: int = 0) -> int:
        """Feed bytes that came from the peer, those from `start` on; return how many: 0 if there is no room."""
    def feed_eof(self, connection: int) -> None:
        """Report that no more bytes come from the peer."""
    def drain(self, connection: int, limit: int) -> bytes | None:
        """Take bytes to send to the peer: None if there are none now, b"" if there will be no more."""
    def stop(self) -> None:
        """End every connection at once, the thread, and the file descriptors.

        Every other call raises NetworkError from then on.
        """

@final
class PeerEvent:
    """A peer is connected, whichever side dialled. Comes just before the ConnectionEvent that says `established`.

    `gossiplog.net.transport.host.Arrival` documents the attributes.
    """

    connection: Final[int]
    peer_id: Final[str]
    address: Final[str]
    dialer: Final[bool]

@final
class MeshEvent:
    """A peer's status with the topic has changed since the last poll."""

    peer_id: Final[str]
    kind: Final[Literal["graft", "prune", "subscribe", "unsubscribe"]]
    """The peer came into the topic's mesh or left it; it subscribed to the topic or gave it up.

    A peer that is disconnected leaves both.
    """

@final
class HostEvent:
    """What concerns no single peer."""

    gossip: Final[bool]
    """`Host.gossip` has messages."""
    accepted: Final[bool]
    """`GossipValidator.take` has messages."""
    asked: Final[bool]
    """`GossipValidator.take_missing` has keys."""
    listening: Final[list[str]]
    """Addresses that the host listens on since the last poll, with `/p2p/...`."""
    failed: Final[list[str]]
    """Listeners that failed since the last poll, each as a sentence."""
    refused: Final[int]
    """Connections that were refused since the last poll.

    There were as many from their address as there may be, or their peer is not allowed or is blocked.
    """
    denied: Final[list[str]]
    """The peers that were refused since the last poll because they are not allowed or are blocked.

    Of very many, the first.
    """

@final
class GossipMessage:
    """A message that came by gossip, to be judged: `Host.validate`."""

    ticket: Final[int]
    """Names it in the answer. Never used again."""
    connection: Final[int]
    """Of the peer that passed it on, which need not be its author; 0 if that is no longer connected."""
    peer_id: Final[str]
    data: Final[bytes]

@final
class GossipValidator:
    """Decide which messages of gossip on a topic are accepted before they are stored.

    It accepts a valid message if each of its parents is stored or accepted. One that lacks some waits for them for half
    a second, as does every message while the log falls behind: while 16 MiB of accepted messages are not stored, or one
    has not been stored for a second. Up to 1,024 messages wait, and 4 MiB; once there is no room, the sources of those
    that wait have equal shares of it.

    Report the messages that were stored (`stored`, `finish`), and those of the missing parents that the log holds
    (`take_missing`). The validator knows at least the last 262,144 keys that were reported or looked up. Its methods
    may be called from several threads. Where a Host has it, the host calls `validate`.
    """

    def __new__(cls, topic: str) -> GossipValidator: ...
    def validate(
        self, messages: Sequence[tuple[int, int, bytes]], now: float
    ) -> list[tuple[int, Literal["accept", "known", "defer"]]]:
        """Decide about publications, and about those of earlier calls that waited.

        Args:
            messages: each with a ticket, which names it in the answer, and a number for who passed it on.
            now: seconds since any fixed moment; less than at an earlier call counts as then.

        Returns:
            The tickets that are decided, ascending: whether the message is accepted, was stored before, or is left to
            the caller to decide. One that is missing waits for its parents, or for the log.

        Raises:
            ValueError: `now` is below 0, or 10^12 or more.
            OverflowError: a ticket or a source is below 0, or 2^64 or more.
        """
    def due(self, now: float) -> float | None:
        """Return how many seconds from now `validate` is due where nothing else comes; None while nothing waits.

        What is due within ten milliseconds is done together.

        Raises:
            ValueError: as for `validate`.
        """
    def take_missing(self) -> list[bytes]:
        """Take the keys of parents that messages have waited for, ascending: report those that the log holds.

        That is after ten milliseconds, as of the last `validate`, and once for each message. 1,024 at most: the next
        call gives more.
        """
    def take(self) -> tuple[Batch, list[int]] | None:
        """Take accepted messages, parents first, with the numbers of those who passed them on: 1,024 at most."""
    def close(self) -> None:
        """Accept nothing from now on."""
    def stored(self, keys: Sequence[bytes]) -> None:
        """Note messages that are stored.

        Raises:
            DecodeError: a key has another length than 20 bytes.
        """
    def stored_batch(self, batch: Batch, indices: Sequence[int]) -> None:
        """Note messages of a batch that are stored, without those that are invalid.

        Raises:
            IndexError: the batch has no such index.
        """
    def finish(self, batch: Batch) -> None:
        """End the storing of a batch.

        If a message of it was not stored, forget all accepted messages that are not stored, as they may follow it.
        """

@final
class PeerInfo:
    """A connected peer, as of the last heartbeat or since; `gossiplog.PeerInfo` says more of each attribute."""

    connection: Final[int]
    peer_id: Final[str]
    address: Final[str]
    dialer: Final[bool]
    agent: Final[str | None]
    protocols: Final[list[str]]
    in_mesh: Final[bool]
    subscribed: Final[bool]
    score: Final[float]
    """Below -400, after seven messages that were rejected, its gossip is ignored, and the host disconnects from it.

    Rejections are forgiven within ten minutes.
    """
    rtt: Final[float | None]

@final
class Host:
    """A libp2p host on a thread of its own.

    It has connections to peers and streams on them, gossip on one topic, and finds peers through Kademlia.

    What `Network` has under the same name means the same here. A connection's handle is its peer's: it is
    established with the first connection to the peer and closed with the last. Connections that the peer or the host
    itself dialled have handles, too: PeerEvent announces each.

    Transports are TCP and WebSocket, noise and yamux; and QUIC, where the core was built with its cargo feature `quic`.
    Streams end as those of `Network` do: finished, reset, lost. Streams of the peer that speak no protocol offered
    here, or do not agree on one in time, are dropped without an event.

    Gossip is signed by nobody (StrictNoSign), and a message's id is the SHA-256 of its data. Each message waits for an
    answer (`validate`), and is forwarded once it is accepted. One that waits for 30 seconds is answered "ignore" by the
    host, as is one for which there is no room: 4,096 messages or 64 MiB may wait.

    Frames of gossip that are half-received count as kept for their peer: `peer_bytes`, `total_bytes`. Beside these
    limits frames may wait to be sent, for 5 seconds at most, and a connection over QUIC may have a quarter of
    `peer_bytes` received and not read.

    A peer is dropped (with "violation") when its score falls below -400, and when it sends more by gossip that is no
    message (subscriptions, GRAFT, PRUNE, IHAVE, IWANT, IDONTWANT) than 16 MiB at once or 1 MiB a second for long. Each
    frame and each of its fields counts as 32 bytes more than it has.

    `gossiplog.net.transport.host.open_host` documents the arguments, a GossipConfig among them; `allowed` are its
    `allow_peers`. The limits are those of `Network`.

    Raises:
        NetworkError: an argument that cannot be used, an address that cannot be listened on, or the system refuses a
            thread or a socket. HostEvent reports listeners that fail later.
    """

    def __new__(
        cls,
        *,
        identity: bytes,
        topic: str,
        protocols: Sequence[str],
        listen: Sequence[str],
        bootstrap: Sequence[str],
        announce: Sequence[str] = (),
        mdns: bool = False,
        gossips: bool = True,
        gossip: object,
        idle_streams: int = 1,
        validator: GossipValidator | None = None,
        allowed: Sequence[str] = (),
        limits: object,
    ) -> Host: ...
    streams: Final[Streams]
    peer_id: Final[str]
    """This host's, in base58."""
    def addresses(self) -> list[str]:
        """Return the addresses that the host listens on now, with `/p2p/<peer_id>`."""
    def dial(self, address: str) -> int:
        """Begin to connect to a multiaddr; return the connection's handle.

        An event reports how it went. If the peer turns out to be connected already, the new handle is closed with the
        cause "local", and the peer keeps the one it has.

        Raises:
            NetworkError: too many connections, an address that is none, or one that names this host.
        """
    def block(self, peer_id: str) -> None:
        """Close the connections to a peer, and keep none, whoever dials, until it is unblocked.

        Raises:
            NetworkError: a text that is no peer id, this host's own, or more than 65,536 blocked peers.
        """
    def unblock(self, peer_id: str) -> bool:
        """Let a peer connect again, and dial it as any other; return whether it was blocked.

        Raises:
            NetworkError: a text that is no peer id.
        """
    def dial_peer(self, peer_id: str) -> int:
        """Begin to connect to a peer where Kademlia has it; return the connection's handle, as `dial` does.

        A peer that Kademlia does not have is looked up, and the handle closed: dial again.

        Raises:
            NetworkError: too many connections, an id that is none, or this host's.
        """
    def publish(self, data: bytes) -> bool:
        """Publish a message to the peers that subscribed to the topic.

        Return False if none did, as far as is known, or if so much waits to be sent that there is no room. What was
        published or received already is not sent again.

        Raises:
            NetworkError: more than 4 MiB less 64 KiB.
        """
    def gossip(self) -> list[GossipMessage]:
        """Take the messages that wait, in the order in which they came."""
    def validate(self, answers: Sequence[tuple[int, Literal["accept", "ignore", "reject"]]]) -> None:
        """Answer messages by their tickets.

        Those that are accepted are forwarded, those that are rejected are held against the peer that passed them on.
        Tickets that were answered already are passed over.

        Raises:
            NetworkError: an answer that is none; then none of them is given.
        """
    def peers(self) -> list[PeerInfo]:
        """Return the connected peers, by the age of their connections."""
    def fileno(self) -> int:
        """As `Network.fileno`."""
    def poll(self) -> list[ConnectionEvent | StreamEvent | PeerEvent | MeshEvent | HostEvent]:
        """Return what happened since the last call: of a handle in one event, a connection's before its streams'.

        Raises:
            NetworkError: the host has ended by a defect (its thread panicked) and all earlier events were returned.
                Nothing connects, publishes or opens after that; `counts`, `release` and `stop` work as before.
        """
    def counts(self) -> dict[str, int]:
        """Return what was counted since the start, by name.

        The names are those of `Network.counts`, and `gossip_received`, `gossip_accepted`, `gossip_ignored`,
        `gossip_rejected` (as `validate` answered), `gossip_expired` (not answered in time), `gossip_dropped` (no room),
        `published`, `dials` (by the host itself), `dials_failed` (of those) and `connections_refused` (there were as
        many from their address as there may be). Its bytes are those of all TCP connections, with what libp2p adds; of
        QUIC none.
        """
    def held(self) -> int:
        """As `Network.held`; frames of gossip that are not whole count, too."""
    def stop(self) -> None:
        """As `Network.stop`."""
