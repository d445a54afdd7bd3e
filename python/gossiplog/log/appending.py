"""Appends of several callers in one transaction: what waits at once costs one wait for the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from gossiplog import core
from gossiplog.errors import EncodeError, RefusedMessage
from gossiplog.log.payloads import Payloads, as_peers_read
from gossiplog.log.writing import MOST_SIGNED, Run, Writer
from gossiplog.message import MAX_VALUE_LENGTH, SignedMessage
from gossiplog.signer import Signer, check_signer

Wanted: TypeAlias = tuple[Sequence[Any], Signer | None, str]
"""What a caller appends: payloads, who signs (None for the log's signer), and the codec."""


class Prepare(Protocol):
    """Returns what is to be appended, checked: payloads of a caller, `start` of whose `count` come before them."""

    def __call__(self, wanted: Sequence[Any], signer: Signer | None, codec: str, start: int, count: int, /) -> Run: ...


def check_payloads(payloads: Iterable[Any]) -> list[Any]:
    """Return the payloads that are given to `append_many`.

    Raises:
        TypeError: one payload in place of an iterable of them.
    """
    if isinstance(payloads, str | bytes | bytearray | memoryview | Mapping):
        raise TypeError(
            f"append_many takes an iterable of payloads, not one {type(payloads).__name__}: give append one payload"
        )
    return list(payloads)


class AppendRequest:
    """What one caller appends: messages of which each follows the one before.

    Args:
        wanted: the payloads, who signs and the codec.

    Attributes:
        messages: those that are stored.
        error: why no more will be; None while they may.
        is_cancelled: whether the caller does not wait any more.
    """

    __slots__ = ("_payloads", "_run", "error", "is_cancelled", "messages", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        # Those that were checked, and once all were, what is signed.
        self._payloads: list[Any] = []
        self._run: Run | None = None
        self.messages: list[SignedMessage[Any]] = []
        self.error: BaseException | None = None
        self.is_cancelled = False

    @property
    def left(self) -> int:
        """How many payloads are to be stored."""
        return len(self.wanted[0]) - len(self.messages)

    @property
    def has_ended(self) -> bool:
        """Whether all is stored, or no more will be."""
        return self.error is not None or (self._run is not None and not self.left)

    @property
    def is_whole(self) -> bool:
        """Whether all is checked and nothing is stored."""
        return self._run is not None and not self.messages

    def prepare(self, prepare: Prepare) -> bool:
        """Check as many payloads as a transaction has, where some are left; return whether all are good."""
        if self._run is not None:
            return True
        payloads, signer, codec = self.wanted
        start = len(self._payloads)
        try:
            run = prepare(payloads[start : start + MOST_SIGNED], signer, codec, start, len(payloads))
        except Exception as error:  # noqa: BLE001 - its caller raises it
            self.error = error
            return False
        if start or len(run.payloads) < len(payloads):
            self._payloads += run.payloads
            if len(self._payloads) < len(payloads):
                return False
            run = run._replace(payloads=self._payloads)
        self._run = run
        return True

    def next(self, limit: int) -> Run:
        """Return the next payloads of a request that is prepared."""
        assert self._run is not None
        start = len(self.messages)
        return self._run._replace(payloads=self._run.payloads[start : start + limit])


def prepare_run(
    wanted: Sequence[Any],
    signer: Signer | None,
    codec: str,
    topic: str,
    payloads: Payloads[Any],
    start: int = 0,
    count: int | None = None,
) -> Run:
    """Return what is to be appended, checked as far as it can be before the log's heads are known.

    Args:
        wanted: payloads.
        signer: whose messages they become.
        codec: "dag-cbor" or "dag-json".
        topic: of the log.
        payloads: what the application says of them.
        start: how many of the caller's come before these.
        count: how many the caller has; None for these alone.

    Raises: as `Log.append_many`.
    """
    if signer is None:
        raise ValueError("nothing to sign with: give a signer to append, or to gossiplog.open")
    check_signer(signer)
    _check_codec(codec)
    # A single one is encoded when it is signed, and needs no look before.
    count = len(wanted) if count is None else count
    if count > 1 or payloads.checks_own:
        wanted = [
            _checked(payload, index, count, signer, codec, topic, payloads)
            for index, payload in enumerate(wanted, start)
        ]
    return Run(signer, codec, wanted)


def _check_codec(codec: object) -> None:
    # What else is no codec is refused as it is signed: an EncodeError, which is its caller's, too.
    if not isinstance(codec, str):
        raise TypeError(f"codec is {codec!r}: expected 'dag-cbor' or 'dag-json'")


def _checked(
    payload: Any, index: int, count: int, signer: Signer, codec: str, topic: str, payloads: Payloads[Any]
) -> Any:
    """Return a payload as it is to be encoded: one that was checked, in an object that its caller does not hold."""
    try:
        plain = payloads.plain(payload)
        encoded = core.cbor_encode(plain)
        # Measured for long ones alone: it takes a signature.
        overhead = _overhead(topic, signer, codec) if len(encoded) > MAX_VALUE_LENGTH // 2 else 0
        if len(encoded) + overhead > MAX_VALUE_LENGTH:
            raise EncodeError(
                f"a payload of {len(encoded)} bytes: peers read messages of up to {MAX_VALUE_LENGTH}, {overhead} of"
                " which are not payload"
            )
    except EncodeError as error:
        if count == 1:
            raise
        raise EncodeError(f"payload {index} of {count:,}, from 0: {error}") from error
    if not payloads.checks_own:
        return plain
    payloads.check(as_peers_read(encoded))
    # Decoded anew: it is signed later, and the caller may change what it gave meanwhile, as the check what it saw.
    return as_peers_read(encoded)


def _overhead(topic: str, signer: Signer, codec: str) -> int:
    """Return how many bytes a message with one parent needs besides its payload, at most."""
    clock = core.MAX_CLOCK - 1
    parent = core.encode_id((core.encode_clock(clock) + bytes(core.KEY_LENGTH))[: core.KEY_LENGTH])
    _, value = signer.sign(topic, clock + 1, [parent], None, codec)
    return len(value) - len(core.cbor_encode(None))


def append_some(writer: Writer, prepare: Prepare, requests: Sequence[AppendRequest]) -> None:
    """Append what callers wait for, in their order: what one transaction has time for.

    What is refused is refused to its caller alone. Any other error is that of all of these callers. Who is cancelled
    before a transaction begins has no part in it.

    Args:
        writer: of the log.
        prepare: checks what a caller wants, and raises what it is refused for.
        requests: none of which has ended.
    """
    left = [request for request in requests if request.prepare(prepare) and request.left]
    # Checks of payloads may have taken long.
    left = [request for request in left if not request.is_cancelled]
    if not left:
        return
    together, runs = _first(left)
    try:
        messages = writer.append(runs)
    except (EncodeError, RefusedMessage) as error:
        # Nothing of the transaction is stored: it is found out whose fault it is.
        if len(together) == 1:
            together[0].error = error
            return
        for request in together:
            if not request.is_cancelled:
                _append_alone(writer, request)
    except BaseException as error:  # noqa: BLE001 - each caller raises it
        for request in left:
            request.error = error
    else:
        _distribute(messages, together)


def _append_alone(writer: Writer, request: AppendRequest) -> None:
    try:
        request.messages += writer.append([request.next(MOST_SIGNED)])
    except BaseException as error:  # noqa: BLE001 - its caller raises it
        request.error = error


def _first(left: Iterable[AppendRequest]) -> tuple[Sequence[AppendRequest], Sequence[Run]]:
    """Return the requests whose payloads are signed next, and these payloads."""
    together: list[AppendRequest] = []
    runs: list[Run] = []
    room = MOST_SIGNED
    for request in left:
        run = request.next(room)
        room -= len(run.payloads)
        together.append(request)
        runs.append(run)
        if not room:
            break
    return together, [*_joined(runs)]


def _joined(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield runs with those joined that have the same signer and codec and follow each other."""
    start = 0
    for end, run in enumerate(runs, 1):
        following = runs[end] if end < len(runs) else None
        if following is not None and following.signer is run.signer and following.codec == run.codec:
            continue
        yield run._replace(payloads=[payload for each in runs[start:end] for payload in each.payloads])
        start = end


def _distribute(messages: Sequence[SignedMessage], requests: Iterable[AppendRequest]) -> None:
    """Give stored messages to those who wait for them."""
    taken = 0
    for request in requests:
        part = messages[taken : taken + request.left]
        request.messages += part
        taken += len(part)
