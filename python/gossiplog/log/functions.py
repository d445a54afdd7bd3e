"""What an application's functions must be: such that a call runs them to their end."""

from __future__ import annotations

import inspect

_LATER = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def check_runs(name: str, function: object) -> None:
    """Refuses what would be called in vain: the body of a coroutine or generator function does not run by the call.

    Args:
        name: what the caller calls the function.
        function: what it gave.

    Raises:
        TypeError: it cannot be called, or its body would not run.
    """
    if not callable(function):
        raise TypeError(f"{name} is {function!r}: expected a function")
    if any(later(function) or later(type(function).__call__) for later in _LATER):
        raise TypeError(
            f"{name} is {function!r}, a coroutine or generator function, whose body does not run when it is called:"
            " expected an ordinary one"
        )
