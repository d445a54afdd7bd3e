"""The JavaScript implementation, canvas-js, in Node.js or in headless Chromium: what runs in `js/`, for Python.

A process hosts any number of peers, and answers each line with a line, so that a call blocks until canvas-js has done
what it asks, and nothing sleeps. Peers open side by side, because only the first call waits for one.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from gossiplog import Node, core
from gossiplog.testnet.browsers import find_chromium
from tests import npm
from tests.integration.replica import State
from tests.npm import NODE

FOLDER = Path(__file__).parent / "js"

# Seconds; less than pytest's limit for a test, so that a peer that hangs tells what it printed.
PATIENCE = 300.0
CLOSING = 60.0


class JavaScriptError(Exception):
    """canvas-js refused a command, or its process ended; with what it said."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a peer reports by itself.

    Attributes:
        name: "message", "sync", "connect", "disconnect", "graft", "prune", "identify", or "error" for a failure that
            canvas-js handles nowhere, in any peer of the process; of a transport "data"; of a peer of floodsub "data"
            and "subscribed".
        fields: of a message its `id` and its `source` ("push", "sync", "pubsub", or None for the peer's own); of a
            sync, which is one stream, how many `messages` it brought in how many `milliseconds`; of a connection the
            `peer`'s URL; of a graft or a prune, its sender, of what identify said, of a subscription, and of a
            transport's data, which comes as `data`, the `peer`'s id.
    """

    name: str
    fields: dict[str, Any]


def install() -> None:
    """Install the packages of `js/package-lock.json` beside it.

    Raises:
        NpmError: npm failed; with what it printed.
    """
    npm.install(FOLDER, ["absent"])


class Process:
    """A script of `js/` that is any number of peers: it answers requests, a line each, and reports events.

    Calls may come from several threads.

    Args:
        arguments: of Node.js: options, the script, and the script's own arguments.
    """

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [NODE, *arguments],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._input = cast(IO[bytes], self._process.stdin)
        self._output = cast(IO[bytes], self._process.stdout)
        self._complaints = cast(IO[bytes], self._process.stderr)
        self._writing = threading.Lock()
        self._requests: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._events: dict[int, list[Event]] = {}
        self._printed: list[bytes] = []
        self._ended = False
        self.changed = threading.Condition()
        self._complaint_reader = threading.Thread(target=self._read_complaints)
        self._reader = threading.Thread(target=self._read)
        self._complaint_reader.start()
        self._reader.start()

    @property
    def exited(self) -> bool:
        return self._process.poll() is not None

    @property
    def ended(self) -> bool:
        """Whether the process has exited, and all that it said is here."""
        return self._ended

    @property
    def printed(self) -> int:
        """How many lines the process has printed on its standard error."""
        return len(self._printed)

    def attach(self, events: list[Event]) -> int:
        """Return a handle for a new peer; append its events, and those of the whole process, to the list."""
        with self.changed:
            handle = next(self._numbers)
            self._events[handle] = events
            return handle

    def detach(self, handle: int) -> None:
        """Drop what a peer still reports."""
        with self.changed:
            self._events.pop(handle, None)

    def request(self, handle: int, command: str, **fields: Any) -> Future[Any]:
        """Send a command; return a future of its result.

        It fails with JavaScriptError when the command is refused, with EOFError when the process ends.
        """
        future: Future[Any] = Future()
        with self.changed:
            number = next(self._numbers)
            if self._ended:
                future.set_exception(EOFError())
                return future
            self._requests[number] = future
        line = core.json_encode({"request": number, "handle": handle, "command": command, **fields})
        # A broken pipe means that the process is ending: then the reader answers all requests.
        with self._writing, suppress(BrokenPipeError):
            self._input.write(line + b"\n")
            self._input.flush()
        return future

    def failure(self, what: str, since: int = 0) -> JavaScriptError:
        """Describe a failure: how the process ended, if it did, and what it printed since so many lines."""
        status = self._process.poll()
        if status is not None:
            what += f"; the process ended with {status}"
        return JavaScriptError(f"{what}; it printed:\n{b''.join(self._printed[since:]).decode(errors='replace')}")

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """End the process. A second call does nothing."""
        with suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._reader.join()

    def _read(self) -> None:
        with self._output:
            for line in self._output:
                self._take(core.json_decode(line.rstrip()))
        # Collect the exit status and standard error before the end is reported.
        self._process.wait()
        self._complaint_reader.join()
        with self.changed:
            self._ended = True
            self.changed.notify_all()
        for future in self._requests.values():
            future.set_exception(EOFError())

    def _take(self, fields: Any) -> None:
        match fields:
            case {"reply": number, "result": result}:
                self._requests.pop(number).set_result(result)
            case {"reply": number, "error": error}:
                self._requests.pop(number).set_exception(JavaScriptError(error))
            case {"event": name, "handle": handle, **others}:
                self._report(Event(name, others), self._events.get(handle))
            case {"event": name, **others}:
                self._report(Event(name, others), *self._events.values())

    def _report(self, event: Event, *receivers: list[Event] | None) -> None:
        with self.changed:
            for events in receivers:
                if events is not None:
                    events.append(event)
            self.changed.notify_all()

    def _read_complaints(self) -> None:
        with self._complaints:
            self._printed.extend(self._complaints)


class SharedProcess:
    """A process that tests have their peers in, one after another; a new one follows when it has ended.

    Args:
        start: starts one.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start
        self._process: Process | None = None

    def get(self) -> Process:
        """Return the process that runs; start one if none does."""
        if self._process is not None and self._process.exited:
            # It ended while a test used it, which has reported that, or after its last test.
            self.close()
        if self._process is None:
            self._process = self._start()
        return self._process

    def close(self) -> None:
        """End the process. A second call does nothing."""
        if self._process is not None:
            self._process.close()
            self._process = None


def start_node() -> Process:
    """Start a process for one peer in Node.js."""
    return Process("node.mjs")


def start_shared_node() -> Process:
    """Start a process for any number of peers in Node.js.

    canvas-js takes payloads as deep as the stack allows, and once its functions are compiled they need more of it. So a
    process that has served other tests needs a larger stack to take what a new one takes.
    """
    return Process("--stack-size=2000", "node.mjs")


def start_browser() -> Process:
    """Start Chromium, and a process that drives it."""
    return Process("browser.mjs", "--chromium", find_chromium())


def _in_a_row(values: Sequence[bytes]) -> bytes:
    """Values as `judge.mjs` takes them: each after its length in four bytes."""
    return b"".join(len(value).to_bytes(4) + value for value in values)


def _split(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4])
        yield data[at + 4 : end]
        at = end


