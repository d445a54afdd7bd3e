"""`gossiplog.net.log_page.messages`: what is shown of messages is what the log has, short whatever they hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given

import gossiplog
from gossiplog import Log, Signer, core
from gossiplog.errors import CorruptLog, DecodeError, UnknownMessage
from gossiplog.net.log_page import messages
from gossiplog.net.log_page.messages import (
    MOST_BYTES,
    MOST_DETAIL,
    MOST_MESSAGES,
    MOST_RELATIVES,
    MOST_TEXT,
    after,
    around,
    before,
    detail,
    entry,
    latest,
)
from gossiplog.reprs import without_bidi
from tests.net.support import TOPIC
from tests.strategies import build, repeatable, values

Open = Callable[..., Log]
SIGNER = Signer(bytes(range(32)))


@pytest.fixture
def log(opened: Open, signer: Signer) -> Log:
    """With as many messages as five halves of a page."""
    found = opened(signer=signer)
    found.append_many(range(5 * MOST_MESSAGES // 2))
    return found


def ids(window: messages.Window) -> list[str]:
    return [each["id"] for each in window.messages]


def test_the_latest(log: Log) -> None:
    every = [message.id for message in log][::-1]
    window = latest(log)
    assert ids(window) == every[:MOST_MESSAGES]
    assert (window.older, window.newer) == (True, False)
    first = log.get(every[0])
    assert window.messages[0] == {
        "id": first.id,
        "clock": first.clock,
        "author": first.author,
        "codec": "dag-cbor",
        "parents": list(first.parents),
        "parent_count": 1,
        "size": len(first.value),
        "text": str(first.payload),
        "whole": True,
    }
    assert json.loads(json.dumps(window.as_object())) == window.as_object()


def test_one_can_walk_to_the_oldest_and_back(log: Log) -> None:
    every = [message.id for message in log][::-1]
    windows = [latest(log)]
    while windows[-1].older:
        windows.append(before(log, ids(windows[-1])[-1]))
    assert [id for window in windows for id in ids(window)] == every
    assert [window.newer for window in windows] == [False, True, True]
    back = windows[-1]
    found = ids(back)
    while back.newer:
        back = after(log, ids(back)[0])
        assert back.older
        found = ids(back) + found
    assert found == every


def test_around_a_message(log: Log) -> None:
    every = [message.id for message in log][::-1]
    middle = len(every) // 2
    window = around(log, every[middle])
    assert ids(window) == every[middle - MOST_MESSAGES // 2 : middle + MOST_MESSAGES // 2]
    assert (window.older, window.newer) == (True, True)
    newest, oldest = around(log, every[0]), around(log, every[-1])
    assert ids(newest) == every[: MOST_MESSAGES // 2]
    assert (newest.older, newest.newer) == (True, False)
    assert ids(oldest) == every[-1 - MOST_MESSAGES // 2 :]
    assert (oldest.older, oldest.newer) == (False, True)


def test_what_is_not_there(opened: Open) -> None:
    log = opened()
    assert latest(log) == messages.Window([], False, False)
    for id in ("0" * 32, "v" * 32):
        assert before(log, id) == messages.Window([], False, True)
        assert after(log, id) == messages.Window([], True, False)
        with pytest.raises(UnknownMessage):
            around(log, id)
        with pytest.raises(UnknownMessage):
            detail(log, id)
    for look in (before, after, around, detail):
        with pytest.raises(DecodeError):
            look(log, "<script>")


def test_long_messages_are_shown_fewer_at_a_time(opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)
    log.append_many(["x" * 2**20] * 10)
    window = latest(log)
    assert 1 <= len(window.messages) <= MOST_BYTES // 2**20
    assert window.older
    assert len(json.dumps(window.as_object())) < 5000
    walked = len(window.messages)
    while window.older:
        window = before(log, ids(window)[-1])
        walked += len(window.messages)
    assert walked == 10


def test_known_entries_are_not_made_again(log: Log) -> None:
    window = latest(log)
    known = {each["id"]: each for each in window.messages}
    log.append("new")
    again = latest(log, known)
    assert again.messages[0]["text"] == '"new"'
    assert all(found is known[found["id"]] for found in again.messages[1:])


def test_the_family_of_a_message(opened: Open, signer: Signer, other_signer: Signer) -> None:
    log = opened(signer=signer)
    first = log.append("first")
    branches = []
    for number in range(MOST_RELATIVES + 4):
        other = opened()
        other.insert(first)
        branches.append(other.append(number, signer=other_signer))
    log.insert_many(branches)
    merge = log.append("merge")
    found = detail(log, first.id)
    assert (len(found["children"]), found["more_children"]) == (MOST_RELATIVES, True)
    assert {*found["children"]} <= {branch.id for branch in branches}
    joined = detail(log, merge.id)
    assert (joined["children"], joined["more_children"]) == ([], False)
    assert joined["parents"] == [*merge.parents[:MOST_RELATIVES]]
    assert joined["parent_count"] == len(merge.parents) == MOST_RELATIVES + 4
    assert detail(log, branches[0].id)["children"] == [merge.id]


@pytest.mark.slow
@given(value=values)
@example(value='<script>alert("payload")</script>')
@example(value='","topic":"')
@example(value={"payload": {"topic": "payload"}, '","topic":"': '"payload":'})
@example(value="\u202e\u2028\x00\x7f" * 100)
@example(value="\U0001f600" * 100)
@example(value=b"\x00" * 1000)
@example(value=["\\" * 300, '"' * 300])
@repeatable(200)
def test_a_payload_is_the_beginning_of_its_json(value: Any) -> None:
    """The oracle writes it at once, by another function of the core."""
    payload = build(core, value)
    with gossiplog.open(":memory:", TOPIC, signer=SIGNER) as log:
        message = log.append(payload)
    whole = core.json_encode(payload)
    for most in (MOST_TEXT, 7):
        found = entry(message.value, TOPIC, most)
        assert found["whole"] == (len(whole) <= most)
        # A character that is cut through is left out.
        assert found["text"] == without_bidi(whole[:most].decode("utf-8", "ignore"))


@pytest.mark.parametrize(
    "payload",
    ["x" * 2**20, [[]] * 300_000, {"k": [{"deep": "\U0001f600"}] * 30_000}, b"\xff" * 2**20],
    ids=str.__class__,
)
def test_large_payloads_are_short(payload: Any) -> None:
    with gossiplog.open(":memory:", TOPIC, signer=SIGNER) as log:
        message = log.append(payload)
        assert len(json.dumps(latest(log).as_object(), ensure_ascii=False).encode()) < 2000
        found = detail(log, message.id)
    assert MOST_DETAIL - 3 <= len(found["text"].encode()) <= MOST_DETAIL
    assert found["whole"] is False


def test_what_no_message_is_is_damage() -> None:
    with pytest.raises(CorruptLog):
        entry(b"\x00", TOPIC)


@pytest.mark.parametrize("control", ["\u202e", "\u2066", "\u200f", "\u061c"])
def test_no_payload_turns_around_how_it_is_shown(control: str, opened: Open, signer: Signer) -> None:
    log = opened(signer=signer)
    payload = {"text": f"a{control}gpj.exe", "emoji": "\U0001f468\u200d\U0001f469"}
    message = log.append(payload)
    for found in (latest(log).messages[0], detail(log, message.id)):
        assert control not in found["text"]
        # It is still the payload.
        assert json.loads(found["text"]) == payload
        assert "\u200d" in found["text"]


def test_entries_are_made_few_at_a_time(opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them other threads have the interpreter; those that are known already cost nothing."""
    log = opened(signer=signer)
    log.append_many(range(40))
    made: list[str] = []
    pauses: list[int] = []

    def make(value: bytes, topic: str) -> messages.Entry:
        made.append(topic)
        return {"id": ""}

    monkeypatch.setattr(messages, "entry", make)
    monkeypatch.setattr(messages, "time", SimpleNamespace(sleep=lambda seconds: pauses.append(len(made))))
    window = messages.latest(log)
    assert len(window.messages) == len(made) == 40
    assert max(second - first for first, second in itertools.pairwise([0, *pauses, 40])) <= 4
    known = {message.id: {"id": message.id} for message in log}
    pauses.clear()
    assert [each["id"] for each in messages.latest(log, known).messages] == list(known)[::-1]
    assert (len(made), pauses) == (40, [])
