"""Browser peers: canvas-js in pages of a headless Chromium, as one more worker of a network.

Chromium and canvas-js are the user's: what is missing is named with the command that installs it.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from importlib import resources
from pathlib import Path
from random import Random
from typing import IO, Any
from urllib.parse import quote

import anyio
import anyio.abc
import platformdirs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from gossiplog.dashboard import events as dashboard_events
from gossiplog.errors import NetworkError
from gossiplog.net.http.server import serve
from gossiplog.net.service import background
from gossiplog.testnet.links import WorkerLink
from gossiplog.testnet.member import NAME, random_text
from gossiplog.testnet.messages import Append, Command, Happened, Open, Report, Start, Stop
from gossiplog.testnet.plan import author_of
from gossiplog.testnet.translation import payload_of
from gossiplog.threads import run_in_thread

FOLDER_VARIABLE = "GOSSIPLOG_CANVAS_JS"
"""The variable of the environment that names a folder with canvas-js and esbuild in its `node_modules`."""

# First the one without windows, tabs and what belongs to them: its pages start in a third of the processor time.
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PAGE = "gossiplog.testnet.page"
_STARTING_SECONDS = 60.0
_LAST_WORDS_SECONDS = 0.2
_LAST_WORDS_BYTES = 1000
# macOS takes a socket's path of 103 bytes, Linux one of 107. The rest is /org.chromium.Chromium.XXXXXX/SingletonSocket.
_LONGEST_SOCKET_FOLDER = 103 - 46
_MOST_REPORT_BYTES = 2**20
_HTML = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="{}"></script>'


class BrowserLink(WorkerLink):
    """Pages in headless Chromium, each a member of the network, for the time of its context, which is entered once.

    Args:
        report: is called with what the pages report, on the event loop; it must not block.

    Raises:
        NetworkError: Chromium or canvas-js is missing, or cannot be started.
    """

    def __init__(self, report: Callable[[Report], None]) -> None:
        super().__init__(report)
        # No other page of this machine's browsers knows it.
        self._token = secrets.token_urlsafe(16)
        self._pages: dict[int, _Page] = {}
        self._announced: list[int] = []
        self._changed = anyio.Event()
        self._port = 0

    async def _start(self, stack: AsyncExitStack) -> None:
        chromium = find_chromium()
        self._script = await run_in_thread(bundle)
        tasks = await stack.enter_async_context(background())
        self._port = (await tasks.start(serve, self._application())).port
        folder = tempfile.TemporaryDirectory(prefix="gossiplog-browser-", ignore_cleanup_errors=True)
        profile = stack.enter_context(folder)
        # It reads commands from descriptor 3, of which none come, and ends at their end, however this process ends.
        reading, writing = os.pipe()
        commands = stack.enter_context(os.fdopen(writing, "wb"))
        process = await anyio.open_process(
            [
                *("/bin/sh", "-c", 'exec "$0" "$@" 3<&0 4>/dev/null </dev/null'),
                chromium,
                "--remote-debugging-pipe",
                "--headless=new",
                # Its sandbox needs a user other than root; the pages are this program's alone.
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                "--no-first-run",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                f"--user-data-dir={profile}",
                f"http://localhost:{self._port}/{self._token}/",
            ],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"TMPDIR": _socket_folder()},
        )
        os.close(reading)
        stack.push_async_callback(_end, process, commands)
        # Not while it is being ended.
        watching = await stack.enter_async_context(background())
        watching.start_soon(_watch, process)

    def origin(self, number: int) -> str:
        """Return the origin of a page, which a hub has to let in."""
        return f"http://page-{number}.localhost:{self._port}"

    async def call(self, command: Command) -> tuple[str, ...]:
        """Have a command executed by the page that it is about."""
        match command:
            case Open(members=members):
                for number, _, name in members:
                    self._pages[number] = _Page(number, name, command, self._report)
                    self._announced.append(number)
                self._changed.set()
                self._changed = anyio.Event()
                async with anyio.create_task_group() as tasks:
                    for number, _, _ in members:
                        tasks.start_soon(self._pages[number].open)
            case Start(number, dials=(url,), hub=hub):
                await self._pages[number].connect(url, hub)
            case Stop(number):
                await self._pages[number].disconnect()
            case Append(number, count):
                await self._pages[number].append(count)
            case _:
                # Pages keep no connections but that to their hub, and always report all that they know.
                pass
        return ()

    def _application(self) -> Starlette:
        number = "/peer/{number:int}"
        routes = [
            Route("/", lambda request: Response(_HTML.format("pages.mjs"), media_type="text/html")),
            Route("/pages.mjs", lambda request: Response(_read("pages.mjs"), media_type="text/javascript")),
            Route("/pages", self._send_pages),
            Route("/peer.mjs", lambda request: Response(self._script, media_type="text/javascript")),
            Route(number, lambda request: Response(_HTML.format("../peer.mjs"), media_type="text/html")),
            Route(f"{number}/commands", self._send_commands),
            Route(f"{number}/reports", self._take_report, methods=["POST"]),
        ]
        return Starlette(routes=[Mount(f"/{self._token}", routes=routes)])

    async def _send_pages(self, request: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            for index in itertools.count(_last_id(request)):
                while index >= len(self._announced):
                    await self._changed.wait()
                yield _event(index + 1, {"number": self._announced[index]})

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def _send_commands(self, request: Request) -> Response:
        page = self._pages.get(request.path_params["number"])
        if page is None:
            return Response(status_code=404)
        return StreamingResponse(page.commands(_last_id(request)), media_type="text/event-stream")

    async def _take_report(self, request: Request) -> Response:
        page = self._pages.get(request.path_params["number"])
        body = await request.body()
        if page is None or len(body) > _MOST_REPORT_BYTES:
            return Response(status_code=404)
        page.take(json.loads(body))
        return Response(status_code=204)


class _Page:
    """A peer in a page: what it is to do, and what it says of itself."""

    def __init__(self, number: int, name: str, command: Open, report: Callable[[Report], None]) -> None:
        self._name = name
        self._topic = command.topic
        self._key = author_of(command.seed, number).private_key.hex()
        self._began = command.began
        self._text = Random(f"text {command.seed} {number}")
        self._size = command.message_bytes
        self._offline_messages = command.offline_messages
        self._report = report
        self._hub = ""
        self._appended = 0
        self._messages = 0
        self._numbers = itertools.count(1)
        # Those that are not answered, by id.
        self._commands: dict[int, Mapping[str, Any]] = {}
        self._more = anyio.Event()
        self._waiting: dict[int, anyio.Event] = {}
        self._errors: dict[int, str] = {}

    async def commands(self, last: int = 0) -> AsyncIterator[bytes]:
        """Yield the commands that are not answered, as events of a stream, as they come.

        Args:
            last: id of the last that the page has. Its EventSource connects again by itself when a stream breaks, and
                must not execute what it has executed.
        """
        while True:
            more = self._more
            for id, command in tuple(self._commands.items()):
                if id > last and id in self._commands:
                    last = id
                    yield _event(id, command)
            await more.wait()

    async def open(self) -> None:
        """Open its log."""
        with anyio.move_on_after(_STARTING_SECONDS) as scope:
            await self._call("open", topic=self._topic, key=self._key)
            if self._offline_messages:
                await self.append(self._offline_messages)
        if scope.cancelled_caught:
            raise NetworkError(f"a page of Chromium with canvas-js has not started within {_STARTING_SECONDS:g} s")

    async def connect(self, url: str, hub: str) -> None:
        """Connect it to its hub."""
        self._hub = hub
        await self._call("connect", url=f"{url}/?{NAME}={quote(self._name)}")

    async def disconnect(self) -> None:
        """Disconnect it; its log stays."""
        await self._call("disconnect")

    async def append(self, count: int) -> None:
        """Append messages to its log."""
        sent = self._now()
        payloads = [
            payload_of(self._appended + number, random_text(self._text, self._size), sent) for number in range(count)
        ]
        self._appended += len(payloads)
        await self._call("append", payloads=payloads)

    def take(self, report: Mapping[str, Any]) -> None:
        """Take a report of the page."""
        at, hub = self._now(), self._hub
        match report:
            case {"report": "done", "id": int(id)}:
                self._answered(id)
            case {"report": "failed", "id": int(id), "error": str(error)}:
                self._answered(id, error)
            case {"report": "state", "messages": int(count), "root": str(root), "clock": int(clock), "heads": heads}:
                inserted = max(count - self._messages, 0)
                self._messages = count
                event = dashboard_events.Committed(at, self._name, count, root, tuple(heads), clock, inserted)
                self._report(Happened((event,)))
            case {"report": "message", "id": str(id), "by": str(by), "sent": sent}:
                way: dashboard_events.Way = "sync" if by == "sync" else "push"
                latency = max(at - sent, 0.0) if isinstance(sent, int | float) else None
                self._report(Happened((dashboard_events.Delivered(at, self._name, id, hub, way, latency),)))
            case {"report": "published", "id": str(id)}:
                self._report(Happened((dashboard_events.Published(at, self._name, id),)))
            case {"report": "sync", "messages": int(count)}:
                self._report(Happened((dashboard_events.SyncEnded(at, self._name, hub, count),)))
            case {"report": "connect"}:
                self._report(Happened((dashboard_events.Connected(at, self._name, hub),)))
            case {"report": "disconnect"}:
                self._report(Happened((dashboard_events.Disconnected(at, self._name, hub),)))
            case _:
                pass

    async def _call(self, command: str, **fields: Any) -> None:
        id = next(self._numbers)
        self._waiting[id] = answered = anyio.Event()
        self._commands[id] = {"id": id, "command": command} | fields
        self._more.set()
        self._more = anyio.Event()
        try:
            await answered.wait()
        finally:
            del self._waiting[id]
        if (error := self._errors.pop(id, None)) is not None:
            raise NetworkError(f"canvas-js in a page cannot {command}: {error}")

    def _answered(self, id: int, error: str | None = None) -> None:
        self._commands.pop(id, None)
        # The caller may have been cancelled.
        if (answered := self._waiting.get(id)) is not None:
            if error is not None:
                self._errors[id] = error
            answered.set()

    def _now(self) -> float:
        return time.monotonic() - self._began


def find_chromium() -> str:
    """Return the browser that the system has.

    Raises:
        NetworkError: none; with the command that installs it.
    """
    for name in _BROWSERS:
        if found := shutil.which(name):
            return found
    raise NetworkError(
        f"browser peers need Chromium, and there is none on the PATH ({', '.join(_BROWSERS)}): install it, on Debian by"
        " `apt-get install --no-install-recommends chromium-headless-shell`"
    )


def prepare_canvas_folder() -> Path:
    """Return the folder in which canvas-js is installed; where it is not, write what npm needs to install it there.

    Raises:
        NetworkError: it is not installed; with the command that installs it in the folder, which is made and has the
            package.json for it. A folder that FOLDER_VARIABLE names is left as it is.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    folder = Path(given) if given else Path(platformdirs.user_cache_dir("gossiplog")) / "canvas-js"
    if (folder / "node_modules" / "@canvas-js" / "gossiplog").is_dir() and _esbuild(folder) is not None:
        return folder
    if given:
        raise NetworkError(f"{FOLDER_VARIABLE} names {given}, whose node_modules lacks @canvas-js/gossiplog or esbuild")
    (folder / "absent").mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_bytes(_read("package.json"))
    # Stands for dependencies of canvas-js that nothing here imports.
    (folder / "absent" / "package.json").write_text('{"name": "absent", "version": "0.0.0"}\n')
    raise NetworkError(
        f"browser peers need canvas-js, which npm installs: run `npm install --ignore-scripts --prefix '{folder}'`"
    )