class Handle:
    """A peer in a process.

    Args:
        process: that it is in.
        owned: whether the process ends with the peer.
        options: what the script opens it with.
    """

    def __init__(self, process: Process, *, owned: bool = False, **options: Any) -> None:
        self._process = process
        self._owned = owned
        self._printed_before = process.printed
        self._closed = False
        self._events: list[Event] = []
        self._handle = process.attach(self._events)
        # What is asked of the peer waits for its opening, and fails with it. So peers open side by side.
        process.request(self._handle, "open", options=options)

    def wait_for_event(self, name: str, wanted: Callable[[dict[str, Any]], bool] = lambda fields: True) -> Event:
        """Return the first event of a name whose fields are as wanted: one that came before, or the next."""
        found: list[Event] = []

        def search() -> bool:
            found[:] = [event for event in self._events if event.name == name and wanted(event.fields)]
            return bool(found) or self._process.ended

        with self._process.changed:
            arrived = self._process.changed.wait_for(search, PATIENCE)
        if not found:
            raise self._failure(f"no {name!r} event {'before it ended' if arrived else f'within {PATIENCE:.0f} s'}")
        return found[0]

    def events(self, *names: str) -> list[Event]:
        """The events of some names that have come."""
        with self._process.changed:
            return [event for event in self._events if event.name in names]

    def kill(self) -> None:
        """End the process, which must be the peer's own, at once, as a crash does."""
        assert self._owned
        self._closed = True
        self._process.kill()

    def close(self) -> None:
        """End the peer. A second call does nothing.

        Raises:
            JavaScriptError: the process has ended, or does not let go of the peer; then it is killed.
        """
        if self._closed:
            return
        self._closed = True
        if self._owned:
            self._process.close()
            return
        try:
            self._call("close", patience=CLOSING)
        except JavaScriptError:
            self._process.kill()
            raise
        finally:
            self._process.detach(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, command: str, *, patience: float = PATIENCE, **fields: Any) -> Any:
        return self._start(command, patience=patience, **fields)()

    def _start(self, command: str, *, patience: float = PATIENCE, **fields: Any) -> Callable[[], Any]:
        """Send a command; return what waits for its result."""
        future = self._process.request(self._handle, command, **fields)

        def end() -> Any:
            try:
                return future.result(patience)
            except TimeoutError:
                raise self._failure(f"{command!r} is not done within {patience:.0f} s") from None
            except EOFError:
                raise self._failure(f"{command!r} was asked of a process that has ended") from None

        return end

    def _failure(self, what: str) -> JavaScriptError:
        return self._process.failure(what, self._printed_before)


