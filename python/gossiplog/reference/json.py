"""dag-json: written as canvas-js signs it, read as anybody may type it.

Source: wire format, "dag-json"; RFC 8259; ECMAScript 2023, 25.5.4 (JSON.stringify). Nothing here recurses.
"""

from __future__ import annotations

import json as standard_json
import math
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final

from gossiplog.errors import DecodeError, EncodeError
from gossiplog.reference.limits import MAX_OWN_DEPTH
from gossiplog.reference.multiformats import CID
from gossiplog.reference.values import format_number, normalise, normalise_float, text_fault

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)", re.ASCII)
# No group is possessive: before Python 3.11.5 those match what they should not (python/cpython#106052).
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*"')
_WORDS: Final = {"null": None, "true": True, "false": False}
#: An integer of more digits is out of range.
_MAX_DIGITS: Final = 21


def json_encode(value: Any) -> bytes:
    """Write a value as dag-json, in UTF-8.

    Args:
        value: as for `cbor_encode`.

    Raises:
        EncodeError: a value that cannot be written, or that other peers would refuse or change; it names the place.
    """
    return write_json(normalise(value))


class _Verbatim(str):
    """Text that is written as it is, among values."""

    __slots__ = ()


_COMMA: Final = _Verbatim(",")


def write_json(value: Any) -> bytes:
    """Write a normalised value, of any depth, as dag-json."""
    out: list[str] = []
    pending = [value]
    while pending:
        value = pending.pop()
        match value:
            case _Verbatim():
                out.append(value)
            case None | bool():
                out.append(_write_word(value))
            case int():
                out.append(str(value))
            case float():
                number = format_number(value)
                out.append(number if re.search("[.e]", number) else f"{number}.0")
            case str():
                out.append(_write_string(value))
            case bytes():
                out.append(f'{{"/":{{"bytes":"{b64encode(value).decode().rstrip("=")}"}}}}')
            case CID():
                out.append(f'{{"/":"{value}"}}')
            case list():
                pieces: list[Any] = []
                for item in value:
                    pieces += (item, _COMMA)
                pending += (_Verbatim("]"), *reversed(pieces[:-1]), _Verbatim("["))
            case _:
                pieces = []
                for key in sorted(value, key=_map_order):
                    pieces += (_Verbatim(f"{_write_string(key)}:"), value[key], _COMMA)
                pending += (_Verbatim("}"), *reversed(pieces[:-1]), _Verbatim("{"))
    return "".join(out).encode()


def _map_order(key: str) -> bytes:
    return key.encode("utf-16-be")


def _write_word(value: bool | None) -> str:
    return "null" if value is None else "true" if value else "false"


def _write_string(text: str) -> str:
    return standard_json.dumps(text, ensure_ascii=False)


def resolve_lookalikes(value: Any) -> Any:
    """Copy a normalised value, of any depth, in which each value is what its text in dag-json is read as.

    Links and bytes take the place of maps that have their text. Where the text of a link is not read as that link, what
    it is read as takes the place of the link. A signature over the text holds for both.
    """
    root: list[Any] = [None]
    pending: list[tuple[Any, Any, Any]] = [(root, 0, value)]
    while pending:
        target, position, value = pending.pop()
        match value:
            case {"/": meant, **others} if not others and (resolved := _resolved(meant)) is not None:
                target[position] = resolved
            case dict():
                target[position] = dict.fromkeys(value)
                pending += ((target[position], key, item) for key, item in value.items())
            case list():
                target[position] = [None] * len(value)
                pending += ((target[position], index, item) for index, item in enumerate(value))
            case CID():
                target[position] = _reread(value)
            case _:
                target[position] = value
    return root[0]


def _reread(link: CID) -> CID | dict[str, str]:
    """Return what the text of a link is read as; the link itself if it has none."""
    try:
        text = str(link)
    except EncodeError:
        return link
    read = _link_of(text)
    return {"/": text} if read is None else read


def _link_of(text: str) -> CID | None:
    """Return the link that has this text, to the letter."""
    try:
        link = CID.parse(text)
        return link if str(link) == text else None
    except (DecodeError, EncodeError):
        # Or it is too long to be written.
        return None


def _resolved(meant: Any) -> CID | bytes | None:
    """Return the link or the bytes that have the text of a map `{"/": meant}`, None where there are none."""
    match meant:
        case str():
            return _link_of(meant)
        case {"bytes": str(text), **others} if not others:
            try:
                data = b64decode(text + "=" * (-len(text) % 4), validate=True)
            except ValueError:
                return None
            return data if b64encode(data).decode().rstrip("=") == text else None
        case _:
            return None


