"""A line with little bandwidth, over TCP on the loopback interface."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

_PIECE = 512
_BUFFER = 4096


@contextmanager
def slow_line(port: int, bandwidth: float) -> Iterator[int]:
    """Carry TCP connections to a port of this machine, until the block ends.

    Args:
        port: where a server listens.
        bandwidth: bytes a second that come from the server, of all connections together.

    Yields:
        The port of the line.
    """
    line = _Line(port, bandwidth)
    accepting = threading.Thread(target=line.accept, name="slow line")
    accepting.start()
    try:
        yield line.port
    finally:
        line.close()
        accepting.join()


class _Line:
    def __init__(self, target: int, bandwidth: float) -> None:
        self._target = target
        self._bandwidth = bandwidth
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._free = time.monotonic()  # when the line has carried what it was given
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._carried: list[tuple[socket.socket, socket.socket]] = []
        self._pumps: list[threading.Thread] = []

    def accept(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                near, _ = self._listener.accept()
                if self._closed.is_set():
                    near.close()
                    break
                far = socket.socket()
                # What the system holds has left the server, but has not come over the line.
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
                far.connect(("127.0.0.1", self._target))
                self._carried.append((near, far))
                for source, target, slow in ((near, far, False), (far, near, True)):
                    pump = threading.Thread(target=self._pump, args=(source, target, slow), name="slow line")
                    self._pumps.append(pump)
                    pump.start()

    def close(self) -> None:
        self._closed.set()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            pass  # wakes `accept`
        for pair in self._carried:
            _shut_down(*pair)
        for pump in self._pumps:
            pump.join()
        with ExitStack() as stack:
            for pair in self._carried:
                for end in pair:
                    stack.callback(end.close)

    def _pump(self, source: socket.socket, target: socket.socket, slow: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE if slow else 2**16):
                if slow:
                    self._carry(len(data))
                target.sendall(data)
        _shut_down(source, target)

    def _carry(self, size: int) -> None:
        with self._turn:
            self._free = max(self._free, time.monotonic()) + size / self._bandwidth
            arrives = self._free
        self._closed.wait(arrives - time.monotonic())


def _shut_down(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
