"""`payload=` of `open`: checks of payloads, and logs with a type for them."""

from __future__ import annotations

import enum
import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    TypeAdapter,
    ValidationError,
    computed_field,
    field_serializer,
)
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

import gossiplog
from gossiplog import CID, EncodeError, InvalidPayload, Log, MemoryStorage, RefusedMessage, SignedMessage, Signer, core
from gossiplog.log.payloads import payload_rules
from tests.strategies import repeatable


class Text(BaseModel):
    text: str


def refuse_odd(payload: Any) -> None:
    if payload % 2:
        raise ValueError("odd")


@pytest.mark.parametrize(
    ("payload", "good", "bad"),
    [
        (refuse_odd, 2, 3),
        (Text, {"text": "hi"}, {"text": 1}),
        (int | None, None, "x"),
        (list[int], [1], ["x"]),
        (Annotated[int, Field(gt=5)], 6, 5),
        (JsonValue, {"a": [1]}, b"bytes"),
    ],
)
def test_kinds_of_checks(opened: Callable[..., Log], signer: Signer, payload: Any, good: Any, bad: Any) -> None:
    log = opened(payload=payload, signer=signer)
    message = log.append(good)
    assert message.raw_payload == good
    assert message.payload == (good if payload is refuse_odd else TypeAdapter(payload).validate_python(good))
    with pytest.raises(RefusedMessage, match="its payload is refused") as refused:
        log.append(bad)
    assert isinstance(refused.value.__cause__, ValueError | ValidationError)
    assert refused.value.id is None
    assert len(log) == 1


async def refuse_later(payload: Any) -> None:
    raise ValueError("nobody waits for this")


class RefusesLater:
    async def __call__(self, payload: Any) -> None:
        await refuse_later(payload)


@pytest.mark.parametrize("payload", [refuse_later, RefusesLater()])
def test_a_coroutine_function_checks_nothing(payload: Any) -> None:
    with pytest.raises(TypeError, match=r"payload is .*, a coroutine or generator function"):
        payload_rules(payload)


def test_what_pydantic_does_not_know_is_no_check() -> None:
    class Unknown:
        pass

    with pytest.raises(TypeError, match="arbitrary_types_allowed"):
        payload_rules(Unknown)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("Note", r"payload is the text 'Note': expected a function or a type, not its name"),
        (list["Nowhere"], r"payload is list\['Nowhere'\]: .* \(name 'Nowhere' is not defined\)"),  # type: ignore[name-defined]  # noqa: F821
        ({"a": 1}, r"payload is {'a': 1}: expected a function or a type that pydantic validates \(KeyError: .*\)"),
        (5, r"payload is 5: expected a function or a type that pydantic validates \((?s:.+)\)"),
    ],
)
def test_what_is_no_type_is_refused_at_once(payload: Any, reason: str) -> None:
    """A log was opened by a type's name, and then refused every payload of its own and of others."""
    with pytest.raises(TypeError, match=f"^{reason}$"):
        gossiplog.open(":memory:", "topic", payload=payload)


def test_a_type_that_was_not_whole_is_built(opened: Callable[..., Log], signer: Signer) -> None:
    adapter = TypeAdapter(dict[str, int], config=ConfigDict(defer_build=True))
    assert opened(payload=adapter, signer=signer).append({"a": 1}).payload == {"a": 1}


def test_an_adapter_is_as_good_as_its_type(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=TypeAdapter(dict[str, int]), signer=signer)
    assert log.append({"a": 1}).payload == {"a": 1}
    with pytest.raises(RefusedMessage, match="its payload is refused"):
        log.append([1])


def test_none_checks_nothing() -> None:
    assert not payload_rules(None).checks_own


def test_received_messages_are_checked(opened: Callable[..., Log], signer: Signer) -> None:
    source = opened(signer=signer)
    messages = source.append_many([2, 3, 4])
    log = opened(payload=refuse_odd)
    result = log.insert_many(messages)
    assert result.inserted == 1
    assert [index for index, _ in result.refused] == [1, 2]
    refused = result.refused[0][1]
    assert isinstance(refused, RefusedMessage)
    assert refused.id == messages[1].id
    assert isinstance(refused.__cause__, ValueError)


def test_own_payloads_are_checked_as_peers_will_read_them(opened: Callable[..., Log], signer: Signer) -> None:
    seen: list[Any] = []
    log = opened(payload=seen.append, signer=signer)
    message = log.append({"b": (1, 2.0)})
    assert seen == [{"b": [1, 2]}]
    assert message.payload == seen[0]


