"""Peers of a mesh that are killed and started again under load: what any of them appended is in all logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Log, Signer
from tests.forked import Forked
from tests.integration import mesh_process
from tests.integration.mesh_process import TOPIC

pytestmark = pytest.mark.integration

PATIENCE = 120.0
# That each appends before it is killed, while another is down, and after it came back.
LOAD = 15


class MeshProcess:
    """A peer that appends, over all its lives.

    Args:
        folder: of its log.
        listen: where, as a multiaddr.

    Attributes:
        address: of the life that runs, with the peer id.
    """

    def __init__(self, folder: Path, listen: str) -> None:
        folder.mkdir()
        self.address = ""
        self._folder = folder
        self._listen = listen
        self._process: Forked | None = None

    def start(self, *bootstrap: str) -> None:
        self._process = Forked(mesh_process.main, self._folder, self._listen, *bootstrap)
        self.address = self._hear()

    def kill(self) -> None:
        """Kills it at once, if it runs: SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop_appending(self) -> None:
        """Returns when what it appended last is acknowledged."""
        assert self._process is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        assert self._hear() == "stopped"

    def _hear(self) -> str:
        assert self._process is not None
        line = self._process.stdout.readline()
        assert line, f"the peer has ended: {self._process.stderr.read().decode()}"
        return line.decode().strip()

    @property
    def acknowledged(self) -> list[str]:
        """The ids of what it appended; of the last line, whole ones only."""
        path = self._folder / "acknowledged"
        text = path.read_text() if path.exists() else ""
        return text[: text.rfind("\n") + 1].split()

    def open(self) -> Log:
        return gossiplog.open(self._folder / "log.db", TOPIC, signer=Signer(bytes(32)))


@pytest.fixture
def peers(tmp_path: Path, port: int) -> Iterator[list[MeshProcess]]:
    """Three; the first is at an address that does not change, and the others know it."""
    made = [MeshProcess(tmp_path / f"peer-{n}", f"/ip4/127.0.0.1/tcp/{port if n == 0 else 0}/ws") for n in range(3)]
    with ExitStack() as stack:
        for peer in made:
            stack.callback(peer.kill)
        made[0].start()
        for peer in made[1:]:
            peer.start(made[0].address)
        yield made


def wait(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.05)


def wait_for_load(*peers: MeshProcess) -> None:
    wanted = [len(peer.acknowledged) + LOAD for peer in peers]
    wait(
        lambda: all(len(peer.acknowledged) >= count for peer, count in zip(peers, wanted, strict=True)),
        f"{LOAD} appends of each",
    )


def are_in_all(ids: Iterable[str], logs: Sequence[Log]) -> bool:
    return all(id in log for id in ids for log in logs)


def test_peers_that_are_killed_and_started_again_under_load(peers: list[MeshProcess]) -> None:
    first, second, third = peers
    with ExitStack() as stack:
        logs = [stack.enter_context(peer.open()) for peer in peers]
        # All write behind what others wrote.
        wait(lambda: all(len({message.author for message in log}) == 3 for log in logs), "messages of all in all logs")
        for victim, others, known in ((second, (first, third), (first.address,)), (first, (second, third), ())):
            wait_for_load(victim)
            victim.kill()
            wait_for_load(*others)
            victim.start(*known)
            wait_for_load(*peers)
        for peer in peers:
            peer.stop_appending()
        wait(lambda: len({log.root for log in logs}) == 1, "one root")
        appended = {id for peer in peers for id in peer.acknowledged}
        assert are_in_all(appended, logs)
        for log in logs:
            log.verify()
        # And they are peers as before.
        for log in logs:
            message = log.append("afterwards")
            wait(partial(are_in_all, [message.id], logs), "what was appended then")
