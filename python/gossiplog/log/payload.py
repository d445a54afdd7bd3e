"""The application's check of payloads, `payload=` of `open`."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any, TypeAlias

from typing_extensions import TypeAliasType

from gossiplog import core
from gossiplog.errors import Refused
from gossiplog.log.functions import check_runs

PayloadCheck: TypeAlias = Callable[[Any], object]


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
    kinds = type | types.UnionType | typing.NewType | TypeAliasType
    is_type = isinstance(payload, kinds) or typing.get_origin(payload) is not None
    if callable(payload) and not is_type:
        check_runs("payload", payload, "payload")
        return _raising(typing.cast(PayloadCheck, payload))
    # Imported here: pydantic is a sixth of the time of `import gossiplog`, and few logs need it.
    from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter

    if isinstance(payload, TypeAdapter):
        return payload.validate_python
    try:
        return TypeAdapter(payload).validate_python
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise TypeError(
            f"payload is {payload!r}: expected a function or a type that pydantic validates ({error.message})"
        ) from error


def _raising(function: PayloadCheck) -> PayloadCheck:
    """Have a function that returns False refuse: it was written as a predicate, and would accept everything."""

    def check(payload: Any) -> None:
        if function(payload) is False:
            raise TypeError("the function returned False; to refuse, raise an exception that says why")

    return check


def check_payload(check: PayloadCheck, payload: Any, id: str | None = None) -> None:
    """Runs the application's check.

    Args:
        check: as `payload_check` returned it.
        payload: as peers read it.
        id: of the message, where it has one.

    Raises:
        Refused: the check raised; its exception is the cause.
    """
    try:
        check(payload)
    except Exception as error:
        raise Refused(f"its payload is refused: {error}", id) from error


def as_peers_read(encoded: bytes) -> Any:
    """An encoded payload, as peers will read it: integral floats are integers, tuples lists."""
    return core.cbor_decode(encoded)
