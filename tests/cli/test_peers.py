"""`gossiplog peers`, against servers that answer as they like."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gossiplog.cli import peers
from gossiplog.errors import NetworkError
from tests.cli.support import Program

TLS = Path(__file__).parents[2] / "rust" / "net" / "tests" / "tls"
PEERS = [
    {
        "peer": "12D3KooWA",
        "kind": "mesh",
        "replicates": True,
        "address": "/ip4/192.0.2.1/tcp/9000/ws",
        "dialer": True,
        "agent": "an \x1b[31magent",
        "subscribed": True,
        "in_mesh": True,
        "score": -1.5,
        "rtt": 0.25,
    },
    {"peer": "12D3KooWB", "kind": "mesh", "address": "/ip4/192.0.2.2/tcp/1", "score": 0, "rtt": None, "agent": None},
    {"peer": "127.0.0.1:50000", "kind": "client", "replicates": True},
]


@contextmanager
def answering(
    body: bytes, status: int = 200, *, tls: bool = False, **headers: str
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server with one answer: its address, and the headers of the requests that it got."""
    requests: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append({"path": self.path, **dict(self.headers.items())})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield (
                f"https://localhost:{server.server_port}" if tls else f"http://127.0.0.1:{server.server_port}",
                requests,
            )
        finally:
            server.shutdown()
            thread.join()


def test_a_pipe_gets_what_the_server_says(program: Program) -> None:
    with answering(json.dumps(PEERS).encode()) as (url, requests):
        assert program("peers", f"{url}/").records == PEERS
    assert requests[0]["path"] == "/peers"


def test_a_terminal_gets_a_table(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with answering(json.dumps(PEERS).encode()) as (url, _):
        result = program("peers", url)
    first, second, third = (next(line for line in result.out.splitlines() if peer["peer"] in line) for peer in PEERS)
    for part in ("/ip4/192.0.2.1/tcp/9000/ws", "us", "in the mesh", "-2", "250.0 ms", "an \\u001b[31magent"):
        assert part in first
    assert "none" in second
    assert "a client" in third
    assert "3 connected" in result.out


def test_a_token_is_shown_to_the_server_and_nobody_else(program: Program, home: Path) -> None:
    token = home / "token"
    token.touch(0o600)
    token.write_text("not-to-be-guessed-0123456789\n")
    with answering(b"[]") as (other, elsewhere), answering(b"", 302, Location=f"{other}/peers") as (url, requests):
        result = program("peers", url, "--token-file", token)
    assert requests[0]["Authorization"] == "Bearer not-to-be-guessed-0123456789"
    assert (result.code, elsewhere) == (1, [])


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b'{"error": "reading needs a token here"}', 401, "401: reading needs a token here (--token-file)"),
        (b'{"error": "not known as \'a\'"}', 403, "HTTP status 403: not known as 'a'"),
        pytest.param(b"[" * 4096, 403, "HTTP status 403: there is no gossiplog server", id="nested error"),
        pytest.param(b"[" * 100_000, 200, "is no gossiplog server", id="nested"),
        (b"[]", 404, "HTTP status 404: there is no gossiplog server"),
        (b"nonsense", 200, "is no gossiplog server"),
        (b"{}", 200, "it lists no peers"),
        (b"[1]", 200, "it lists no peers"),
    ],
)
def test_another_server_is_said(program: Program, body: bytes, status: int, reason: str) -> None:
    with answering(body, status) as (url, _):
        result = program("peers", url)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert reason in result.err


@pytest.mark.slow
def test_an_authority_may_be_given(program: Program, home: Path) -> None:
    with answering(json.dumps(PEERS).encode(), tls=True) as (url, _):
        assert program("peers", url, "--ca-file", TLS / "ca.pem").records == PEERS
        result = program("peers", url)
        assert f"{url} is not trusted: its certificate was signed by an authority that this" in result.err
        # In the words of `sync`, and with the option instead of the argument.
        program("init", "notes.db", "--topic", "notes")
        synced = program("sync", "notes.db", url.replace("https", "wss"))
        assert synced.err == result.err.replace("https", "wss")
        assert "(--ca-file)" in result.err
        other = program("peers", url.replace("https", "http"))
        assert "a hub with TLS is reached by https://" in other.err
        missing = program("peers", url, "--ca-file", "missing.pem")
        assert "authorities missing.pem cannot be read: No such file" in missing.err
        (home / "none.pem").touch()
        assert "none.pem holds no certificate in PEM" in program("peers", url, "--ca-file", "none.pem").err
    with answering(b"[]") as (url, _):
        assert "speaks no TLS" in program("peers", url.replace("http", "https")).err
        assert program("peers", url, "--ca-file", TLS / "ca.pem").code == 2
        wrong = program("peers", url.replace("http", "ws"))
        assert (wrong.code, f"peers are listed over HTTP: gossiplog peers {url}" in wrong.err) == (2, True)


@pytest.mark.parametrize("path", ["", "/", "/metrics", "/peers"])
def test_the_urls_that_a_server_prints_are_taken(path: str) -> None:
    found = peers._URL.fullmatch(f"http://127.0.0.1:8000{path}")
    assert found is not None
    assert found[1] == "http://127.0.0.1:8000"


def test_nobody_there_is_said(program: Program) -> None:
    result = program("peers", "http://127.0.0.1:1")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "cannot be reached: Connection refused\n" in result.err
    program("init", "notes.db", "--topic", "notes")
    assert program("sync", "notes.db", "ws://127.0.0.1:1").err == result.err.replace("http", "ws")


def test_numbers_and_text_that_nobody_can_write_end_nothing(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    body = b'[{"peer": "a\\ud800\\u061cb", "kind": "mesh", "score": 1%s, "rtt": 1e999}]' % (b"0" * 400)
    with answering(body) as (url, _):
        result = program("peers", url)
    assert (result.code, "a\\ud800\\u061cb" in result.out, "inf ms" in result.out) == (0, True, True)


def test_an_error_whose_reason_is_cut_off_is_said(program: Program) -> None:
    # Its length is none of chunks.
    headers: dict[str, str] = {"Transfer-Encoding": "chunked"}
    with answering(b"zz", 403, tls=False, **headers) as (url, _):
        result = program("peers", url)
    assert result.code == 1
    assert result.err == f"gossiplog: {url} answered with HTTP status 403: there is no gossiplog server\n"


@contextmanager
def trickling(start: bytes) -> Iterator[str]:
    """A server that answers with the start of an answer, and then with a byte now and then."""
    ended = threading.Event()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(start)
                while not ended.wait(0.01):
                    connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n[",
        b"HTTP/1.1 403 No\r\n\r\n",
    ],
    ids=["header", "status", "body", "error"],
)
def test_a_server_that_never_ends_its_answer_is_left(
    program: Program, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(peers, "_SECONDS", 0.2)
    with trickling(start) as url:
        result = program("peers", url)
    assert (result.code, result.err) == (1, f"gossiplog: {url} did not answer within 0.2 s\n")


def test_a_server_that_answers_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever limit is the first: the socket's, or that of all of it."""
    monkeypatch.setattr(peers, "_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(NetworkError) as late:
            peers._ask(url, {}, None)
    assert str(late.value) == f"{url} did not answer within 0.05 s"


def test_a_long_answer_is_not_read_to_its_end(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_MOST_BYTES", 10)
    with answering(json.dumps(PEERS).encode()) as (url, _):
        result = program("peers", url)
    assert (result.code, result.err) == (
        1,
        f"gossiplog: {url} is no gossiplog server: it answers with more than 10 bytes\n",
    )
