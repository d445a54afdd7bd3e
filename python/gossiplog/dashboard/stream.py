"""The HTTP application of a dashboard: the page, the stream of events, and the commands that the page gives.

- `GET /`, `/state.js`, ...: the page, which loads nothing from elsewhere and runs no script but its own.
- `GET /events`: the stream (HTML standard, "Server-sent events"): `state`, all of it, then `changes`, in batches. A
  page that connects again within seconds gets what it missed, by Last-Event-ID; any other the state.
- `GET /about`: what this is, and which commands it takes.
- `GET /recording`: a recording, where it is one that is shown.
- `POST /api/append` and the like: commands, in JSON. `Controls` has them.

The checks of Host and Origin are those of a hub (`gossiplog.net.http.access`): no other site's page can read the state
or give a command. A command must be of the type application/json as well, which no form can send.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import anyio
import anyio.abc
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gossiplog.dashboard.events import MOST_RATE, Event, Name
from gossiplog.dashboard.feed import Feed
from gossiplog.errors import GossipLogError
from gossiplog.net.http.access import Access, protect
from gossiplog.net.http.answers import as_json
from gossiplog.net.http.event_stream import Readers
from gossiplog.net.http.listener import Address, Listener
from gossiplog.net.http.server import serve
from gossiplog.net.http.static_files import file_route, file_routes, read_files, refuse_other_sites, with_page_headers
from gossiplog.net.service import background
from gossiplog.reprs import escaped, frozen
from gossiplog.threads import run_in_thread

LOGGER = logging.getLogger(__name__)

BATCH_SECONDS = 0.05
"""Between two batches of changes."""
MOST_COMMAND_BYTES = 4096
"""Bytes in the body of a command."""


class Controls(Protocol):
    """What a page may have a network do. Where it cannot, it raises a GossipLogError, whose text the page shows."""

    async def append(self, peer: str) -> None:
        """Append a message at a peer."""

    async def stop(self, peer: str) -> None:
        """Stop a peer, which keeps its log."""

    async def start(self, peer: str) -> None:
        """Start a peer that has stopped."""

    async def cut(self, peer: str, other: str) -> None:
        """Cut the connection of two peers, until `heal`."""

    async def partition(self) -> None:
        """Part the network into two groups."""

    async def heal(self) -> None:
        """Undo all cuts and partitions."""

    async def add_peer(self) -> None:
        """Add a peer."""

    async def auto_append(self, rate: float) -> None:
        """Append so many messages a second, at random peers; 0 ends it."""


class _Command:
    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")


@frozen
class _OfNothing(_Command):
    pass


@frozen
class _OfPeer(_Command):
    peer: Name


@frozen
class _OfPair(_Command):
    peer: Name
    other: Name


@frozen
class _OfRate(_Command):
    rate: Annotated[float, Field(ge=0, le=MOST_RATE, allow_inf_nan=False)]


_COMMANDS: Mapping[str, TypeAdapter[Any]] = {
    "append": TypeAdapter(_OfPeer),
    "stop": TypeAdapter(_OfPeer),
    "start": TypeAdapter(_OfPeer),
    "cut": TypeAdapter(_OfPair),
    "partition": TypeAdapter(_OfNothing),
    "heal": TypeAdapter(_OfNothing),
    "add_peer": TypeAdapter(_OfNothing),
    "auto_append": TypeAdapter(_OfRate),
}


class Dashboard:
    """A live picture of a network, for any number of pages.

        dashboard = Dashboard(title="64 peers", controls=NetworkControls(network, auto_append))
        address = await tasks.start(dashboard.serve)
        dashboard.publish(PeerAdded(0.0, "12D3KooW…", "1"))

    Args:
        title: of the page.
        controls: what pages may have the network do; None shows no buttons.
        clock: gives the seconds since the network began; None shows the time of the last event.
        record: is called with the events of each batch, on a worker thread; None for nobody.
    """

    def __init__(
        self,
        title: str = "",
        controls: Controls | None = None,
        clock: Callable[[], float] | None = None,
        record: Callable[[list[Event]], object] | None = None,
    ) -> None:
        # Another for each run: a page that stays open while the program is started anew gets the new state.
        self._feed = Feed(secrets.token_hex(4))
        self._controls = controls
        self._clock = clock
        self._record = record
        self._unrecorded: list[Event] = []
        self._title = title
        self._readers = Readers(self._feed.batches)

    def publish(self, event: Event) -> None:
        """Show an event to all pages soon. It appends, and folds only when MOST_PENDING events wait.

        It is to be called on the event loop that `serve` or `run` runs on.
        """
        self._feed.publish(event)
        if self._record is not None:
            self._unrecorded.append(event)

    @property
    def readers(self) -> int:
        """Pages that are open."""
        return self._readers.count

    def snapshot(self) -> dict[str, Any]:
        """Return the state as pages have it, of all events so far, as values for JSON."""
        self._feed.flush()
        return self._feed.state.snapshot()

    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        listener: Listener | None = None,
        task_status: anyio.abc.TaskStatus[Address] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve the page until cancelled, on asyncio; the other arguments are those of `gossiplog.serve`.

        It is known by this machine's addresses, as localhost and by the name of the host, if that is one.

        Raises:
            OSError: the address is taken, or cannot be listened at.
        """
        async with background() as tasks:
            tasks.start_soon(self.run)
            application = self.application(access_at(host))
            await serve(application, host, port, listener=listener, task_status=task_status)

    async def run(self) -> None:
        """Make batches of what is published, without end; `serve` does so, too."""
        try:
            while True:
                await anyio.sleep(BATCH_SECONDS)
                await self._flush()
        finally:
            with anyio.CancelScope(shield=True):
                await self._flush()

    def application(self, access: Access | None = None) -> ASGIApp:
        """Return the ASGI application. Something has to run `run` beside it.

        Args:
            access: who may use it; None for everybody who knows the machine by an address or as localhost.
        """
        routes = [
            Route("/events", self._events),
            Route("/about", self._about),
            Route("/api/{command}", self._command, methods=["POST"]),
        ]
        return _site(routes, access)

    async def _flush(self) -> None:
        self._feed.flush()
        # Also of a batch that `publish` or `snapshot` made meanwhile.
        self._readers.notify()
        if self._record is not None and self._unrecorded:
            events, self._unrecorded = self._unrecorded, []
            # A thread that was left alone would write after the end of the file, or what comes next before this.
            with anyio.CancelScope(shield=True):
                await run_in_thread(self._record, events)

    async def _about(self, request: Request) -> Response:
        commands = [] if self._controls is None else list(_COMMANDS)
        now = self._feed.state.now if self._clock is None else self._clock()
        return JSONResponse({"title": self._title, "mode": "live", "now": now, "commands": commands})

    async def _events(self, request: Request) -> Response:
        return self._readers.answer(request)

    async def _command(self, request: Request) -> Response:
        name = request.path_params["command"]
        if self._controls is None or name not in _COMMANDS:
            raise HTTPException(404, f"there is no command {name[:100]!r} here")
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise HTTPException(415, "a command is to be of the type application/json")
        try:
            arguments = _COMMANDS[name].validate_json(await _body(request))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            reason = f"{place}: {first['msg']}" if place else first["msg"]
            raise HTTPException(400, f"the command {name} cannot be read: {escaped(reason[:200])}") from error
        call: Callable[..., Awaitable[None]] = getattr(self._controls, name)
        try:
            await call(*(getattr(arguments, field) for field in arguments.__dataclass_fields__))
        except GossipLogError as error:
            raise HTTPException(409, str(error)[:500]) from error
        return Response(status_code=204)


