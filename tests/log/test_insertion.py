from __future__ import annotations

import errno
import io
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gossiplog import InvalidMessage, Log, MissingParents, RefusedMessage, Signer, StorageError, core
from gossiplog.log import insertion


@pytest.fixture
def source(opened: Callable[..., Log], signer: Signer) -> Log:
    return opened(signer=signer)


def damaged(value: bytes, signer: Signer) -> bytes:
    """The value with another signature."""
    signature = core.read_message(value, "org.example.test").signature
    return value.replace(signature, bytes([signature[0] ^ 1]) + signature[1:])


def test_one_message(log: Log, source: Log) -> None:
    message = source.append(1)
    assert log.insert(message)
    assert not log.insert(message.value)
    assert log.root == source.root


def test_one_message_that_is_refused(log: Log, source: Log, signer: Signer) -> None:
    first, second = source.append_many([1, 2])
    with pytest.raises(MissingParents) as missing:
        log.insert(second)
    assert missing.value.parents == (first.id,)
    with pytest.raises(InvalidMessage):
        log.insert(b"nonsense")
    with pytest.raises(InvalidMessage):
        log.insert(damaged(first.value, signer))
    _, elsewhere = signer.sign("another.topic", 1, [], 1)
    with pytest.raises(InvalidMessage, match="topic"):
        log.insert(elsewhere)
    with pytest.raises(TypeError):
        log.insert("text")  # type: ignore[arg-type]
    assert len(log) == 0


def test_what_is_refused_keeps_no_frames(opened: Callable[..., Log], source: Log) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("no") from KeyError("for a reason")

    messages = source.append_many(range(3))
    for log in (opened(payload=refuse), opened(apply=refuse)):
        (_, refused), *_ = log.insert_many(messages).refused
        assert isinstance(refused.__cause__, ValueError)
        (note,) = refused.__cause__.__notes__
        assert "in refuse" in note
        assert "gossiplog/log/" not in note
        for error in (refused, refused.__cause__, refused.__cause__.__cause__):
            assert error is not None
            assert error.__traceback__ is None


def test_many_with_bad_ones_among_them(log: Log, source: Log, signer: Signer) -> None:
    messages = source.append_many(range(10))
    _, stray = signer.sign("org.example.test", 2, [core.encode_id(core.encode_clock(1) + bytes(19))], "stray")
    values = [message.value for message in messages]
    given = [values[0], b"", values[0], *values[1:6], damaged(values[6], signer), stray, *values[7:]]
    result = log.insert_many(given)
    assert (result.inserted, result.duplicates) == (6, 1)
    kinds = {index: type(error) for index, error in result.refused}
    assert kinds == {
        1: InvalidMessage,
        8: InvalidMessage,
        9: MissingParents,
        10: MissingParents,
        11: MissingParents,
        12: MissingParents,
    }
    assert log.insert_many(values).inserted == 4
    assert log.root == source.root


