"""Asking a peer for its root, and nothing else."""

from __future__ import annotations

import anyio

from gossiplog.core import Node
from gossiplog.errors import NetworkError, ProtocolError
from gossiplog.net.transport.connection import Connection
from gossiplog.protocol import wire

_ANSWER_SECONDS = 30.0


async def query_root(connection: Connection, protocol: str) -> Node | None:
    """Return the root of a peer's log, on a stream of its own; None if it is too busy to say.

    Args:
        connection: to the peer.
        protocol: the sync protocol of the log.

    Raises:
        ProtocolError: the answer is none.
        NetworkError: the peer does not answer.
    """
    try:
        with anyio.fail_after(_ANSWER_SECONDS):
            frame = await _ask(connection, protocol)
    except TimeoutError:
        raise NetworkError(f"the peer did not send its root within {_ANSWER_SECONDS:g} s") from None
    match wire.decode_answer(frame):
        case wire.Root(root):
            return root
        case wire.Abort():
            return None
        case answer:
            raise ProtocolError(f"the answer to GetRoot is {type(answer).__name__}")


async def _ask(connection: Connection, protocol: str) -> bytes:
    frames = wire.FrameReader(wire.MAX_FRAME)
    async with await connection.open_stream(protocol) as stream:
        await stream.send(wire.encode_request(wire.GetRoot()))
        while (frame := frames.next()) is None:
            data = await stream.receive()
            if not data:
                raise NetworkError("the peer closed the stream without an answer")
            frames.feed(data)
        return frame
