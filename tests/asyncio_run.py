"""Async tests on asyncio as `asyncio.run` runs them, and servers that do not know anyio.

The tasks of `anyio.run` say in their context which library runs, and callbacks of the loop have a copy of that context.
Those of `asyncio.run` say nothing: where sniffio is installed, anyio then looks for a task, and callbacks have none.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import pytest
import sniffio

Test = Callable[..., Coroutine[Any, Any, None]]


def without_library(items: Sequence[pytest.Item]) -> None:
    """Run the async tests among these without the library in their context, on asyncio."""
    for item in items:
        if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.obj = _plain(item.obj)


def _plain(test: Test) -> Test:
    @wraps(test)
    async def plain(*arguments: Any, **named: Any) -> None:
        if sniffio.current_async_library() == "asyncio":
            sniffio.current_async_library_cvar.set(None)
        await test(*arguments, **named)

    return plain