def bundle() -> bytes:
    """Return the script of a page: a peer, with all of canvas-js that it needs.

    Raises:
        NetworkError: canvas-js is not installed, or it cannot be bundled.
    """
    folder = prepare_canvas_folder()
    esbuild = _esbuild(folder)
    with resources.as_file(resources.files(_PAGE) / "peer.mjs") as source:
        run = subprocess.run(
            [str(esbuild), str(source), "--bundle", "--format=esm", "--minify", "--log-level=error"],
            env=os.environ | {"NODE_PATH": str(folder / "node_modules")},
            capture_output=True,
            check=False,
        )
    if run.returncode:
        raise NetworkError(f"canvas-js in {folder} cannot be bundled: {run.stderr.decode(errors='replace')[:500]}")
    return run.stdout


def _esbuild(folder: Path) -> str | None:
    # The program itself: what npm puts into .bin is a script for Node.js.
    found = glob.glob("node_modules/@esbuild/*/bin/esbuild", root_dir=folder)
    return str(folder / found[0]) if found else None


def _read(name: str) -> bytes:
    return (resources.files(_PAGE) / name).read_bytes()


def _event(id: int, fields: Mapping[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (id, json.dumps(fields).encode())


def _last_id(request: Request) -> int:
    """Return the id of the last event that a page has; 0 where it has none."""
    last = request.headers.get("last-event-id", "")
    return int(last) if last.isascii() and last.isdecimal() and len(last) <= 15 else 0


def _socket_folder() -> str:
    """Return a folder for Chromium's temporary files, where its socket's path is not too long: it would abort."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= _LONGEST_SOCKET_FOLDER else "/tmp"


async def _watch(process: anyio.abc.Process) -> None:
    said = bytearray()
    async with background() as tasks:
        tasks.start_soon(_keep_end, process, said)
        status = await process.wait()
        # What it said last may be on its way.
        await anyio.sleep(_LAST_WORDS_SECONDS)
    reason = said.decode(errors="replace").strip() or "nothing"
    raise NetworkError(
        f"Chromium has ended by itself, with status {status}: its peers are gone. It said last: {reason}"
    )


async def _keep_end(process: anyio.abc.Process, said: bytearray) -> None:
    """Read what a process writes to stderr, and keep the end of it."""
    assert process.stderr is not None
    async for chunk in process.stderr:
        said += chunk
        del said[:-_LAST_WORDS_BYTES]


async def _end(process: anyio.abc.Process, commands: IO[bytes]) -> None:
    with anyio.CancelScope(shield=True), suppress(ProcessLookupError):
        # Not by a signal: Debian's chromium-headless-shell is a shell's script, which would end before the browser.
        commands.close()
        with anyio.move_on_after(10):
            await process.wait()
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