def test_a_payload_that_cannot_be_written_is_no_refusal(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=lambda payload: None, signer=signer)
    with pytest.raises(EncodeError):
        log.append(float("nan"))


def test_a_predicate_that_returns_false_refuses_and_says_how_to(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=lambda payload: payload == 1)
    log.append(1, signer=signer)
    with pytest.raises(
        RefusedMessage, match="the function returned False; to refuse, raise an exception that says why"
    ):
        log.append(2, signer=signer)
    assert len(opened(payload=lambda payload: None)) == 0
    flags = opened(payload=bool)
    flags.append(False, signer=signer)
    assert len(flags) == 1


class Note(BaseModel):
    text: str
    tags: list[str] = []


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.5


class Named(TypedDict):
    name: str


class Pair(NamedTuple):
    first: int
    second: str


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Aliased(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["a"] = Field("a", alias="type")

    @computed_field
    @property
    def length(self) -> int:
        return len(self.kind)


class Everything(BaseModel):
    at: datetime
    day: date
    id: UUID
    price: Decimal
    path: Path
    colour: Colour
    level: Level
    data: bytes
    numbers: dict[int, set[int]]
    pair: Pair
    point: Point
    link: Annotated[Any, AfterValidator(lambda link: link)]


class Defaults(BaseModel):
    x: int = 1


class Anything(BaseModel):
    value: Any


class Numbers(RootModel[list[int]]):
    pass


LINK = CID.parse("bafyreigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi")
EVERYTHING = Everything(
    at=datetime(2026, 11, 27, 4, 5, 6, 7, UTC),
    day=date(2026, 11, 27),
    id=UUID(int=5),
    price=Decimal("1.10"),
    path=Path("/a/b"),
    colour=Colour.RED,
    level=Level.HIGH,
    data=b"\xff\x00",
    numbers={7: {3, 1, 2}},
    pair=Pair(1, "b"),
    point=Point(1),
    link=LINK,
)


@pytest.mark.parametrize(
    ("payload", "value", "stored"),
    [
        (Note, Note(text="milk"), {"text": "milk", "tags": []}),
        (Point, Point(1), {"x": 1, "y": 0.5}),
        (Named, Named(name="a"), {"name": "a"}),
        (Pair, Pair(1, "b"), [1, "b"]),
        (Colour, Colour.RED, "red"),
        (Level, Level.HIGH, 3),
        (Aliased, Aliased(type="a"), {"type": "a"}),
        (Numbers, Numbers([1, 2]), [1, 2]),
        (list[Note], [Note(text="a")], [{"text": "a", "tags": []}]),
        (Note | Point, Point(2, 1.5), {"x": 2, "y": 1.5}),
        (datetime, EVERYTHING.at, "2026-11-27T04:05:06.000007Z"),
        (frozenset[int], frozenset({3, 1, 20}), [1, 3, 20]),
        (bytes, b"\xff", b"\xff"),
        (float, 2.0, 2),
        (
            Everything,
            EVERYTHING,
            {
                "at": "2026-11-27T04:05:06.000007Z",
                "day": "2026-11-27",
                "id": "00000000-0000-0000-0000-000000000005",
                "price": "1.10",
                "path": "/a/b",
                "colour": "red",
                "level": 3,
                "data": b"\xff\x00",
                "numbers": {"7": [1, 2, 3]},
                "pair": [1, "b"],
                "point": {"x": 1, "y": 0.5},
                "link": LINK,
            },
        ),
    ],
    ids=lambda value: "",
)
def test_values_of_the_type_are_appended_and_read(signer: Signer, payload: Any, value: Any, stored: Any) -> None:
    with gossiplog.open(":memory:", "topic", payload=payload, signer=signer) as log:
        message = log.append(value)
        assert message.raw_payload == stored
        (read,) = log
        assert (message.payload, read.payload, log.get(message.id).payload) == (value, value, value)
        assert type(read.payload) is type(value)


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")
    due_date: date
    sub_tasks: list[Aliased] = []
    left_out: int = 7


class ReadByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="forbid")
    kind: str = Field(serialization_alias="type")


