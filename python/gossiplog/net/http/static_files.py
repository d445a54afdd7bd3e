"""The files of pages, and the headers that keep a page to itself: no other site embeds it, and it loads nothing else.

`page/` has what several pages use: D3, colours, the style of what they have in common. A page's own files stand with
the package that serves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
"""Of all that a page is made of."""
HTML = "text/html; charset=utf-8"

_SHARED = "gossiplog.net.http.page"
_CONTENT_TYPES = {
    ".html": HTML,
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def read_files(package: str) -> dict[str, bytes]:
    """Return the files of a page by their names, with those that all pages share.

    Args:
        package: the folder of the page's own files, as the dotted name of a package.

    Raises:
        ValueError: a file of the page has the name of one that all pages share.
    """
    files: dict[str, bytes] = {}
    for folder in (_SHARED, package):
        for file in resources.files(folder).iterdir():
            # The others, such as a README, are for those who work on the page.
            if Path(file.name).suffix in _CONTENT_TYPES:
                if file.name in files:
                    raise ValueError(f"{package} has a file {file.name}, and so has {_SHARED}: give it another name")
                files[file.name] = file.read_bytes()
    return files


def file_routes(files: Mapping[str, bytes]) -> list[Route]:
    """Make a route for each of the files of a page, at its name."""
    return [file_route(f"/{name}", name, content) for name, content in files.items()]


def file_route(path: str, name: str, content: bytes) -> Route:
    """Make the route of a file; browsers ask each time whether it has changed."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"content-type": _CONTENT_TYPES[Path(name).suffix], "etag": tag, "cache-control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return Route(path, answer)


def refuse_other_sites(app: ASGIApp, open_paths: Collection[str] = ()) -> ASGIApp:
    """Return an application that answers 403 to what pages of other origins have a browser load (Fetch Metadata).

    An `Origin`, which is checked elsewhere, comes with requests whose answers such a page is to read. Those for images
    and the like have none: their answers cannot be read, but they cost the server the same.

    Args:
        app: that is asked by others.
        open_paths: to which other sites may link.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) not in open_paths:
            headers = dict(scope["headers"])
            if headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site") and b"origin" not in headers:
                reason = "this is for the page of this server: a page of another site asked for it"
                await JSONResponse({"error": reason}, 403)(scope, receive, send)
                return
        await app(scope, receive, send)

    return run


def with_page_headers(app: ASGIApp) -> ASGIApp:
    """Return an application all of whose answers have PAGE_HEADERS."""
    added = [(name.encode(), value.encode()) for name, value in PAGE_HEADERS.items()]

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await app(scope, receive, send_with_headers)

    return run
