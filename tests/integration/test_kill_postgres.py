"""`kill -9` of a hub, of writers and of the server's own processes: what was acknowledged is there, once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest

import gossiplog
from gossiplog import Log, Signer
from gossiplog.net import client as client_module
from tests.integration.hub_process import QUICK, TOPIC
from tests.net.support import until_longer
from tests.postgres import Server, own_server

pytestmark = [pytest.mark.integration, pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

KILLS = int(os.environ.get("KILLS", "4"))
"""`make kills KILLS=50` has more."""
_LATEST = 0.05


class Program:
    """A process that prints lines.

    Args:
        arguments: of the interpreter.

    Attributes:
        lines: that it has printed.
    """

    def __init__(self, *arguments: object) -> None:
        here = Path(__file__).parent
        script, *rest = map(str, arguments)
        paths = [str(here.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, str(here / script), *rest],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._has_ended = False
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.strip())
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for(self, count: int, kind: str = "") -> None:
        """Wait until it has printed so many lines, those that begin with "failed" left out."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.good) >= count or self._has_ended, 120)
            assert len(self.good) >= count, f"{kind} hangs, or has ended: {self.lines[-5:]}"

    def go_on(self) -> None:
        """Have a writer write for another turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    @property
    def good(self) -> list[str]:
        return [line for line in self.lines if not line.startswith("failed")]

    def kill(self) -> None:
        """Kill it, and take what it has printed before; a second call does nothing."""
        if self._process.returncode is not None:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with own_server(fsync="on", full_page_writes="on") as server:
        yield server


class Setting:
    """A hub and two writers on one log, in processes that are killed and started again.

    Attributes:
        acknowledged: ids of messages that a writer has printed as stored.
    """

    def __init__(self, server: Server, port: int) -> None:
        self._server = server
        self._url = server.url("killed")
        self._port = port
        self.acknowledged: list[str] = []
        with gossiplog.open(self._url, TOPIC):
            pass
        self._writers = [self._writer(number) for number in (1, 2)]
        self._hub = self._started_hub()

    def _writer(self, number: int) -> Program:
        return Program("postgres_writer.py", self._url, number)

    def _started_hub(self) -> Program:
        hub = Program("hub_process.py", "hub", self._url, self._port)
        hub.wait_for(1, "the hub")
        return hub

    def kill(self, what: str) -> None:
        if what == "hub":
            self._hub.kill()
            self._hub = self._started_hub()
        elif what == "writer":
            former = self._writers.pop(0)
            former.kill()
            self.acknowledged += former.good
            self._writers.append(self._writer(random.getrandbits(32) + 3))
        elif what == "backend":
            # All others of the server end with it, and what the disk has is read again.
            pids = self._server.backends()
            os.kill(random.choice(pids), 9)
        else:
            self._server.kill()
            self._server.start()

    def go_on(self) -> None:
        """Have the writers write, who otherwise stop after a turn."""
        for writer in self._writers:
            writer.go_on()

    def wait(self) -> None:
        """Wait until each of the writers has written again."""
        self.go_on()
        for writer in self._writers:
            writer.wait_for(len(writer.good) + 2, "a writer")

    def end_writers(self) -> None:
        for writer in self._writers:
            writer.kill()
            self.acknowledged += writer.good
        self._writers = []

    def end(self) -> None:
        self.end_writers()
        self._hub.kill()

    def log(self) -> Log:
        return gossiplog.open(self._url, TOPIC, read_only=True)


async def test_kills_lose_nothing_that_was_acknowledged(
    server: Server,
    port: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A hub that ends soon again and again is otherwise tried ever more rarely.
    monkeypatch.setattr(client_module, "_LONGEST_PAUSE", 0.5)
    choice = random.Random(KILLS)
    kinds = ["hub", "writer", "backend", "server"]
    setting = await anyio.to_thread.run_sync(Setting, server, port)
    own: list[str] = []
    killed: list[str] = []
    seconds = dict.fromkeys(kinds, 0.0)
    try:
        with gossiplog.open(tmp_path / "client.db", TOPIC, signer=Signer(bytes(32))) as log:
            async with gossiplog.connect(log, f"ws://127.0.0.1:{port}", broadcast=QUICK) as client:
                for number in range(KILLS):
                    own.append(log.append(["the client", number]).id)
                    setting.go_on()
                    await anyio.sleep(choice.uniform(0, _LATEST))
                    killed.append(kinds[number % len(kinds)])
                    began = time.monotonic()
                    await anyio.to_thread.run_sync(setting.kill, killed[-1])
                    # All go on by themselves: the writers write, and their messages reach the client by the hub.
                    await anyio.to_thread.run_sync(setting.wait)
                    with anyio.fail_after(120):
                        await until_longer(log, len(log))
                    seconds[killed[-1]] += time.monotonic() - began
                await anyio.to_thread.run_sync(setting.end_writers)
                with anyio.fail_after(120):
                    await client.synced()
            with setting.log() as stored:
                found = [message.id for message in stored]
                assert len(set(found)) == len(found)
                assert {*setting.acknowledged, *own} <= set(found)
                assert stored.root == log.root
                stored.verify()
    finally:
        await anyio.to_thread.run_sync(setting.end)
    with capsys.disabled():
        counts = ", ".join(f"{killed.count(kind)} {kind} ({seconds[kind]:.1f} s until all went on)" for kind in kinds)
        sys.stdout.write(f"\nkilled: {counts}; {len(setting.acknowledged)} acknowledged messages, none lost\n")
