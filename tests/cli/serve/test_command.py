"""The hub and its clients as a user runs them: each a process, or this one."""

from __future__ import annotations

import http.server
import json
import os
import pty
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from gossiplog.net import client
from tests.cli.support import PATIENCE, Program, Server, following

Serve = Callable[..., Any]

TLS = Path(__file__).parents[3] / "rust" / "net" / "tests" / "tls"


class Served(Server):
    """A hub.

    Attributes:
        url: of its WebSocket.
        api: of its HTTP API.
    """

    def __init__(self, path: Path, *options: str | Path, port: int = 0) -> None:
        super().__init__(path, "--hub", f"127.0.0.1:{port}", *options)
        self.url, self.api = self.ready["hub"], self.ready["api"]


@pytest.mark.integration
def test_a_log_and_a_hub_get_what_the_other_holds(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    program("init", "copy.db", "--topic", "notes")
    mine = program("append", "copy.db", '"mine"').record
    with Served(log) as served:
        result = program("sync", "copy.db", served.url)
        assert (result.code, result.err) == (0, "")
        assert (result.record["inserted"], result.record["sent"], result.record["messages"]) == (2, 1, 3)
        assert served.record("sync")["inserted"] == 1
        assert program("sync", "copy.db", served.url).record["inserted"] == 0
        with urllib.request.urlopen(f"{served.api}/clock") as answer:
            assert set(json.load(answer)["parents"]) == set(program("info", log).record["heads"])
        assert served.stop() == 0
    assert mine["id"] in [record["id"] for record in program("read", log).records]
    assert program("info", log).record["root"] == result.record["root"]


@pytest.mark.integration
def test_a_log_that_is_not_there_is_made_with_a_topic(program: Program, log: Path) -> None:
    program("append", log, "1")
    with Served(log) as served:
        assert program("sync", "new.db", served.url, "--topic", "notes").record["messages"] == 1
        result = program("sync", "none.db", served.url)
        assert result.code == 1
        assert "there is no log none.db: give --topic TOPIC to make one" in result.err
        assert served.stop(signal.SIGTERM) == 0


@pytest.mark.integration
def test_another_topic_is_said(program: Program, log: Path) -> None:
    with Served(log) as served:
        result = program("sync", "other.db", served.url, "--topic", "elsewhere")
        assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
        port = served.url.rpartition(":")[2]
        for address in (f"/ip4/127.0.0.1/tcp/{port}", f"/ip4/127.0.0.1/tcp/{port}/ws"):
            peer = program("sync", "other.db", address, "--topic", "notes")
            assert (peer.code, f". If it is a hub, its address is {served.url} (or wss://)" in peer.err) == (1, True)
        assert f"{served.url} serves the topic 'notes'; this log's is 'elsewhere'" in result.err
        assert not Path("other.db").exists()


@pytest.mark.integration
def test_tokens(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1")
    token = home / "token"
    token.write_text("not-to-be-guessed-0123456789\n")
    open_to_all = program("sync", "copy.db", "ws://127.0.0.1:1/", "--topic", "notes", "--token-file", token)
    assert (open_to_all.code, "chmod 600" in open_to_all.err) == (1, True)
    token.chmod(0o600)
    with Served(log, "--read-token", str(token)) as served:
        without = program("sync", "copy.db", served.url, "--topic", "notes")
        assert (without.code, without.err.count("\n")) == (1, 1)
        assert "HTTP status 401 Unauthorized: reading needs a token here (--token-file)\n" in without.err
        assert not Path("copy.db").exists()
        of_another = home / "another"
        of_another.touch(0o600)
        of_another.write_text("another-not-to-be-guessed\n")
        wrong = program("sync", "copy.db", served.url, "--topic", "notes", "--token-file", of_another)
        assert "HTTP status 401 Unauthorized: the token is not valid here (--token-file)\n" in wrong.err
        allowed = program("sync", "copy.db", served.url, "--topic", "notes", "--token-file", token)
        assert allowed.record["messages"] == 1
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{served.api}/clock")


@pytest.mark.integration
def test_who_may_only_read_is_told_so(program: Program, log: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("append", log, "1")
    token = home / "token"
    token.touch(0o600)
    token.write_text("not-to-be-guessed-0123456789\n")
    with Served(log, "--write-token", str(token)) as served:
        assert program("sync", "copy.db", served.url, "--topic", "notes").record["messages"] == 1
        program("append", "copy.db", "2")
        with monkeypatch.context() as patched:
            patched.setattr(client, "SETTLED_SECONDS", 0.5)
            result = program("sync", "copy.db", served.url)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert f"{served.url} lets this client read only, and lacks messages of this log" in result.err
        assert len(program("read", log).records) == 1
        assert program("sync", "copy.db", served.url, "--token-file", token).code == 0
        assert len(program("read", log).records) == 2


def test_a_hub_that_cannot_be_reached_is_named(program: Program, log: Path) -> None:
    result = program("sync", log, "ws://127.0.0.1:1/")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith("gossiplog: ws://127.0.0.1:1/ cannot be reached: ")


@pytest.mark.integration
def test_limits(program: Program, log: Path) -> None:
    limits = ("--connections", "1", "--streams", "2", "--peer-bytes", "9000000", "--total-bytes", "10000000")
    with Served(log, *limits) as served, following("first.db", served.url, "--topic", "notes") as follower:
        follower.stdout.readline()
        second = program("sync", "second.db", served.url, "--topic", "notes")
        with urllib.request.urlopen(f"{served.api.removesuffix('/api')}/metrics") as answer:
            metrics = answer.read().decode()
    assert (second.code, "HTTP status 503" in second.err) == (1, True)
    assert 'gossiplog_network_total{event="connections"} 1.0' in metrics


@pytest.mark.integration
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_who_follows_says_farewell(log: Path, number: signal.Signals, status: int) -> None:
    """Before, SIGTERM and SIGHUP ended the process at once, and the hub waited for what was left of the connection."""
    with Served(log) as served:
        with following("copy.db", served.url, "--topic", "notes") as follower:
            follower.stdout.readline()
            follower.send_signal(number)
            assert follower.wait(30) == status
        assert served.record("disconnected")["reason"] == "the peer closed the connection"


class Website(http.server.SimpleHTTPRequestHandler):
    """Has one page."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_what_is_no_hub_is_an_error_at_once(program: Program, log: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Website) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"ws://127.0.0.1:{server.server_port}"
        results = {path: program("sync", log, address + path) for path in ("/", "/missing?token=a-secret")}
        server.shutdown()
        thread.join()
    hint = f" (a hub that is mounted in an application has a slash at its end: {address}/missing/?…)"
    for path, status, advice in [("/", "200 OK", ""), ("/missing?token=a-secret", "404 Not Found", hint)]:
        error = f" answered with HTTP status {status}: there is no hub at this address{advice}\n"
        assert (results[path].code, results[path].out) == (1, "")
        assert results[path].err.splitlines(keepends=True)[-1].endswith(error)
        assert "a-secret" not in results[path].err


@pytest.mark.integration
def test_credentials_in_an_address_are_not_shown(program: Program, log: Path) -> None:
    result = program("sync", log, "ws://user:a-secret@127.0.0.1:1/")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert "holds a user name" in result.err
    with Served(log) as served:
        accepted = program("sync", log, f"{served.url}/?token=a-secret")
    assert (accepted.code, accepted.record["source"]) == (0, f"{served.url}/?…")
    assert "a-secret" not in result.err + accepted.out + accepted.err


@pytest.mark.integration
def test_tls(program: Program, log: Path) -> None:
    program("append", log, "1")
    with Served(log, "--certificate", TLS / "localhost.pem", "--private-key", TLS / "localhost.key") as served:
        url, api = (address.replace("127.0.0.1", "localhost") for address in (served.url, served.api))
        assert url.startswith("wss://localhost:")
        untrusted = program("sync", "copy.db", url, "--topic", "notes")
        assert (untrusted.code, untrusted.out, untrusted.err.count("\n")) == (1, "", 1)
        assert f"{url} is not trusted: its certificate was signed by an authority that this machine" in untrusted.err
        # It is the name's, not the address's.
        by_address = program("sync", "copy.db", served.url, "--topic", "notes", "--ca-file", TLS / "ca.pem")
        assert "is not trusted: its certificate is not for 127.0.0.1, but for " in by_address.err
        without = program("sync", "copy.db", url.replace("wss", "ws"), "--topic", "notes")
        assert "a hub with TLS is reached by wss://" in without.err
        assert not Path("copy.db").exists()
        missing = program("sync", "copy.db", url, "--topic", "notes", "--ca-file", "missing.pem")
        assert (missing.code, "missing.pem" in missing.err) == (1, True)
        assert program("sync", "copy.db", url, "--topic", "notes", "--ca-file", TLS / "ca.pem").record["messages"] == 1
        context = ssl.create_default_context(cafile=TLS / "ca.pem")
        with urllib.request.urlopen(f"{api}/messages/count", context=context) as answer:
            assert json.load(answer) == {"count": 1}
        assert served.stop() == 0


def set_token(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(f"{text}\n")
    return path


@pytest.mark.integration
def test_sighup_takes_new_tokens(program: Program, log: Path, home: Path) -> None:
    old, new = set_token(home / "old", "the-former-token-0123"), set_token(home / "new", "the-next-token-012345")
    token = set_token(home / "token", "the-former-token-0123")
    with Served(log, "--read-token", token) as served:
        process, arguments = served.process, ("sync", "copy.db", served.url, "--topic", "notes", "--token-file")
        assert program(*arguments, old).code == 0
        set_token(token, "short")
        process.send_signal(signal.SIGHUP)
        line = process.stderr.readline().decode()
        assert "ERROR the tokens and the certificate stay as they were: the token file" in line
        assert program(*arguments, old).code == 0
        set_token(token, "alice: the-former-token-0123\nbob: the-next-token-012345")
        process.send_signal(signal.SIGHUP)
        assert served.record("reloaded")["disconnected"] == 0
        assert [program(*arguments, file).code for file in (old, new)] == [0, 0]
        set_token(token, "the-next-token-012345")
        process.send_signal(signal.SIGHUP)
        assert served.record("reloaded").items() >= {"event": "reloaded", "disconnected": 0}.items()
        assert "answered with HTTP status 401" in program(*arguments, old).err
        assert program(*arguments, new).code == 0
        assert served.stop() == 0


@pytest.mark.integration
def test_a_closed_terminal_ends_the_server(log: Path) -> None:
    """It sends SIGHUP, too; under nohup, which ignores that, the server goes on."""
    for prefix, ends in (([], True), (["nohup"], False)):
        ours, theirs = pty.openpty()
        command = [*prefix, sys.executable, "-m", "gossiplog", "serve", log, "--hub", "127.0.0.1:0"]
        with (
            subprocess.Popen(
                ["setsid", "--ctty", *command], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process,
            ending(process),
        ):
            os.close(theirs)
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["topic"] == "notes"
            os.close(ours)
            if ends:
                assert process.wait(PATIENCE) == 0
            else:
                process.send_signal(signal.SIGHUP)
                process.terminate()
                assert process.wait(PATIENCE) == 0


def fill(descriptor: int) -> int:
    """Writes into a pipe what it holds; how much that is."""
    os.set_blocking(descriptor, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(descriptor, b" ")
    # For the other process as well, which has the same end.
    os.set_blocking(descriptor, True)
    return filled


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill a process where the block fails: Popen waits for its end."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


@pytest.mark.integration
def test_output_that_nobody_reads_holds_nothing_up(program: Program, log: Path) -> None:
    program("append", log, "1")
    (out, into_out), (err, into_err) = os.pipe(), os.pipe()
    command = [sys.executable, "-m", "gossiplog", "serve", log, "--hub", "127.0.0.1:0"]
    with (
        subprocess.Popen(command, stdout=into_out, stderr=into_err) as hub,
        ending(hub),
        open(out, "rb") as lines,
        open(err, "rb") as complaints,
    ):
        ready = json.loads(lines.readline())
        filled = fill(into_out), fill(into_err)
        # A warning of the server's, and an event.
        host, port = ready["hub"].removeprefix("ws://").split(":")
        with socket.create_connection((host, int(port))) as broken:
            client = "{}:{}".format(*broken.getsockname())
            broken.sendall(b"no request\r\n\r\n")
            assert broken.recv(100).startswith(b"HTTP/1.1 400")
        assert program("sync", "copy.db", ready["hub"], "--topic", "notes").record["inserted"] == 1
        assert program("sync", "copy.db", ready["hub"]).code == 0
        for descriptor in (into_out, into_err):
            os.close(descriptor)
        assert lines.read(filled[0]).isspace()
        assert json.loads(lines.readline())["event"] == "connected"
        assert complaints.read(filled[1]).isspace()
        assert complaints.readline().decode().endswith(f" WARNING {client}: Invalid HTTP request received.\n")
        hub.send_signal(signal.SIGINT)
        assert hub.wait(PATIENCE) == 0


@pytest.mark.integration
def test_a_hub_whose_output_is_closed_goes_on(program: Program, log: Path) -> None:
    program("append", log, "1")
    with Served(log) as served:
        served.out.close()
        for copy in ("one.db", "another.db"):
            assert program("sync", copy, served.url, "--topic", "notes").record["inserted"] == 1
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(PATIENCE) == 0
        complaints = served.process.stderr.read().decode()
    assert complaints.count("\n") == 1
    assert "no longer shown, but serving goes on: nobody reads it" in complaints


@pytest.mark.integration
def test_a_log_to_which_nothing_can_be_appended_is_not_served(program: Program, log: Path) -> None:
    program("append", log, "1", "2")
    with closing(sqlite3.connect(log)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 2")
    result = program("serve", log, "--hub", "127.0.0.1:0")
    assert (result.code, result.out) == (1, "")
    assert f"ERROR {log}: the log is damaged: " in result.err
    assert f"`gossiplog repair {log} --from SOURCE`" in result.err


def answer_of(url: str, **headers: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.integration
def test_what_is_refused_is_in_the_log_with_its_reason(program: Program, log: Path, home: Path) -> None:
    program("append", log, "1")
    token = home / "token"
    token.touch(0o600)
    token.write_text("not-to-be-guessed-0123456789\n")
    options = ("--read-token", token, "--access-log", "--log-format", "json", "--log-level", "info")
    with Served(log, *options, "--metrics-port", "0", "--metrics-host", "0.0.0.0") as served:
        base, metrics = served.api.removesuffix("/api"), served.ready["metrics"].removesuffix("/metrics")
        for path in ("/healthz", "/readyz"):
            # As a health check asks: by an address, without a token.
            assert answer_of(base + path, Host="10.1.2.3:8000") == (200, {"status": "ok"})
            assert answer_of(metrics + path, Host="10.1.2.3:8000") == (200, {"status": "ok", "messages": 1})
        assert answer_of(f"{base}/metrics?secret=1")[0] == 401
        assert answer_of(f"{base}/api/clock", Authorization="Bearer a-wrong-token-0123456789")[0] == 401
        assert answer_of(f"{metrics}/peers", Host="evil.example.org")[0] == 403
        elsewhere = program("sync", "other.db", served.url, "--topic", "elsewhere", "--token-file", token)
        assert elsewhere.code == 1
        port = int(served.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as broken:
            upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
            broken.sendall(upgrade)
            assert broken.recv(100).startswith(b"HTTP/1.1 400")
        with urllib.request.urlopen(f"{metrics}/metrics") as answer:
            numbers = answer.read().decode()
        served.process.send_signal(signal.SIGTERM)
        _, written = served.process.communicate(timeout=PATIENCE)
        assert served.process.returncode == 0
    # Those of the hub's own port, too.
    assert 'gossiplog_refused_requests_total{reason="token"} 2.0' in numbers
    assert 'gossiplog_refused_connections_total{reason="topic"} 1.0' in numbers
    assert 'gossiplog_server_dropped_connections_total{reason="bad_handshakes"} 1.0' in numbers
    assert b"secret" not in written
    assert b"0123456789" not in written
    records = [json.loads(line) for line in written.splitlines()]
    assert all(record.keys() >= {"time", "level", "logger", "message"} for record in records)
    warnings = {record["kind"]: record["message"] for record in records if record["level"] == "warning"}
    assert "its log has the topic 'elsewhere'; this hub serves 'notes'" in warnings.pop("other_topics")
    assert warnings.keys() == {"token", "host", "bad_handshakes"}
    assert "the token is not valid here" in warnings["token"]
    assert "this server is not known as 'evil.example.org'" in warnings["host"]
    assert "no WebSocket handshake: missing Sec-WebSocket-Key header" in warnings["bad_handshakes"]
    asked = [
        (record["path"], record["status"], record["event"])
        for record in records
        if record["logger"] == "gossiplog.access"
    ]
    # Health checks that succeed are left out.
    assert asked == [
        ("/metrics", 401, "answered"),
        ("/api/clock", 401, "answered"),
        ("/", 101, "opened"),
        ("/", 101, "ended"),
    ]


def test_why_it_does_not_start_is_a_line_of_the_log(program: Program, home: Path) -> None:
    result = program("serve", "missing.db", "--log-format", "json")
    assert (result.code, result.out) == (1, "")
    record = json.loads(result.err)
    assert record["level"] == "error"
    assert "missing.db" in record["message"]


def test_a_port_in_use_is_said_before_a_log_is_made(program: Program, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        result = program("serve", "new.db", "--topic", "org.example.notes", "--hub", place)
        assert (result.code, result.out) == (1, "")
        assert f"ERROR --hub: cannot listen at {place}: Address already in use; another program" in result.err
        result = program(
            "serve", "new.db", "--topic", "org.example.notes", "--hub", "127.0.0.1:0", "--metrics-port", place[10:]
        )
        assert f"ERROR --metrics-port: cannot listen at {place}: Address already in use; another program" in result.err
    assert list(home.glob("new.db*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_start_of_a_server(number: signal.Signals, tmp_path: Path) -> None:
    # The program's own part is replaced by one that never ends, since the moment of a signal is else a matter of luck.
    code = (
        "import importlib, os, sys, time\n"
        "import gossiplog.__main__ as program\n"
        "def wait(name):\n"
        "    os.write(1, b'.')\n"
        # One long sleep would go on if the signal came just before it.
        "    while True: time.sleep(0.1)\n"
        "importlib.import_module = wait\n"
        "sys.argv = ['gossiplog', 'serve', 'notes.db']\n"
        "program.main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    process.stdout.close()


@pytest.mark.integration
@pytest.mark.parametrize("others", [(), ("-wal", "-count", "-shm")])
def test_a_log_whose_file_is_deleted_is_saved_at_the_end(program: Program, log: Path, others: tuple[str, ...]) -> None:
    """Nothing was said, the status was 0, and the log was gone.

    A read beside another one needs a connection, and no new one finds the file: then the client asks again.
    """
    program("append", log, "1", "2")
    with Served(log) as served:
        log.unlink()
        for suffix in others:
            log.with_name(f"{log.name}{suffix}").unlink()
        line = served.process.stderr.readline().decode()
        assert f"ERROR checking the files of the log: the file {log} was deleted" in line
        assert served.record("failed")["doing"] == "checking the files of the log"
        # What the error says to do meanwhile.
        assert program("sync", "copy.db", served.url, "--topic", "notes").record["inserted"] == 2
        served.process.send_signal(signal.SIGTERM)
        err = served.process.communicate(timeout=PATIENCE)[1].decode()
        assert served.process.returncode == 1
    saved = log.with_name(f"{log.name}.saved")
    *unserved, last = err.splitlines()
    assert [line for line in unserved if not re.search(f" ERROR serving .*: the file {log} was deleted", line)] == []
    assert f"ERROR the file {log} was deleted while the log was open. All that it held is saved as {saved}: mv" in last
    saved.rename(log)
    assert program("verify", log).record["messages"] == 2


@pytest.mark.integration
def test_a_full_garbage_collection_keeps_a_server_from_its_clients_for_a_moment_only(log: Path) -> None:
    """It takes as long as there are objects, holds the interpreter's lock, and comes with whatever clients ask for.

    Most of 40 ms went to the 67,000 objects of imports and the start: these are frozen, and few others are there.
    """
    code = """if True:
        import gc, sys, threading
        from gossiplog.__main__ import main
        def look():
            sys.stdin.readline()
            gc.collect()
            print(len(gc.get_objects()), gc.get_freeze_count(), flush=True)
        threading.Thread(target=look, daemon=True).start()
        main()
    """
    command = [sys.executable, "-c", code, "serve", str(log), "--hub", "127.0.0.1:0", "--no-events"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process, ending(process):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write(b"now\n")
        process.stdin.flush()
        scanned, frozen = map(int, process.stdout.readline().split())
        assert 10 * scanned < frozen
        process.kill()


def test_a_variable_that_is_misspelt_is_a_line_of_the_log(
    program: Program, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSIPLOG_WRITE_TOKENS", "token")
    first, _ = program("serve", "missing.db").err.splitlines()
    assert first.endswith(
        "WARNING the variable 'GOSSIPLOG_WRITE_TOKENS' sets no option: did you mean GOSSIPLOG_WRITE_TOKEN?"
    )


def read_until(lines: IO[bytes], text: bytes) -> None:
    """Reads to the first line that has this in it."""
    assert any(text in line for line in lines)


@pytest.mark.integration
def test_following_outlives_the_hub(program: Program, log: Path) -> None:
    program("append", log, "1")
    with Served(log) as served:
        port = int(served.url.rpartition(":")[2])
        with following("copy.db", served.url, "--topic", "notes") as follower:
            assert json.loads(follower.stdout.readline())["messages"] == 1
            read_until(follower.stderr, b"connected to ")
            served.process.kill()
            served.process.wait()
            read_until(follower.stderr, b"cannot be reached")
            program("append", log, "2")
            program("append", "copy.db", "3")
            with Served(log, port=port) as again:
                read_until(follower.stderr, b"connected to ")
                deadline = time.monotonic() + PATIENCE
                while len(program("read", "copy.db").records) < 3 or len(program("read", log).records) < 3:
                    assert time.monotonic() < deadline
                follower.send_signal(signal.SIGINT)
                follower.communicate(timeout=PATIENCE)
                assert follower.returncode == 130
                assert again.stop() == 0
    assert program("info", log).record["root"] == program("info", "copy.db").record["root"]


@pytest.mark.integration
def test_following_stays_connected(program: Program, log: Path) -> None:
    program("init", "copy.db", "--topic", "notes")
    with Served(log) as served, following("copy.db", served.url) as follower:
        assert json.loads(follower.stdout.readline())["messages"] == 0
        program("append", log, "1")
        program("append", "copy.db", "2")
        deadline = time.monotonic() + PATIENCE
        while len(program("read", "copy.db").records) < 2 or len(program("read", log).records) < 2:
            assert time.monotonic() < deadline
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=PATIENCE)
        assert follower.returncode == 130
    assert program("info", log).record["root"] == program("info", "copy.db").record["root"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--hub", "8000"], "is no address"),
        (["--hub", "localhost:99999"], "--hub: 'localhost:99999' is no address: expected HOST:PORT, the port up to"),
        (["--certificate", "chain.pem"], "go together"),
        (["--allow-origin", "example.org"], "is no origin"),
        (["--connections", "0"], "a limit of 0 connections"),
        (["--connections-per-address", "0"], "a limit of 0 connections an address"),
        (["--trusted-proxy", "proxy.example.org"], "does not appear to be an IPv4 or IPv6 network"),
        (["--peer-bytes", "1000"], "expected 8388608 or more"),
        (["--metrics-host", "0.0.0.0"], "--metrics-host is for --metrics-port"),
        (["--metrics-port", "0", "--metrics-host", "A B"], "is no host"),
        (["--log-level", "loud"], "--log-level"),
        (["--listen", "127.0.0.1:9000"], '--listen: "127.0.0.1:9000" is no address'),
        (["--mdns", "--bootstrap", "12D3"], '--bootstrap: "12D3" is no address'),
        (["--mdns", "--announce", "/ip4/192.0.2.7"], "--announce: "),
        (["--mdns", "--allow-peer", "alice"], '--allow-peer: "alice" is no peer id'),
        (["--certificate", "none.pem", "--private-key", "none.key"], "--certificate, --private-key: none.pem"),
    ],
)
def test_wrong_options_are_refused(program: Program, log: Path, arguments: list[str], reason: str) -> None:
    result = program("serve", log, *arguments)
    assert result.code == 2
    assert reason in result.err


def test_options_for_hubs_are_refused_for_files(program: Program, log: Path) -> None:
    result = program("sync", "copy.db", log, "--follow")
    assert (result.code, "are for hubs" in result.err) == (2, True)


@pytest.mark.integration
def test_events_can_be_switched_off_and_the_log_says_when_it_began_and_ended(program: Program, log: Path) -> None:
    program("append", log, "1")
    with Served(log, "--no-events", "--log-level", "info") as served:
        program("sync", "copy.db", served.url, "--topic", "notes")
        served.process.send_signal(signal.SIGTERM)
        out, err = served.process.communicate(timeout=PATIENCE)
    assert out == b""
    lines = err.decode().splitlines()
    assert lines[0].endswith(f" INFO serving {log} at {served.url}")
    assert any(line.endswith(" INFO stopped by SIGTERM") for line in lines)


@pytest.mark.integration
def test_who_wrote_what_is_an_event(program: Program, log: Path) -> None:
    with Served(log) as served:
        program("init", "mine.db", "--topic", "notes")
        program("append", "mine.db", "1", "2")
        program("sync", "mine.db", served.url)
        committed = served.record("committed")
        (author,) = {record["author"] for record in program("read", log).records}
        (source,) = committed["peers"]
        assert (committed["messages"], committed["inserted"], committed["authors"]) == (2, 2, [author])
        assert (source["inserted"], source["peer"].startswith("127.0.0.1:")) == (2, True)


@pytest.mark.integration
def test_a_log_beside_other_tables_is_warned_about(program: Program, home: Path) -> None:
    with closing(sqlite3.connect(home / "app.db")) as connection:
        connection.execute("CREATE TABLE users (name)")
    with Served(home / "app.db", "--topic", "notes", "--log-format", "json") as served:
        served.process.send_signal(signal.SIGTERM)
        _, err = served.process.communicate(timeout=PATIENCE)
    (line,) = map(json.loads, err.decode().splitlines())
    assert line["level"] == "warning"
    assert "app.db was a database without a log, with the tables users: a log was made beside them" in line["message"]
    with Served(home / "app.db") as served:
        served.process.send_signal(signal.SIGTERM)
        assert served.process.communicate(timeout=PATIENCE)[1] == b""
