"""What a rebase makes of a log: `gossiplog.log.rebasing`."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gossiplog
from gossiplog import Log, RebaseError, RebaseResult, SignedMessage, Signer, UnknownMessage, core
from gossiplog.errors import CorruptLog, CursorOutdated, DecodeError, TopicMismatch
from gossiplog.log.log import replica_of
from gossiplog.log.rebasing import Rebase, RebasedMessage, RebaseOutcome, rebase_command, rebase_file
from gossiplog.message import MAX_PARENTS, PARENTS_OF_MANY_HEADS
from tests.strategies import alternative, repeatable

TOPIC = "org.example.test"
US, THEM, OTHERS = (Signer(bytes([number]) * 32) for number in (1, 2, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.db"


@pytest.fixture
def target() -> Iterator[Log]:
    with gossiplog.open(":memory:", TOPIC, signer=THEM) as log:
        yield log


def write(path: Path, payloads: Sequence[Any], signer: Signer = US) -> list[SignedMessage]:
    with gossiplog.open(path, TOPIC) as log:
        return log.append_many(payloads, signer=signer)


def rebase(
    path: Path, target: Log, *drop: SignedMessage | str, signers: Sequence[Signer] = (US,), **options: Any
) -> RebaseResult:
    ids = [message if isinstance(message, str) else message.id for message in drop]
    return rebase_file(path, lambda new: new.pull(target), ids, signers, **options)


def content(path: Path) -> list[str]:
    """All that is in the file, and how it is written."""
    with closing(sqlite3.connect(path)) as connection:
        return [*connection.iterdump(), *connection.execute("PRAGMA journal_mode").fetchone()]


def payloads(path: Path) -> list[Any]:
    with gossiplog.open(path, read_only=True) as log:
        log.verify()
        return [message.payload for message in log.messages()]


def test_what_descends_from_a_dropped_message_is_signed_anew_on_the_heads_of_the_target(
    path: Path, target: Log
) -> None:
    target.append_many(["theirs", "theirs too"])
    bad, *good = write(path, ["bad", *range(20)])
    result = rebase(path, target, bad)
    assert (len(result.signed), result.dropped, result.kept, result.messages, result.generation) == (20, 1, 0, 22, 1)
    assert [*result.signed] == [message.id for message in good]
    with gossiplog.open(path) as log:
        assert log.verify().messages == 22
        assert bad.id not in log
        # Each follows the one before, the first what the target has.
        before = target.heads
        for message, number in zip(good, range(20), strict=True):
            new = log.get(result.signed[message.id])
            assert (new.payload, new.author, new.parents) == (number, US.did, before)
            before = (new.id,)
        assert log.heads == before
        # The target takes them all.
        assert target.pull(log).inserted == 20
        assert target.root == log.root


def test_the_former_file_is_kept_whole(path: Path, target: Log) -> None:
    bad, *_ = write(path, ["bad", "good"])
    with gossiplog.open(path) as log:
        before = log.root
    result = rebase(path, target, bad)
    assert result.former == f"{path}.generation-0"
    with gossiplog.open(result.former, read_only=True) as former:
        assert (former.verify().root, replica_of(former).position().generation) == (before, 0)
    assert {each.name for each in path.parent.iterdir()} == {"mine.db", "mine.db-count", "mine.db.generation-0"}


def test_each_rebase_begins_a_generation(path: Path, target: Log) -> None:
    for generation in range(1, 4):
        bad = write(path, ["bad"])[0]
        write(path, [f"good {generation}"])
        result = rebase(path, target, bad)
        assert (result.generation, result.former) == (generation, f"{path}.generation-{generation - 1}")
        with gossiplog.open(path) as log:
            assert replica_of(log).position().generation == generation
            target.pull(log)
    assert payloads(path) == ["good 1", "good 2", "good 3"]


def test_order_is_kept_across_a_dropped_message(path: Path, target: Log) -> None:
    first, bad, last = write(path, ["first", "bad", "last"])
    result = rebase(path, target, bad)
    with gossiplog.open(path) as log:
        assert log.get(result.signed[last.id]).parents == (result.signed[first.id],)


def test_where_a_dropped_message_joined_others_only_the_last_of_them_are_followed(path: Path, target: Log) -> None:
    with gossiplog.open(path, TOPIC) as log:
        ((root_key, root),) = [US.sign(TOPIC, 1, [], "root")]
        root_id = core.encode_id(root_key)
        left_key, left = US.sign(TOPIC, 2, [root_id], "left")
        # Valid, though the one follows the other.
        bad_key, bad = US.sign(TOPIC, 3, [root_id, core.encode_id(left_key)], "bad")
        last_key, last = US.sign(TOPIC, 4, [core.encode_id(bad_key)], "last")
        assert log.insert_many([root, left, bad, last]).inserted == 4
    result = rebase(path, target, core.encode_id(bad_key))
    with gossiplog.open(path) as log:
        assert log.get(result.signed[core.encode_id(last_key)]).parents == (result.signed[core.encode_id(left_key)],)


def test_what_the_target_has_stays_as_it_is(path: Path, target: Log) -> None:
    shared = write(path, ["shared", "shared too"])
    with gossiplog.open(path) as log:
        target.pull(log)
    target.append("theirs")
    bad, good = write(path, ["bad", "good"])
    result = rebase(path, target, bad)
    assert [*result.signed] == [good.id]
    with gossiplog.open(path) as log:
        assert all(message.id in log for message in shared)
        assert log.get(result.signed[good.id]).parents == target.heads


def test_messages_of_others_that_the_target_lacks_stay_and_what_they_descend_from(path: Path, target: Log) -> None:
    target.append("theirs")
    (first,) = write(path, ["ours"])
    (other,) = write(path, ["of another"], OTHERS)
    bad, good = write(path, ["bad", "good"])
    result = rebase(path, target, bad)
    assert (result.kept, [*result.signed]) == (2, [good.id])
    with gossiplog.open(path) as log:
        assert first.id in log
        assert log.get(other.id).parents == (first.id,)
        # On top of what it followed, and of the target.
        assert log.get(result.signed[good.id]).parents == tuple(sorted([other.id, *target.heads]))


def test_heads_that_a_kept_message_follows_are_no_parents_beside_it(path: Path, target: Log) -> None:
    target.append("theirs")
    with gossiplog.open(path, TOPIC) as log:
        log.pull(target)
    (other,) = write(path, ["of another"], OTHERS)
    bad, good = write(path, ["bad", "good"])
    result = rebase(path, target, bad)
    with gossiplog.open(path) as log:
        assert log.get(result.signed[good.id]).parents == (other.id,)


def test_what_others_wrote_on_top_of_a_dropped_message_is_refused_with_ids(path: Path, target: Log) -> None:
    bad, good = write(path, ["bad", "good"])
    others = write(path, ["of another", "of another too"], OTHERS)
    (last,) = write(path, ["last"])
    before = content(path)
    with pytest.raises(RebaseError, match=f"they cannot be signed anew: {others[0].id}.*{OTHERS.did}") as error:
        rebase(path, target, bad)
    assert error.value.ids == tuple(message.id for message in others)
    assert error.value.authors == (OTHERS.did,)
    assert content(path) == before
    assert {each.name for each in path.parent.iterdir()} == {"mine.db", "mine.db-count"}
    result = rebase(path, target, bad, drop_descendants=True)
    assert (result.dropped, [*result.signed]) == (3, [good.id, last.id])
    assert payloads(path) == ["good", "last"]


def test_a_dropped_message_may_be_of_another_author(path: Path, target: Log) -> None:
    (bad,) = write(path, ["bad"], OTHERS)
    (good,) = write(path, ["good"])
    result = rebase(path, target, bad)
    assert (result.dropped, [*result.signed]) == (1, [good.id])


def test_several_keys_sign_the_messages_of_several_authors(path: Path, target: Log) -> None:
    (bad,) = write(path, ["bad"])
    for number, signer in enumerate([OTHERS, US, OTHERS]):
        write(path, [number], signer)
    result = rebase(path, target, bad, signers=[US, OTHERS])
    assert len(result.signed) == 3
    with gossiplog.open(path) as log:
        assert [message.author for message in log.messages()] == [OTHERS.did, US.did, OTHERS.did]


def test_a_key_of_nobody_changes_nothing_that_it_cannot_sign(path: Path, target: Log) -> None:
    bad, _ = write(path, ["bad", "good"])
    with pytest.raises(RebaseError, match="Give these authors' keys"):
        rebase(path, target, bad, signers=[OTHERS])
    assert payloads(path) == ["bad", "good"]


def test_all_encodings_of_a_dropped_message_are_dropped(path: Path, target: Log) -> None:
    with gossiplog.open(path, TOPIC, signer=US) as log:
        bad = log.append({"bad": 1})
        other = core.verify(alternative(bad.value), TOPIC)
        log.insert(other)
        good = log.append("good")
    for drop in (bad, other):
        result = rebase(path, target, drop, dry_run=True)
        assert (result.dropped, [*result.signed]) == (2, [good.id])


def test_encodings_of_one_message_are_signed_once(path: Path, target: Log) -> None:
    (bad,) = write(path, ["bad"])
    with gossiplog.open(path, signer=US) as log:
        good = log.append({"good": 1})
        other = core.verify(alternative(good.value), TOPIC)
        log.insert(other)
        # Somebody names the encoding as a parent.
        key, value = US.sign(TOPIC, other.clock + 1, [other.id], "last")
        log.insert(value)
    result = rebase(path, target, bad)
    assert result.signed[good.id] == result.signed[other.id]
    assert result.messages == 2
    with gossiplog.open(path) as log:
        assert log.get(result.signed[core.encode_id(key)]).parents == (result.signed[good.id],)


def test_a_message_of_which_the_target_has_another_encoding_is_not_signed_again(path: Path, target: Log) -> None:
    (shared,) = write(path, [{"a": 1}])
    other = core.verify(alternative(shared.value), TOPIC)
    target.insert(other)
    bad, good = write(path, ["bad", "good"])
    outcomes: list[RebasedMessage] = []
    result = rebase(path, target, bad, on_rebased=outcomes.append)
    assert [each.outcome for each in outcomes] == [RebaseOutcome.HELD, RebaseOutcome.DROPPED, RebaseOutcome.SIGNED]
    assert outcomes[0].new == other.id
    assert payloads(path) == [{"a": 1}, "good"]
    with gossiplog.open(path) as log:
        assert log.get(result.signed[good.id]).parents == (other.id,)
    with pytest.raises(RebaseError, match=r"the target has message .* itself"):
        rebase(path, target, other)


def test_a_message_that_the_target_has_cannot_be_dropped(path: Path, target: Log) -> None:
    first, bad = write(path, ["first", "bad"])
    target.insert(first)
    with pytest.raises(
        RebaseError, match=f"the target has message {first.id} itself, .* or leave out --drop {first.id}"
    ) as error:
        rebase(path, target, bad, first)
    assert error.value.ids == (first.id,)
    assert rebase(path, target, bad).dropped == 1


def test_what_a_copy_of_the_log_signed_anew_before_is_named_by_payload(path: Path, target: Log) -> None:
    bad, *_ = write(path, ["bad", "a", "b"])
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    before = rebase(path, target, bad)
    assert dict(before.same_payload) == {}
    with gossiplog.open(path) as log:
        target.pull(log)
    # Of others the payload is the same, of others the author.
    target.append("c")
    write(copy, ["b", "c"])
    planned = rebase(copy, target, bad, dry_run=True)
    # Each of the target's stands for one: the last message of the copy is a second "b".
    assert dict(planned.same_payload) == dict(before.signed)
    result = rebase(copy, target, bad)
    assert dict(result.same_payload) == dict(before.signed)
    # The way back: a second rebase without them.
    again = rebase(copy, target, *(result.signed[old] for old in result.same_payload))
    assert (again.dropped, dict(again.same_payload)) == (2, {})
    assert payloads(copy) == ["a", "b", "c", "b", "c"]


@given(target=st.lists(st.integers(0, 2)), own=st.lists(st.integers(0, 2)))
@repeatable(50)
def test_as_many_payloads_are_the_same_as_both_logs_have(target: list[int], own: list[int]) -> None:
    with gossiplog.open(":memory:", TOPIC, signer=US) as ours, gossiplog.open(":memory:", TOPIC, signer=US) as theirs:
        # Concurrent to what the target has, in any case.
        ours.insert(US.sign(TOPIC, 1, [], "first")[1])
        theirs.append_many(target)
        ours.append_many(own)
        plan = [*Rebase(ours, theirs, (), [US], drop_descendants=False).messages()]
        found = [each.same_payload for each in plan if each.same_payload is not None]
        assert len(found) == len({*found}) == sum((Counter(own) & Counter(target)).values())
        for each in plan:
            if each.same_payload is not None:
                assert theirs.get(each.same_payload).payload == each.old.payload


def test_what_another_copy_has_rebased_is_named_although_it_was_synced(path: Path, tmp_path: Path, target: Log) -> None:
    """A sync that ends with a refusal prints the command, and has brought the target's messages before."""
    target.append("theirs")
    bad, *_ = write(path, ["good", "bad", "good", "good too"])
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    first = rebase(path, target, bad)
    with gossiplog.open(path) as log:
        target.pull(log)
    with gossiplog.open(copy) as log:
        log.pull(target)
    planned = rebase(copy, target, bad, dry_run=True)
    assert {*planned.same_payload.values()} == {*first.signed.values()}


