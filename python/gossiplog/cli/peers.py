"""`gossiplog peers`: who is connected to a server."""

from __future__ import annotations

import json as json_module
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossiplog._core import redacted_url
from gossiplog.cli.output import Json, Output, printable
from gossiplog.errors import NetworkError
from gossiplog.files import check_file

if TYPE_CHECKING:
    from http.client import HTTPMessage
    from typing import IO

    from rich.table import Table

_DEFAULT = "http://127.0.0.1:8000"
# Servers print the URL of their metrics.
_URL = re.compile(r"((https?)://[^/?#@]+)(?:/|/metrics|/peers)?", re.IGNORECASE)
_SOCKET = re.compile(r"ws(s?)://", re.IGNORECASE)
_SECONDS = 10.0
"""For all of it: looking the name up, connecting, TLS, and each byte of the answer."""
# A thousand peers take a quarter of that.
_MOST_BYTES = 2**21
# Of an answer that is an error, and characters of the reason in it.
_MOST_ERROR_BYTES = 2**12
_LONGEST_REASON = 300
# By the codes of OpenSSL (X509_V_ERR_...), in the words of `gossiplog sync`. First: the issuer is not there, signed
# itself, or cannot be verified.
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_CERTIFICATE_FAULTS = {9: "is not valid yet; is this machine's clock right?", 10: "has expired"}
# How OpenSSL calls what is no TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_COLUMNS = ("peer", "address", "dialled by", "gossip", "score", "round trip", "program")


def peers(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The URL of a hub, or of the metrics of a peer (serve --metrics-port).")
    ] = _DEFAULT,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="The file with the hub's bearer token, if it asks for one."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With an https:// address: certificate authorities to trust, too, in PEM."),
    ] = None,
    json: Json = False,
) -> None:
    """List the peers and clients that are connected to a server."""
    if socket := _SOCKET.match(url):
        right = f"http{socket[1].lower()}://{url[socket.end() :]}"
        raise typer.BadParameter(f"peers are listed over HTTP: gossiplog peers {shlex.quote(redacted_url(right))}")
    if not (found := _URL.fullmatch(url)):
        raise typer.BadParameter(f"{url!r} is no address of a server: expected one like {_DEFAULT}")
    headers = {}
    if token_file is not None:
        # What it needs takes half a second to load.
        from gossiplog.net.http.access import load_token

        headers = {"Authorization": f"Bearer {load_token(token_file)}"}
    if ca_file is not None and found[2].lower() == "http":
        raise typer.BadParameter("--ca-file is for https:// addresses")
    server = found[1]
    listed = _in_time(server, lambda: _ask(server, headers, ca_file))
    output = Output(json)
    if output.json:
        for peer in listed:
            output.record(peer)
    else:
        output.show(_table(listed))


def _in_time(url: str, ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return what a function returns, or raise what it raises.

    It runs on a thread that is left behind when it takes longer than _SECONDS: a socket's own limit begins anew with
    each byte, and looking up a name has none.

    Raises:
        NetworkError: it takes longer.
    """
    ended: Queue[list[dict[str, Any]] | Exception] = Queue()

    def run() -> None:
        try:
            ended.put(ask())
        except Exception as error:  # noqa: BLE001 - raised below
            ended.put(error)

    Thread(target=run, name="gossiplog-peers", daemon=True).start()
    try:
        result = ended.get(timeout=_SECONDS)
    except Empty:
        raise NetworkError(f"{url} {_late()}") from None
    if isinstance(result, Exception):
        raise result
    return result


def _late() -> str:
    return f"did not answer within {_SECONDS:g} s"


def _ask(url: str, headers: dict[str, str], ca_file: Path | None) -> list[dict[str, Any]]:
    """Ask a hub for its peers; raise NetworkError if nobody answers there, or somebody else."""
    # Imported here: only this command needs them.
    import ssl
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(
            self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
        ) -> None:
            return None

    # A token goes to nobody else, and nothing through a proxy.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), NoRedirects()]
    if ca_file is not None:
        context = ssl.create_default_context()
        try:
            # OpenSSL would wait for a pipe.
            check_file(ca_file)
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            is_empty = isinstance(error, ssl.SSLError)
            reason = "holds no certificate in PEM" if is_empty else f"cannot be read: {error.strerror}"
            raise NetworkError(f"the file of certificate authorities {ca_file} {reason}") from error
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(urllib.request.Request(f"{url}/peers", headers=headers), timeout=_SECONDS) as answer:
            content = answer.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise NetworkError(f"{url} is no gossiplog server: it answers with more than {_MOST_BYTES:,} bytes")
        found = json_module.loads(content)
    except urllib.error.HTTPError as error:
        with error:
            reason = _reason(error) or "there is no gossiplog server"
        advice = " (--token-file)" if error.code == 401 else ""
        raise NetworkError(f"{url} answered with HTTP status {error.code}: {reason}{advice}") from error
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", None) or error
        raise NetworkError(f"{url} {_explain(cause, ca_file)}") from error
    except (ValueError, RecursionError) as error:
        raise NetworkError(f"{url} is no gossiplog server: {error}") from error
    if not isinstance(found, list) or not all(isinstance(peer, dict) and "peer" in peer for peer in found):
        raise NetworkError(f"{url} is no gossiplog server: it lists no peers")
    return found


def _reason(answer: IO[bytes]) -> str:
    """Return what a hub says in an answer that is an error; "" where nobody says anything."""
    from http.client import HTTPException

    try:
        found = json_module.loads(answer.read(_MOST_ERROR_BYTES))
    except (OSError, HTTPException, ValueError, RecursionError):
        return ""
    reason = found.get("error") if isinstance(found, dict) else None
    return reason[:_LONGEST_REASON] if isinstance(reason, str) else ""


def _explain(cause: object, ca_file: Path | None) -> str:
    """Return why there was no answer: a clause about the server."""
    import ssl
    from http.client import BadStatusLine

    if isinstance(cause, ssl.SSLCertVerificationError):
        wrong = _CERTIFICATE_FAULTS.get(cause.verify_code, f"cannot be accepted: {cause.verify_message}")
        if cause.verify_code in _UNKNOWN_AUTHORITY:
            wrong = (
                "was signed by an authority that this machine does not trust; a file with that authority's certificate"
                " can be given (--ca-file)"
                if ca_file is None
                else f"was signed by no authority in {ca_file}, nor by one that this machine trusts"
            )
        return f"is not trusted: its certificate {wrong}"
    if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
        return "speaks no TLS; a hub without it is reached by http://"
    if isinstance(cause, (BadStatusLine, ConnectionResetError)):
        return "gave no answer in HTTP; a hub with TLS is reached by https://"
    if isinstance(cause, TimeoutError) and cause.errno is None:
        # The socket's own limit was the first.
        return _late()
    return f"cannot be reached: {getattr(cause, 'strerror', None) or cause}"


def _table(found: list[dict[str, Any]]) -> Table:
    from rich.table import Table

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
                _figure("{:.0f}", score),
                _figure("{:.1f} ms", rtt, 1000),
                peer.get("agent") or "",
            ]
        else:
            row += ["", "it", "a client"]
        table.add_row(*(printable(str(cell)) for cell in row))
    return table


def _figure(form: str, value: object, factor: int = 1) -> str:
    """Write a number that a server gave; "" for what is none, or is beyond all floats."""
    try:
        return form.format(factor * float(value)) if isinstance(value, int | float) else ""
    except OverflowError:
        return ""
