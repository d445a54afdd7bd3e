"""A tree for hostile servers."""

from __future__ import annotations

import hashlib
import itertools

from gossiplog import core
from gossiplog.core import Node, Nodes
from gossiplog.protocol import wire
from gossiplog.reference import node


class Endless:
    """A tree of 3**64 leaves that hashes correctly: keys count only in leaves, so one hash stands for many nodes."""

    def __init__(self) -> None:
        hashes = [hashlib.sha256(b"%d" % number).digest()[:16] for number in range(200)]
        boundary = next(filter(core.is_boundary, hashes))
        plain = [hash for hash in hashes if not core.is_boundary(hash)][:40]
        anchor = core.Tree().root.hash
        self.below: dict[tuple[int, bytes], tuple[bytes, bytes, bytes]] = {}
        for level in range(1, wire.MAX_LEVEL + 1):
            anchor_below, anchor = anchor, parent_hash(anchor, *plain[:2])
            self.below[level, anchor] = (anchor_below, plain[0], plain[1])
            next_boundary: bytes | None = None
            next_plain: list[bytes] = []
            for pair in itertools.permutations(plain, 2):
                hash = parent_hash(boundary, *pair)
                if not core.is_boundary(hash):
                    next_plain.append(hash)
                elif next_boundary is None:
                    next_boundary = hash
                else:
                    continue
                self.below[level, hash] = (boundary, *pair)
                if next_boundary is not None and len(next_plain) >= 20:
                    break
            assert next_boundary is not None
            boundary, plain = next_boundary, next_plain[:40]
        self.root = Node(wire.MAX_LEVEL, None, anchor)
        self.nodes: dict[tuple[int, bytes | None], tuple[bytes, int]] = {(wire.MAX_LEVEL, None): (anchor, 2**159)}

    def answer(self, request: wire.Request) -> wire.Answer:
        match request:
            case wire.GetRoot():
                return wire.Root(self.root)
            case wire.GetChildren(level, key):
                hash, width = self.nodes[level, key]
                third = width // 3
                start = int.from_bytes(key or bytes(20))
                keys = [key, (start + third).to_bytes(20), (start + 2 * third).to_bytes(20)]
                children = [
                    Node(level - 1, child, below) for child, below in zip(keys, self.below[level, hash], strict=True)
                ]
                self.nodes |= {(child.level, child.key): (child.hash, third) for child in children}
                return wire.Children(Nodes(children))
            case wire.GetValues(keys):
                return wire.Values([b"?"] * len(keys))
            case _:
                return wire.Found(None)


def parent_hash(*hashes: bytes) -> bytes:
    """The hash of a node over nodes with these."""
    return node.parent_hash(Node(0, None, hash) for hash in hashes)
