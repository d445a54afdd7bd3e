"""Rebasing a log onto one that is anywhere: in a file, at a hub, or at a peer of a mesh."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import anyio

from gossiplog.errors import NetworkError
from gossiplog.log import Log
from gossiplog.log.rebasing import Rebased, rebase_file
from gossiplog.log.results import RebaseResult
from gossiplog.net.arguments import check_callbacks
from gossiplog.net.client import connect
from gossiplog.net.peer import Peer
from gossiplog.net.service import background
from gossiplog.signer import Signer, check_signer

_HUB = re.compile(r"wss?://", re.IGNORECASE)
_PEER = re.compile(r"/(?:ip4|ip6|dns4?|dns6)/")
_STALLED_SECONDS = 60.0
"""Without a message from the target, after which it is given up."""


def rebase(
    location: str | os.PathLike[str],
    onto: Log | str | os.PathLike[str],
    drop: Iterable[str] = (),
    *,
    signer: Signer | Sequence[Signer],
    drop_descendants: bool = False,
    dry_run: bool = False,
    token: str | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    report: Callable[[Rebased], object] = lambda rebased: None,
) -> RebaseResult:
    """Sign anew, on top of another log, what its own authors have written to a log and the other one lacks.

    This is the way back for a log with messages that a hub or a peer refuses: they are dropped, and what descends from
    them is signed anew, with other ids. The new log takes the place of the file in one step, with a generation that is
    1 higher; the former file is kept beside it, as `LOG.generation-N`. Whenever the process ends, one of the two is
    there, whole. Cursors of the former generation raise CursorOutdated, and `apply` runs anew for all messages when the
    log is opened.

    Peers that hold the dropped messages bring them back when they sync with the log. Nobody may have the file open.

    Args:
        location: the path of the log's file.
        onto: the other log, the target: a Log, the path of its file, a hub's address (`ws://`, `wss://`) or a peer's
            multiaddr. All of its messages are copied into the new file. From a hub or a peer they are fetched by an
            event loop of this call's own: call it on a worker thread where another one runs.
        drop: ids of messages to leave out, of any author.
        signer: of the messages that are signed anew; several, where several of the log's authors are to be. Messages
            of other authors stay as they are, and so does what they descend from.
        drop_descendants: whether to drop what other authors have written on top of dropped messages, too.
        dry_run: whether everything stays as it is; the result then says what would become of it.
        token: the text of the hub's bearer token, if it asks for one.
        ca_file: a PEM file of certificate authorities to trust beside the platform's.
        report: is called with what becomes of each message that the target lacks, parents first.

    Raises:
        RebaseError: the target has a message that is to be dropped, or other authors have written on top of one; its
            `ids` say which.
        DecodeError: text that is no id.
        UnknownMessage: a message to drop is not in the log.
        NotALog: there is no such file, or it holds no log.
        TopicMismatch: the target has another topic.
        StorageError: the file is open elsewhere, or cannot be written, or is the target's own.
        CorruptLog: the log or the target is damaged.
        NetworkError: the target cannot be reached.
        ProtocolError: the target broke a rule of the protocols.
    """
    check_callbacks(report=report)
    signers = [signer] if isinstance(signer, Signer) else list(signer)
    for each in signers:
        check_signer(each)
    return rebase_file(
        location,
        _fill(onto, token, ca_file),
        drop,
        signers,
        drop_descendants=drop_descendants,
        dry_run=dry_run,
        report=report,
    )


def _fill(
    onto: Log | str | os.PathLike[str], token: str | None, ca_file: str | os.PathLike[str] | None
) -> Callable[[Log], object]:
    if isinstance(onto, str) and _HUB.match(onto):
        return lambda log: anyio.run(partial(_fetch_from_hub, log, onto, token, ca_file))
    if isinstance(onto, str) and _PEER.match(onto):
        return lambda log: anyio.run(partial(_fetch_from_peer, log, onto))
    return lambda log: log.pull(onto)


async def _fetch_from_hub(log: Log, url: str, token: str | None, ca_file: str | os.PathLike[str] | None) -> None:
    async with connect(log, url, token=token, ca_file=ca_file, reconnect=False) as client:
        await _while_it_grows(log, url, client.synced)


async def _fetch_from_peer(log: Log, address: str) -> None:
    async with Peer(log, ()) as peer:
        await peer.dial(address)
        await _while_it_grows(log, address, peer.synced)


async def _while_it_grows(log: Log, target: str, synced: Callable[[], Awaitable[object]]) -> None:
    """Wait until a log has what the target has.

    Raises:
        NetworkError: nothing has come for a while.
    """

    async def watch() -> None:
        before = -1
        while (count := len(log)) != before:
            before = count
            await anyio.sleep(_STALLED_SECONDS)
        raise NetworkError(f"{target} sent no message for {_STALLED_SECONDS:g} s, and its log differs from what came")

    async with background() as tasks:
        tasks.start_soon(watch)
        await synced()
