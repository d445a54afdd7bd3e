"""`payload=` of `open`: which payloads a log takes, what its messages read as, and what is stored of a value.

A function only accepts or refuses. A type, of those that pydantic knows, does that by validation, and more:

- What a log reads is of the type: `SignedMessage.payload` validates the stored value anew at each look.
- What is appended may be of the type. A value that dag-cbor holds is stored as it is given, as a dict for a model, and
  every other as pydantic dumps it, so that validation gives it back: models as maps, dates and UUIDs as text, sets as
  lists; bytes stay bytes.

What is stored was not always validated by this type: another program may have appended it without one, or an earlier
version of the type took it. Looking at its payload then raises InvalidPayload, and everything else of it can be read.
With `check_others=False` messages of others come in so, too, and the check is for what is appended here alone.

Names are written by their aliases, and by the names of the fields where the type reads those alone. What would be read
as another value is not written: a type whose fields have an alias for writing only, a union of types with one form, or
a subclass with fields of its own where the type names its base.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, cast

from gossiplog import core
from gossiplog.errors import EncodeError, InvalidPayload, RefusedMessage
from gossiplog.extras import explain_extra
from gossiplog.log.callbacks import check_runs
from gossiplog.message import SignedMessage
from gossiplog.reprs import counted, error_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from typing_extensions import TypeVar

    P = TypeVar("P", default=Any)
else:
    # Nothing asks for the default of a type variable while a program runs, and typing_extensions takes time to load.
    P = typing.TypeVar("P")

_SEQUENCES = (list, tuple, deque)
_PLAIN = (dict, list, tuple, str, int, float, bytes, core.CID, types.NoneType)
# An error of validation is one for each place that is wrong: of a stranger's payload these may be millions.
_MOST_SHOWN = 5
_MOST_LISTED = 100
"""Errors that are listed at all, to show the first: it takes as long as to find them."""
_LONGEST = 100
"""Characters of a place, which a stranger may have chosen, and of what is wrong there."""


class Payloads(Generic[P]):
    """What an application says of the payloads of its log: see above.

    Args:
        check: raises to refuse a payload; one that returns False refuses, too. None takes all.
        adapter: of the type that they are validated by; None where they have none.
        check_others: whether the messages of others are checked, too.
    """

    def __init__(
        self,
        check: Callable[[Any], object] | None = None,
        adapter: TypeAdapter[P] | None = None,
        *,
        check_others: bool = True,
    ) -> None:
        self._check = check
        self._adapter = adapter
        self._reader = self._read
        self._check_others = check_others

    @property
    def checks_own(self) -> bool:
        """Whether a payload that is appended here may be refused."""
        return self._check is not None or self._adapter is not None

    @property
    def passes_over(self) -> bool:
        """Whether messages of others come in whose payloads are not of the type, so that `apply` passes over them."""
        return not self._check_others

    @property
    def checks_others(self) -> bool:
        """Whether a message of others may be refused for its payload."""
        return self._check_others and self.checks_own

    def check(self, payload: Any, id: str | None = None) -> None:
        """Run the application's check.

        Args:
            payload: as peers read it.
            id: of the message, where it has one.

        Raises:
            RefusedMessage: the check raised; its exception is the cause.
        """
        try:
            if self._adapter is not None:
                self._adapter.validate_python(payload)
            elif self._check is not None and self._check(payload) is False:
                raise TypeError("the function returned False; to refuse, raise an exception that says why")
        except Exception as error:
            raise RefusedMessage(f"its payload is refused: {_text(error)}", id) from error

    def typed(self, message: SignedMessage) -> SignedMessage[P]:
        """Return a message whose payload is read by the type."""
        return message if self._adapter is None else message.with_reader(self._reader)

    def all_typed(self, messages: Iterable[SignedMessage]) -> list[SignedMessage[P]]:
        """Return messages whose payloads are read by the type."""
        if self._adapter is None:
            return [*messages]
        reader = self._reader
        return [message.with_reader(reader) for message in messages]

    def _read(self, message: SignedMessage) -> P:
        assert self._adapter is not None
        try:
            return self._adapter.validate_python(message.raw_payload)
        except Exception as error:
            raise InvalidPayload(_text(error), message.id) from error

    def plain(self, payload: P) -> Any:
        """Return a payload as dag-cbor can hold it.

        Raises:
            EncodeError: there is no such value.
            RefusedMessage: it is not of the type.
        """
        adapter = self._adapter
        if adapter is None:
            return payload
        if isinstance(payload, _PLAIN):
            try:
                core.cbor_encode(payload)
            except EncodeError:
                # Perhaps a list of models.
                pass
            else:
                return payload
        # Validated before, because pydantic dumps an object of another class as an empty map.
        try:
            valid = adapter.validate_python(payload)
        except Exception as error:
            raise RefusedMessage(f"its payload is refused: {_text(error)}") from error
        difference: str | None = None
        # Aliases first, unless the type reads the names of its fields alone: it must know each name, and where it
        # takes names that it does not know, read the same value.
        extras: tuple[Literal["forbid"] | None, ...] = ("forbid", None)
        for extra in extras:
            for by_alias in (True, False):
                dumped = self._dumped(valid, by_alias)
                found = self._difference(valid, dumped, by_alias, extra)
                if found is None:
                    return dumped
                difference = difference or found
        raise EncodeError(f"a payload of type {type(payload).__name__} would be read as another: {difference}")

    def _dumped(self, valid: P, by_alias: bool) -> Any:
        assert self._adapter is not None
        try:
            dumped = self._adapter.dump_python(valid, by_alias=by_alias, round_trip=True, warnings="error")
        except Exception as error:
            # It makes a set of what it has made of the items, of a model a dict.
            is_set = isinstance(error, TypeError) and "unhashable type" in str(error)
            advice = "; pydantic dumps no set of models: give the type a list or a tuple in its place" if is_set else ""
            text = f"a payload of type {type(valid).__name__} cannot be dumped: {_text(error)}{advice}"
            raise EncodeError(text) from error
        return _without_types(dumped)

    def _difference(self, valid: P, dumped: Any, by_alias: bool, extra: Literal["forbid"] | None) -> str | None:
        """Return how a value differs from what its dump is read as; None if they are alike."""
        assert self._adapter is not None
        try:
            read = self._adapter.validate_python(dumped, extra=extra)
        except Exception as error:  # noqa: BLE001 - said to who appends
            return f"its type does not read the names or values that it writes: {_text(error)}"
        if loss := _loss(valid, read):
            return loss
        try:
            # As they are stored, since not all values have an equality.
            is_same = core.cbor_encode(self._dumped(read, by_alias)) == core.cbor_encode(dumped)
        except EncodeError:
            # The core says what is wrong with it, and where it stands.
            return None
        return None if is_same else "its type does not read all that it writes: give a field one `alias` for both"


def payload_rules(payload: Any, *, check_others: bool = True) -> Payloads[Any]:
    """Return what `open` was given.

    Args:
        payload: a function, which raises to refuse (one that returns False refuses, too); a type that pydantic
            validates, or a TypeAdapter; or None.
        check_others: whether the messages of others are checked, too.

    Raises:
        TypeError: nothing of these, or a coroutine or generator function, whose exceptions nobody would see.
    """
    if payload is None:
        return Payloads()
    # Imported here, as pydantic below: few logs need it.
    from typing_extensions import TypeAliasType

    if isinstance(payload, str):
        raise TypeError(f"payload is the text {payload!r}: expected a function or a type, not its name")
    kinds = type | types.UnionType | typing.NewType | TypeAliasType
    is_type = isinstance(payload, kinds) or typing.get_origin(payload) is not None
    if callable(payload) and not is_type:
        check_runs("payload", payload, "payload")
        return Payloads(payload, check_others=check_others)
    # Imported here: pydantic is a sixth of the time of `import gossiplog`, and few logs need it.
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise explain_extra(error, "a log whose payload= is a type", "pydantic") from error

    try:
        adapter = payload if isinstance(payload, TypeAdapter) else TypeAdapter(payload)
        # Of a type that is not whole yet pydantic makes one all the same, which then refuses every payload.
        adapter.rebuild(raise_errors=True)
    except Exception as error:
        reason = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        raise TypeError(
            f"payload is {payload!r}: expected a function or a type that pydantic validates ({reason})"
        ) from error
    return Payloads(adapter=adapter, check_others=check_others)


def as_peers_read(encoded: bytes) -> Any:
    """Return an encoded payload, as peers will read it: integral floats are integers, tuples lists."""
    return core.cbor_decode(encoded)


def _loss(valid: Any, read: Any) -> str | None:
    """Return what the models, at any depth, of a value lose by being read as others; None if it is nothing.

    A subclass may be read as its base, if it has no fields of its own: pydantic dumps those of the base alone.
    """
    pending = [(valid, read)]
    while pending:
        valid, read = pending.pop()
        fields, kept = _fields(valid), _fields(read)
        if fields is not None and kept is not None:
            if not isinstance(valid, type(read)):
                named = type(read).__name__
                return f"it is read as a {named}: give the types of a union a field that tells them apart"
            if lost := sorted(fields.keys() - kept.keys()):
                return (
                    f"of a {type(valid).__name__} that is read as a {type(read).__name__}, {', '.join(lost)} is lost:"
                    f" have the log's type name {type(valid).__name__}, with a field that tells it apart in a union"
                )
            pending += ((fields[name], kept[name]) for name in fields)
        elif isinstance(valid, Mapping) and isinstance(read, Mapping):
            pending += ((inner, read[key]) for key, inner in valid.items() if key in read)
        elif isinstance(valid, _SEQUENCES) and isinstance(read, _SEQUENCES):
            pending += zip(valid, read, strict=False)
    return None


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a model or of a dataclass that are to be written; None of what is neither."""
    fields = getattr(type(value), "__pydantic_fields__", None)
    if isinstance(fields, dict) and (dataclasses.is_dataclass(value) or hasattr(value, "model_extra")):
        extra = getattr(value, "model_extra", None) or {}
        return {name: getattr(value, name) for name in fields if not fields[name].exclude} | extra
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _without_types(value: Any) -> Any:
    """Return what pydantic has dumped with dates and the like as they are in JSON, and bytes as they are.

    Raises:
        EncodeError: two keys of a map are the same text, of which one would be lost.
    """
    if value is None or type(value) in (bool, int, float, str, bytes, core.CID):
        return value
    if isinstance(value, dict):
        found: dict[Any, Any] = {}
        for key, inner in value.items():
            text = key if type(key) is str else _key(key)
            if text in found:
                raise EncodeError(f"a map has several keys that are written as {text!r:.100}: one alone would be read")
            found[text] = _without_types(inner)
        return found
    if isinstance(value, list | tuple):
        return [_without_types(inner) for inner in value]
    if isinstance(value, set | frozenset):
        items = [_without_types(inner) for inner in value]
        # In an order of its own, a set would be other bytes in each process.
        return sorted(items, key=core.cbor_encode)
    return _jsonable(value)


def _key(key: Any) -> Any:
    (text,) = _jsonable({key: None})
    return text


def _jsonable(value: Any) -> Any:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, UnicodeDecodeError):
        # The core says what is wrong with it, and where it stands.
        return value


def _text(error: Exception) -> str:
    """Return what an error says: in one line, and no more of it than one reads, where it is pydantic's."""
    count = getattr(error, "error_count", None)
    if not (callable(count) and isinstance(error, ValueError)):
        return error_text(error)
    number: int = count()
    text = f"{counted(number, 'validation error')} for {getattr(error, 'title', 'it')}"
    if number > _MOST_LISTED:
        return text
    found = cast("ValidationError", error).errors(include_url=False, include_context=False, include_input=False)
    shown = [": ".join(filter(None, (_place(each["loc"]), each["msg"][:_LONGEST]))) for each in found[:_MOST_SHOWN]]
    rest = f"; and {number - _MOST_SHOWN} more" if number > _MOST_SHOWN else ""
    return f"{text}: {'; '.join(shown)}{rest}"


def _place(path: tuple[int | str, ...]) -> str:
    return ".".join(map(str, path))[:_LONGEST]