class Peer(Handle):
    """A log of canvas-js, and its connections.

    Args:
        topic: of the log.
        private_key: 32 bytes, with which it signs.
    """

    def __init__(
        self, process: Process, topic: str, private_key: bytes, *, owned: bool = False, **options: Any
    ) -> None:
        super().__init__(process, owned=owned, topic=topic, key=private_key.hex(), **options)

    # The log

    def append(self, payload: Any, *, codec: str = "dag-cbor", parents: Sequence[str] | None = None) -> str:
        return str(self._call("append", payload=payload, codec=codec, parents=parents and list(parents)))

    def append_numbers(self, start: int, count: int) -> None:
        self._call("append_numbers", start=start, count=count)

    def insert(self, values: Sequence[bytes]) -> list[tuple[int, str]]:
        return [(index, reason) for index, reason in self._call("insert", values=list(values))]

    def values(self) -> list[bytes]:
        """All stored values in the order of their ids: as canvas-js encodes them again, which it does for syncs."""
        return list(self._call("values"))

    def ids(self) -> list[str]:
        return list(self._call("ids"))

    def state(self) -> State:
        return _state(self._call("state"))

    def wait(self, *, count: int | None = None, root: Node | None = None) -> State:
        """The state, as soon as it has at least so many messages, or this root."""
        return _state(self._call("wait", count=count, hash=root and root.hash))

    def wait_for_message(self, id: str) -> str | None:
        source = self.wait_for_event("message", lambda fields: fields["id"] == id).fields["source"]
        return None if source is None else str(source)

    # The network

    def connect(self, url: str) -> None:
        self._call("connect", url=url)

    def disconnect(self, url: str) -> None:
        self._call("disconnect", url=url)

    def syncs(self) -> list[int]:
        return [event.fields["messages"] for event in self.events("sync")]


class Transport(Handle):
    """A libp2p peer that leaves one protocol to the test: what arrives on its streams is told, and can be answered.

    Args:
        process: that it is in.
        protocol: that it carries.
    """

    def __init__(self, process: Process, protocol: str) -> None:
        super().__init__(process, kind="transport", protocol=protocol)
        self._taken = 0

    def dial(self, address: str) -> str:
        """Connect to a peer, and return its id."""
        return str(self._call("dial", address=address))

    def write(self, peer: str, data: bytes) -> None:
        """Send bytes to a connected peer."""
        self._call("write", peer=peer, data=data)

    def read(self, seconds: float) -> tuple[str, bytes] | None:
        """Return the peer that sent the next bytes, and them; None if none come for so long."""
        with self._process.changed:
            self._process.changed.wait_for(lambda: len(self._events) > self._taken or self._process.ended, seconds)
            if len(self._events) > self._taken:
                event = self._events[self._taken]
                self._taken += 1
                return event.fields["peer"], event.fields["data"]
        if self._process.ended:
            raise self._failure("it ended")
        return None


