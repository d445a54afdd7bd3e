from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

import gossiplog
from gossiplog import EncodeError, Log, MemoryStorage, NotALog, RefusedMessage, Signer
from gossiplog.log.callbacks import check_runs, payload_check


async def coroutine(*_: object) -> None: ...


async def async_generator(*_: object) -> AsyncIterator[int]:
    yield 1


def generator(*_: object) -> Iterator[int]:
    yield 1


class Callback:
    async def __call__(self, *_: object) -> None: ...

    async def method(self, *_: object) -> None: ...


IN_VAIN = [coroutine, async_generator, generator, Callback(), Callback().method, functools.partial(coroutine, 1)]


@pytest.mark.parametrize("function", IN_VAIN)
def test_apply_must_run_when_it_is_called(function: Any) -> None:
    storage = MemoryStorage()
    with pytest.raises(TypeError, match=r"apply is .*, a coroutine or generator function"):
        gossiplog.open(storage, "topic", apply=function)
    with pytest.raises(NotALog):
        storage.open(None, create=False)


@pytest.mark.parametrize("function", IN_VAIN)
def test_so_must_what_is_replayed(function: Any, log: Log) -> None:
    with pytest.raises(TypeError, match=r"function is .*, a coroutine or generator function"):
        log.replay(function)


def test_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="apply is 5: expected a function"):
        gossiplog.open(":memory:", "topic", apply=5)  # type: ignore[arg-type]


def test_ordinary_functions_pass(opened: Callable[..., Log]) -> None:
    for function in (
        lambda *_: None,
        functools.partial(print, end=""),
        lambda message, transaction=None: None,
    ):
        opened(apply=function)


@pytest.mark.parametrize("function", [lambda message: None, lambda *, message, transaction: None, [].append])
def test_apply_must_take_a_message_and_a_transaction(function: Any) -> None:
    with pytest.raises(TypeError, match=r"apply is .* cannot be called as apply\(message, transaction\): "):
        gossiplog.open(":memory:", "topic", apply=function)


def test_a_check_and_what_is_replayed_take_one_argument(log: Log) -> None:
    with pytest.raises(TypeError, match=r"cannot be called as payload\(payload\): too many positional arguments"):
        gossiplog.open(":memory:", "topic", payload=lambda: None)
    with pytest.raises(TypeError, match=r"cannot be called as function\(message\): missing a required argument: 'b'"):
        log.replay(lambda a, b: None)  # type: ignore[misc, arg-type]
    assert log.replay({"a": 1}.get) == 0


def test_functions_that_do_not_say_what_they_take_pass() -> None:
    check_runs("function", map, "message")


class Text(BaseModel):
    text: str


def refuse_odd(payload: Any) -> None:
    if payload % 2:
        raise ValueError("odd")


@pytest.mark.parametrize(
    ("payload", "good", "bad"),
    [
        (refuse_odd, 2, 3),
        (Text, {"text": "hi"}, {"text": 1}),
        (int | None, None, "x"),
        (list[int], [1], ["x"]),
        (Annotated[int, Field(gt=5)], 6, 5),
        (JsonValue, {"a": [1]}, b"bytes"),
        (TypeAdapter(dict[str, int]), {"a": 1}, [1]),
    ],
)
def test_kinds_of_checks(opened: Callable[..., Log], signer: Signer, payload: Any, good: Any, bad: Any) -> None:
    log = opened(payload=payload, signer=signer)
    assert log.append(good).payload == good
    with pytest.raises(RefusedMessage, match="its payload is refused") as refused:
        log.append(bad)
    assert isinstance(refused.value.__cause__, ValueError | ValidationError)
    assert refused.value.id is None
    assert len(log) == 1


async def refuse_later(payload: Any) -> None:
    raise ValueError("nobody waits for this")


class RefusesLater:
    async def __call__(self, payload: Any) -> None:
        await refuse_later(payload)


@pytest.mark.parametrize("payload", [refuse_later, RefusesLater()])
def test_a_coroutine_function_checks_nothing(payload: Any) -> None:
    with pytest.raises(TypeError, match=r"payload is .*, a coroutine or generator function"):
        payload_check(payload)


def test_what_pydantic_does_not_know_is_no_check() -> None:
    class Unknown:
        pass

    with pytest.raises(TypeError, match="arbitrary_types_allowed"):
        payload_check(Unknown)


def test_none_checks_nothing() -> None:
    assert payload_check(None) is None


def test_received_messages_are_checked(opened: Callable[..., Log], signer: Signer) -> None:
    source = opened(signer=signer)
    messages = source.append_many([2, 3, 4])
    log = opened(payload=refuse_odd)
    result = log.insert_many(messages)
    assert result.inserted == 1
    assert [index for index, _ in result.refused] == [1, 2]
    refused = result.refused[0][1]
    assert isinstance(refused, RefusedMessage)
    assert refused.id == messages[1].id
    assert isinstance(refused.__cause__, ValueError)


def test_own_payloads_are_checked_as_peers_will_read_them(opened: Callable[..., Log], signer: Signer) -> None:
    seen: list[Any] = []
    log = opened(payload=seen.append, signer=signer)
    message = log.append({"b": (1, 2.0)})
    assert seen == [{"b": [1, 2]}]
    assert message.payload == seen[0]


def test_a_payload_that_cannot_be_written_is_no_refusal(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=lambda payload: None, signer=signer)
    with pytest.raises(EncodeError):
        log.append(float("nan"))


def test_a_predicate_that_returns_false_refuses_and_says_how_to(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=lambda payload: payload == 1)
    log.append(1, signer=signer)
    with pytest.raises(
        RefusedMessage, match="the function returned False; to refuse, raise an exception that says why"
    ):
        log.append(2, signer=signer)
    assert len(opened(payload=lambda payload: None)) == 0
    flags = opened(payload=bool)
    flags.append(False, signer=signer)
    assert len(flags) == 1
