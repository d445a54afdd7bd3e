"""Messages as the page of a log shows them: few at a time, each short and as text, whatever its author wrote.

The core writes their dag-json from the stored bytes while other threads run, and no more of it is read than is shown:
Python objects of a payload would take many times its memory, and the interpreter's lock for seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from gossiplog import core
from gossiplog.errors import EncodeError, UnknownMessage
from gossiplog.log import Log
from gossiplog.log.log import replica_of
from gossiplog.log.reading import raising_corrupt_log
from gossiplog.message import key_of
from gossiplog.reprs import frozen, without_bidi
from gossiplog.storage.base import PAGE_BYTES

MOST_MESSAGES = 200
"""Messages that the page shows at a time."""
MOST_BYTES = PAGE_BYTES
"""Bytes of their stored values: of long ones, fewer are shown at a time."""
MOST_TEXT = 240
"""Bytes of a payload's dag-json in the list."""
MOST_DETAIL = 4096
"""Bytes of it where one message is shown."""
MOST_RELATIVES = 16
"""Parents that are named of one message, and children."""
READING_BYTES = 3 * MOST_BYTES
"""Bytes that reading them may take."""

Entry: TypeAlias = dict[str, Any]
"""A message, as values for JSON.

It has `id`, `clock`, `author`, `codec`, `parents` (the first MOST_RELATIVES), `parent_count`, the `size` of the stored
value, the `text` of its payload, and whether that is `whole`. Where the payload has no dag-json form, the text is the
reason, and `unprintable` is true.
"""

_PIECE = 4096
# Entries that are made at a time, and the seconds between: an event loop that replicates the log has its turns there.
_RUN = 4
_PAUSE = 0.0005
_PAYLOAD = b'"payload":'
# What follows the payload, which may have such an item, too; the signature behind it has no text of the author's.
_END = b',"topic":"'
# Bytes from there on, beside the topic.
_LONGEST_REST = 512
_LARGEST_KEY = 2 ** (8 * core.KEY_LENGTH) - 1


@frozen
class Window:
    """A part of a log.

    Attributes:
        messages: in the order of their ids, the newest first.
        older: whether there are messages before them.
        newer: whether there are messages after them.
    """

    messages: Sequence[Entry]
    older: bool
    newer: bool

    def as_object(self) -> dict[str, Any]:
        """Return it as a value for JSON."""
        return {"messages": self.messages, "older": self.older, "newer": self.newer}


def latest(log: Log, known: dict[str, Entry] | None = None) -> Window:
    """Return the last messages of a log.

    Args:
        log: to read.
        known: entries of messages by id, which are not made again.
    """
    return _descending(log, None, known)


def before(log: Log, id: str) -> Window:
    """Return the messages before one, in the order of ids.

    Raises:
        DecodeError: text that is no id.
    """
    found = _descending(log, key_of(id))
    return Window(found.messages, found.older, True)


def after(log: Log, id: str) -> Window:
    """Return the messages after one, in the order of ids.

    Raises:
        DecodeError: text that is no id.
    """
    messages, newer = _ascending(log, key_of(id), MOST_MESSAGES, MOST_BYTES)
    return Window(messages, True, newer)


def around(log: Log, id: str) -> Window:
    """Return a message, and as many before it as after it.

    Raises:
        DecodeError: text that is no id.
        UnknownMessage: it is not in the log.
    """
    key = key_of(id)
    number = int.from_bytes(key) + 1
    end = number.to_bytes(core.KEY_LENGTH) if number <= _LARGEST_KEY else None
    low = _descending(log, end, limit=MOST_MESSAGES // 2, most_bytes=MOST_BYTES // 2)
    if not low.messages or low.messages[0]["id"] != id:
        raise UnknownMessage(id)
    high, newer = _ascending(log, key, MOST_MESSAGES // 2, MOST_BYTES // 2)
    return Window([*high, *low.messages], low.older, newer)


def detail(log: Log, id: str) -> Entry:
    """Return one message: what a list has of it, more of its payload, and its `children` and `more_children`.

    Raises:
        DecodeError: text that is no id.
        UnknownMessage: it is not in the log.
    """
    found = entry(replica_of(log).value(id), log.topic, MOST_DETAIL)
    children = log.children(id, limit=MOST_RELATIVES + 1)
    return found | {"children": list(children[:MOST_RELATIVES]), "more_children": len(children) > MOST_RELATIVES}


def entry(value: bytes, topic: str, most_text: int = MOST_TEXT) -> Entry:
    """Return what is shown of a stored value.

    Args:
        value: of a message of the log.
        topic: of the log.
        most_text: bytes of the payload's dag-json, at most.

    Raises:
        CorruptLog: it is no message.
    """
    with raising_corrupt_log:
        message = core.read_message(value, topic)
    parents = message.parents
    found: Entry = {
        "id": message.id,
        "clock": message.clock,
        "author": message.author,
        "codec": message.codec,
        "parents": list(parents[:MOST_RELATIVES]),
        "parent_count": len(parents),
        "size": len(value),
    }
    try:
        text, whole = _payload(value, topic, most_text)
    except EncodeError as error:
        return found | {"text": without_bidi(str(error)[:most_text]), "whole": True, "unprintable": True}
    return found | {"text": without_bidi(text), "whole": whole}


def _payload(value: bytes, topic: str, most: int) -> tuple[str, bool]:
    """Return the first bytes of a payload's dag-json as text, and whether they are all."""
    json = core.MessageJson([value], topic, is_list=False)
    text, start = bytearray(), -1
    while True:
        piece = json.read(_PIECE)
        text += piece
        if start < 0:
            # Ids and a clock stand before it, which have no quotes in them.
            place = text.find(_PAYLOAD, max(0, len(text) - len(piece) - len(_PAYLOAD)))
            start = place + len(_PAYLOAD) if place >= 0 else -1
        if not piece or (start >= 0 and len(text) > start + most + len(topic) + _LONGEST_REST):
            break
    end = len(text) if piece else text.rfind(_END)
    shown = text[start : min(end, start + most)]
    # Where a character is cut through, it is left out.
    return shown.decode("utf-8", "ignore"), not piece and end <= start + most


def _descending(
    log: Log,
    before: bytes | None,
    known: dict[str, Entry] | None = None,
    limit: int = MOST_MESSAGES,
    most_bytes: int = MOST_BYTES,
) -> Window:
    rows, older = replica_of(log).page(None, before, reverse=True, limit=limit, most_bytes=most_bytes)
    return Window(_entries(log, rows, known or {}), older, False)


def _ascending(log: Log, after: bytes, limit: int, most_bytes: int) -> tuple[list[Entry], bool]:
    rows, newer = replica_of(log).page(after, None, reverse=False, limit=limit, most_bytes=most_bytes)
    return _entries(log, rows, {})[::-1], newer


def _entries(log: Log, rows: Sequence[tuple[bytes, bytes]], known: dict[str, Entry]) -> list[Entry]:
    entries, made = [], 0
    for key, value in rows:
        found = known.get(core.encode_id(key)) if known else None
        if found is None:
            # The interpreter's lock would be asked back from this thread after 5 ms, each time that another needs it.
            if made % _RUN == _RUN - 1:
                time.sleep(_PAUSE)
            found = entry(value, log.topic)
            made += 1
        entries.append(found)
    return entries