def test_an_earlier_message_with_the_payload_is_no_counterpart(path: Path, target: Log) -> None:
    write(path, ["again"])
    with gossiplog.open(path) as log:
        target.pull(log)
    write(path, ["again", "again"])
    assert dict(rebase(path, target, dry_run=True).same_payload) == {}


def test_what_cannot_be_dropped(path: Path, target: Log) -> None:
    write(path, ["good"])
    with pytest.raises(DecodeError):
        rebase(path, target, "no id")
    with pytest.raises(UnknownMessage):
        rebase(path, target, target.append("theirs"))


def test_another_topic(path: Path) -> None:
    write(path, ["good"])
    with gossiplog.open(":memory:", "another") as other, pytest.raises(TopicMismatch):
        rebase(path, other)
    assert payloads(path) == ["good"]


def test_a_dry_run_changes_nothing_and_names_the_ids_that_would_be(path: Path, target: Log) -> None:
    target.append("theirs")
    bad, *_ = write(path, ["bad", "good", "good too"])
    before = content(path)
    planned, done = list[RebasedMessage](), list[RebasedMessage]()
    plan = rebase(path, target, bad, dry_run=True, on_rebased=planned.append)
    assert (plan.former, plan.generation, plan.messages) == (None, 0, 3)
    assert content(path) == before
    steps: list[tuple[int, int]] = []
    result = rebase(path, target, bad, on_rebased=done.append, progress=lambda *figures: steps.append(figures))
    assert steps == [(3, 3)]
    assert result.signed == plan.signed
    assert done == planned
    assert result.messages == plan.messages


