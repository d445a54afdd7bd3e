"""Serves the page of a hub's log.

- `GET /`, of a browser: the page; others are answered as if it were not there. Where it is refused for want of a token,
  the answer is the same page with the status 401: it asks for the token, and says what that is.
- `GET /dashboard/page.js` and the like: its files, which need no token.
- `GET /dashboard/events`: the stream (`gossiplog.net.http.event_stream`): `state`, all that is shown of the hub and of
  its last messages, then `changes`: the sections of that which changed.
- `GET /dashboard/messages?before=ID`, `after`, `around`: a part of the log; `/dashboard/messages/ID`: one message.

Nothing is read for the page while nobody looks, and what is read then is what is shown: it costs the same for a log of
any length. Events of the hub are kept by `activity` meanwhile. Everything needs the right to read, and gives no other.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Scope

from gossiplog import core
from gossiplog.errors import StorageError
from gossiplog.log import Log
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.http.admission import Admission, Overloaded
from gossiplog.net.http.answers import JSON_TYPE, ExpensiveResponse, Page, Written, as_json, read_query
from gossiplog.net.http.browser_paths import BrowserPaths
from gossiplog.net.http.event_stream import Batches, Readers
from gossiplog.net.http.metrics import Peers, peer_json
from gossiplog.net.http.static_files import (
    HTML,
    PAGE_HEADERS,
    file_routes,
    read_files,
    refuse_other_sites,
    with_page_headers,
)
from gossiplog.net.log_page import messages
from gossiplog.net.log_page.activity import Activity, nonzero, printable
from gossiplog.net.replicator.telemetry import NetworkCounters

UPDATE_SECONDS = 0.25
"""Between two looks at the log and the hub while a page is open."""
MOST_HEADS = 32
"""Heads that the page names."""
MOST_PEERS = 200
"""Peers and clients that it names."""

_PREFIX = "/dashboard"
_PACKAGE = "gossiplog.net.log_page.page"
_FAULT = "the log cannot be used at the moment: the server's own log says why"

# RFC 9110, section 12.4.2.
_NOT_WANTED = frozenset(("q=0", "q=0.", "q=0.0", "q=0.00", "q=0.000"))

_Section: TypeAlias = Any


class LogPage:
    """The page of a log, for any number of browsers.

    Args:
        log: it is used in worker threads only.
        counters: gives the hub's counters as they are now.
        peers: gives those that are connected.
        unready: gives why the hub is not ready; "" if it is.
        admission: of requests that read the log.
        failed: is called with errors of the log.
        clock: gives seconds since the epoch.

    Attributes:
        browser_paths: the paths at which a browser asks.
    """

    def __init__(
        self,
        log: Log,
        counters: Callable[[], NetworkCounters],
        peers: Peers,
        unready: Callable[[], str],
        admission: Admission,
        failed: Callable[[StorageError], None] = lambda error: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._counters = counters
        self._peers = peers
        self._unready = unready
        self._admission = admission
        self._failed = failed
        self._clock = clock
        self._activity = Activity(clock)
        self._files = read_files(_PACKAGE)
        # Another for each run: a page that stays open while the program is started anew gets the new state.
        self._batches = Batches(secrets.token_hex(4), self._snapshot)
        self._readers = Readers(self._batches)
        self._wanted = anyio.Event()
        self._updating = anyio.Lock()
        self._updated = -UPDATE_SECONDS
        # As the last batch left it.
        self._count = -1
        self._sections: dict[str, _Section] = {}
        self._latest = messages.Window([], False, False)
        paths = [f"{_PREFIX}/{name}" for name in self._files]
        self.browser_paths = BrowserPaths("/", frozenset(paths), self._explain)

    def note(self, event: events.Event) -> None:
        """Take an event of the hub."""
        self._activity.note(event)

    async def run(self) -> None:
        """Keep the open pages up to date, until cancelled; then end their streams."""
        # Events and locks are an event loop's, and a hub may run on one after the other.
        self._readers.open()
        self._wanted, self._updating, self._updated = anyio.Event(), anyio.Lock(), -UPDATE_SECONDS
        try:
            while True:
                if self._readers.count == 0:
                    await self._wanted.wait()
                await self._update()
                await anyio.sleep(UPDATE_SECONDS)
        finally:
            self._readers.close()

    def end_streams(self) -> None:
        """End the streams of the open pages, which come again, since their rights may have changed."""
        self._readers.end_streams()

    def routes(self) -> list[BaseRoute]:
        """Make the routes of the page."""
        application = Starlette(
            routes=[
                Route("/events", self._events),
                Route("/messages", self._messages),
                Route("/messages/{id}", self._message),
                *file_routes({name: content for name, content in self._files.items() if name != "index.html"}),
            ],
            exception_handlers={HTTPException: self._as_json},
        )
        application.router.redirect_slashes = False
        # Every method comes here: what it is to be answered is what it was without a page.
        root = Route("/", self._root)
        root.methods = None
        return [root, Mount(_PREFIX, with_page_headers(refuse_other_sites(application)))]

    async def _root(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD") or not _asks_for_html(request.scope):
            raise HTTPException(404, f"there is nothing at {request.url.path}")
        return self._document(200)

    def _explain(self, scope: Scope, status: int) -> ASGIApp | None:
        return self._document(status) if _asks_for_html(scope) else None

    def _document(self, status: int) -> Response:
        headers = {**PAGE_HEADERS, "content-type": HTML, "cache-control": "no-store", "vary": "Accept"}
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(self._files["index.html"], status, headers)

    async def _as_json(self, request: Request, error: Exception) -> Response:
        if isinstance(error.__cause__, StorageError):
            self._failed(error.__cause__)
        return await as_json(request, error)

    async def _events(self, request: Request) -> Response:
        read_query(request, ())
        self._readers.check_room(request)
        # Before anything is waited for: access was checked just now, and a token may be replaced meanwhile.
        generation = self._readers.generation
        # What nobody looked at meanwhile is old.
        await self._update()
        answer = self._readers.answer(request, generation)
        self._wanted.set()
        self._wanted = anyio.Event()
        return answer

    async def _messages(self, request: Request) -> Response:
        query = read_query(request, tuple(_WINDOWS))
        if len(query) > 1:
            raise HTTPException(400, f"one query parameter at most is possible here: {', '.join(_WINDOWS)}")
        if not query:
            return self._expensive(lambda: messages.latest(self._log).as_object())
        ((name, id),) = query.items()
        return self._expensive(lambda: _WINDOWS[name](self._log, id).as_object())

    async def _message(self, request: Request) -> Response:
        read_query(request, ())
        id = request.path_params["id"]
        return self._expensive(lambda: messages.detail(self._log, id))

    def _expensive(self, call: Callable[[], Mapping[str, Any]]) -> Response:
        headers = {"cache-control": "no-store"}
        return ExpensiveResponse(
            self._admission, messages.READING_BYTES, lambda: Page(Written(_json(call())), headers), JSON_TYPE
        )

    async def _update(self) -> None:
        """Batch the sections that changed, unless there was a batch a moment ago."""
        async with self._updating:
            now = anyio.current_time()
            if now - self._updated < UPDATE_SECONDS / 2:
                return
            changed = await self._changed_log()
            # The time before the next look begins when this one has ended.
            self._updated = anyio.current_time()
            for name, section in self._hub_sections().items():
                if self._sections.get(name) != section:
                    changed[name] = section
            if changed:
                self._sections |= {name: section for name, section in changed.items() if name != "latest"}
                self._batches.add(_json(changed | {"at": self._clock()}))
                self._readers.notify()

    async def _changed_log(self) -> dict[str, _Section]:
        """Read the log, if it has changed."""
        try:
            count = await self._admission.run_cheap(replica_of(self._log).count)
            if count == self._count and not self._sections.get("fault"):
                return {}
            async with self._admission.reserve(messages.READING_BYTES):
                window, found = await self._admission.run_expensive(self._read_log)
        except Overloaded:
            # The next look may find more room.
            return {}
        except StorageError as error:
            if self._sections.get("fault") != _FAULT:
                self._failed(error)
            return {"fault": _FAULT}
        known = {entry["id"] for entry in self._latest.messages}
        added = [entry for entry in window.messages if entry["id"] not in known]
        self._count, self._latest = count, window
        oldest = window.messages[-1]["id"] if window.messages else ""
        return {"fault": "", "log": found, "latest": {"added": added, "oldest": oldest, "older": window.older}}

    def _read_log(self) -> tuple[messages.Window, dict[str, Any]]:
        replica = replica_of(self._log)
        # The state first: what is committed meanwhile is a change for the next look.
        state, heads = replica.state(), replica.heads()
        window = messages.latest(self._log, {entry["id"]: entry for entry in self._latest.messages})
        root = state.tree.root
        clock = core.decode_clock(heads[-1])[0] if heads else 0
        return window, {
            "messages": state.count,
            "root": root.hash.hex(),
            "level": root.level,
            "clock": clock + 1,
            "heads": [core.encode_id(key) for key in heads[: -MOST_HEADS - 1 : -1]],
            "head_count": len(heads),
        }

    def _hub_sections(self) -> dict[str, _Section]:
        counters, peers = self._counters(), self._peers()
        return {
            "hub": {"topic": self._log.topic, "unready": printable(self._unready())},
            "peers": {"shown": [peer_json(peer) for peer in peers[:MOST_PEERS]], "count": len(peers)},
            "counts": {
                "inserted": nonzero(counters.inserted),
                "syncs": nonzero(counters.syncs),
                "refused_requests": nonzero(counters.refused_requests),
                "refused_connections": nonzero(counters.refused_connections),
                "dropped_messages": nonzero(
                    {"orphan": counters.orphans, "invalid": counters.invalid, "refused": counters.refused}
                ),
                "dropped_peers": counters.dropped,
                "reported_refusals": counters.reported,
                "errors": nonzero(counters.errors),
                "defects": nonzero(counters.defects),
            },
            "syncs": self._activity.syncs,
            "troubles": self._activity.troubles,
        }

    def _snapshot(self) -> bytes:
        window = self._latest
        oldest = window.messages[-1]["id"] if window.messages else ""
        latest = {"added": window.messages, "oldest": oldest, "older": window.older}
        return _json(self._sections | {"latest": latest, "at": self._clock()})


_WINDOWS: Mapping[str, Callable[[Log, str], messages.Window]] = {
    "before": messages.before,
    "after": messages.after,
    "around": messages.around,
}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _asks_for_html(scope: Scope) -> bool:
    """Return whether a request names HTML as what it accepts, as browsers do that open an address."""
    for name, value in scope["headers"]:
        if name == b"accept":
            for part in value.decode("latin-1").lower().split(","):
                kind, *parameters = (each.strip() for each in part.split(";"))
                if kind == "text/html" and not _NOT_WANTED.intersection(parameters):
                    return True
    return False
