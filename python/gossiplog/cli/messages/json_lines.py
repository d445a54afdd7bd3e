"""JSON Lines that `gossiplog append` and `import` read, and `export` writes.

A line of an export is the map `{id, signature, message}` of the HTTP API (wire format, "HTTP API"), in dag-json. Where
that map does not give the message back byte for byte, as with alternative encodings, the line also has the stored
value as `value`. So an import of an export has the same messages.

An export begins with `{"topic":"..."}` and ends with `{"messages":607}`. The first line promises the last one, so that
an import notices an export that was cut off. The number of messages stands at the end, because the log may get more
while it is written. Lines without a first and a last one are accepted: earlier versions wrote messages alone, and so do
people who choose lines of an export with `grep` or `jq`.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import Any

from gossiplog import core
from gossiplog.errors import DecodeError, EncodeError, GossipLogError
from gossiplog.message import SignedMessage

LONGEST_LINE = 16 << 20
"""Bytes. Messages have to fit into a protocol frame, so their lines are far shorter."""

_CHUNK = 1 << 20
# Bytes of a message's dag-json. Above it a line has the value alone, which base64 makes a third longer.
_LONGEST_TEXT = LONGEST_LINE // 2
_VALUE = "value"
_UTF_8 = "UTF-8"
# Bytes of a first or a last line: topics are shorter.
_LONGEST_MARK = 4096
# What iconv calls the encoding of a text that begins so, as Windows writes some: a byte order mark, or a character of
# ASCII. UTF-32 begins as UTF-16 does.
_ENCODINGS = (
    (re.compile(rb"\xef\xbb\xbf"), _UTF_8),
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), "UTF-32"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "UTF-16"),
    (re.compile(rb"[ -~]\0\0\0"), "UTF-32LE"),
    (re.compile(rb"\0\0\0[ -~]"), "UTF-32BE"),
    (re.compile(rb"[ -~]\0"), "UTF-16LE"),
    (re.compile(rb"\0[ -~]"), "UTF-16BE"),
)


class LongLine(GossipLogError):
    """A line that is too long for a message."""


class OtherEncoding(GossipLogError):
    """Text that is not in UTF-8."""


def read_lines(stream: io.BufferedIOBase, name: str) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines of a stream that are not blank, with their numbers from 1.

    Each list has the lines that have arrived, so that a slow writer is followed line by line. A byte order mark of
    UTF-8 is left out.

    Args:
        stream: to read.
        name: of the stream, for errors.

    Raises:
        LongLine: a line of more than LONGEST_LINE bytes.
        OtherEncoding: the text is in UTF-16 or UTF-32.
    """
    rest, number = b"", 0
    while chunk := stream.read1(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if number == 0 and lines:
            lines[0] = _in_utf_8(lines[0], name)
        if len(rest) > LONGEST_LINE:
            raise LongLine(f"line {number + len(lines) + 1} of {name} is longer than {LONGEST_LINE:,} bytes")
        yield _numbered(lines, number)
        number += len(lines)
    yield _numbered([rest if number else _in_utf_8(rest, name)], number)


def text_encoding(start: bytes) -> str:
    """Return the encoding of a text by its first bytes, UTF-8 with a byte order mark among them; "" if none shows."""
    return next((name for pattern, name in _ENCODINGS if pattern.match(start)), "")


def _in_utf_8(line: bytes, name: str) -> bytes:
    """Return the first line of a text without its byte order mark.

    Raises:
        OtherEncoding: the text is in UTF-16 or UTF-32.
    """
    encoding = text_encoding(line)
    if encoding not in ("", _UTF_8):
        raise OtherEncoding(f"{name} is in {encoding}: expected UTF-8, which iconv -f {encoding} -t UTF-8 makes of it")
    return line.removeprefix(codecs.BOM_UTF8)


def _numbered(lines: list[bytes], before: int) -> list[tuple[int, bytes]]:
    return [(number, line.strip()) for number, line in enumerate(lines, before + 1) if line.strip()]


def message_line(message: SignedMessage) -> bytes:
    """Return the line of a message, without the line break."""
    try:
        pieces = core.MessageJson([message.value], message.topic, is_list=False)
        text = b"".join(iter(lambda: pieces.read(_CHUNK), b""))
    except EncodeError:
        text = b""
    value = {_VALUE: message.value}
    if not text or len(text) > _LONGEST_TEXT:
        return core.json_encode({"id": message.id} | value)
    try:
        is_whole = core.read_message_map(text, "dag-json") == message.value
        # Keys are in the order of dag-json, in which `value` is the last.
        return text if is_whole else text[:-1] + b"," + core.json_encode(value)[1:]
    except DecodeError:
        # A map that looks as dag-json has bytes, and is none: nobody can read the text.
        return core.json_encode({"id": message.id} | value)


def first_line(topic: str) -> bytes:
    """Return the line before the messages of an export, without the line break."""
    return core.json_encode({"topic": topic})


def last_line(messages: int) -> bytes:
    """Return the line after the messages of an export, without the line break."""
    return core.json_encode({"messages": messages})


def read_mark(line: bytes) -> str | int | None:
    """Return the topic of an export's first line, or the number of messages of its last; None of any other line."""
    if len(line) > _LONGEST_MARK or not line.startswith((b'{"topic"', b'{"messages"')):
        return None
    try:
        body: Any = core.json_decode(line)
    except DecodeError:
        return None
    match body:
        case {"topic": str(topic), **others} if not others:
            return topic
        case {"messages": int(messages), **others} if not others and not isinstance(messages, bool):
            return messages
    return None


def message_value(line: bytes) -> bytes:
    """Return the stored value of the message in a line, not verified yet.

    Other fields than `value`, or else `signature` and `message`, are ignored.

    Raises:
        DecodeError: a line that is no message.
    """
    # As Python objects, lists of a line of LONGEST_LINE would take 350 MiB.
    return core.read_message_line(line)
