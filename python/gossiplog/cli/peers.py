"""`gossiplog peers`: who is connected to a server."""

from __future__ import annotations

import json as json_module
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from gossiplog.cli.output import Json, Output, printable
from gossiplog.errors import NetworkError

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from typing import IO

_DEFAULT = "http://127.0.0.1:8000"
_URL = re.compile(r"https?://[^/?#@]+/?", re.IGNORECASE)
_SECONDS = 10.0
# A thousand peers take a quarter of that.
_MOST_BYTES = 2**21
_COLUMNS = ("peer", "address", "dialled by", "gossip", "score", "round trip", "program")


def peers(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The URL of a hub, or of the metrics of a peer (serve --metrics-port).")
    ] = _DEFAULT,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file with the hub's bearer token, if it asks for one.")
    ] = None,
    json: Json = False,
) -> None:
    """List the peers and clients that are connected to a server."""
    if not _URL.fullmatch(url):
        raise typer.BadParameter(f"{url!r} is no address of a server: expected one like {_DEFAULT}")
    headers = {}
    if token_file is not None:
        # What it needs takes half a second to load.
        from gossiplog.net.access import load_token

        headers = {"Authorization": f"Bearer {load_token(token_file)}"}
    found = _ask(url, headers)
    output = Output(json)
    if output.json:
        for peer in found:
            output.record(peer)
    else:
        output.show(_table(found))


def _ask(url: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    """Raises NetworkError: nobody answers there, or somebody else."""
    # Imported here: only this command needs them.
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(
            self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
        ) -> None:
            return None

    # A token goes to nobody else, and nothing through a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)
    try:
        with opener.open(
            urllib.request.Request(f"{url.rstrip('/')}/peers", headers=headers), timeout=_SECONDS
        ) as answer:
            found = json_module.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            reason = "it asks for a token (--token-file)" if error.code == 401 else "there is no gossiplog server"
        raise NetworkError(f"{url} answered with HTTP status {error.code}: {reason}") from error
    except (OSError, HTTPException) as error:
        raise NetworkError(f"{url} cannot be reached: {getattr(error, 'reason', None) or error}") from error
    except ValueError as error:
        raise NetworkError(f"{url} is no gossiplog server: {error}") from error
    if not isinstance(found, list) or not all(isinstance(peer, dict) and "peer" in peer for peer in found):
        raise NetworkError(f"{url} is no gossiplog server: it lists no peers")
    return found


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table(*_COLUMNS, box=None, pad_edge=False, caption=f"{len(found):,} connected", caption_justify="left")
    for peer in found:
        row = [peer["peer"]]
        if peer.get("kind") == "mesh":
            score, rtt = peer.get("score"), peer.get("rtt")
            gossip = "in the mesh" if peer.get("in_mesh") else "subscribed" if peer.get("subscribed") else "none"
            row += [
                peer.get("address"),
                "us" if peer.get("dialer") else "it",
                gossip,
                f"{score:.0f}" if isinstance(score, int | float) else "",
                f"{1000 * rtt:.1f} ms" if isinstance(rtt, int | float) else "",
                peer.get("agent") or "",
            ]
        else:
            row += ["", "it", "a client"]
        table.add_row(*(printable(str(cell)) for cell in row))
    return table
