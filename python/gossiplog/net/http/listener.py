"""The listening socket of a server: its address, and what happens to connections that cannot be accepted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from gossiplog.net.http.connections import ConnectionTable, Handshake
from gossiplog.net.http.tls import CLIENT_NAME
from gossiplog.net.rate_limited_log import RateLimitedLog, client_name
from gossiplog.reprs import frozen

NO_DESCRIPTORS = "the process has no file descriptor left: raise its limit (LimitNOFILE= of systemd, ulimit -n)"
"""Why a connection is dropped that cannot be accepted."""
# Connections that may wait to be accepted.
_BACKLOG = 1024
_LARGEST_PORT = 2**16 - 1
_ExceptionHandler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
# What `accept` raises where the system lacks something that other connections may give back.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# What to do about an address that cannot be used.
_ADVICE = {
    errno.EADDRINUSE: "; another program listens there: stop it, or take another port",
    errno.EADDRNOTAVAIL: "; it is no address of this machine",
    errno.EACCES: "; ports below 1024 need the right to bind them",
}


@frozen
class Address:
    """Where a server listens.

    Attributes:
        host: a numeric address.
        port: the one that was given by the system where 0 was asked for.
        secure: whether it speaks TLS.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print(address.host, address.secure, address.url("ws").startswith("ws://127.0.0.1:"))
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        127.0.0.1 False True
    """

    host: str
    port: int
    secure: bool

    def url(self, scheme: str) -> str:
        """Return the base URL, for a scheme "http" or "ws".

        Args:
            scheme: "http" or "ws"; an "s" is added where the server has a certificate.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}{'s' if self.secure else ''}://{host}:{self.port}"


def bind(host: str, port: int) -> Listener:
    """Bind a socket for a server that does not listen yet; block while a name is resolved.

    Args:
        host: a name or an address; of a name the first address.
        port: 0 takes one that is free.

    Raises:
        OSError: the address cannot be used; `strerror` says why.
    """
    if not 0 <= port <= _LARGEST_PORT:
        # The resolver would take the remainder: 70000 would listen at 4464.
        raise OSError(errno.EINVAL, f"cannot listen at {host}:{port}: expected a port from 0 to {_LARGEST_PORT}")
    listener = None
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # With the protocol named: asyncio sets TCP_NODELAY on no other connections, and then what follows a large
        # message waits for its acknowledgement, which a client that only reads delays by 40 ms.
        listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":
            # As servers do, to listen again at once after their end; on Windows others could take the port as well.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        number = error.errno or 0
        reason = os.strerror(number) if number in errno.errorcode else error.strerror
        raise OSError(number, f"cannot listen at {host}:{port}: {reason}{_ADVICE.get(number, '')}") from error
    except UnicodeError as error:
        # A part of the name is empty or too long.
        raise OSError(errno.EINVAL, f"cannot listen at {host}:{port}: this cannot be the name of a host") from error
    return listener


class Listener(socket.socket):
    """A socket with a backlog of its own: asyncio has one number for it and for the connections it accepts at once.

    It sets `gossiplog.net.http.tls.CLIENT_NAME` for each connection, and closes those of blocked addresses. With TLS it
    has the table count connections from here on. Where no file descriptor is left, it closes a connection as soon as it
    is accepted, with a descriptor kept for that: a client that waits without an answer would wait until its own time
    limit.

    Examples:
        >>> from gossiplog.lowlevel import Listener
        >>> import socket
        >>> issubclass(Listener, socket.socket)
        True
    """

    _limited_log: RateLimitedLog | None = None
    _table: ConnectionTable | None = None
    _is_secure = False
    _is_accepting = True
    # Set where it is reached: `accept` of this socket runs on the event loop alone.
    _spare: int | None = None

    def begin(self, limited_log: RateLimitedLog, table: ConnectionTable, *, secure: bool) -> None:
        """Listen.

        Args:
            limited_log: counts and logs the connections that are not accepted.
            table: says which addresses are blocked, and counts handshakes.
            secure: whether connections begin with a handshake of TLS.
        """
        self._limited_log = limited_log
        self._table = table
        self._is_secure = secure
        self.listen()

    def listen(self, backlog: int = _BACKLOG, /) -> None:
        # asyncio calls it with the number of connections to accept at once.
        super().listen(_BACKLOG)
        if self._spare is None:
            self._open_spare()

    def stop_accepting(self) -> None:
        """Accept no more; connections that wait are reset when the socket is closed."""
        self._is_accepting = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self._is_accepting:
            raise BlockingIOError
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED or self._spare is None:
                raise
            self._close_next()
            # asyncio tries again when the next connection waits.
            raise BlockingIOError from error
        if self._spare is None:
            self._open_spare()
        client = client_name(address[:2])
        if self._table is not None and self._table.is_blocked(address[0]):
            connection.close()
            self._note("too_many_from_address", client, "not accepted: it went on after many refusals")
            raise BlockingIOError
        CLIENT_NAME.set(client)
        if self._is_secure and self._table is not None and self._limited_log is not None:
            connection = Handshake.begin(connection, address[:2], self._table, self._limited_log)
        return connection, address

    def close(self) -> None:
        self._close_spare()
        super().close()

    def _open_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _close_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _close_next(self) -> None:
        """Accept the next connection with the spare descriptor, and close it."""
        self._close_spare()
        try:
            connection, address = super().accept()
        except OSError:
            # Another thread has taken the descriptor, or the client has left.
            pass
        else:
            connection.close()
            self._note("no_descriptors", client_name(address[:2]), f"dropped: {NO_DESCRIPTORS}")
        self._open_spare()

    def _note(self, kind: str, client: str, text: str) -> None:
        if self._limited_log is not None:
            self._limited_log.note(kind, client, text)


@contextlib.contextmanager
def noting_accept_errors(loop: asyncio.AbstractEventLoop, limited_log: RateLimitedLog) -> Iterator[None]:
    """Count and log, in a block, the connections that asyncio cannot accept.

    asyncio would repeat a traceback each second.
    """
    own = _AcceptErrorHandler(limited_log, loop.get_exception_handler())
    loop.set_exception_handler(own)
    try:
        yield
    finally:
        own.is_running = False
        # A server that began later has a handler of its own, which passes on to this one, and may end later.
        handler = loop.get_exception_handler()
        if handler is own:
            loop.set_exception_handler(own.former)
        while isinstance(handler, _AcceptErrorHandler):
            if handler.former is own:
                handler.former = own.former
            handler = handler.former


class _AcceptErrorHandler:
    """A server's handler of the loop's exceptions, which passes on all but errors of `accept`.

    Attributes:
        former: the handler before it; None for that of asyncio.
        is_running: whether the server runs. A handler of others may keep this one after its end.
    """

    def __init__(self, limited_log: RateLimitedLog, former: _ExceptionHandler | None) -> None:
        self.former = former
        self.is_running = True
        self._limited_log = limited_log

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.is_running and isinstance(error, OSError) and error.errno in _EXHAUSTED and "socket" in context:
            self._limited_log.note("no_descriptors", "unknown", f"not accepted: {NO_DESCRIPTORS}")
        elif self.former is not None:
            self.former(loop, context)
        else:
            loop.default_exception_handler(context)
