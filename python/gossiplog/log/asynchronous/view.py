"""A view of a log as coroutines see it: `LogView`, with `await`."""

from __future__ import annotations

from gossiplog.log.asynchronous.reading import AsyncReading
from gossiplog.log.payloads import P
from gossiplog.log.view import LogView


class AsyncLogView(AsyncReading[LogView[P], P]):
    """Messages of a log that are closed under ancestors, as `AsyncLog.at` returns them: see `LogView`.

    Examples:
        >>> async def main():
        ...     async with gossiplog.open_async("tea.db", "org.example.tea", signer=alice) as tea:
        ...         first = await tea.append("one")
        ...         await tea.append("two")
        ...         view = await tea.at(first.id)
        ...         print([message.payload async for message in view.messages()])
        >>> anyio.run(main)
        ['one']
    """

    blocking: LogView[P]

    async def children(self, id: str, *, limit: int | None = None) -> tuple[str, ...]:
        """Return the ids, ascending, of the messages of the view that name this one as a parent.

        Args:
            id: of a message.
            limit: the most ids. None returns all.
        """
        return await self._run(lambda: self.blocking.children(id, limit=limit))
