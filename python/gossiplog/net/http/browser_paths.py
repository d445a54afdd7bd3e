"""Addresses of a page that a person opens in a browser, and the token in a query, which such an address may have.

Proxies log queries. Behind the checks (`gossiplog.net.http.access`) a token in one is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

SAFE_METHODS = ("GET", "HEAD")
"""Those that read."""

_NAME = "token"


@dataclass(frozen=True, slots=True)
class BrowserPaths:
    """Paths at which a person's browser asks, which shows no token of itself.

    Attributes:
        page: may have the token as the query parameter `token`, where a navigation can have it.
        files: what the page is made of, the same for everybody: no token is asked for. Host and origin are checked.
        explain: gives what a browser is answered, with this status, where the page was refused for want of a token;
            None for what others are.
    """

    page: str
    files: Collection[str]
    explain: Callable[[Scope, int], ASGIApp | None]


def is_read_of(scope: Scope, paths: Collection[str]) -> bool:
    """Return whether a request reads one of these paths, from the root of the application."""
    is_read = scope["type"] == "http" and scope["method"] in SAFE_METHODS
    return is_read and scope["path"].removeprefix(scope.get("root_path", "")) in paths


def token_of_query(scope: Scope) -> str | None:
    """Return the token that the query of a request or a WebSocket has; None where it has none."""
    return dict(_query(scope)).get(_NAME)


def with_header(scope: Scope) -> Scope:
    """Return the scope of a request whose token, if it stands in the query, is in the header in its place."""
    token = token_of_query(scope)
    if token is None or any(name == b"authorization" for name, _ in scope["headers"]):
        return scope
    # A text with other characters is no token of anybody's.
    header = (b"authorization", b"Bearer " + token.encode("latin-1", "replace"))
    return {**scope, "headers": [*scope["headers"], header], "query_string": _bare_query(scope)}


def without_token(scope: Scope) -> Scope:
    """Return the scope without the header of a token, and of a WebSocket without the token in the query."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    query = scope.get("query_string", b"")
    if scope["type"] == "websocket" and token_of_query(scope) is not None:
        query = _bare_query(scope)
    return {**scope, "headers": headers, "query_string": query}


def _bare_query(scope: Scope) -> bytes:
    return urlencode([(name, value) for name, value in _query(scope) if name != _NAME]).encode()


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