def test_nothing_changes_where_nothing_is_to_be_done(path: Path, target: Log) -> None:
    write(path, ["good"])
    with gossiplog.open(path) as log:
        target.pull(log)
    target.append("theirs")
    before = content(path)
    result = rebase(path, target)
    assert (result.former, result.generation, dict(result.signed)) == (None, 0, {})
    assert content(path) == before


def test_without_drops_the_author_s_messages_follow_the_target_s(path: Path, target: Log) -> None:
    target.append("theirs")
    first, second = write(path, ["first", "second"])
    result = rebase(path, target)
    with gossiplog.open(path) as log:
        assert log.get(result.signed[first.id]).parents == target.heads
        assert log.get(result.signed[second.id]).parents == (result.signed[first.id],)


def test_very_many_heads(path: Path, target: Log) -> None:
    values = [THEM.sign(TOPIC, 1, [], number)[1] for number in range(MAX_PARENTS + 10)]
    assert target.insert_many(values).inserted == len(values)
    bad, good = write(path, ["bad", "good"])
    result = rebase(path, target, bad)
    with gossiplog.open(path) as log:
        assert len(log.get(result.signed[good.id]).parents) == PARENTS_OF_MANY_HEADS


@pytest.mark.slow
def test_a_message_that_becomes_too_long_is_named(path: Path, target: Log) -> None:
    target.insert_many([THEM.sign(TOPIC, 1, [], number)[1] for number in range(MAX_PARENTS)])
    bad, good = write(path, ["bad", "x" * (4 * 2**20 - 1024 - 220)])
    with pytest.raises(RebaseError, match=f"message {good.id} cannot be signed anew: .* with its new parents") as error:
        rebase(path, target, bad)
    assert error.value.ids == (good.id,)
    assert payloads(path)[0] == "bad"


