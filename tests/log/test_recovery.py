from __future__ import annotations

import errno
import os
import random
import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import MemoryStorage, Signer, core
from gossiplog.errors import (
    CorruptLog,
    GossipLogError,
    InvalidMessage,
    MissingParents,
    NewerSchema,
    NotALog,
    StorageError,
)
from gossiplog.log import insertion
from gossiplog.log.repair import repair_file as repair
from gossiplog.log.replica import Replica
from gossiplog.log.results import RecoverResult
from gossiplog.message import stored_value
from gossiplog.replication.batches import VerifiedBatch
from tests.storage.damage import damage
from tests.strategies import repeatable

TOPIC = "org.example.test"
SEEDS = [1, 2, 3, 14, 21, 22, 23]
SHAPES = {"chain": (1, 800), "branches": (8, 100)}
# Still several pages a table. What damages many files costs time for each message.
SHORT = {"short chain": (1, 300), "short branches": (6, 50)}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Logs of 800 messages: one chain, and eight; and of 300."""
    paths = {}
    for name, (chains, length) in (SHAPES | SHORT).items():
        folder = tmp_path_factory.mktemp(name)
        paths[name] = folder / "log.db"
        with gossiplog.open(paths[name], TOPIC) as log:
            for number in range(chains):
                with gossiplog.open(":memory:", TOPIC, signer=Signer(bytes([number]) * 32)) as branch:
                    branch.append_many(range(length))
                    log.insert_many(branch.messages())
    return paths


def flip(path: Path, seed: int) -> None:
    """Overwrites 30 to 100 bytes."""
    source = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(source.randint(30, 100)):
        data[source.randrange(len(data))] = source.randrange(256)
    path.write_bytes(data)


def left(intact: Path, damaged: Path) -> tuple[set[str], set[str]]:
    """The ids of messages whose cells are in a damaged file, with all their ancestors'; and whose values are."""
    former, data = intact.read_bytes(), damaged.read_bytes()
    with closing(sqlite3.connect(intact)) as connection:
        rows = connection.execute("SELECT value, seq, length(links) FROM gossiplog_messages").fetchall()
    cells = {}
    for value, sequence, links in rows:
        # https://sqlite.org/fileformat2.html, "Record Format": the sizes of the record's header and of its types.
        header = 2 + size_of(12 + 2 * links) + size_of(12 + 2 * len(value))
        payload = header + links + len(value)
        start = former.index(value) + len(value) - payload - size_of(sequence) - size_of(payload)
        cells[value] = slice(start, start + size_of(payload) + size_of(sequence) + payload)
    whole: set[str] = set()
    there: set[str] = set()
    with gossiplog.open(intact, read_only=True) as log:
        for message in log.messages():
            value = stored_value(message)
            if data[cells[value]] == former[cells[value]] and whole.issuperset(message.parents):
                whole.add(message.id)
            if value in data and there.issuperset(message.parents):
                there.add(message.id)
    return whole, there


