"""The HTTP side of a hub: the original's API, metrics, and a sign of life."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount

from gossiplog.log import Log
from gossiplog.net.api import Connections, as_json, create_api
from gossiplog.net.metrics import metric_routes
from gossiplog.net.record import Counters


def create_site(log: Log, connections: Connections, counters: Callable[[], Counters]) -> Starlette:
    """Makes the ASGI application that answers a hub's HTTP requests.

    Args:
        log: it is used in worker threads only.
        connections: gives the addresses of the peers that are connected.
        counters: gives the hub's counters as they are now.
    """
    site = Starlette(
        routes=[Mount("/api", create_api(log, connections)), *metric_routes(log, counters)],
        exception_handlers={HTTPException: as_json},
    )
    site.router.redirect_slashes = False
    return site
