"""What `payload=` may be, and what the log is then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

import gossiplog

TOPIC = "org.example.typing"


class Note(BaseModel):
    text: str


@dataclass(frozen=True)
class Point:
    x: int


class Named(TypedDict):
    name: str


def refuse_odd(payload: int) -> None:
    if payload % 2:
        raise ValueError("odd")


signer = gossiplog.Signer.generate()
with gossiplog.open(":memory:", TOPIC, payload=Point, signer=signer) as points:
    assert_type(points, gossiplog.Log[Point])
    assert_type(points.append(Point(1)).payload.x, int)
with gossiplog.open(":memory:", TOPIC, payload=Named, signer=signer) as names:
    assert_type(names, gossiplog.Log[Named])
    assert_type(names.append({"name": "a"}).payload["name"], str)
with gossiplog.open(":memory:", TOPIC, payload=Note | Point, signer=signer) as either:
    assert_type(either, gossiplog.Log[Note | Point])
    match either.append(Point(2)).payload:
        case Note(text=text):
            assert_type(text, str)
        case Point(x=x):
            assert_type(x, int)
with gossiplog.open(":memory:", TOPIC, payload=list[Note], signer=signer) as lists:
    assert_type(lists, gossiplog.Log[list[Note]])
    assert_type(lists.append([Note(text="a")]).payload[0], Note)
with gossiplog.open(":memory:", TOPIC, payload=int | None, signer=signer) as optional:
    assert_type(optional, gossiplog.Log[int | None])
with gossiplog.open(":memory:", TOPIC, payload=Literal["on", "off"], signer=signer) as switch:
    assert_type(switch.append("on").payload, Literal["on", "off"])
with gossiplog.open(":memory:", TOPIC, payload=Annotated[int, Field(gt=5)], signer=signer) as large:
    assert_type(large.append(6).payload, int)
with gossiplog.open(":memory:", TOPIC, payload=TypeAdapter(dict[str, int]), signer=signer) as counts:
    assert_type(counts, gossiplog.Log[dict[str, int]])
with gossiplog.open(":memory:", TOPIC, payload=refuse_odd, signer=signer) as even:
    assert_type(even, gossiplog.Log[Any])
with gossiplog.open(":memory:", TOPIC, payload=lambda payload: refuse_odd(payload)) as odd:
    assert_type(odd, gossiplog.Log[Any])
with gossiplog.open(":memory:", TOPIC, payload=None) as plain:
    assert_type(plain, gossiplog.Log[Any])


def mistakes() -> None:
    gossiplog.open(":memory:", TOPIC, payload=5)  # type: ignore[call-overload]  # pyright: ignore