class FloodsubPeer(Handle):
    """A libp2p peer of js-libp2p's floodsub: it subscribes to one topic, and has no log.

    Args:
        process: that it is in.
        topic: that it subscribes to.
    """

    def __init__(self, process: Process, topic: str) -> None:
        super().__init__(process, kind="floodsub", topic=topic)

    def addresses(self) -> list[str]:
        """Return where others reach it, with its peer id."""
        return list(self._call("addresses"))

    def dial(self, address: str) -> str:
        """Connect to a peer, and return its id."""
        return str(self._call("dial", address=address))

    def publish(self, data: bytes) -> int:
        """Publish data; return how many peers it was sent to."""
        return int(self._call("publish", data=data))

    def peers(self) -> list[str]:
        """Return the ids of the peers that are connected."""
        return list(self._call("peers"))

    def wait_for_subscription(self, peer_id: str) -> None:
        """Return once a peer has said that it subscribes to the topic."""
        self.wait_for_event("subscribed", lambda fields: fields["peer"] == peer_id)

    def wait_for_data(self, data: bytes) -> None:
        """Return once data has come by floodsub."""
        self.wait_for_event("data", lambda fields: fields["data"] == data)


class JavaScriptPeer(Peer):
    """canvas-js in Node.js, as a hub, a client, or a peer of a mesh.

    Args:
        process: that it is in; None starts one, which ends with it.
        directory: for its SQLite and LMDB files; None keeps the log in memory.
        abort_after: after how many milliseconds its sync server sends Abort; None leaves canvas-js's 2,000.
        abort_at: at which GetValues of a stream it sends Abort, however fast it is; None leaves it to time.

    Attributes:
        directory: as given.
    """

    def __init__(
        self,
        topic: str,
        private_key: bytes,
        *,
        process: Process | None = None,
        directory: Path | None = None,
        abort_after: int | None = None,
        abort_at: int | None = None,
    ) -> None:
        super().__init__(
            process or start_node(),
            topic,
            private_key,
            owned=process is None,
            kind="log",
            directory=directory and str(directory),
            abort_after=abort_after,
            abort_at=abort_at,
        )
        self.directory = directory
        self._port = 0

    def listen(self) -> str:
        self._port = self._call("listen", port=self._port)
        return f"ws://127.0.0.1:{self._port}"

    def stop_listening(self) -> None:
        self._call("stop_listening")

    def join(self, bootstrap: Sequence[str] = (), *, listens: bool = True) -> list[str]:
        listen = ["/ip4/127.0.0.1/tcp/0/ws"] if listens else []
        return list(self._call("join", listen=listen, bootstrap=list(bootstrap)))

    def judge(self, values: Sequence[bytes]) -> Callable[[], list[tuple[bytes | None, str]]]:
        """Start to judge stored values; return what waits for it.

        Each has what its signature must hold over and "", or None and why it is refused.
        """
        wait = self._start("judge", values=_in_a_row(values))

        def end() -> list[tuple[bytes | None, str]]:
            result = wait()
            reasons = result["reasons"].split("\n")
            return [(data or None, reason) for data, reason in zip(_split(result["signed"]), reasons, strict=True)]

        return end

    def insert_apart(self, values: Sequence[bytes]) -> list[tuple[int, str]]:
        """Insert stored values without parents, each as if the log had no heads: they would take longer with each.

        Returns the positions of those that are refused, and why.
        """
        if not values:
            return []
        reasons = self._call("insert_apart", values=_in_a_row(values)).split("\n")
        return [(index, reason) for index, reason in enumerate(reasons) if reason]

    def wait_for_graft(self, peer_id: str) -> None:
        self.wait_for_event("graft", lambda fields: fields["peer"] == peer_id)


class BrowserPeer(Peer):
    """canvas-js in a page of its own in headless Chromium, with its log in IndexedDB: a client."""

    @property
    def origin(self) -> str:
        """The page's, as the browser tells it servers."""
        return str(self._call("origin"))

    def reload(self) -> None:
        """Load the page anew: its connections are gone, and its log is what IndexedDB holds."""
        self._call("reload")


def _state(fields: dict[str, Any]) -> State:
    root = Node(fields["root"]["level"], None, fields["root"]["hash"])
    return State(root=root, clock=fields["clock"], heads=tuple(fields["heads"]), count=fields["count"])