def access_at(host: str) -> Access:
    """Return who may use a page that is served at a host: who calls it by an address, as localhost, or by its name."""
    try:
        return Access(addresses=True, hosts=[host.lower()])
    except ValueError:
        # No name of a host: listening at it fails, and says so.
        return Access(addresses=True)


def player(path: Path, title: str, access: Access | None = None) -> ASGIApp:
    """Return the ASGI application that plays a recording.

    Args:
        path: of the recording (see `gossiplog.dashboard.recording`).
        title: of the page.
        access: as in `Dashboard.application`.

    Raises:
        OSError: it cannot be read.
    """
    checked = _version(path)

    async def about(request: Request) -> Response:
        return JSONResponse({"title": title, "mode": "recording", "commands": []})

    async def recording(request: Request) -> Response:
        if _version(path) != checked:
            raise HTTPException(410, "the recording was changed or replaced since this program read it: start it anew")
        return FileResponse(path, media_type="application/x-ndjson")

    return _site([Route("/about", about), Route("/recording", recording)], access)


def _version(path: Path) -> tuple[int, ...]:
    """Return what changes with a file's content, as far as its folder says."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _site(routes: list[Route], access: Access | None) -> ASGIApp:
    """Return an application with these routes and the page, behind checks."""
    files = read_files("gossiplog.dashboard.page")
    root = file_route("/", "index.html", files["index.html"])
    application = Starlette(
        routes=[*routes, root, *file_routes(files)],
        exception_handlers={HTTPException: as_json, Exception: _as_failure},
    )
    application.router.redirect_slashes = False
    guarded = refuse_other_sites(application, open_paths=("/",))
    return with_page_headers(protect(guarded, access or Access(addresses=True)))


async def _as_failure(request: Request, error: Exception) -> Response:
    LOGGER.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": "this failed: the program's log says why"}, 500)


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_COMMAND_BYTES:
                raise HTTPException(413, f"a command of more than {MOST_COMMAND_BYTES} bytes")
    except ClientDisconnect as error:
        raise HTTPException(400, "the command was not sent to its end") from error
    return bytes(body)
