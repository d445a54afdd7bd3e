"""The reference implementation of the core, in Python: its algorithms to be read, and the tests' oracle.

It offers the names of `_core.pyi`, with the same types, promises and exceptions; `gossiplog.core` chooses between the
two, and arguments are documented in one of them. Its layers, each over those before: numbers and bytes (base58, varint,
blake3, ed25519); ids, links and signatures; values and nodes; encodings (dag-cbor, dag-json); messages, ancestors and
trees; batches; what is accepted of gossip.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Imported when they are asked for: programs on the other core use single modules, and all take 25 ms.
_NAMES = {
    "ancestors": "frontier is_ancestor link_record",
    "batch": "Batch WritePlan read_batch sign_chain verify_batch",
    "canonical": "cbor_encode",
    "cbor": "cbor_decode",
    "fragment": "Fragment",
    "id": "decode_clock decode_id encode_clock encode_id",
    "json": "json_decode json_encode",
    "limits": "HASH_LENGTH KEY_LENGTH MAX_CLOCK MAX_DEPTH MAX_OWN_DEPTH",
    "message": "SignedMessage SigningKey misplaced read_message sign verify verify_bytes",
    "message_json": "MessageJson read_message_line read_message_map",
    "multiformats": "CID",
    "node": "ChildrenCheck Node Nodes check_children is_boundary leaf_hash",
    "tree": "Tree",
    "validator": "GossipValidator",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(_MODULES)
