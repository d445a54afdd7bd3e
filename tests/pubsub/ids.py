"""Ids of messages that show whether anything remembers them."""

from __future__ import annotations

from weakref import ref

from gossiplog.pubsub.rpc import Message


class Id:
    """Of one message."""


class Ids:
    """The ids of all messages, each of which gets its own."""

    def __init__(self) -> None:
        self._made: list[ref[Id]] = []

    def id_of(self, message: Message) -> Id:
        made = Id()
        self._made.append(ref(made))
        return made

    @property
    def remembered(self) -> list[bool]:
        """Whether each, in their order, is remembered still."""
        return [made() is not None for made in self._made]
