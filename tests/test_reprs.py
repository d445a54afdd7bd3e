"""No `repr` is long, whatever a stranger chose (`gossiplog.reprs`)."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import gossiplog
from gossiplog import CorruptLog, Signer, errors
from gossiplog.log.log import replica_of
from gossiplog.log.rebasing import rebase_command
from gossiplog.reprs import counted, last_counted, listed, shell_path, without_bidi

# Of public types, and of the machines' events, which tests and traces show.
MODULES = (
    "gossiplog.log.recovery",
    "gossiplog.log.results",
    "gossiplog.net.events",
    "gossiplog.net.peer",
    "gossiplog.net.replicator.telemetry",
    "gossiplog.protocol.broadcast.events",
    "gossiplog.protocol.push",
    "gossiplog.protocol.sync.client",
    "gossiplog.protocol.sync.events",
    "gossiplog.protocol.wire",
    "gossiplog.pubsub.events",
)
# What an operator chose.
OWN = (gossiplog.Access,)
MOST = 800


def public_dataclasses() -> Iterator[type]:
    found = [getattr(gossiplog, name) for name in gossiplog.__all__]
    for module in MODULES:
        found += [value for name, value in vars(importlib.import_module(module)).items() if not name.startswith("_")]
    for value in dict.fromkeys(filter(inspect.isclass, found)):
        if dataclasses.is_dataclass(value) and value not in OWN:
            yield value


def huge(annotation: str) -> Any:
    """Return a huge value for a field, if its type has any."""
    kinds: dict[str, Any] = {
        "tuple": tuple("x" * 1000 for _ in range(1000)),
        "Sequence": ["x" * 1000 for _ in range(1000)],
        "list": [b"x" * 1000 for _ in range(1000)],
        "frozenset": frozenset(f"{number:01000}" for number in range(100)),
        "Mapping": MappingProxyType({f"{number:01000}": "x" * 1000 for number in range(100)}),
        "dict": {f"{number:01000}": "x" * 1000 for number in range(100)},
        "str": "x" * 100_000,
        "bytes": b"x" * 100_000,
        "Any": "x" * 100_000,
        "PeerId": "x" * 100_000,
        "Exception": ValueError("x" * 100_000),
        "BaseException": ValueError("x" * 100_000),
    }
    return kinds.get(annotation.split("[")[0].split(" ")[0], 2**64)


@pytest.mark.parametrize("kind", list(public_dataclasses()), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_repr_is_short(kind: type) -> None:
    made = object.__new__(kind)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type] # a dataclass
        object.__setattr__(made, field.name, huge(str(field.type)))
    # Notes are this package's own, and what errors say is longer than other values.
    fields = [field for field in dataclasses.fields(kind) if field.name != "notes"]  # type: ignore[arg-type] # likewise
    for field in {*dataclasses.fields(kind)} - {*fields}:  # type: ignore[arg-type] # likewise
        object.__setattr__(made, field.name, ())
    errors = sum("Exception" in str(field.type) for field in fields)
    assert kind.__name__ in repr(made)
    assert len(repr(made)) < MOST * (1 + errors) + 80 * len(fields)


def test_a_command_in_a_repr_is_not_cut() -> None:
    """Printed, what a repair returned ended amid the command that it advised."""
    command = f"gossiplog rebuild /{'folder/' * 20}notes.db makes the application's tables anew from the messages"
    result = gossiplog.RepairResult(1, gossiplog.Node(0, None, bytes(16)), ("x" * 1000,), notes=(command,))
    assert f"notes=({command!r},)" in repr(result)
    many = dataclasses.replace(result, notes=(command,) * 5)
    assert f"notes=({', '.join([repr(command)] * 3)}, ...) of 5" in repr(many)
    failed = gossiplog.Failed("storing", errors.CorruptLog(["a message is lost"]))
    failed.error._locate(f"/{'folder/' * 20}notes.db")
    assert f"gossiplog repair /{'folder/' * 20}notes.db --from SOURCE" in repr(failed)


def test_errors_about_many_things_are_short() -> None:
    ids = ["0" * 32] * 100_000
    for error in (errors.MissingParents(ids[0], ids), errors.CorruptLog(ids), errors.CorruptSource(ids)):
        assert len(str(error)) < MOST
        assert len(repr(error)) < MOST


def test_counts_that_are_not_0_are_shown() -> None:
    """Those of a peer hid how often it had dialled."""
    counts = MappingProxyType({"streams": 5, **dict.fromkeys("abcdefgh", 0), "dials": 2})
    found = gossiplog.NetworkCounters(network=counts, inserted=MappingProxyType({"push": 0}))
    assert "network={'streams': 5, 'dials': 2, ...} of 10" in repr(found)
    assert "inserted={'push': 0}" in repr(found)
    many = MappingProxyType({str(number): number for number in range(100)})
    assert "network={...} of 100" in repr(dataclasses.replace(found, network=many))


def test_what_logs_return_says_how_much_there_is() -> None:
    with gossiplog.open(":memory:", "notes") as log:
        log.insert_many(Signer.generate().sign("notes", 1, [], number)[1] for number in range(5))
        found = log.info()
        assert f"heads=({', '.join(map(repr, found.heads[:3]))}, ...) of 5, " in repr(found)
        assert "by_author={...} of 5, generation=0" in repr(found)
        arrivals = next(iter(log.subscribe(after=0)))
        assert repr(arrivals) == f"<Arrivals: 5 messages, cursor {arrivals.cursor}>"


def test_a_view_of_a_mapping_is_shown_as_the_mapping() -> None:
    committed = gossiplog.Committed(
        1, gossiplog.Node(0, None, bytes(16)), 1, MappingProxyType({"ws://a": 1}), ("did:key:z6Mk",)
    )
    assert "sources={'ws://a': 1}" in repr(committed)


def test_a_view_of_a_mapping_shows_its_items_whole() -> None:
    with gossiplog.open(":memory:", "notes") as log:
        signers = [Signer(bytes([number]) * 32) for number in (1, 2, 3)]
        log.insert_many(signer.sign("notes", 1, [], number)[1] for number, signer in enumerate(signers))
        found = log.info()
        assert f"by_author={dict(found.by_author)!r}, " in repr(found)


def test_fields_that_are_none_are_left_out() -> None:
    assert repr(gossiplog.PeerInfo("ws://a", "hub", True, True)) == (
        "PeerInfo(name='ws://a', kind='hub', replicates=True, dialer=True)"
    )
    assert "score=0.0" in repr(gossiplog.PeerInfo("ws://a", "mesh", True, True, score=0.0))


def test_errors_about_one_thing_name_one() -> None:
    assert "not in the log: parent 1" in str(errors.MissingParents("0" * 32, ["1" * 32]))
    assert "not in the log: parents 1" in str(errors.MissingParents("0" * 32, ["1" * 32, "2" * 32]))


def test_a_count_agrees_with_its_noun() -> None:
    assert [counted(number, "message") for number in (0, 1, 2000)] == ["0 messages", "1 message", "2,000 messages"]
    assert [counted(number, "entry is", "entries are") for number in (1, 2)] == ["1 entry is", "2 entries are"]
    assert [last_counted(number, "message") for number in (1, 2000)] == ["last message", "last 2,000 messages"]


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (0, {}, ""),
        (2, {}, "0, 1"),
        (3, {}, "0, 1 and 1 more"),
        (2000, {"separator": "; "}, "0; 1; and 1,998 more"),
        (2, {"count": 3}, "0, 1 and 1 more"),
        (3, {"separator": " <- "}, "0 <- 1 and 1 more"),
    ],
)
def test_lists_are_cut_short(count: int, options: dict[str, Any], expected: str) -> None:
    assert listed([str(number) for number in range(count)], 2, **options) == expected


ODD_NAMES = [
    "log.db",
    "-dash.db",
    "a b.db",
    "it's.db",
    "e$(touch no).db",
    "a`b`.db",
    "a\nb\\'\x1b.db",
    "\udcff\u2028é.db",
    "LOG.db",
]


def test_paths_come_back_from_a_shell() -> None:
    printed = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {' '.join(map(shell_path, ODD_NAMES))}"], capture_output=True, check=True
    ).stdout
    assert [name.removeprefix(b"./") for name in printed.split(b"\0")[:-1]] == [*map(os.fsencode, ODD_NAMES)]
    assert printed.count(b"./-dash.db") == 1
    assert all(shell_path(name).isprintable() for name in ODD_NAMES)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_damage_and_loss_name_the_log_as_a_shell_takes_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with gossiplog.open(name, "notes", signer=Signer(bytes(32))) as log:
        log.append_many(range(9))
    with closing(sqlite3.connect(name)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_leaves WHERE seq = 5")
    with gossiplog.open(name) as log:
        with pytest.raises(CorruptLog) as damage:
            list(log)
        rebase = rebase_command(replica_of(log).argument, "ws://hub", ["an id"])
    with closing(sqlite3.connect(name)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_messages WHERE seq = 9")
        connection.execute("DELETE FROM gossiplog_leaves WHERE seq = 9")
    with pytest.raises(CorruptLog) as loss:
        gossiplog.open(name)
    assert f"`gossiplog doctor {shell_path(name)}`" in str(damage.value)
    assert f"gossiplog repair {shell_path(name)} --from SOURCE" in str(loss.value)
    assert rebase == f"gossiplog rebase {shell_path(name)} --onto ws://hub --drop 'an id'"


def test_controls_of_bidirectional_text_are_escaped() -> None:
    assert without_bidi("a\u202eb\u2069 \u05d0\u200d\\") == "a\\u202eb\\u2069 \u05d0\u200d\\"
