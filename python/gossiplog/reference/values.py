"""Values of the IPLD data model as this package is given them, made what other peers will read.

Numbers are JavaScript's: one type for integers and floats. Source: wire format, "What is written".
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from gossiplog.errors import EncodeError
from gossiplog.reference.limits import MAX_CLOCK, MAX_OWN_DEPTH
from gossiplog.reference.multiformats import CID

PROTO: Final = "__proto__"
_BYTES = (bytes, bytearray, memoryview)
_BYTE_ORDER_MARK = "\ufeff"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

# The way to a value from the outermost one: (the way to what holds it, key or index), or None.
_Path: TypeAlias = tuple[Any, str | int] | None


def same_primitive(first: object, second: object) -> bool:
    """Return whether two normalised values are one boolean, number or string, as JavaScript's `===` finds."""
    return type(first) is type(second) and isinstance(first, bool | int | float | str) and first == second


def both_empty(first: object, second: object) -> bool:
    """Return whether both are bytes, and empty: canvas-js has one object for all that are."""
    return first == second == b""


def text_fault(text: str) -> str | None:
    """Return why other peers would read a string as something else, or None when they would not."""
    if text.startswith(_BYTE_ORDER_MARK):
        return "a string that begins with U+FEFF, which other peers drop"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "a string with a lone surrogate, which other peers replace"
    return None


def normalise(value: Any) -> Any:
    """Return a copy of a value made of None, bool, int, float, str, bytes, CID, list and dict only, fit to be written.

    Tuples become lists, mappings dicts, bytearrays and memoryviews bytes, and floats the integers that they are.

    Raises:
        EncodeError: a value that cannot be written, or that other peers would refuse or change; it names the place.
    """
    root: list[Any] = [None]
    pending: list[tuple[Any, _Path, int, Any, Any]] = [(value, None, 0, root, 0)]
    while pending:
        value, path, depth, target, position = pending.pop()
        if not isinstance(value, list | tuple | Mapping):
            target[position] = _normalise_scalar(value, path)
            continue
        depth += 1
        if depth > MAX_OWN_DEPTH:
            raise _error(path, f"lists and maps more than {MAX_OWN_DEPTH} deep, or inside themselves")
        if isinstance(value, Mapping):
            copy: Any = dict.fromkeys(_checked_keys(value, path))
            children = [(value[key], (path, key), depth, copy, key) for key in copy]
        else:
            copy = [None] * len(value)
            children = [(item, (path, index), depth, copy, index) for index, item in enumerate(value)]
        target[position] = copy
        pending.extend(reversed(children))
    return root[0]


def _checked_keys(value: Mapping[Any, Any], path: _Path) -> list[str]:
    keys = list(value)
    for key in keys:
        if not isinstance(key, str):
            raise _error(path, f"a map key must be a string, this is of type {type(key).__name__}")
        fault = text_fault(key)
        if fault is not None:
            raise _error((path, key), f"a map key is {fault}")
        if key == PROTO:
            raise _error((path, key), "the map key __proto__, which other peers drop")
    if "/" in value and "bytes" in value:
        slash, other = value["/"], value["bytes"]
        if isinstance(slash, _BYTES) and isinstance(other, _BYTES) and both_empty(bytes(slash), bytes(other)):
            raise _error(path, "a map whose `/` and `bytes` are both empty, which other peers take for a link")
        scalars = isinstance(slash, bool | int | float | str) and isinstance(other, bool | int | float | str)
        if scalars and same_primitive(_normalise_scalar(slash, (path, "/")), _normalise_scalar(other, (path, "bytes"))):
            raise _error(path, "a map whose `/` equals its `bytes`, which other peers refuse")
    return keys


def _normalise_scalar(value: Any, path: _Path) -> Any:
    match value:
        case None | bool() | CID():
            return value
        case int():
            if not -(2**64) <= value < 2**64:
                raise _error(path, "an integer must be from -2^64 to 2^64 - 1")
            return int(value)
        case float():
            if not math.isfinite(value):
                number = "NaN" if math.isnan(value) else value
                raise _error(path, f"{number} is no number that other peers accept")
            return normalise_float(float(value))
        case str():
            fault = text_fault(value)
            if fault is not None:
                raise _error(path, fault)
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case _:
            raise _error(
                path,
                f"a value of type {type(value).__name__} cannot be encoded;"
                " use None, bool, int, float, str, bytes, CID, list or dict",
            )


def _error(path: _Path, reason: str) -> EncodeError:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    shown = "".join(
        f".{step}" if isinstance(step, str) and _NAME.fullmatch(step) else f"[{step!a}]"
        for step in reversed(steps[-20:])
    )
    return EncodeError(f"${shown}{'…' if len(steps) > 20 else ''}: {reason}")


def normalise_float(number: float) -> int | float:
    """Return a finite float; the integer that it is, when JavaScript tells that one apart from its neighbours."""
    if abs(number) <= MAX_CLOCK and number.is_integer():
        return int(number)
    return number


def format_number(number: float) -> str:
    """Return a finite float as `String(number)` prints it. Source: ECMAScript 2023, 6.1.6.1.20, Number::toString.

    Python's `repr` finds the same shortest digits, and differs in where it puts the point and the exponent.
    """
    if number == 0:
        return "0"
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The number is 0.digits * 10^point.
    point = int(exponent or 0) + (len(whole) if whole != "0" else len(digits) - len(fraction))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        text = digits.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1:+d}"
    return text if number > 0 else f"-{text}"
