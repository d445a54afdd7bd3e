"""What an application gives to be called: checks of its functions, and `payload=` of `open`, its check of payloads."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gossiplog import core
from gossiplog.errors import RefusedMessage

_LATER = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)


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


@dataclass(frozen=True, slots=True)
class PayloadCheck:
    """A check of payloads.

    Attributes:
        function: raises to refuse.
        returns_value: whether it returns what it has validated. False is a refusal otherwise: the function was written
            as a predicate, and would accept everything.
    """

    function: Callable[[Any], object]
    returns_value: bool


def payload_check(payload: Any) -> PayloadCheck | None:
    """Return the check that `open` was given.

    Args:
        payload: a function, which raises to refuse (one that returns False refuses, too); a type that pydantic
            validates, or a TypeAdapter; or None.

    Raises:
        TypeError: nothing of these, or a coroutine or generator function, whose exceptions nobody would see.
    """
    if payload is None:
        return None
    # Imported here, as pydantic below: few logs need it.
    from typing_extensions import TypeAliasType

    kinds = type | types.UnionType | typing.NewType | TypeAliasType
    is_type = isinstance(payload, kinds) or typing.get_origin(payload) is not None
    if callable(payload) and not is_type:
        check_runs("payload", payload, "payload")
        return PayloadCheck(payload, returns_value=False)
    # Imported here: pydantic is a sixth of the time of `import gossiplog`, and few logs need it.
    from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter

    if isinstance(payload, TypeAdapter):
        return PayloadCheck(payload.validate_python, returns_value=True)
    try:
        return PayloadCheck(TypeAdapter(payload).validate_python, returns_value=True)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise TypeError(
            f"payload is {payload!r}: expected a function or a type that pydantic validates ({error.message})"
        ) from error


def check_payload(check: PayloadCheck, payload: Any, id: str | None = None) -> None:
    """Run the application's check.

    Args:
        check: as `payload_check` returned it.
        payload: as peers read it.
        id: of the message, where it has one.

    Raises:
        RefusedMessage: the check raised; its exception is the cause.
    """
    try:
        if check.function(payload) is False and not check.returns_value:
            raise TypeError("the function returned False; to refuse, raise an exception that says why")
    except Exception as error:
        raise RefusedMessage(f"its payload is refused: {error}", id) from error


def as_peers_read(encoded: bytes) -> Any:
    """Return an encoded payload, as peers will read it: integral floats are integers, tuples lists."""
    return core.cbor_decode(encoded)
