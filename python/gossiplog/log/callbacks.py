"""Checks of functions that an application passes in."""

from __future__ import annotations

import inspect

from gossiplog.storage.base import Progress

_LATER = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


def check_progress(progress: Progress | None) -> None:
    """Check the `progress` of a call.

    Raises:
        TypeError: it cannot be called with two numbers, or its body would not run.
    """
    if progress is not None:
        check_runs("progress", progress, "done", "total")


def check_runs(name: str, function: object, *arguments: str) -> None:
    """Reject coroutine and generator functions, whose bodies a call does not run, and what takes other arguments.

    Args:
        name: of the parameter that the function is given for.
        function: to be checked.
        arguments: names of the positional arguments that it is called with. Functions in C that do not say what they
            take are not held against them.

    Raises:
        TypeError: it cannot be called so, or its body would not run.
    """
    if not callable(function):
        raise TypeError(f"{name} is {function!r}: expected a function")
    if any(later(function) or later(type(function).__call__) for later in _LATER):
        raise TypeError(
            f"{name} is {function!r}, a coroutine or generator function, whose body does not run when it is called:"
            " expected an ordinary one"
        )
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{name} is {function!r}, which cannot be called as {name}({', '.join(arguments)}): {error}"
        ) from None
