"""The application's check of payloads, `payload=` of `open`."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypeAliasType

from gossiplog import core
from gossiplog.errors import Refused
from gossiplog.log.functions import check_runs


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
        Refused: the check raised; its exception is the cause.
    """
    try:
        if check.function(payload) is False and not check.returns_value:
            raise TypeError("the function returned False; to refuse, raise an exception that says why")
    except Exception as error:
        raise Refused(f"its payload is refused: {error}", id) from error


def as_peers_read(encoded: bytes) -> Any:
    """Return an encoded payload, as peers will read it: integral floats are integers, tuples lists."""
    return core.cbor_decode(encoded)
