"""Fugue as its article has it: a model of plain values, and what the article guarantees of an order.

Weidner and Kleppmann, "The Art of the Fugue", arXiv:2305.00583: Algorithm 1, Definitions 2 and 4. Nothing here is
shared with `gossiplog.types.lists`, and nothing is quick.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gossiplog.core import SignedMessage

Id: TypeAlias = tuple[str, int]
"""The content id of a message, and the number of the element in it."""

ROOT: Id = ("", 0)


@dataclass
class Tree:
    """The state of Algorithm 1: nodes by id, each with its value, its parent and its side; and the deleted ones."""

    nodes: dict[Id, tuple[Any, Id, str]] = field(default_factory=dict)
    deleted: set[Id] = field(default_factory=set)

    def children(self, parent: Id, side: str) -> list[Id]:
        """Return siblings in the lexicographic order of their ids."""
        return sorted(id for id, (_, above, where) in self.nodes.items() if (above, where) == (parent, side))

    def traverse(self, id: Id = ROOT) -> Iterator[Id]:
        """Yield the nodes below one and itself, depth first, deleted ones too."""
        for child in self.children(id, "left"):
            yield from self.traverse(child)
        yield id
        for child in self.children(id, "right"):
            yield from self.traverse(child)

    def shown(self) -> list[Id]:
        return [id for id in self.traverse() if id != ROOT and id not in self.deleted]

    def values(self) -> list[Any]:
        return [self.nodes[id][0] for id in self.shown()]

    def place(self, index: int) -> dict[str, str]:
        """Return what `insert` prepares: the parent and the side of a new node."""
        left_origin = self.shown()[index - 1] if index else ROOT
        if not self.children(left_origin, "right"):
            return {"parent": written(left_origin), "side": "right"}
        everything = [*self.traverse()]
        right_origin = everything[everything.index(left_origin) + 1]
        return {"parent": written(right_origin), "side": "left"}


def written(id: Id) -> str:
    """Return an id as payloads name it."""
    return "" if id == ROOT else f"{id[0]}.{id[1]}"


def read(reference: str) -> Id:
    if reference == "":
        return ROOT
    content, _, number = reference.rpartition(".")
    return content, int(number)


def replayed(messages: Iterable[SignedMessage]) -> Mapping[str, Tree]:
    """Return the trees, by key, of operations that no stranger has touched; their order does not matter."""
    trees: dict[str, Tree] = {}
    for message in messages:
        operation = message.payload
        tree = trees.setdefault(operation["key"], Tree())
        if "delete" in operation:
            tree.deleted |= {read(reference) for reference in operation["delete"]}
            continue
        parent, side = read(operation["parent"]), operation["side"]
        if (parent, side) == (ROOT, "left"):
            # No call of `insert` prepares it: nothing stands before the root.
            continue
        for number, value in enumerate(operation["insert"]):
            id = (message.content_id, number)
            tree.nodes[id] = (value, parent, side)
            parent, side = id, "right"
    return trees


@dataclass(frozen=True)
class Element:
    """One that was inserted by a call, with what its author saw.

    Attributes:
        id: of which the lower one comes first.
        left: its left origin, what was before it and not deleted; None for the start of the list.
        right: its right origin, what came after that, deleted or not; None for the end of the list.
        is_right_child: whether it is a right child in the tree, of its left origin.
    """

    id: Id
    left: Id | None
    right: Id | None
    is_right_child: bool


def check_forward(order: Sequence[Id], elements: Mapping[Id, Element]) -> None:
    """Check Definition 2: nothing comes between an element and the first of those that were put after it.

    Args:
        order: of all elements, deleted ones too.
        elements: by their ids.
    """
    after: dict[Id | None, Id] = {}
    for id in order:
        after.setdefault(elements[id].left, id)
    for left, id in after.items():
        place = -1 if left is None else order.index(left)
        assert order[place + 1] == id, (left, id, order)


def check_backward(order: Sequence[Id], elements: Mapping[Id, Element]) -> None:
    """Check the second condition of Definition 4: nothing comes between an element and the last put before it.

    It may where that is impossible together with Definition 2: where they have different left origins, and what is
    between was not put, by any number of steps, after the left origin of the former.
    """
    before: dict[Id | None, Id] = {elements[id].right: id for id in order}
    for right, id in before.items():
        place = len(order) if right is None else order.index(right)
        if order[place - 1] != id:
            left = elements[id].left
            assert left != (elements[right].left if right is not None else None), (id, right, order)
            start = -1 if left is None else order.index(left)
            assert any(not follows(each, left, elements) for each in order[start + 1 : place]), (id, right, order)


def check_ties(order: Sequence[Id], elements: Mapping[Id, Element]) -> None:
    """Check the third condition of Definition 4: of those put into one gap, the one with the lower id comes first."""
    for first, second in itertools.combinations(order, 2):
        one, other = elements[first], elements[second]
        assert (one.left, one.right) != (other.left, other.right) or first < second, (first, second, order)


def follows(id: Id | None, left: Id | None, elements: Mapping[Id, Element]) -> bool:
    """Return whether an element is a descendant of another in the tree of left origins."""
    while id is not None and id != left:
        id = elements[id].left
    return id == left


def is_maximal_too(elements: Mapping[Id, Element]) -> bool:
    """Return whether FugueMax would give the same order: right siblings have one right origin, and are in order of ids.

    Only the former is proved to satisfy Definition 4 (Theorem 9).
    """
    origins: dict[Id | None, set[Id | None]] = {}
    for each in elements.values():
        if each.is_right_child:
            origins.setdefault(each.left, set()).add(each.right)
    return all(len(found) == 1 for found in origins.values())
