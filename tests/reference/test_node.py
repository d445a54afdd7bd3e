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
