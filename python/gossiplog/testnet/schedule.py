"""What happens to a network by itself: appends, peers that stop and start, a partition that heals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Generic, Protocol, TypeVar

import anyio

from gossiplog.dashboard.events import MOST_RATE
from gossiplog.errors import NetworkError
from gossiplog.net.transport.stream import Signal

_SECONDS_STOPPED = 1.0, 5.0
_MOST_STOPPED = 0.5
"""The share of the members that may be stopped at a time."""
# What is due longer ago is left out: a network that is slower than the rate does not have to catch up.
_LATEST = 1.0


class AutoAppend:
    """Appends messages at a rate that can be changed at any time.

    Args:
        append: appends a message somewhere.
        rate: messages a second; 0 for none.

    Raises:
        ValueError: a rate below 0 or above MOST_RATE.
    """

    def __init__(self, append: Callable[[], Awaitable[object]], rate: float = 0.0) -> None:
        self._append = append
        self._changed = Signal()
        self.rate = 0.0
        """Messages a second; 0 for none."""
        self.set_rate(rate)

    def set_rate(self, rate: float) -> None:
        """Append so many messages a second from now on; 0 for none."""
        self.rate = _checked(rate, "messages are appended")
        self._changed.set()

    async def run(self) -> None:
        """Append, until it is cancelled."""
        while True:
            while not self.rate:
                await self._changed.wait()
            due = anyio.current_time()
            while (rate := self.rate) > 0:
                due = max(due + 1 / rate, anyio.current_time() - _LATEST)
                with anyio.move_on_after(due - anyio.current_time()):
                    await self._changed.wait()
                    # From now on, not from the last message.
                    break
                await self._append()


class Stoppable(Protocol):
    """A member that may be stopped."""

    @property
    def runs(self) -> bool:
        """Whether it takes part."""


_Member = TypeVar("_Member", bound=Stoppable)


class Churn(Generic[_Member]):
    """Stops members at random, and starts each again some seconds later.

    At most half of them are stopped at a time.

    Args:
        members: returns those that may be stopped.
        stop: stops one.
        start: starts one again.
        on_error: is called where one cannot be stopped or started; others still are.
        rate: stops in a second, on average.
        random: chooses who and when.

    Raises:
        ValueError: a rate that is not above 0, or above MOST_RATE.
    """

    def __init__(
        self,
        members: Callable[[], Sequence[_Member]],
        stop: Callable[[_Member], Awaitable[object]],
        start: Callable[[_Member], Awaitable[object]],
        on_error: Callable[[_Member, NetworkError], object],
        *,
        rate: float,
        random: Random,
    ) -> None:
        if not rate:
            raise ValueError("peers stop 0 times a second: expected a rate above 0")
        self._members = members
        self._stop = stop
        self._start = start
        self._on_error = on_error
        self._rate = _checked(rate, "peers stop")
        self._random = random
        self._stopped = 0

    async def run(self) -> None:
        """Stop and start members, until it is cancelled."""
        async with anyio.create_task_group() as starting:
            while True:
                await anyio.sleep(self._random.expovariate(self._rate))
                members = self._members()
                running = [member for member in members if member.runs]
                if running and self._stopped < int(_MOST_STOPPED * len(members)):
                    self._stopped += 1
                    starting.start_soon(self._restart, self._random.choice(running))

    async def _restart(self, member: _Member) -> None:
        try:
            await self._stop(member)
            await anyio.sleep(self._random.uniform(*_SECONDS_STOPPED))
            await self._start(member)
        except NetworkError as error:
            # Its port may be another program's now.
            self._on_error(member, error)
        finally:
            self._stopped -= 1


async def part_for(
    seconds: float, part: Callable[[], Awaitable[object]], heal: Callable[[], Awaitable[object]]
) -> None:
    """Part a network, and heal it after so many seconds."""
    await part()
    await anyio.sleep(seconds)
    await heal()


def _checked(rate: float, what: str) -> float:
    if not 0 <= rate <= MOST_RATE:
        raise ValueError(f"{what} {rate:g} times a second: expected 0 to {MOST_RATE:,.0f}")
    return rate
