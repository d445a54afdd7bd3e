from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gossiplog import EncodeError, Log, RefusedMessage, Signer, StorageError
from gossiplog.log import writing
from gossiplog.log.appending import AppendRequest, Wanted
from gossiplog.message import MAX_VALUE_LENGTH, SignedMessage


def transactions(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each transaction adds, from now on."""
    found: list[int] = []
    publish = writing.Writer._publish

    def noted(writer: writing.Writer, written: Any) -> None:
        if written.plan.order:
            found.append(len(written.plan.order))
        publish(writer, written)

    monkeypatch.setattr(writing.Writer, "_publish", noted)
    return found


def append_each(log: Log, wanted: Iterable[Wanted]) -> list[list[SignedMessage] | BaseException]:
    """Append what several callers want; return what each gets or is to raise."""
    requests = [AppendRequest(each) for each in wanted]
    while left := [request for request in requests if not request.has_ended]:
        log._append_some(left)
    return [request.messages if request.error is None else request.error for request in requests]


def payloads(result: Any) -> list[Any]:
    return [message.payload for message in result]


def test_what_several_callers_append_is_one_chain_in_one_transaction(
    log: Log, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = transactions(log, monkeypatch)
    wanted: list[Wanted] = [
        (["a"], None, "dag-cbor"),
        (["b", "c"], None, "dag-cbor"),
        (["d"], other_signer, "dag-cbor"),
        ([], None, "dag-cbor"),
        (["e"], None, "dag-json"),
    ]
    results = append_each(log, wanted)
    assert [payloads(each) for each in results] == [["a"], ["b", "c"], ["d"], [], ["e"]]
    messages = [message for each in results if isinstance(each, list) for message in each]
    assert [message.parents for message in messages] == [(), *((message.id,) for message in messages[:-1])]
    assert [message.author for message in messages] == [*[signer.did] * 3, other_signer.did, signer.did]
    assert found == [5]
    assert [message.id for message in log] == [message.id for message in messages]
    assert log.verify().messages == 5


def test_the_next_append_follows_the_last_signer(log: Log, other_signer: Signer) -> None:
    """Where there are many heads, a writer names its own last message: the last of the chain."""
    append_each(log, [(["a"], None, "dag-cbor"), (["b"], other_signer, "dag-cbor")])
    assert log._writer._own is not None
    assert log._writer._own[0] == other_signer.did
    assert log.append("c").clock == 3


def test_what_cannot_be_encoded_is_refused_to_its_caller_alone(log: Log) -> None:
    results = append_each(log, [(["a"], None, "dag-cbor"), ([{1}], None, "dag-cbor"), (["b"], None, "dag-cbor")])
    assert isinstance(results[1], EncodeError)
    assert [payloads(results[0]), payloads(results[2])] == [["a"], ["b"]]
    assert len(log) == 2


def test_what_gets_too_long_is_refused_to_its_caller_alone(log: Log) -> None:
    long = bytes(MAX_VALUE_LENGTH - 20)
    results = append_each(log, [(["a"], None, "dag-cbor"), ([long], None, "dag-cbor"), (["b"], None, "dag-cbor")])
    assert isinstance(results[1], EncodeError)
    assert len(log) == 2


def test_what_apply_refuses_is_refused_to_its_caller_alone(opened: Callable[..., Log], signer: Signer) -> None:
    def apply(message: Any, _: Any) -> None:
        if message.payload == "no":
            raise ValueError("no")

    log = opened(apply=apply, signer=signer)
    many = (["c", "no", "d"], None, "dag-cbor")
    results = append_each(log, [(["a"], None, "dag-cbor"), many, (["no"], None, "dag-cbor"), (["b"], None, "dag-cbor")])
    assert [type(each) for each in results] == [list, RefusedMessage, RefusedMessage, list]
    assert payloads(log) == ["a", "b"]


def test_the_payload_check_refuses_before_the_transaction(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=int, signer=signer)
    results = append_each(log, [([1], None, "dag-cbor"), (["two"], None, "dag-cbor")])
    assert isinstance(results[1], RefusedMessage)
    assert payloads(log) == [1]


def test_arguments_that_are_wrong_are_their_callers(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened()
    wrong: Any = "path"
    nothing: Any = None
    results = append_each(
        log,
        [
            ([1], None, "dag-cbor"),
            ([2], wrong, "dag-cbor"),
            ([3], signer, "cbor"),
            ([4], signer, nothing),
            ([5], signer, "dag-cbor"),
        ],
    )
    assert [type(each) for each in results] == [ValueError, TypeError, EncodeError, TypeError, list]
    with pytest.raises(TypeError, match="codec is None: expected 'dag-cbor'"):
        log.append(1, signer=signer, codec=nothing)


@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_what_was_checked_is_what_is_signed(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """A payload is signed later, on another thread, and its caller may change it meanwhile; so may the check."""
    append = writing.Writer.append
    given = [{"n": 1}, {"n": 2}]

    def check(payload: Any) -> None:
        if not isinstance(payload["n"], int):
            raise TypeError("no number")
        payload["n"] = "changed by the check"

    def late(writer: writing.Writer, runs: Any) -> Any:
        for payload in given:
            payload["n"] = "changed by its caller"
        return append(writer, runs)

    log = opened(payload=check, signer=signer)
    monkeypatch.setattr(writing.Writer, "append", late)
    log.append_many(given, codec=codec)
    assert payloads(log) == [{"n": 1}, {"n": 2}]


def test_more_than_a_transaction_has_time_for(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_SIGNED", 3)
    monkeypatch.setattr("gossiplog.log.appending.MOST_SIGNED", 3)
    found = transactions(log, monkeypatch)
    results = append_each(log, [([n, -n], None, "dag-cbor") for n in range(1, 5)])
    assert [payloads(each) for each in results] == [[n, -n] for n in range(1, 5)]
    assert found == [3, 3, 2]


def test_long_ones_take_transactions_of_their_own(
    log: Log, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_SIGNED_BYTES", 250)
    found = transactions(log, monkeypatch)
    signers = [None, other_signer]
    results = append_each(log, [([bytes(100), n], signers[n % 2], "dag-cbor") for n in range(4)])
    assert [payloads(each)[1] for each in results] == [0, 1, 2, 3]
    assert sum(found) == 8
    assert len(found) > 2


def test_a_failure_of_the_database_is_everybodys(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StorageError("the disk is full")

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(writing.Writer, "append", fail)
    assert append_each(log, [([1], None, "dag-cbor"), ([2], None, "dag-cbor")]) == [error, error]
    assert len(log) == 0


def test_many_are_checked_and_stored_a_transaction_at_a_time(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that others can append meanwhile; all are checked before the first is stored."""
    for module in ("writing", "appending"):
        monkeypatch.setattr(f"gossiplog.log.{module}.MOST_SIGNED", 2)
    checked: list[int] = []
    log = opened(payload=checked.append, signer=signer)
    request = AppendRequest((range(5), None, "dag-cbor"))
    steps: list[tuple[int, int]] = []
    while not request.has_ended:
        log._append_some([request])
        steps.append((len(checked), len(log)))
    assert steps == [(2, 0), (4, 0), (5, 2), (5, 4), (5, 5)]
    assert payloads(request.messages) == payloads(log) == [0, 1, 2, 3, 4]


def test_a_late_payload_is_named_by_its_place_among_all(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.log.appending.MOST_SIGNED", 2)
    (error,) = append_each(log, [([0, 1, 2, {3}, 4], None, "dag-cbor")])
    assert isinstance(error, EncodeError)
    assert str(error).startswith("payload 3 of 5, from 0: ")
    assert len(log) == 0
