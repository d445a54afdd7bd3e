"""What the coordinator of a network knows of a member."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from gossiplog.testnet.plan import MemberPlan

State: TypeAlias = Literal["planned", "starting", "running", "stopped", "suspended"]
"""Where a member is: `planned` until it joins, `starting` until its worker has answered, and `suspended` while it is to
run, but is a client that is cut from its hub, or whose hub did not run when it was started."""


@dataclass(slots=True, eq=False)
class MemberStatus:
    """What the coordinator knows of a member.

    Attributes:
        plan: of it.
        state: as of now.
        addresses: by which others reach it.
        messages: in its log.
        root: hash of its log's root.
        connections: names of those that it says it is connected to.
        connected: times that it was connected to another.
        syncs: that it has made.
        blocked: names that it was told to block.
        changing: is held while it is started, stopped, or told whom to block.
    """

    plan: MemberPlan
    state: State = "planned"
    addresses: tuple[str, ...] = ()
    messages: int = 0
    root: str = ""
    connections: set[str] = field(default_factory=set)
    connected: int = 0
    syncs: int = 0
    blocked: frozenset[str] = frozenset()
    changing: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def runs(self) -> bool:
        """Whether it takes part."""
        return self.state == "running"

    @property
    def number(self) -> int:
        """From 0; a bootstrap has -1."""
        return self.plan.number

    @property
    def name(self) -> str:
        """By which events name it."""
        return self.plan.name

    @property
    def has_log(self) -> bool:
        """Whether it takes part with a log."""
        return self.plan.has_log
