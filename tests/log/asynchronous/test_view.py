"""`AsyncLogView`: what `LogView` does, without holding up the event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from gossiplog import AsyncLog, AsyncLogView, Log, LogView, UnknownMessage

pytestmark = pytest.mark.anyio


def parameters(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_it_has_what_a_view_has() -> None:
    names = {name for name in dir(LogView) if not name.startswith("_")}
    assert names <= set(dir(AsyncLogView))
    for name in names:
        own, other = getattr(AsyncLogView, name), getattr(LogView, name)
        if not isinstance(other, property):
            assert parameters(own) == parameters(other), name


async def test_each_method_returns_what_the_view_does(log: Log) -> None:
    shared = AsyncLog(log)
    first, second, third, last = await shared.append_many(range(4))
    view = await shared.at(third.id)
    assert [message.id async for message in view] == [first.id, second.id, third.id]
    assert [message.id async for message in view.messages(reverse=True, limit=1)] == [third.id]
    assert await view.get(first.id) == first
    assert await view.content_id(first.id) == first.id
    assert await view.contains(second)
    assert not await view.contains(last.id)
    assert (await view.count(), await view.count(after=first.id)) == (3, 2)
    assert await view.heads() == (third.id,)
    assert await view.clock() == view.blocking.clock
    assert await view.is_ancestor(first.id, third.id)
    assert [message.id async for message in view.ancestors(third.id)] == [second.id, first.id]
    assert [message.id async for message in view.descendants(first.id)] == [second.id, third.id]
    assert await view.children(second.id) == (third.id,)
    assert repr(view) == f"<Async{repr(view.blocking)[1:]}"
    with pytest.raises(UnknownMessage):
        await view.get(last.id)
    assert await (await shared.at(2)).count() == 2
