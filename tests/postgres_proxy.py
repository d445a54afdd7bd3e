"""A proxy on a unix socket, through which tests cut the connections to a server of Postgres."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.postgres import SOCKET, Server

_CHUNK = 2**16
# The server's ReadyForQuery outside a transaction, with which the answer to COMMIT ends
# (https://www.postgresql.org/docs/current/protocol-message-formats.html).
_IDLE = b"Z\0\0\0\5I"


class Proxy:
    """Forwards connections to a server until told to cut them.

    Args:
        server: where to.
        folder: for the socket.

    Attributes:
        accepted: how many connections were made through it.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.folder = folder
        self.accepted = 0
        self._server = server
        self._lock = threading.Lock()
        self._open: set[_Pair] = set()
        self._pattern = b""
        self._delivered = False
        self._was_cut = threading.Event()
        self._refuses = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        self._listener.listen()
        _in_thread(self._accept)

    def url(self, schema: str = "", **options: Any) -> str:
        """Return the URL of a schema on the server, through the proxy; `options` as `Server.url` takes them."""
        return self._server.url(schema, host=self.folder, **options)

    def cut(self) -> int:
        """Cut all connections now; return how many."""
        with self._lock:
            pairs, self._open = self._open, set()
        for pair in pairs:
            pair.cut()
        return len(pairs)

    def cut_at(self, pattern: bytes, *, delivered: bool) -> threading.Event:
        """Cut the next connection whose client sends something.

        Args:
            pattern: that which it sends, as b"COMMIT", in one piece.
            delivered: whether the server gets it all the same. It has then answered, to nobody, before the cut.

        Returns:
            An event that is set when it was cut.
        """
        with self._lock:
            self._pattern, self._delivered, self._was_cut = pattern, delivered, threading.Event()
            return self._was_cut

    def refuse(self, refuses: bool = True) -> None:
        """Close new connections at once, or take them again."""
        self._refuses = refuses

    def redirect(self, server: Server) -> None:
        """Cut all connections, and forward new ones to another server, as after a failover."""
        self._server = server
        self.cut()

    def close(self) -> None:
        """Cut all connections and take no more."""
        # A thread that accepts keeps a socket that is only closed.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            pair = _Pair(client, server)
            try:
                if self._refuses:
                    raise ConnectionRefusedError
                server.connect(str(self._server.folder / SOCKET))
            except OSError:
                pair.cut()
                continue
            with self._lock:
                self.accepted += 1
                self._open.add(pair)
            _in_thread(self._forward_requests, pair)
            _in_thread(self._forward_answers, pair)

    def _forward_requests(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.client.recv(_CHUNK):
                if not self._fits(data):
                    pair.server.sendall(data)
                elif self._delivered:
                    pair.muted = True
                    pair.server.sendall(data)
                else:
                    self._end(pair, self._was_cut)
                    return
        # The other thread ends the pair where it waits for an answer that nobody gets.
        if not pair.muted:
            self._end(pair)

    def _forward_answers(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.server.recv(_CHUNK):
                if not pair.muted:
                    pair.client.sendall(data)
                elif data.endswith(_IDLE):
                    break
        self._end(pair, self._was_cut if pair.muted else None)

    def _fits(self, data: bytes) -> bool:
        with self._lock:
            found = self._pattern != b"" and self._pattern in data
            if found:
                self._pattern = b""
            return found

    def _end(self, pair: _Pair, event: threading.Event | None = None) -> None:
        with self._lock:
            self._open.discard(pair)
        pair.cut()
        if event is not None:
            event.set()


class _Pair:
    """A client's connection, and the one to the server in its place."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.muted = False

    def cut(self) -> None:
        for each in (self.client, self.server):
            # A thread that reads keeps a socket that is only closed.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _in_thread(function: Any, *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, name="postgres proxy", daemon=True).start()


@contextmanager
def proxy_before(server: Server) -> Iterator[Proxy]:
    """Run a proxy before a server."""
    # The names of sockets are short: pytest's folders may be too long for one.
    with tempfile.TemporaryDirectory(prefix="gossiplog-proxy-") as folder:
        proxy = Proxy(server, Path(folder))
        try:
            yield proxy
        finally:
            proxy.close()