def test_any_iterable_and_no_messages(log: Log, source: Log) -> None:
    messages = source.append_many(range(5))
    assert log.insert_many(iter([])).inserted == 0
    assert log.insert_many(message for message in messages).inserted == 5
    assert log.insert_many([]).refused == ()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of 16, which do not grow."""
    monkeypatch.setattr(insertion, "_CHUNK", 16)
    monkeypatch.setattr(insertion, "_MOST_CHUNK", 16)
    monkeypatch.setattr(insertion, "_LEAST_CHUNK", 16)
    return


@pytest.mark.usefixtures("small_chunks")
def test_chunks(log: Log, source: Log, signer: Signer) -> None:
    values = [message.value for message in source.append_many(range(100))]
    result = log.insert_many([*values, *values[:50], b"nonsense", damaged(values[0], signer)])
    assert (result.inserted, result.duplicates) == (100, 50)
    assert [index for index, _ in result.refused] == [150, 151]
    assert log.root == source.root


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(3))
def test_the_order_within_one_call_does_not_matter(log: Log, source: Log, seed: int) -> None:
    values = [message.value for message in source.append_many(range(100))]
    random.Random(seed).shuffle(values)
    assert log.insert_many(values).inserted == 100
    assert (log.root, log.heads) == (source.root, source.heads)
    log.verify()


@pytest.mark.usefixtures("small_chunks")
def test_messages_that_wait_for_parents_are_kept_in_a_file(
    log: Log, source: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []

    class File(tempfile.SpooledTemporaryFile[bytes]):
        def rollover(self) -> None:
            super().rollover()
            files.append(self)

    monkeypatch.setattr(insertion, "_ORPHAN_BYTES", 10_000)
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", File)
    messages = source.append_many([f"{number} {'x' * 200}" for number in range(200)])
    alone = log.insert_many(reversed(messages[1:]))
    assert [type(error) for _, error in alone.refused] == [MissingParents] * 199
    whole = log.insert_many(reversed(messages))
    assert (whole.inserted, whole.duplicates, whole.refused) == (200, 0, ())
    assert log.root == source.root
    assert [file.closed for file in files] == [True, True]


@pytest.mark.usefixtures("small_chunks")
def test_a_full_temporary_folder_is_named(log: Log, source: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(tempfile.SpooledTemporaryFile[bytes]):
        def rollover(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(insertion, "_ORPHAN_BYTES", 1)
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", Full)
    with pytest.raises(StorageError, match="No space left on device; name another folder in TMPDIR"):
        log.insert_many(reversed(source.append_many(range(100))))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("buffer", [100, 2**20], ids=["while values are written", "when they are read"])
def test_a_temporary_folder_that_gets_full_is_named(
    log: Log, source: Log, monkeypatch: pytest.MonkeyPatch, buffer: int
) -> None:
    class Full(io.BytesIO):
        """As the file on a full disk: its buffer is written again when it is closed."""

        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda size: io.BufferedRandom(Full(), buffer))
    with pytest.raises(StorageError, match="No space left on device; name another folder in TMPDIR"):
        log.insert_many(reversed(source.append_many(range(100))))


@pytest.mark.usefixtures("small_chunks")
def test_what_has_no_parents_in_the_end_is_named(log: Log, source: Log) -> None:
    messages = source.append_many(range(60))
    given = [*messages[40:], *messages[:20]]
    result = log.insert_many(given)
    assert result.inserted == 20
    assert [index for index, _ in result.refused] == list(range(20))
    assert all(isinstance(error, MissingParents) for _, error in result.refused)
    assert log.insert_many(messages).inserted == 40


@pytest.mark.usefixtures("small_chunks")
def test_an_iterable_that_raises_leaves_what_came_before(log: Log, source: Log) -> None:
    values = [message.value for message in source.append_many(range(64))]

    def failing() -> Iterator[bytes]:
        yield from values
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.insert_many(failing())
    assert 0 < len(log) <= 64
    log.verify()
    assert log.insert_many(values).inserted + len(values) - 64 >= 0
    assert log.root == source.root


def test_a_duplicate_costs_no_payload_check(opened: Callable[..., Log], source: Log) -> None:
    checked: list[object] = []
    log = opened(payload=checked.append)
    messages = source.append_many(range(3))
    log.insert_many(messages)
    log.insert_many(messages)
    assert checked == [0, 1, 2]


def test_a_value_that_is_refused_twice_is_named_twice(opened: Callable[..., Log], source: Log) -> None:
    def refuse(payload: object) -> None:
        raise ValueError("no")

    log = opened(payload=refuse)
    message = source.append(1)
    result = log.insert_many([message, message])
    assert result.inserted == 0
    assert isinstance(result.refused[0][1], RefusedMessage)
    assert result.duplicates + len(result.refused) == 2


def test_errors_with_many_parents_take_the_room_of_several(log: Log, signer: Signer) -> None:
    parents = [core.encode_id(core.encode_clock(1) + number.to_bytes(19, "big")) for number in range(100)]
    orphans = [signer.sign(log.topic, 2, parents, number)[1] for number in range(5)]
    assert len(log.insert_many(orphans).refused) == 5
    result = log.insert_many(orphans, max_refused=10)
    assert (len(result.refused), result.more_refused) == (2, 3)
    # One is returned however long it is.
    result = log.insert_many(orphans, max_refused=1)
    assert (len(result.refused), result.more_refused) == (1, 4)


@pytest.mark.parametrize(("number", "kind"), [(1.5, TypeError), ("1", TypeError), (True, TypeError), (-1, ValueError)])
def test_absurd_numbers_of_errors_are_refused_before_anything_is_stored(
    log: Log, signer: Signer, number: Any, kind: type[Exception]
) -> None:
    sound = signer.sign(log.topic, 1, [], "sound")[1]
    with pytest.raises(kind, match=f"a max_refused of {number!r}: expected"):
        log.insert_many([sound, b"wrong"], max_refused=number)
    assert len(log) == 0
