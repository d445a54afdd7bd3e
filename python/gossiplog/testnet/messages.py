"""What the coordinator and its workers say to each other: one line of JSON each, of one of the classes here.

A command has a number, and is answered by one Done or Failed with it, in any order. Reports come by themselves. Both
sides are this package in one version, on one machine; a line that is none of these is a defect, and ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias

import anyio
import anyio.abc
from anyio.abc import SocketAttribute
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gossiplog.dashboard.events import Event
from gossiplog.errors import ProtocolError
from gossiplog.net.routing.kinds import RouterName
from gossiplog.reprs import frozen
from gossiplog.testnet.plan import Kind

LONGEST_LINE = 64 * 2**20
"""Bytes of a line: a report has at most some thousand events of some hundred bytes."""

_STRICT = ConfigDict(strict=True, extra="forbid")


@frozen
class Open:
    """Open the logs of members, and append what they have before they join.

    Attributes:
        topic: of all logs.
        seed: of the keys.
        message_bytes: of text in each payload.
        offline_messages: to append to each log.
        began: when the network began, on the monotonic clock that all processes of a machine share.
        members: number and kind of each, with its name.
        folder: for the logs; None keeps them in memory.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    topic: str
    seed: int
    message_bytes: int
    offline_messages: int
    began: float
    members: tuple[tuple[int, Kind, str], ...]
    folder: str | None
    command: Literal["open"] = "open"


@frozen
class Start:
    """Start a member, which was opened.

    Attributes:
        number: which.
        dials: addresses to dial: multiaddrs, or a hub's URL.
        allowed: names of the only peers to be connected to; none for any.
        blocked: names of peers that it keeps no connections to.
        hub: the name of a client's hub; "" for others.
        origins: of a hub, from which pages may join.
        router: what spreads a peer's messages.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    number: int
    dials: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    hub: str = ""
    origins: tuple[str, ...] = ()
    router: RouterName = "libp2p"
    command: Literal["start"] = "start"


@frozen
class Stop:
    """Stop a member; its log stays."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    number: int
    command: Literal["stop"] = "stop"


@frozen
class Append:
    """Append messages to the log of a member, whether or not it runs.

    Attributes:
        number: which.
        count: messages, each after the one before.
        flow: the measurement that they belong to; 0 for none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    number: int
    count: int = 1
    flow: int = 0
    command: Literal["append"] = "append"


@frozen
class Block:
    """Have a running peer keep connections to all but these peers.

    Attributes:
        number: of the peer.
        names: of those whom it is to block; all others are unblocked.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    number: int
    names: tuple[str, ...]
    command: Literal["block"] = "block"


@frozen
class Dial:
    """Have a running peer connect to another, as far as it can be reached."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    number: int
    address: str
    command: Literal["dial"] = "dial"


@frozen
class Measure:
    """Report how long the messages of a flow take, from now on; 0 ends it."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    flow: int
    command: Literal["measure"] = "measure"


@frozen
class Observe:
    """Report what a dashboard shows beside what the coordinator needs: messages, links, traffic."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    command: Literal["observe"] = "observe"


@frozen
class Settle:
    """Report everything that members have been notified of, and answer once that is done."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    command: Literal["settle"] = "settle"


Command: TypeAlias = Open | Start | Stop | Append | Block | Dial | Measure | Observe | Settle


@frozen
class Numbered:
    """A command, and the number by which it is answered."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    id: int
    call: Annotated[Command, Field(discriminator="command")]


@frozen
class Done:
    """A command was executed.

    Attributes:
        id: of the command.
        addresses: of a member that was started, by which others reach it: multiaddrs, or a hub's URL first.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    id: int
    addresses: tuple[str, ...] = ()
    answer: Literal["done"] = "done"


@frozen
class Failed:
    """A command could not be executed, or a member has ended by itself.

    Attributes:
        id: of the command; 0 for what ended by itself.
        error: what was wrong, as one sentence.
        kind: the error's class.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    id: int
    error: str
    kind: str
    answer: Literal["failed"] = "failed"


@frozen
class Happened:
    """What happened since the report before, in order for each peer."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    events: tuple[Annotated[Event, Field(discriminator="event")], ...]
    answer: Literal["happened"] = "happened"


@frozen
class Arrived:
    """Messages of a flow have come to members that did not append them.

    Attributes:
        flow: which measurement.
        latencies: for each such arrival, seconds from the call of `append` until the member was notified.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    flow: int
    latencies: tuple[float, ...]
    answer: Literal["arrived"] = "arrived"


Report: TypeAlias = Happened | Arrived
Answer: TypeAlias = Done | Failed | Report

_COMMAND: TypeAdapter[Numbered] = TypeAdapter(Numbered)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="answer")])


def command_line(command: Numbered) -> bytes:
    """Return the line of a command."""
    return _COMMAND.dump_json(command) + b"\n"


def answer_line(answer: Answer) -> bytes:
    """Return the line of an answer or a report."""
    return _ANSWER.dump_json(answer) + b"\n"


def read_command(line: bytes) -> Numbered:
    """Return the command of a line.

    Raises:
        ProtocolError: it is none.
    """
    try:
        return _COMMAND.validate_json(line)
    except ValidationError as error:
        raise _wrong("command", line, error) from error


def read_answer(line: bytes) -> Answer:
    """Return the answer or the report of a line.

    Raises:
        ProtocolError: it is none.
    """
    try:
        return _ANSWER.validate_json(line)
    except ValidationError as error:
        raise _wrong("answer", line, error) from error


class Lines:
    """Takes bytes as they come, and gives the lines that are whole."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Sequence[bytes]:
        """Return the lines that these bytes complete, without their ends.

        Raises:
            ProtocolError: a line is longer than LONGEST_LINE.
        """
        searched = len(self._rest)
        self._rest += data
        if self._rest.find(b"\n", searched) < 0:
            if len(self._rest) > LONGEST_LINE:
                raise ProtocolError(f"a worker's line has more than {LONGEST_LINE:,} bytes")
            return ()
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return lines


async def receive(stream: anyio.abc.UNIXSocketStream) -> bytes:
    """Return the next bytes of a stream.

    Raises:
        EndOfStream: there are no more.
        BrokenResourceError: the other end has failed.
    """
    # The stream's own wait, cancelled as bytes come, logs an InvalidStateError (anyio 4.16 on asyncio).
    await anyio.wait_readable(stream.extra(SocketAttribute.raw_socket))
    return await stream.receive()


def _wrong(what: str, line: bytes, error: ValidationError) -> ProtocolError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return ProtocolError(f"a worker's line is no {what}: {place}: {first['msg']}: {line[:200]!r}")
