from types import ModuleType

import pytest

from gossiplog.errors import TreeError


def test_the_hash_has_16_bytes(core: ModuleType) -> None:
    with pytest.raises(TreeError):
        core.Node(0, None, bytes(15))


def test_nodes_are_values(core: ModuleType) -> None:
    node = core.Node(1, b"k", bytes(16))
    assert node == core.Node(1, b"k", bytes(16))
    assert hash(node) == hash(core.Node(1, b"k", bytes(16)))
    assert node != core.Node(1, None, bytes(16))
    assert (node.level, node.key, node.hash) == (1, b"k", bytes(16))


def test_one_node_in_32_is_a_boundary(core: ModuleType) -> None:
    assert core.is_boundary(bytes.fromhex("07ffffff") + bytes(12))
    assert not core.is_boundary(bytes.fromhex("08000000") + bytes(12))


def test_no_children(core: ModuleType) -> None:
    with pytest.raises(TreeError):
        core.check_children(core.Node(1, None, bytes(16)), None, [])
    with pytest.raises(TreeError):
        core.check_children(core.Node(0, None, bytes(16)), None, [core.Node(0, None, bytes(16))])


def test_nodes_in_a_row_are_values(core: ModuleType) -> None:
    nodes = core.Nodes([core.Node(0, None, bytes(16))])
    assert nodes == core.Nodes(nodes)
    assert nodes != core.Nodes([])
    assert nodes != [*nodes]
    assert core.Nodes([]).keys == nodes.keys == []


def test_bytes_by_hand(core: ModuleType) -> None:
    nodes = core.Nodes([core.Node(0, None, bytes(16)), core.Node(2, b"k" * 20, bytes(16))])
    answer = b"\x0a\x12\x1a\x10" + bytes(16) + b"\x0a\x2a\x08\x02\x12\x14" + b"k" * 20 + b"\x1a\x10" + bytes(16)
    assert nodes.encode() == answer
    assert core.Nodes.decode(answer) == nodes
    assert core.Nodes.decode(b"") == core.Nodes([])


@pytest.mark.parametrize(
    "answer",
    [
        b"\x0a",
        b"\x0a\x80",
        b"\x0a\x01\x08",
        b"\x0a\x14\x08\x00\x1a\x10" + bytes(16),
        b"\x0a\x14\x08\x40\x1a\x10" + bytes(16),
        b"\x0a\x14\x12\x00\x1a\x10" + bytes(16),
        b"\x0a\x14\x1a\x10" + bytes(16) + b"\x08\x01",
        b"\x0a\x92\x00\x1a\x10" + bytes(16),
        b"\x12\x12\x1a\x10" + bytes(16),
    ],
)
def test_another_form_is_left_to_a_general_parser(core: ModuleType, answer: bytes) -> None:
    assert core.Nodes.decode(answer) is None


def test_a_leaf_that_is_stored_with_another_hash(core: ModuleType) -> None:
    leaves = core.Nodes([core.Node(0, b"key", bytes(16))])
    assert leaves.lacking([]) == [b"key"]
    assert leaves.lacking([(b"a", bytes(16)), (b"key", bytes(16))]) == []
    with pytest.raises(TreeError, match="6b6579"):
        leaves.lacking([(b"key", b"x" * 16)])