def test_dag_json_stays_dag_json(path: Path, target: Log) -> None:
    with gossiplog.open(path, TOPIC, signer=US) as log:
        bad = log.append("bad")
        good = log.append({"a": b"bytes", "b": 1.5}, codec="dag-json")
    result = rebase(path, target, bad)
    with gossiplog.open(path) as log:
        new = log.get(result.signed[good.id])
        assert (new.codec, new.payload) == ("dag-json", {"a": b"bytes", "b": 1.5})


def test_cursors_of_the_former_generation_are_refused(path: Path, target: Log) -> None:
    target.append_many(range(5))
    bad, *_ = write(path, ["bad", "good", "better"])
    with gossiplog.open(path) as log:
        old = next(log.subscribe(after=0)).cursor
        assert old == 3
        middle = next(log.subscribe(after=0, batch_size=1)).cursor
    rebase(path, target, bad)
    with gossiplog.open(path) as log:
        for cursor in (old, middle):
            with pytest.raises(
                CursorOutdated, match=r"is of generation 0 .* generation 1: begin anew with after=0"
            ) as error:
                log.subscribe(after=cursor)
            assert (error.value.found, error.value.expected) == (0, 1)
        arrivals = next(log.subscribe(after=0))
        assert len(arrivals) == 7
        assert arrivals.cursor == 2**48 + 7
        log.append("more", signer=US)
        assert [message.payload for message in next(log.subscribe(after=arrivals.cursor))] == ["more"]
    with gossiplog.open(f"{path}.generation-0", read_only=True) as former, pytest.raises(CursorOutdated):
        former.subscribe(after=arrivals.cursor)


