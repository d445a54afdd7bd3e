"""Checks of settings, so that an error comes from where they are made, and names them."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from numbers import Integral, Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check_number(name: str, value: object) -> None:
    """Check that a value is a number.

    Args:
        name: what the caller calls it.
        value: what it gave.

    Raises:
        TypeError: it is of another type, such as text.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}: expected a number")


def check_integer(what: str, value: object) -> None:
    """Check that a value is an integer; a truth value is none.

    Args:
        what: as the error is to name it, such as "a limit".
        value: what the caller gave.

    Raises:
        TypeError: it is of another type.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} of {value!r}: expected an integer")


def check_order(config: DataclassInstance, least: int, *names: str) -> None:
    """Check that fields do not decrease.

    Args:
        config: that has them.
        least: what the first may be.
        names: of the fields, in their order.

    Raises:
        TypeError: one is no number.
        ValueError: says what they are, and what was expected.
    """
    values = [getattr(config, name) for name in names]
    for name, value in zip(names, values, strict=True):
        check_number(name, value)
    if not all(low <= high for low, high in pairwise([least, *values])):
        others = "".join(f", {name} {value}" for name, value in zip(names[1:], values[1:], strict=True))
        raise ValueError(f"{names[0]} is {values[0]}{others}; expected {least} <= {' <= '.join(names)}")


def check_whole(config: DataclassInstance) -> None:
    """Check that numbers in fields of whole ones are whole.

    Raises:
        TypeError: one is a fraction, or infinite, although its type is int.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        is_count = field.type in ("int", "int | None", int)
        if is_count and isinstance(value, Real) and not isinstance(value, Integral):
            raise TypeError(f"{field.name} is {value!r}: expected a whole number")


def check_positive(config: DataclassInstance, *others: str) -> None:
    """Check that every field is more than 0, or None where that is its default, and that counts are whole numbers.

    Args:
        config: that has them.
        others: names of the fields that may be something else.

    Raises:
        TypeError: one is no number, or a fraction although its type is int.
        ValueError: says which is not, and what it is.
    """
    check_whole(config)
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in others and not (value is None and field.default is None):
            check_number(field.name, value)
            if not value > 0:
                raise ValueError(f"{field.name} is {value}; expected more than 0")
