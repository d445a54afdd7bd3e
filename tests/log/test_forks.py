"""Authors that forked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import core
from gossiplog.core import SignedMessage
from gossiplog.log import Log, forks
from tests.strategies import TOPIC, repeatable

SIGNERS = [gossiplog.Signer(bytes([number]) * 32) for number in range(3)]
ADA, BEN, _ = SIGNERS


def alternative(message: SignedMessage, junk: int) -> bytes:
    """Another encoding: the payload's map gets a key that JavaScript drops."""
    payload = core.cbor_encode(message.payload)
    entry = core.cbor_encode("__proto__") + core.cbor_encode(junk)
    return message.value.removesuffix(payload) + bytes([payload[0] + 1]) + entry + payload[1:]


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Stored values, each after its parents, some of them in several encodings."""
    ids: list[tuple[str, int]] = []
    values: list[bytes] = []
    for number in range(draw(st.integers(1, 14))):
        # Mostly the latest, as in a log.
        chosen = draw(st.lists(st.integers(1, 4), max_size=3, unique=True))
        parents = sorted({ids[-back] for back in chosen if back <= len(ids)})
        clock = 1 + max((clock for _, clock in parents), default=0)
        signer = draw(st.sampled_from(SIGNERS))
        _, value = signer.sign(TOPIC, clock, [id for id, _ in parents], {"n": number})
        found = core.read_message(value, TOPIC)
        encodings = [value]
        if draw(st.integers(0, 5)) == 0:
            encodings = draw(st.permutations([value, alternative(found, 0)]))
        for each in encodings:
            read = core.read_message(each, TOPIC)
            ids.append((read.id, clock))
            values.append(each)
    return values


def forked(values: list[bytes]) -> set[str]:
    """Authors of two concurrent messages, by the definition: another encoding is the same message."""
    messages = [core.read_message(value, TOPIC) for value in values]
    content = {message.id: message.content_id for message in messages}
    past: dict[str, set[str]] = {}
    for message in messages:
        own = {content[parent] for parent in message.parents}
        past[message.content_id] = own.union(*(past[parent] for parent in own))
    authors = {message.content_id: message.author for message in messages}
    return {
        authors[one]
        for one in authors
        for other in authors
        if one < other and authors[one] == authors[other] and one not in past[other] and other not in past[one]
    }


@pytest.mark.parametrize(("window", "steps"), [(forks._WINDOW, forks._MOST_STEPS), (1, 1000), (2**16, 0)])
@repeatable(60)
@given(values=histories())
def test_who_forked_is_what_the_definition_says(window: int, steps: int, values: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch, gossiplog.open(gossiplog.MemoryStorage(), TOPIC) as log:
        patch.setattr(forks, "_WINDOW", window)
        patch.setattr(forks, "_MOST_STEPS", steps)
        for value in values:
            log.insert(value)
        found = log.verify().forks
    assert {fork.author for fork in found} == forked(values)
    assert [fork.author for fork in found] == sorted({fork.author for fork in found})
    assert all(fork.messages >= 1 for fork in found)


def test_a_restored_backup_that_goes_on(tmp_path: Path, opened: Callable[..., Log]) -> None:
    log = opened(tmp_path / "log.db", signer=ADA)
    log.append_many([1, 2])
    log.backup(tmp_path / "backup.db")
    lost = log.append(3)
    restored = opened(tmp_path / "backup.db", signer=ADA)
    again = restored.append("3 again")
    log.append(4, signer=BEN)
    assert (log.verify().forks, restored.verify().forks) == ((), ())
    log.pull(restored)
    (fork,) = log.verify().forks
    assert (fork.author, fork.messages, fork.first) == (ADA.did, 1, (lost.id, again.id))
    restored.pull(log)
    (fork,) = restored.verify().forks
    assert (fork.author, fork.messages, fork.first) == (ADA.did, 1, (again.id, lost.id))
    # What follows both makes no other.
    log.append(5)
    assert log.verify().forks[0].messages == 1


def test_another_encoding_is_no_fork(opened: Callable[..., Log]) -> None:
    log = opened(signer=ADA)
    message = log.append({"n": 1})
    log.insert_many([alternative(message, junk) for junk in range(3)])
    log.append({"n": 2})
    assert log.verify().forks == ()


def test_a_chain_takes_no_search(opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a log whose authors write after each other."""

    def search(*_: object) -> bool:
        raise AssertionError("searched")

    monkeypatch.setattr(forks.Forks, "_follows", search)
    log = opened()
    for number in range(60):
        log.append(number, signer=SIGNERS[number * number % 3])
    assert log.verify().forks == ()


def test_the_command_names_authors_that_forked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossiplog.cli.main import main

    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC) as log:
        log.insert_many([ADA.sign(TOPIC, 1, [], number)[1] for number in range(3)])
        log.append(0, signer=BEN)
    assert main(["verify", str(path)]) == 0
    record: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    assert [(fork["author"], fork["messages"]) for fork in record["forks"]] == [(ADA.did, 2)]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["verify", str(path)]) == 0
    assert "2 messages do not follow the one before" in " ".join(capsys.readouterr().out.split())