class ReadByEither(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: str = Field(validation_alias=AliasChoices("type", "sort"))


class OneForBoth(BaseModel):
    kind: str = Field(validation_alias="type", serialization_alias="type")


class WrittenOtherwise(BaseModel):
    kind: str = Field("none", serialization_alias="type")


class ReadOtherwise(BaseModel):
    kind: str = Field(validation_alias=AliasPath("type", 0))


class Doubling(BaseModel):
    number: int

    @field_serializer("number")
    def doubled(self, number: int) -> int:
        return 2 * number


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    kind: str = Field(alias="type")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Bird(BaseModel):
    name: str


class Fish(BaseModel):
    name: str


class Tame(Bird):
    pass


class Parrot(Bird):
    words: list[str] = []
    memory: str = Field("", exclude=True)


class Swan(Bird):
    memory: str = Field("", exclude=True)


class Ring(Bird):
    model_config = ConfigDict(extra="allow")


class Cage(BaseModel):
    birds: dict[str, list[Bird]]


class Aquarium(BaseModel):
    inside: Bird | Fish


class Egg(BaseModel, frozen=True):
    of: str


@dataclass
class Nest:
    eggs: int


@dataclass
class Owned(Nest):
    owner: Bird | None = None


@pytest.mark.parametrize(
    ("payload", "value", "stored"),
    [
        (
            Camel,
            Camel(dueDate=date(2026, 11, 27), subTasks=[Aliased(type="a")]),
            {"dueDate": "2026-11-27", "subTasks": [{"type": "a"}], "leftOut": 7},
        ),
        (Camel, {"dueDate": "2026-11-27"}, {"dueDate": "2026-11-27"}),
        (ReadByName, ReadByName(kind="a"), {"kind": "a"}),
        (ReadByEither, ReadByEither(kind="a"), {"kind": "a"}),
        (ReadByEither, {"sort": "a"}, {"sort": "a"}),
        (OneForBoth, OneForBoth(type="a"), {"type": "a"}),
        (WrittenOtherwise, WrittenOtherwise(kind="none"), {"kind": "none"}),
        (WrittenOtherwise, WrittenOtherwise(kind="a"), {"kind": "a"}),
        (Open, Open.model_validate({"type": "a", "more": [1]}), {"type": "a", "more": [1]}),
        (Cat | Dog, Dog(name="a"), {"kind": "dog", "name": "a"}),
        (list[Cat | Dog], [Dog(name="a"), Cat(name="b")], [{"kind": "dog", "name": "a"}, {"kind": "cat", "name": "b"}]),
        (Bird | Fish, Bird(name="a"), {"name": "a"}),
        (Bird, Tame(name="a"), {"name": "a"}),
        (Bird, Swan(name="a", memory="b"), {"name": "a"}),
        (Owned, Owned(1, Tame(name="a")), {"eggs": 1, "owner": {"name": "a"}}),
    ],
    ids=lambda value: "",
)
def test_names_are_written_as_they_are_read(
    opened: Callable[..., Log], signer: Signer, payload: Any, value: Any, stored: Any
) -> None:
    log = opened(payload=payload, signer=signer)
    message = log.append(value)
    assert message.raw_payload == stored
    adapter = TypeAdapter(payload)
    assert adapter.dump_python(log.get(message.id).payload) == adapter.dump_python(adapter.validate_python(value))


@pytest.mark.parametrize(
    ("payload", "value", "words"),
    [
        (Doubling, Doubling(number=2), "would be read as another: its type does not read all that it writes"),
        (ReadOtherwise, ReadOtherwise(type=["a"]), "does not read the names or values that it writes: .*validation"),
        (Bird | Fish, Fish(name="a"), "it is read as a Bird: give the types of a union a field that tells them apart"),
        (Aquarium, Aquarium(inside=Fish(name="a")), "it is read as a Bird: give"),
        (
            Bird,
            Parrot(name="a", words=["b"]),
            "of a Parrot that is read as a Bird, words is lost: have the log's type name Parrot, with a",
        ),
        (list[Bird], [Tame(name="a"), Parrot(name="a")], "of a Parrot that is read as a Bird, words is lost"),
        (deque[Bird], deque([Parrot(name="a")]), "of a Parrot that is read as a Bird, words is lost"),
        (Cage, Cage(birds={"a": [Parrot(name="a")]}), "of a Parrot that is read as a Bird, words is lost"),
        (Bird, Ring.model_validate({"name": "a", "year": 1}), "of a Ring that is read as a Bird, year is lost"),
        (Nest, Owned(1), "of a Owned that is read as a Nest, owner is lost"),
    ],
    ids=lambda value: "",
)
def test_what_would_be_read_as_another_value_is_not_written(
    opened: Callable[..., Log], signer: Signer, payload: Any, value: Any, words: str
) -> None:
    log = opened(payload=payload, signer=signer)
    with pytest.raises(EncodeError, match=f"a payload of type {type(value).__name__} (?s:.*){words}"):
        log.append(value)
    assert len(log) == 0


def test_a_set_of_models_says_what_to_take_in_its_place(opened: Callable[..., Log], signer: Signer) -> None:
    """It said "unhashable type: 'dict'" of a payload in which there is no dict."""
    log = opened(payload=frozenset[Egg], signer=signer)
    with pytest.raises(EncodeError, match="dumps no set of models: give the type a list or a tuple in its place"):
        log.append(frozenset([Egg(of="a")]))
    assert log.append(frozenset[Egg]()).payload == frozenset()


def test_messages_of_others_that_are_not_of_the_type_come_in_where_nothing_is_refused(
    opened: Callable[..., Log], signer: Signer
) -> None:
    """What is appended here is checked all the same."""
    theirs = opened(signer=signer)
    theirs.append_many([{"text": "a"}, {"txet": "b"}, {"text": "c"}])
    applied: list[str] = []
    log = opened(
        payload=Note,
        check_others=False,
        signer=signer,
        apply=lambda message, _: applied.append(message.payload.text),
    )
    assert log.insert_many(theirs).refused == ()
    assert (log.root, applied) == (theirs.root, ["a", "c"])
    with pytest.raises(InvalidPayload):
        _ = [message.payload for message in log]
    wrong: list[Any] = [{"txet": "d"}, Bird(name="e")]
    for value in wrong:
        with pytest.raises(RefusedMessage):
            log.append(value)
    assert opened(payload=Note, signer=signer).insert_many(theirs).inserted == 1


def test_a_function_that_refuses_nothing_of_others(opened: Callable[..., Log], signer: Signer) -> None:
    theirs, log = opened(signer=signer), opened(payload=refuse_all, check_others=False, signer=signer)
    log.insert(theirs.append(1))
    with pytest.raises(RefusedMessage, match="no payload is good enough"):
        log.append(2)
    assert len(log) == 1


def test_what_others_wrote_is_not_left_unchecked_without_a_check(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="check_others=False changes what `payload` checks: give `payload`"):
        gossiplog.open(tmp_path / "log.db", "org.example.notes", check_others=False)
    assert not (tmp_path / "log.db").exists()


def test_apply_may_refuse_where_payloads_are_not(opened: Callable[..., Log], signer: Signer) -> None:
    """Its own exceptions are no InvalidPayload of the message."""
    theirs = opened(signer=signer)
    first = theirs.append({"txet": "a"})

    def apply(message: SignedMessage[Note], transaction: gossiplog.ApplyTransaction) -> None:
        try:
            _ = message.payload
        except InvalidPayload as error:
            raise ValueError("not here") from error

    (_, refused), *_ = opened(payload=Note, check_others=False, apply=apply).insert_many([first]).refused
    assert "not here" in str(refused)


def refuse_all(payload: Any) -> None:
    raise ValueError("no payload is good enough")


def test_stored_bytes_are_those_of_the_dumped_value(opened: Callable[..., Log], signer: Signer) -> None:
    typed, plain = opened(payload=Note, signer=signer), opened(signer=signer)
    values: list[Any] = [Note(text="a", tags=["b"]), {"text": "c"}, {"text": "d", "tags": ["e"], "unknown": 1}]
    plain.append_many([{"text": "a", "tags": ["b"]}, *values[1:]])
    typed.append_many(values)
    assert typed.root == plain.root
    # What the type passes over stays in what was given.
    assert [message.raw_payload for message in typed] == [message.payload for message in plain]


def test_every_way_of_reading_gives_the_type(opened: Callable[..., Log], signer: Signer) -> None:
    heard: list[Any] = []
    storage = MemoryStorage()
    log = opened(storage, payload=Note, signer=signer, apply=lambda message, _: heard.append(message.payload))
    (first, _) = log.append_many([Note(text="a"), Note(text="b")])
    replica = opened(payload=Note, apply=lambda message, _: heard.append(message.payload))
    replica.insert_many([*log])
    arrivals = next(iter(log.subscribe(after=0)))
    for found in (
        [message.payload for message in log],
        heard[:2],
        heard[2:],
        [message.payload for message in arrivals],
        [message.payload for message in log.messages(after=None, reverse=True, limit=2)][::-1],
    ):
        assert found == [Note(text="a"), Note(text="b")]
    assert first.payload is not first.payload
    first.payload.tags.append("x")
    assert first.payload.tags == []


def test_a_message_of_a_type_is_pickled_without_it(opened: Callable[..., Log], signer: Signer) -> None:
    message = opened(payload=Note, signer=signer).append(Note(text="a"))
    assert pickle.loads(pickle.dumps(message)).payload == {"text": "a", "tags": []}


@pytest.mark.parametrize(
    ("payload", "value", "error", "words"),
    [
        (
            Note,
            Note.model_construct(text=5),
            EncodeError,
            "type Note cannot be dumped: (?s:.*)Expected `str`",
        ),
        (Note, Point(1), RefusedMessage, "instance of Note"),
        (Defaults, Point(1), RefusedMessage, "instance of Defaults"),
        (Note, {"text": {1}}, RefusedMessage, "valid string"),
        (Anything, Anything(value=object()), EncodeError, "a value of type object cannot be encoded"),
        (float, float("nan"), EncodeError, "number"),
        (Note, object(), RefusedMessage, "instance of Note"),
        (list[Note], [Note(text="a"), 5], RefusedMessage, "instance of Note"),
        (Note, {"text": 5}, RefusedMessage, "valid string"),
    ],
    ids=lambda value: "",
)
def test_values_of_another_type_are_not(
    opened: Callable[..., Log], signer: Signer, payload: Any, value: Any, error: Any, words: str
) -> None:
    log = opened(payload=payload, signer=signer)
    for call in (lambda: log.append(value), lambda: log.append_many([value, value])):
        with pytest.raises(error, match=words):
            call()
    assert len(log) == 0


class Stricter(BaseModel):
    text: str
    priority: int


def changed(opened: Callable[..., Log], signer: Signer, path: Path) -> Log:
    """A log of an earlier version of the type, and of one message of the newer one."""
    opened(path, payload=Note, signer=signer).append_many([Note(text="old"), Note(text="older")])
    log = opened(path, payload=Stricter, signer=signer)
    log.append(Stricter(text="new", priority=1))
    return log


def test_what_an_earlier_version_of_the_type_took_is_read_raw(
    opened: Callable[..., Log], signer: Signer, tmp_path: Path
) -> None:
    log = changed(opened, signer, tmp_path / "log.db")
    *old, new = log
    assert new.payload == Stricter(text="new", priority=1)
    for message in (*old, log.get(old[0].id), *next(iter(log.subscribe(after=0)))[:2]):
        with pytest.raises(InvalidPayload, match=r"message\.raw_payload has its payload") as caught:
            _ = message.payload
        assert caught.value.id == message.id
        assert isinstance(caught.value.__cause__, ValidationError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert [message.raw_payload["text"] for message in log] == ["old", "older", "new"]
    assert (len(log), log.verify().messages) == (3, 3)


def test_apply_passes_over_what_the_type_does_not_read(
    opened: Callable[..., Log], signer: Signer, tmp_path: Path
) -> None:
    storage = tmp_path / "log.db"
    heard = []

    def apply(message: gossiplog.SignedMessage[Stricter], transaction: object) -> None:
        heard.append(message.id)
        heard.append(message.payload.text)

    opened(storage, payload=Note, signer=signer).append_many([Note(text="old"), Note(text="older")])
    log = opened(storage, payload=Stricter, signer=signer, apply=apply)
    log.append(Stricter(text="new", priority=1))
    assert heard[2:] == [log.heads[0], "new"]
    assert log.info().applied == 3
    # Nor is it asked again.
    heard.clear()
    opened(storage, payload=Stricter, apply=apply)
    assert heard == []


def test_what_apply_wrote_for_such_a_message_is_undone(
    opened: Callable[..., Log], signer: Signer, tmp_path: Path
) -> None:
    def apply(message: gossiplog.SignedMessage[Stricter], transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("INSERT INTO seen VALUES (?)", (message.id,))
        transaction.execute("UPDATE seen SET id = ?", (message.payload.text,))

    def setup(transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("CREATE TABLE seen (id TEXT)")

    rows: list[Any] = []

    def look(message: object, transaction: gossiplog.ApplyTransaction) -> None:
        rows.extend(transaction.execute("SELECT id FROM seen"))

    opened(tmp_path / "log.db", payload=Note, signer=signer).append(Note(text="old"))
    opened(tmp_path / "log.db", payload=Stricter, apply=apply, setup=setup)
    opened(tmp_path / "log.db", signer=signer, apply=look).append(1)
    assert rows == []


def test_another_messages_payload_is_applys_own_business(
    opened: Callable[..., Log], signer: Signer, tmp_path: Path
) -> None:
    path = tmp_path / "log.db"
    old = opened(path, payload=Note, signer=signer).append(Note(text="old"))
    stranger = opened(path, payload=Stricter).get(old.id)
    opened(path, signer=signer).append(1)

    def apply(message: gossiplog.SignedMessage, transaction: object) -> None:
        if message.id != old.id:
            _ = stranger.payload

    with pytest.raises(RefusedMessage, match=r"`apply` raised InvalidPayload"):
        opened(path, apply=apply)


def test_a_stranger_cannot_make_an_error_of_megabytes(
    opened: Callable[..., Log], signer: Signer, tmp_path: Path
) -> None:
    message = opened(tmp_path / "log.db", signer=signer).append({"text": "a", "tags": [0] * 20_000})
    log = opened(tmp_path / "log.db", payload=Note)
    with pytest.raises(InvalidPayload, match="20,000 validation errors for Note") as caught:
        _ = log.get(message.id).payload
    assert len(str(caught.value)) < 1000
    (_, refused), *_ = opened(payload=Note).insert_many([message]).refused
    assert len(str(refused)) < 1000


class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "said"), [(Wordless(), "Wordless (its text cannot be had: ValueError)"), (Exception("x" * 10**7), "x…")]
)
@pytest.mark.parametrize("by", ["payload", "apply"])
def test_an_error_without_words_or_with_millions_refuses_its_message_alone(
    opened: Callable[..., Log], signer: Signer, error: Exception, said: str, by: str
) -> None:
    def check(payload: object) -> None:
        if payload == "bad":
            raise error

    bad, good = opened(signer=signer).append("bad"), opened(signer=signer).append("good")
    given_functions: dict[str, Any] = {
        "payload": {"payload": check},
        "apply": {"apply": lambda message, _: check(message.payload)},
    }[by]
    result = opened(**given_functions).insert_many([bad, good])
    assert result.inserted == 1
    ((_, refused),) = result.refused
    assert said in str(refused)
    assert len(str(refused)) < 1000


def test_keys_that_are_no_text_are_an_encode_error(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=dict[bytes, str], signer=signer)
    with pytest.raises(EncodeError):
        log.append({b"\xff": "a"})


def test_keys_that_would_be_one_are_an_encode_error(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=dict[int | str, str], signer=signer)
    with pytest.raises(EncodeError, match=r"^a map has several keys that are written as '1': one alone would be read$"):
        log.append({1: "a", "1": "b"})
    assert log.append({1: "a", "2": "b"}).raw_payload == {"1": "a", "2": "b"}


def test_a_refusal_names_what_is_wrong_in_one_line(opened: Callable[..., Log], signer: Signer) -> None:
    wrong = opened(signer=signer).append({"text": "a", "tags": [0] * 7, "x" * 1000: 1})
    (_, refused), *_ = opened(payload=Note).insert_many([wrong]).refused
    places = "; ".join(f"tags.{number}: Input should be a valid string" for number in range(5))
    assert f"refused: 7 validation errors for Note: {places}; and 2 more" in str(refused)
    other = opened(signer=signer).append(["no map"])
    (_, refused), *_ = opened(payload=Note).insert_many([other]).refused
    assert "1 validation error for Note: Input should be a valid dict" in str(refused)


@repeatable(100)
@given(
    note=st.builds(
        Everything,
        at=st.datetimes(timezones=st.just(UTC)),
        day=st.dates(),
        id=st.uuids(),
        price=st.decimals(allow_nan=False, allow_infinity=False),
        path=st.just(Path("a")),
        colour=st.sampled_from(Colour),
        level=st.sampled_from(Level),
        data=st.binary(max_size=9),
        numbers=st.dictionaries(st.integers(), st.sets(st.integers(-(2**64), 2**64 - 1), max_size=4), max_size=3),
        pair=st.builds(Pair, st.integers(-(2**53), 2**53), st.text()),
        point=st.builds(Point, st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)),
        link=st.sampled_from([LINK, None, 1, [b"a"]]),
    )
)
def test_what_is_encoded_is_read_as_it_was(note: Everything) -> None:
    typed = payload_rules(Everything)
    encoded = core.cbor_encode(typed.plain(note))
    assert TypeAdapter(Everything).validate_python(core.cbor_decode(encoded)) == note
