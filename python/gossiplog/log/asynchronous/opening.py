"""Opening a log in a coroutine."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

from gossiplog.log import opening
from gossiplog.log.applying import Apply, Setup
from gossiplog.log.asynchronous.calls import Stop, run_acquiring
from gossiplog.log.asynchronous.log import AsyncLog
from gossiplog.log.log import Log
from gossiplog.log.payloads import P
from gossiplog.signer import Signer
from gossiplog.storage import Storage
from gossiplog.storage.base import Progress, Synchronous
from gossiplog.storage.location import Location

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from typing_extensions import TypeForm


class AsyncLogOpening(Generic[P]):
    """A log that is about to be opened: by `async with`, which closes it at its end, or by `await`.

    Examples:
        >>> async def main():
        ...     opening = gossiplog.open_async(":memory:", "org.example.tea")
        ...     tea = await opening
        ...     print(await tea.count())
        ...     await tea.close()
        >>> anyio.run(main)
        0
    """

    def __init__(self, location: Location | Storage, topic: str | None, progress: Progress | None, **options: Any):
        self._location = location
        self._topic = topic
        self._progress = progress
        self._options = options
        self._log: AsyncLog[P] | None = None

    def __await__(self) -> Generator[Any, Any, AsyncLog[P]]:
        return self._open().__await__()

    async def _open(self) -> AsyncLog[P]:
        def open_log(stop: Stop) -> Log[P]:
            progress = stop.reporting(self._progress)
            return opening.open(self._location, self._topic, progress=progress, **self._options)

        return AsyncLog(await run_acquiring(open_log, Log.close))

    async def __aenter__(self) -> AsyncLog[P]:
        if self._log is not None:
            raise RuntimeError("it is open already: call gossiplog.open_async again for another")
        self._log = await self._open()
        return self._log

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    def __enter__(self) -> NoReturn:
        raise TypeError("open_async opens an asynchronous context: async with gossiplog.open_async(...) as log")

    def __exit__(self, *error: object) -> None:
        """Do nothing: `with` looks this up before it calls `__enter__`."""


@overload
def open_async(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[Any] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: None = None,
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> AsyncLogOpening[Any]: ...
@overload
def open_async(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[P] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: type[P] | TypeAdapter[P],
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> AsyncLogOpening[P]: ...
@overload
def open_async(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[P] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: TypeForm[P],
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> AsyncLogOpening[P]: ...
@overload
def open_async(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[Any] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: Callable[[Any], object],
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> AsyncLogOpening[Any]: ...
def open_async(
    location: Location | Storage,
    topic: str | None = None,
    *,
    apply: Apply[Any] | None = None,
    apply_version: int = 1,
    setup: Setup | None = None,
    payload: Any = None,
    check_others: bool = True,
    signer: Signer | None = None,
    create: bool = True,
    read_only: bool = False,
    synchronous: Synchronous = "full",
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> AsyncLogOpening[Any]:
    """Open a log for coroutines, on asyncio or trio; make it first where there is none.

        async with gossiplog.open_async("notes.db", "org.example.notes", signer=signer) as log:
            await log.append({"text": "milk"})

    The block closes it at its end. `log = await gossiplog.open_async(...)` opens one that you close by
    `await log.close()`. If the opening is cancelled, what was opened is closed: an upgrade, or `apply` over stored
    messages, ends at its next step, and the next opening goes on.

    Args, errors and warnings are those of `gossiplog.open`. `apply`, `setup` and `payload` are ordinary functions and
    run on worker threads; `progress` is called on the event loop, and what it raises ends the opening.

    Examples:
        >>> async def main():
        ...     async with gossiplog.open_async("tea.db", "org.example.tea", signer=alice) as tea:
        ...         await tea.append({"text": "The kettle is on."})
        ...         print([message.payload async for message in tea.messages()])
        >>> anyio.run(main)
        [{'text': 'The kettle is on.'}]
    """
    return AsyncLogOpening(
        location,
        topic,
        progress,
        apply=apply,
        apply_version=apply_version,
        setup=setup,
        payload=payload,
        check_others=check_others,
        signer=signer,
        create=create,
        read_only=read_only,
        synchronous=synchronous,
        accept_loss=accept_loss,
    )
