import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import anyio
import pytest
import todo

import gossiplog

HERE = Path(__file__).parent
pytestmark = pytest.mark.anyio
Process = subprocess.Popen[str]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@contextmanager
def program(*command: str, folder: Path) -> Generator[Process]:
    with subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, cwd=folder, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


class Server:
    """The server in a process of its own, on one port and one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.hub = f"ws://{self.address}/log/"

    @contextmanager
    def running(self) -> Generator[Process]:
        port = self.address.rpartition(":")[2]
        command = ("-m", "uvicorn", "server:app", "--app-dir", str(HERE), "--port", port)
        with program(*command, "--timeout-graceful-shutdown", "1", folder=self.folder) as process:
            until(self.answers)
            yield process

    def answers(self) -> bool:
        try:
            self.items()
        except URLError:
            return False
        return True

    def items(self) -> list[dict[str, str | None]]:
        with urlopen(f"http://{self.address}/items", timeout=10) as answer:
            items: list[dict[str, str | None]] = json.load(answer)
        return items

    def post(self, path: str, **query: str) -> str:
        with urlopen(Request(f"http://{self.address}{path}?{urlencode(query)}", method="POST"), timeout=10) as answer:
            id: str = json.load(answer)
        return id


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "server").mkdir()
    return Server(tmp_path / "server")


def client(name: str, server: Server, folder: Path) -> AbstractContextManager[Process]:
    return program(str(HERE / "client.py"), name, server.hub, folder=folder)


def say(process: Process, line: str) -> None:
    assert process.stdin
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def texts(folder: Path, name: str) -> set[tuple[str, bool]]:
    path = folder / f"{name}.db"
    try:
        items = todo.items(str(path)) if path.exists() else []
    except sqlite3.OperationalError:  # it is being made
        items = []
    return {(item["text"], item["done_by"] is not None) for item in items}


def root(path: Path) -> gossiplog.Node:
    with gossiplog.open(str(path), read_only=True) as log:
        return log.root


def test_two_clients_and_a_server_that_is_killed(server: Server, tmp_path: Path) -> None:
    with client("ada", server, tmp_path) as ada, client("ben", server, tmp_path) as ben:
        say(ada, "add milk")  # before there is a server
        until(lambda: texts(tmp_path, "ada") == {("milk", False)})
        with server.running() as process:
            server.post("/items", text="bread", by="web")
            until(lambda: texts(tmp_path, "ben") == {("milk", False), ("bread", False)})
            process.send_signal(signal.SIGKILL)
            process.wait()
        say(ada, "done bread")  # both while it is away, and apart
        say(ben, "done bread")
        say(ben, "add eggs")
        all_three = {("milk", False), ("bread", True), ("eggs", False)}
        until(lambda: texts(tmp_path, "ben") == all_three)
        with server.running():
            until(lambda: texts(tmp_path, "ada") == all_three)
            until(lambda: texts(server.folder, "server") == all_three)
            paths = [tmp_path / "ada.db", tmp_path / "ben.db", server.folder / "server.db"]
            until(lambda: len({root(path) for path in paths}) == 1)
            assert server.items() == todo.items(str(paths[0])) == todo.items(str(paths[1]))


def test_wrong_requests(server: Server) -> None:
    with server.running():
        with pytest.raises(HTTPError, match="422"):
            server.post("/items", text="", by="web")
        with pytest.raises(HTTPError, match="404"):
            server.post("/items/nothing/done", by="web")
        assert server.items() == []


def test_changes(server: Server) -> None:
    with server.running():
        item = server.post("/items", text="milk", by="web")
        server.post(f"/items/{item}/done", by="web")
        with urlopen(Request(f"http://{server.address}/changes", headers={"Last-Event-ID": "1"}), timeout=10) as stream:
            name, _, data = next(stream).decode().partition(": ")
            assert name == "data"
            [change] = json.loads(data)
            assert change["item"] == item


async def test_wrong_payloads(server: Server, tmp_path: Path) -> None:
    async with todo.open_log(str(tmp_path / "ada.db")) as log:
        with pytest.raises(gossiplog.RefusedMessage):
            await log.append({"txet": "milk"})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with server.running():
        async with gossiplog.open_async(":memory:", "org.example.todo") as stranger:
            await stranger.append({"txet": "milk"}, signer=gossiplog.Signer.generate())
            async with gossiplog.connect(stranger, server.hub) as connection:
                with anyio.fail_after(10), pytest.raises(gossiplog.RefusedByPeer):
                    await connection.synced()
        assert server.items() == []
