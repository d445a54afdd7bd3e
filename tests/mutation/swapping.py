"""A changed source in a running process: the code of functions that differ is replaced, and nothing is imported again.

That is possible where a change is within functions, and not in what a module or a class does when it is made:
constants, defaults, decorators. A function that such a function has returned before stays as it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_Key = tuple[str, int]


def swap(module: ModuleType, source: str, changed: str) -> bool:
    """Make a module's functions those of a changed source; return whether that could be done, else nothing is.

    Args:
        module: imported from the source.
        source: its text.
        changed: the text that it is to have.
    """
    name = str(module.__file__)
    before, after = (_Parts(compile(text, name, "exec")) for text in (source, changed))
    if before.frame != after.frame or len(before.functions) != len(after.functions):
        return False
    live = {
        key: function for function in _functions(vars(module), module.__name__) for key in [_key(function.__code__)]
    }
    replaced = []
    for old, new in zip(before.functions, after.functions, strict=True):
        if _shape(old) != _shape(new):
            function = live.get(_key(old))
            if function is None or old.co_freevars != new.co_freevars:
                return False
            replaced.append((function, new))
    for function, code in replaced:
        function.__code__ = code
    return bool(replaced)


class _Parts:
    """What a module does when it is imported, and the functions that are defined by it, at any depth of classes."""

    def __init__(self, code: CodeType) -> None:
        self.functions: list[CodeType] = []
        self.frame = self._walk(code)

    def _walk(self, code: CodeType) -> Any:
        constants: list[Any] = []
        for constant in code.co_consts:
            if not isinstance(constant, CodeType):
                constants.append((type(constant), constant))
            elif constant.co_flags & inspect.CO_OPTIMIZED:
                self.functions.append(constant)
                constants.append(constant.co_name)
            else:
                constants.append(self._walk(constant))
        return code.co_name, code.co_code, tuple(constants), code.co_names


def _shape(code: CodeType) -> Any:
    """What a function does, without the lines that it stands in."""
    constants = tuple(_shape(item) if isinstance(item, CodeType) else (type(item), item) for item in code.co_consts)
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable


def _key(code: CodeType) -> _Key:
    return code.co_qualname, code.co_firstlineno


def _functions(names: dict[str, Any] | Any, module: str) -> Iterator[FunctionType]:
    for value in list(names.values()):
        if isinstance(value, type):
            if value.__module__ == module:
                yield from _functions(vars(value), module)
            continue
        parts = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
        for part in parts:
            found = inspect.unwrap(part) if callable(part) else part
            if isinstance(found, FunctionType) and found.__module__ == module:
                yield found
