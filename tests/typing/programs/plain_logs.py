"""Logs without a type for their payloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import gossiplog

signer = gossiplog.Signer.generate()
with gossiplog.open("plain.db", "org.example.typing", signer=signer) as log:
    assert_type(log, gossiplog.Log[Any])
    message = log.append({"text": "milk"})
    assert_type(message, gossiplog.SignedMessage[Any])
    assert_type(message.payload, Any)
    assert_type(message.raw_payload, Any)
    assert_type(message.parents, tuple[str, ...])
    assert_type(log.append_many([1, "two", None]), list[gossiplog.SignedMessage[Any]])
    assert_type(log.get(message.id), gossiplog.SignedMessage[Any])
    assert_type(log.messages(after=message.id), Iterator[gossiplog.SignedMessage[Any]])
    assert_type([found.clock for found in log], list[int])
    assert_type(log.subscribe(after=0), gossiplog.Subscription[Any])
    assert_type(log.heads, tuple[str, ...])
    assert_type(log.frontier(message.id, 0), tuple[str, ...])
    assert_type(log.insert(message.value), bool)
    assert_type(log.verify().forks, tuple[gossiplog.Fork, ...])
    assert_type(log.info().by_author[signer.did], gossiplog.AuthorTotals)


def pull_takes_a_log_a_path_or_a_url(log: gossiplog.Log, other: gossiplog.Log) -> gossiplog.PullResult:
    log.pull(Path("plain.db"))
    log.pull("plain.db")
    if not other.heads:
        log.pull("postgresql:///notes?schema=hub")
        log.pull(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return log.pull(other)


with gossiplog.open(":memory:", "org.example.typing") as first, gossiplog.open("plain.db") as second:
    assert_type(pull_takes_a_log_a_path_or_a_url(first, second).inserted, int)