def size_of(number: int) -> int:
    """The bytes of a variable-length integer."""
    return max((number.bit_length() + 6) // 7, 1)


def check_new(intact: Path, new: Path) -> set[str]:
    """Checks that a log is sound, and a subset of another that is closed under parents; returns the ids."""
    with gossiplog.open(intact, read_only=True) as log, gossiplog.open(new, read_only=True) as recovered:
        parents = {message.id: message.parents for message in log.messages()}
        ids = {message.id for message in recovered.messages()}
        assert recovered.verify().messages == len(ids)
        assert all(ids.issuperset(parents[id]) for id in ids)
    return ids


def counts(result: RecoverResult) -> SimpleNamespace:
    descendants = sum(isinstance(error, MissingParents) for _, error in result.refused)
    return SimpleNamespace(damaged=len(result.refused) - descendants, descendants=descendants)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_random_bytes(intact: Mapping[str, Path], tmp_path: Path, shape: str, seed: int) -> None:
    path, new = Path(shutil.copy(intact[shape], tmp_path)), tmp_path / "new.db"
    flip(path, seed)
    before = path.read_bytes()
    result = gossiplog.recover(path, new, accept_loss=True)
    assert path.read_bytes() == before
    ids = check_new(intact[shape], new)
    assert 0 < result.inserted == len(ids)
    least, most = left(intact[shape], path)
    assert least <= ids <= most
    found = counts(result)
    assert found.damaged > 0
    assert result.inserted + found.damaged + found.descendants + result.lost == 800
    sequences = [sequence for sequence, _ in result.refused]
    assert sequences == sorted(set(sequences))


@pytest.mark.parametrize("table", ["gossiplog_meta", "gossiplog_messages", "gossiplog_leaves"])
def test_a_damaged_root_page(intact: Mapping[str, Path], tmp_path: Path, table: str) -> None:
    path, new = Path(shutil.copy(intact["branches"], tmp_path)), tmp_path / "new.db"
    damage(path, table)
    assert gossiplog.recover(path, new).inserted == 800
    assert len(check_new(intact["branches"], new)) == 800


@pytest.mark.parametrize("length", [100, 1000, 4000])
def test_a_damaged_schema(intact: Mapping[str, Path], tmp_path: Path, length: int) -> None:
    path, new = Path(shutil.copy(intact["chain"], tmp_path)), tmp_path / "new.db"
    with path.open("r+b") as file:
        file.write(b"\xff" * length)
    assert gossiplog.recover(path, new).inserted == 800


@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_file_that_was_cut_off(intact: Mapping[str, Path], tmp_path: Path, part: float) -> None:
    path, new = Path(shutil.copy(intact["chain"], tmp_path)), tmp_path / "new.db"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    result = gossiplog.recover(path, new, accept_loss=True)
    ids = check_new(intact["chain"], new)
    assert (ids, ids) == left(intact["chain"], path)
    assert result.inserted == len(ids) > 100


def draw_damage(content: bytes, data: st.DataObject) -> bytes:
    """Return the content of a file with pieces overwritten, and perhaps cut off."""
    damaged = bytearray(content)
    page = st.integers(0, 3) | st.integers(0, len(damaged) // 4096 - 1)
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(page) * 4096 + data.draw(st.integers(0, 110) | st.integers(0, 4095))
        piece = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([bytes(4096), b"\xff" * 512]))
        damaged[at : at + len(piece)] = piece
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    return bytes(damaged)


@pytest.mark.integration
@repeatable(30)
@given(data=st.data())
def test_whatever_is_damaged(
    intact: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A typed error without a new log, or a sound one."""
    shape = data.draw(st.sampled_from([*SHORT]))
    content = draw_damage(intact[shape].read_bytes(), data)
    folder = tmp_path_factory.mktemp("any")
    path, new = folder / "log.db", folder / "new.db"
    path.write_bytes(content)
    try:
        result = gossiplog.recover(path, new, accept_loss=True)
    except GossipLogError:
        assert not new.exists()
    else:
        ids = check_new(intact[shape], new)
        assert len(ids) == result.inserted
        # A cell that is whole may be in a page whose list of cells is damaged.
        assert ids <= left(intact[shape], path)[1]
    assert path.read_bytes() == content
    shutil.rmtree(folder)


@pytest.mark.integration
@repeatable(30)
@given(data=st.data())
def test_what_is_said_to_be_left_is_left(
    intact: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Issue 19: 69 messages were said to be lost, and 928 were, or all."""
    shape = data.draw(st.sampled_from([*SHORT]))
    folder = tmp_path_factory.mktemp("any")
    path, new = folder / "log.db", folder / "new.db"
    path.write_bytes(draw_damage(intact[shape].read_bytes(), data))
    if data.draw(st.booleans()):
        shutil.copyfile(f"{intact[shape]}-count", f"{path}-count")
    advices: list[str] = []
    # What each says before it is asked to go on.
    for attempt in (lambda: repair(path), lambda: gossiplog.recover(path, folder / "tried.db")):
        try:
            attempt()
        except CorruptLog as error:
            advices.append(error.advice)
        except NotALog:
            break
    number = re.compile(r"(?:with|of) (\d+) (?:of the 300 acknowledged )?messages?|no log can (be) made")
    found = [number.search(advice) for advice in advices]
    assert None not in found, advices
    said = {int(match[1] or 0) for match in found if match is not None}
    for go_on in (
        lambda: gossiplog.recover(path, new, accept_loss=True).inserted,
        lambda: repair(path, accept_loss=True).messages,
    ):
        try:
            result = go_on()
        except (CorruptLog, NotALog):
            continue
        assert said <= {result}
    shutil.rmtree(folder)


def test_what_a_message_lost_is_named(intact: Mapping[str, Path], tmp_path: Path) -> None:
    path = Path(shutil.copy(intact["branches"], tmp_path))
    with closing(sqlite3.connect(path)) as connection, connection:
        ids = [core.encode_id(key) for (key,) in connection.execute("SELECT key FROM gossiplog_leaves ORDER BY seq")]
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 50")
        connection.execute("DELETE FROM gossiplog_messages WHERE seq IN (150, 250)")
        connection.execute("DELETE FROM gossiplog_leaves WHERE seq = 250")
    result = gossiplog.recover(path, tmp_path / "new.db")
    assert counts(result) == SimpleNamespace(damaged=3, descendants=150)
    damaged = {sequence: error for sequence, error in result.refused if isinstance(error, InvalidMessage)}
    assert {sequence: error.id for sequence, error in damaged.items()} == {50: ids[49], 150: ids[149], 250: None}
    assert damaged[150].reason == "it is lost, but for its id"
    assert damaged[250].reason == "it is lost, with its id"


def test_a_recovery_that_stops_says_how_far_it_came(
    intact: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    insert = Replica.insert

    def fill(replica: Replica, batch: VerifiedBatch) -> object:
        written.append(batch)
        if len(written) > 3:
            raise StorageError("cannot write: the disk is full")
        return insert(replica, batch)

    monkeypatch.setattr(insertion, "_CHUNK", 100)
    monkeypatch.setattr(Replica, "insert", fill)
    path, new = intact["chain"], tmp_path / "new.db"
    said = r"the disk is full; \d+ messages of .*log.db had been recovered, and .*new.db was not made"
    with pytest.raises(StorageError, match=said):
        gossiplog.recover(path, new)
    # What it left looked like a whole log.
    assert [*tmp_path.iterdir()] == []
    written.clear()
    with gossiplog.open(new, TOPIC):
        pass
    with pytest.raises(StorageError, match=r"the disk is full; .*new.db holds \d+ messages of .*log.db"):
        gossiplog.recover(path, new)
    monkeypatch.undo()
    assert len(check_new(path, new)) > 0
    assert gossiplog.recover(path, new).duplicates > 0


def test_the_new_log_gets_its_name_when_it_is_complete(
    intact: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery that was killed left a log of some of the messages, of which `verify` found nothing wrong."""
    new, seen = tmp_path / "new.db", []
    insert = Replica.insert

    def look(replica: Replica, batch: VerifiedBatch) -> object:
        seen.append(new.exists())
        return insert(replica, batch)

    monkeypatch.setattr(Replica, "insert", look)
    assert gossiplog.recover(intact["chain"], new).inserted == 800
    assert set(seen) == {False}
    assert {file.name for file in tmp_path.iterdir()} == {"new.db", "new.db-count"}
    with gossiplog.open(new) as log:
        assert log.verify().messages == 800


@pytest.mark.parametrize("can_link", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_file_is_replaced_and_what_another_program_writes_meanwhile_is_not(
    intact: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool, is_there: bool
) -> None:
    """What had been written to an empty file was gone without an error."""
    new, other = tmp_path / "new.db", tmp_path / "other.db"
    if is_there:
        new.touch()
        other.touch()
    if not can_link:

        def link(source: object, target: str, *, dst_dir_fd: int) -> None:
            if target in os.listdir(dst_dir_fd):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            raise PermissionError("no links here")

        monkeypatch.setattr(os, "link", link)
    assert gossiplog.recover(intact["chain"], new).inserted == 800
    insert = Replica.insert

    def appear(replica: Replica, batch: VerifiedBatch) -> object:
        other.write_bytes(b"another program's")
        return insert(replica, batch)

    monkeypatch.setattr(Replica, "insert", appear)
    with pytest.raises(StorageError, match=r"cannot make .*other.db: File exists; repeat"):
        gossiplog.recover(intact["chain"], other)
    assert other.read_bytes() == b"another program's"


def test_what_is_left_of_another_log_is_not_taken_up(intact: Mapping[str, Path], tmp_path: Path) -> None:
    """SQLite would read the write-ahead log as the new log's, or delete it."""
    wal = tmp_path / "new.db-wal"
    wal.write_bytes(bytes(5000))
    with pytest.raises(CorruptLog, match=r"new.db is gone, and .*new.db-wal has what was written last"):
        gossiplog.recover(intact["chain"], tmp_path / "new.db")
    assert wal.read_bytes() == bytes(5000)


def test_a_log_of_a_newer_version(intact: Mapping[str, Path], tmp_path: Path) -> None:
    """The number alone may be damaged; without what this version says of a log, it is another's."""
    path, new = Path(shutil.copy(intact["chain"], tmp_path)), tmp_path / "new.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 99 WHERE name = 'schema'")
    assert gossiplog.recover(path, tmp_path / "number.db").inserted == 800
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_meta WHERE name = 'identity'")
    with pytest.raises(NewerSchema, match=re.escape(f"{path} was written by a newer version")):
        gossiplog.recover(path, new)
    assert not new.exists()


def test_what_is_not_there_or_cannot_be_written(intact: Mapping[str, Path], tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="there is no log"):
        gossiplog.recover(tmp_path / "no.db", tmp_path / "new.db")
    with pytest.raises(
        StorageError, match=r"a folder for the recovery beside .*: there is no folder .*/no; make it, or name"
    ):
        gossiplog.recover(intact["chain"], tmp_path / "no" / "new.db")
    assert gossiplog.recover(intact["chain"], MemoryStorage()).inserted == 800
    assert [*tmp_path.iterdir()] == []
