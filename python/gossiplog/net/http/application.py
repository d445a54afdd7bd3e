"""The HTTP side of a hub: canvas-js's API, metrics, the peers, and a sign of life.

A peer of a mesh has all but the API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp

from gossiplog.errors import StorageError
from gossiplog.log import Log
from gossiplog.net.http.access import Access, protect
from gossiplog.net.http.admission import Admission
from gossiplog.net.http.answers import as_json
from gossiplog.net.http.api import Connections, create_api
from gossiplog.net.http.metrics import HEALTH_PATHS, Peers, metric_routes
from gossiplog.net.replicator.telemetry import NetworkCounters


def create_application(
    log: Log,
    connections: Connections,
    counters: Callable[[], NetworkCounters],
    peers: Peers,
    admission: Admission,
    unready: Callable[[], str],
    failed: Callable[[StorageError], None],
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """Make the ASGI application that answers a hub's HTTP requests.

    Args:
        log: it is used in worker threads only.
        connections: gives the addresses of the peers that are connected.
        counters: gives the hub's counters as they are now.
        peers: gives the peers that are connected, and how they stand.
        admission: of requests to the API.
        unready: gives why `/readyz` answers 503; "" if it does not.
        failed: is called with an error of the log that the API met.
        more: routes of what the hub serves beside that.
    """
    routes = metric_routes(log, counters, peers, unready)
    return _site([Mount("/api", create_api(log, connections, admission, failed)), *routes, *more])


def create_monitor(
    log: Log,
    counters: Callable[[], NetworkCounters],
    peers: Peers,
    *,
    access: Access,
    unready: Callable[[], str],
) -> ASGIApp:
    """Make the ASGI application that serves the metrics, peers and health of a hub or a peer at a port of their own.

    Args:
        log: it is used in worker threads only.
        counters: gives the counters of the hub or the peer as they are now.
        peers: gives the peers that are connected, and how they stand.
        access: who may use it.
        unready: gives why `/readyz` answers 503; "" if it does not.
    """
    routes = metric_routes(log, counters, peers, unready)
    return protect(_site(routes), access, open_paths=HEALTH_PATHS)


def _site(routes: Sequence[BaseRoute]) -> Starlette:
    application = Starlette(routes=routes, exception_handlers={HTTPException: as_json})
    application.router.redirect_slashes = False
    return application