def test_tables_of_the_application_are_filled_anew(path: Path, target: Log) -> None:
    def apply(message: SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("CREATE TABLE IF NOT EXISTS notes (id TEXT, payload TEXT)")
        transaction.execute("INSERT INTO notes VALUES (?, ?)", (message.id, str(message.payload)))

    target.append("theirs")
    with gossiplog.open(path, TOPIC, signer=US, apply=apply) as log:
        bad = log.append("bad")
        log.append("good")
    result = rebase(path, target, bad)
    assert result.tables == ("notes",)
    with gossiplog.open(path, apply=apply) as log:
        ids = [message.id for message in log.messages()]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id, payload FROM notes ORDER BY id").fetchall() == list(
            zip(ids, ["theirs", "good"], strict=True)
        )


def test_an_application_s_version_is_kept_and_its_setup_runs(path: Path, target: Log) -> None:
    def setup(transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("DROP TABLE IF EXISTS notes")
        transaction.execute("CREATE TABLE notes (payload TEXT)")

    def apply(message: SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("INSERT INTO notes VALUES (?)", (str(message.payload),))

    application: dict[str, Any] = {"apply": apply, "apply_version": 3, "setup": setup}
    with gossiplog.open(path, TOPIC, signer=US, **application) as log:
        bad = log.append("bad")
        log.append("good")
    rebase(path, target, bad)
    with gossiplog.open(path, read_only=True) as log:
        position = replica_of(log).position()
        assert (position.apply_version, position.applied, position.count) == (3, 0, 1)
    with gossiplog.open(path, **application):
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT payload FROM notes").fetchall() == [("good",)]


def test_a_log_of_an_earlier_schema(path: Path, target: Log) -> None:
    schema = Path(__file__).parents[1] / "storage" / "schemas" / "schema-2.db"
    path.write_bytes(schema.read_bytes())
    with gossiplog.open(path, read_only=True) as log:
        topic, count = log.topic, len(log)
    with gossiplog.open(":memory:", topic) as empty:
        result = rebase_file(path, lambda new: new.pull(empty), [], [US])
    assert result.kept == count or result.signed


@pytest.mark.slow
@given(data=st.data())
@repeatable(40)
def test_any_history(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever is dropped: what is signed anew keeps its order, and the target takes all that the new log has."""
    path = tmp_path_factory.mktemp("rebase") / "mine.db"
    signers = (US, OTHERS)
    made: list[SignedMessage] = []
    with gossiplog.open(path, TOPIC) as log, gossiplog.open(":memory:", TOPIC, signer=THEM) as target:
        for number in range(data.draw(st.integers(1, 12))):
            parents = data.draw(st.sets(st.sampled_from(made), max_size=3)) if made else set()
            clock = 1 + max((message.clock for message in parents), default=0)
            signer = data.draw(st.sampled_from(signers))
            _, value = signer.sign(TOPIC, clock, sorted(message.id for message in parents), number)
            made.append(core.verify(value, TOPIC))
        log.insert_many(made)
        held = data.draw(st.sets(st.sampled_from(made)))
        ancestors = {one.id for one in made for two in held if log.is_ancestor(one.id, two.id)} | {
            one.id for one in held
        }
        target.insert_many([message for message in made if message.id in ancestors])
        lacking = [message for message in made if message.id not in ancestors]
        dropped = data.draw(st.sets(st.sampled_from(lacking), max_size=3)) if lacking else set()
        keys = data.draw(st.sampled_from([(US,), signers]))
        below = {(one.id, two.id): log.is_ancestor(one.id, two.id) for one in made for two in made}
        log.close()
        result = rebase(path, target, *dropped, signers=keys, drop_descendants=True)
        with gossiplog.open(path) as new:
            new.verify()
            signed = dict(result.signed)
            assert result.dropped + result.kept + len(signed) == len(lacking)
            gone = {message.id for message in lacking if message.id not in signed and message.id not in new}
            assert {message.id for message in dropped} <= gone
            # What is gone was dropped, or others wrote it on top of that.
            own = {signer.did for signer in keys}
            for message in lacking:
                if message.id in gone and message not in dropped:
                    assert message.author not in own
                    assert any(below[one.id, message.id] for one in dropped)
            for one in signed:
                for two in signed:
                    if below[one, two]:
                        assert new.is_ancestor(signed[one], signed[two])
                for head in target.heads:
                    assert new.is_ancestor(head, signed[one])
            assert not gone.intersection(message.id for message in new.messages())
            assert target.pull(new).refused == ()
            assert target.root == new.root


def test_the_command() -> None:
    command = rebase_command("'my log.db'", "ws://hub/a?b", ["a", "b"], ["--token-file", "x y"])
    assert command == "gossiplog rebase 'my log.db' --onto 'ws://hub/a?b' --token-file 'x y' --drop a --drop b"
    assert rebase_command("", "ws://hub", ["a"]) == ""
    assert rebase_command("log.db", "ws://hub", []) == ""


def test_a_log_that_has_lost_messages_is_left_for_repair(path: Path, target: Log, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    with gossiplog.open(path, TOPIC, signer=US) as log:
        bad = log.append("bad")
        log.append("good")
        for suffix in ("", "-wal", "-count"):
            shutil.copy(f"{path}{suffix}", crashed)
    wal = crashed / "mine.db-wal"
    damaged = bytearray(wal.read_bytes())
    damaged[-100] ^= 1
    wal.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(CorruptLog, match="acknowledged message"):
            rebase(crashed / "mine.db", target, bad)
        assert wal.read_bytes() == damaged
    assert not (crashed / "mine.db.generation-0").exists()


def test_a_plan_writes_to_neither_log(path: Path, target: Log) -> None:
    bad, _ = write(path, ["bad", "good"])
    with gossiplog.open(path, read_only=True) as log:
        plan = Rebase(log, target, [bad.id], [US], drop_descendants=False)
        assert [each.outcome for each in plan.messages()] == [RebaseOutcome.DROPPED, RebaseOutcome.SIGNED]
        assert (len(log), len(target)) == (2, 0)
