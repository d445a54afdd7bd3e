"""What the configurations of several routers check alike."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check_order(config: DataclassInstance, least: int, *names: str) -> None:
    """Check that fields do not decrease.

    Args:
        config: that has them.
        least: what the first may be.
        names: of the fields, in their order.

    Raises:
        ValueError: says what they are, and what was expected.
    """
    values = [getattr(config, name) for name in names]
    if not all(low <= high for low, high in pairwise([least, *values])):
        others = "".join(f", {name} {value}" for name, value in zip(names[1:], values[1:], strict=True))
        raise ValueError(f"{names[0]} is {values[0]}{others}; expected {least} <= {' <= '.join(names)}")


def check_positive(config: DataclassInstance, *others: str) -> None:
    """Check that every field is more than 0, or None.

    Args:
        config: that has them.
        others: names of the fields that may be something else.

    Raises:
        ValueError: says which is not, and what it is.
    """
    for name in (field.name for field in fields(config) if field.name not in others):
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}; expected more than 0")
