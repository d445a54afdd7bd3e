"""Hubs and clients that are killed, and a hub whose disk is full: what was acknowledged stays, and the rest comes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer, core
from gossiplog.log.log import replica_of
from tests.forked import Forked
from tests.integration import hub_process

pytestmark = pytest.mark.integration

TOPIC = "org.example.test"
COUNT = 30_000


def process(*arguments: object) -> Forked:
    """Start a hub or a client, which ends with the block."""
    return Forked(hub_process.main, *map(str, arguments))


def read_until(child: Forked, word: str) -> list[str]:
    """The words of the next line that begins with one of them."""
    for line in map(bytes.decode, child.stdout):
        if line.startswith(word):
            return line.split()
    raise AssertionError(f"the process ended without saying {word}: {child.stderr.read().decode()}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "full.db"
    with gossiplog.open(path, TOPIC, signer=Signer(bytes(32))) as log:
        log.append_many(range(COUNT))
    return path


@pytest.fixture
def full(made: Path, tmp_path: Path) -> Path:
    """A log of many messages: the test's own copy, since a hub or a client opens it."""
    return Path(shutil.copy(made, tmp_path))


def assert_equal(*paths: Path) -> None:
    roots = set()
    for path in paths:
        with gossiplog.open(path, TOPIC) as log:
            log.verify()
            roots.add(log.root)
    assert len(roots) == 1


def test_a_hub_that_is_killed_in_a_sync(full: Path, tmp_path: Path, port: int) -> None:
    path = tmp_path / "client.db"
    with process("client", path, f"ws://127.0.0.1:{port}") as client:
        with process("hub", full, port) as hub:
            read_until(hub, "listening")
            read_until(client, "progress")
            hub.kill()
        read_until(client, "failed")
        with process("hub", full, port) as hub:
            read_until(hub, "listening")
            _, count, megabytes = read_until(client, "synced")
    assert int(count) == COUNT
    assert int(megabytes) < 200
    assert_equal(full, path)


def test_a_client_that_is_killed_in_a_sync(full: Path, tmp_path: Path, port: int) -> None:
    path = tmp_path / "client.db"
    with process("hub", full, port) as hub:
        read_until(hub, "listening")
        with process("client", path, f"ws://127.0.0.1:{port}") as client:
            read_until(client, "progress")
            client.kill()
        with gossiplog.open(path, TOPIC) as log:
            kept = len(log)
        assert 0 < kept < COUNT
        with process("client", path, f"ws://127.0.0.1:{port}") as client:
            _, complete, inserted, *_ = read_until(client, "sync ")
            read_until(client, "synced")
        assert (complete, int(inserted)) == ("True", COUNT - kept)
    assert_equal(full, path)


def test_a_hub_whose_disk_is_full(full: Path, tmp_path: Path, port: int) -> None:
    path = tmp_path / "hub.db"
    with process("hub", path, port, 1_000_000) as hub:
        read_until(hub, "listening")
        with process("client", full, f"ws://127.0.0.1:{port}") as client:
            failed = " ".join(read_until(hub, "failed"))
            assert "the disk " in failed
            hub.stdin.write(b"\n")
            hub.stdin.flush()
            read_until(client, "synced")
    assert_equal(full, path)


def test_100_000_sibling_heads_in_one_leaf_span(tmp_path: Path, port: int) -> None:
    """All concurrent, and ground so that none is a boundary of the tree: an answer of more than 4 MiB, which no honest
    log leads to."""
    path, copy = tmp_path / "hub.db", tmp_path / "client.db"
    signer = Signer(bytes(32))
    signed = (signer.sign(TOPIC, 1, [], number) for number in range(104_000))
    ground = [value for key, value in signed if int.from_bytes(core.leaf_hash(key, value)[:4]) >= 2**32 // 32]
    with gossiplog.open(path, TOPIC) as log:
        # Not verified, as they were signed here. `insert_many` writes many transactions, each of which reads and hashes
        # the whole span again: minutes, for what this test is not about.
        outcome = replica_of(log).insert(replica_of(log).verify(ground, signed=True))
        assert len(outcome.inserted) >= 100_000
        root = log.root
    with process("hub", path, port) as hub:
        read_until(hub, "listening")
        with process("client", copy, f"ws://127.0.0.1:{port}") as client:
            _, count, megabytes = read_until(client, "synced")
        hub_megabytes = int(Path(f"/proc/{hub.pid}/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
    assert int(count) == len(ground)
    assert int(megabytes) < 400
    assert hub_megabytes < 400
    with gossiplog.open(copy, TOPIC) as log:
        log.verify()
        assert log.root == root
    with gossiplog.open(path, TOPIC) as log:
        # The hub has only read it: to verify it, too, takes four seconds.
        assert log.root == root