def is_unreadable(value: Any) -> bool:
    """Return whether nobody reads the text of a value: a map in it looks as bytes do, and holds no base64."""
    values = [value]
    while values:
        match values.pop():
            case {"/": {"bytes": _, **more} as meant, **others} if not (others or more) and _resolved(meant) is None:
                return True
            case dict(entries):
                values += entries.values()
            case list(items):
                values += items
    return False


def json_decode(data: bytes) -> Any:
    """Read dag-json text in UTF-8: white space and any form of escapes are accepted, numbers are normalised.

    A map whose only key is `/` is a link where its value is a link's text, and is kept as it is where its value is any
    other text; it is bytes where its value is `{"bytes": "<base64>"}`.

    Returns:
        None, bool, int, float, str, bytes, CID, list or dict.

    Raises:
        DecodeError: text that is not dag-json, repeats a key, or opens more than `MAX_OWN_DEPTH` brackets; an integer
            outside -2^64 to 2^64-1, a number beyond all floats, a string that begins with U+FEFF or has a lone
            surrogate, base64 with padding or otherwise not strict.
    """
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as error:
        raise DecodeError("the text is not UTF-8", error.start) from error
    return _Reader(text).read()


@dataclass(slots=True)
class _Open:
    """A list or map under construction.

    Attributes:
        key: the key whose value is being read, in a map.
    """

    value: list[Any] | dict[str, Any]
    key: str = ""

    def add(self, value: Any) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        else:
            self.value[self.key] = value


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> Any:
        """Return the one value that the text holds."""
        stack: list[_Open] = []
        while True:
            if self._skip("[") or self._skip("{"):
                if len(stack) == MAX_OWN_DEPTH:
                    raise self._error(f"lists and maps more than {MAX_OWN_DEPTH} deep")
                stack.append(_Open([] if self._text[self._at - 1] == "[" else {}))
                if not self._skip("]" if isinstance(stack[-1].value, list) else "}"):
                    self._read_key(stack[-1])
                    continue
                value = self._close(stack.pop())
            else:
                value = self._read_scalar()
            while stack:
                stack[-1].add(value)
                if self._skip(","):
                    self._read_key(stack[-1])
                    break
                self._expect("]" if isinstance(stack[-1].value, list) else "}")
                value = self._close(stack.pop())
            else:
                self._skip("")
                if self._at < len(self._text):
                    raise self._error("text is left over")
                return value

    def _close(self, opened: _Open) -> Any:
        """Return what a list or map stands for."""
        value = opened.value
        if isinstance(value, dict) and value.keys() == {"/"}:
            inner = value["/"]
            if isinstance(inner, str):
                try:
                    return CID.parse(inner)
                except DecodeError:
                    return value
            if isinstance(inner, dict) and inner.keys() == {"bytes"}:
                return self._read_base64(inner["bytes"])
        return value

    def _read_base64(self, text: Any) -> bytes:
        if not isinstance(text, str):
            raise self._error('{"/":{"bytes":…}} that holds no string')
        try:
            data = b64decode(text + "=" * (-len(text) % 4), validate=True)
        except ValueError as error:
            raise self._error("bytes that are not base64") from error
        if b64encode(data).decode().rstrip("=") != text:
            raise self._error("base64 with padding, or not in its shortest form")
        return data

    def _read_key(self, opened: _Open) -> None:
        if isinstance(opened.value, list):
            return
        self._skip("")
        start = self._at
        opened.key = self._read_string()
        if opened.key in opened.value:
            self._at = start
            raise self._error(f"the key {opened.key[:40]!r} is there twice")
        self._expect(":")

    def _read_scalar(self) -> Any:
        self._skip("")
        if self._text.startswith('"', self._at):
            return self._read_string()
        for word, meaning in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return meaning
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise self._error("no value")
        value = self._read_number(number[1], number[2])
        self._at = number.end()
        return value

    def _read_number(self, whole: str, rest: str) -> int | float:
        if not rest:
            value = int(whole) if len(whole) <= _MAX_DIGITS else 2**64
            if not -(2**64) <= value < 2**64:
                raise self._error("an integer outside -2^64 to 2^64-1")
            return value
        number = float(whole + rest)
        if not math.isfinite(number):
            raise self._error("a number beyond all floats")
        return normalise_float(number)

    def _read_string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            raise self._error("no string, or one that is not closed or not escaped")
        text: str = standard_json.loads(found[0])
        fault = text_fault(text)
        if fault is not None:
            raise self._error(fault)
        self._at = found.end()
        return text

    def _skip(self, token: str) -> bool:
        """Skip white space, then the token when it is there."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        if not self._text.startswith(token, self._at):
            return False
        self._at += len(token)
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise self._error(f"expected `{token}`")

    def _error(self, reason: str) -> DecodeError:
        return DecodeError(reason, len(self._text[: self._at].encode()))
