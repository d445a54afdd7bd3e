"""What the broadcast machine learns of messages after their insertion."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gossiplog import Log, Signer, core
from gossiplog.log.log import replica_of
from gossiplog.protocol.broadcast.events import Appended, Delivery, Judged, SyncBrought, Verdict
from gossiplog.replication.verdicts import (
    WRONG_KEY,
    Judgement,
    parents_first,
    report_deliveries,
    report_failure,
    report_sync,
)
from tests.conftest import TOPIC

NOBODY = core.encode_clock(1) + bytes(19)

Pair = tuple[bytes, bytes]


@pytest.fixture
def sign(signer: Signer) -> Callable[..., Pair]:
    def sign(clock: int, *parents: bytes, payload: object = None) -> Pair:
        return signer.sign(TOPIC, clock, tuple(map(core.encode_id, parents)), payload, "dag-cbor")

    return sign


@pytest.fixture
def log(opened: Callable[..., Log]) -> Log:
    def refuse_odd(payload: object) -> None:
        if payload == "odd":
            raise ValueError

    return opened(payload=refuse_odd)


def reported(log: Log, deliveries: Sequence[Delivery]) -> list[Judgement]:
    outcome = replica_of(log).insert(replica_of(log).verify([delivery.value for delivery in deliveries]))
    return report_deliveries(deliveries, outcome)


def verdicts(reports: Sequence[Judgement]) -> dict[object, Verdict]:
    return {report.delivery.source: report.verdict for report in reports if isinstance(report, Judged)}


def miskeyed(source: str, pair: Pair) -> Delivery:
    """A value under the key of a message with another clock, which `push.check_key` lets pass."""
    return Delivery(source, core.encode_clock(9) + pair[0][1:], pair[1])


def test_verdicts_over_one_batch(log: Log, sign: Callable[..., Pair]) -> None:
    first, second = sign(1), sign(1, payload="second")
    child = sign(2, first[0], second[0])
    orphan = sign(2, NOBODY)
    odd = sign(1, payload="odd")
    forged = core.read_message(sign(1, payload=7)[1], TOPIC)
    broken = forged.value.replace(forged.signature, bytes(64))
    log.insert(second[1])
    reports = reported(
        log,
        [
            Delivery("a", *child),
            Delivery("b", *orphan),
            Delivery("c", *first),
            Delivery("d", *orphan),
            Delivery("e", *child),
            Delivery("f", *second),
            Delivery("g", *odd),
            Delivery("h", core.read_message(broken, TOPIC).key, broken),
            miskeyed("i", first),
            Delivery("j", bytes(20), b"no message"),
            Delivery("k", *odd),
        ],
    )
    assert verdicts(reports) == {
        "a": Verdict.INSERTED,
        "b": Verdict.ORPHAN,
        "c": Verdict.INSERTED,
        "d": Verdict.ORPHAN,
        "e": Verdict.DUPLICATE,
        "f": Verdict.DUPLICATE,
        "g": Verdict.REFUSED,
        "h": Verdict.INVALID,
        "i": Verdict.INVALID,
        "j": Verdict.INVALID,
        "k": Verdict.REFUSED,
    }
    judged = [report for report in reports if isinstance(report, Judged)]
    assert len(judged) == len(reports) == 11
    assert {tuple(report.missing) for report in judged if report.verdict is Verdict.ORPHAN} == {(NOBODY,)}
    assert all(bool(report.reason) == (report.verdict is Verdict.INVALID) for report in judged)
    assert [report.delivery.source for report in judged if report.verdict is Verdict.INSERTED] == ["c", "a"]
    assert len(log) == 3


def test_a_valid_message_under_a_wrong_key_is_inserted_and_its_sender_blamed(
    log: Log, sign: Callable[..., Pair]
) -> None:
    parent = sign(1)
    child = sign(2, parent[0])
    wrong, honest = miskeyed("hostile", child), Delivery("honest", *child)
    assert reported(log, [wrong, honest, Delivery("honest", *parent)]) == [
        Judged(Delivery("honest", *parent), Verdict.INSERTED),
        Appended([child]),
        Judged(honest, Verdict.DUPLICATE),
        Judged(wrong, Verdict.INVALID, reason=WRONG_KEY),
    ]
    assert {message.key for message in log} == {parent[0], child[0]}
    # Nothing is passed on a second time.
    assert reported(log, [wrong]) == [Judged(wrong, Verdict.INVALID, reason=WRONG_KEY)]


def test_an_orphan_under_a_wrong_key_leaves_the_copies_of_others_orphans(log: Log, sign: Callable[..., Pair]) -> None:
    orphan = sign(2, NOBODY)
    wrong, honest = miskeyed("hostile", orphan), Delivery("honest", *orphan)
    assert reported(log, [wrong, honest]) == [
        Judged(honest, Verdict.ORPHAN, [NOBODY]),
        Judged(wrong, Verdict.INVALID, reason=WRONG_KEY),
    ]


def test_what_is_refused_comes_before_what_descends_from_it(log: Log, sign: Callable[..., Pair]) -> None:
    odd = sign(1, payload="odd")
    child = sign(2, odd[0])
    reports = reported(log, [Delivery("a", *child), Delivery("b", *odd)])
    assert reports == [
        Judged(Delivery("b", *odd), Verdict.REFUSED),
        Judged(Delivery("a", *child), Verdict.ORPHAN, [odd[0]]),
    ]
    assert parents_first(reports[::-1]) == reports


def test_what_a_log_could_not_take_is_left_for_later() -> None:
    deliveries = [Delivery("a", bytes(20), b"x"), Delivery("b", bytes(20), b"y")]
    assert report_failure(deliveries) == [Judged(delivery, Verdict.UNSTORED) for delivery in deliveries]


def test_a_batch_of_a_sync(log: Log, sign: Callable[..., Pair]) -> None:
    known, new, odd = sign(1, payload="known"), sign(1), sign(1, payload="odd")
    orphan = sign(2, NOBODY)
    forged = core.read_message(sign(1, payload=7)[1], TOPIC)
    broken = forged.value.replace(forged.signature, bytes(64))
    log.insert(known[1])
    replica = replica_of(log)
    outcome = replica.insert(replica.verify([known[1], new[1], odd[1], broken, orphan[1]]))
    brought = report_sync(7, outcome)
    assert brought == SyncBrought(7, [known[0], new[0]], 1, [odd[0]], [(orphan[0], [NOBODY])], brought.invalid)
    assert "signature" in brought.invalid
    assert report_sync(8, replica.insert(replica.verify([known[1]]))) == SyncBrought(8, [known[0]], 0, [], [])
