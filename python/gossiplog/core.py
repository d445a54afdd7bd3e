"""The low-level interface, for others to build on: the Rust core, or on request its reference implementation.

`GOSSIPLOG_CORE=python` in the environment, read once at import, chooses the latter (`gossiplog.reference`): the
readable specification, some hundred times slower. Both offer exactly the names below, with the types and promises that
`_core.pyi` states, and raise the same exceptions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gossiplog.extras import explain_core

_CHOICE = os.environ.get("GOSSIPLOG_CORE", "rust")

if TYPE_CHECKING or _CHOICE == "rust":
    try:
        from gossiplog._core import (
            CID,
            HASH_LENGTH,
            KEY_LENGTH,
            MAX_CLOCK,
            MAX_DEPTH,
            MAX_OWN_DEPTH,
            Batch,
            ChildrenCheck,
            Fragment,
            GossipValidator,
            MessageJson,
            Node,
            Nodes,
            SignedMessage,
            SigningKey,
            Tree,
            WritePlan,
            cbor_decode,
            cbor_encode,
            check_children,
            decode_clock,
            decode_id,
            encode_clock,
            encode_id,
            frontier,
            is_ancestor,
            is_boundary,
            json_decode,
            json_encode,
            leaf_hash,
            link_record,
            misplaced,
            read_batch,
            read_message,
            read_message_line,
            read_message_map,
            sign,
            sign_chain,
            verify,
            verify_batch,
            verify_bytes,
        )
    except ImportError as error:
        raise explain_core(error) from error
elif _CHOICE != "python":
    raise ImportError(f"GOSSIPLOG_CORE is {_CHOICE!r}; it must be 'rust' or 'python'")

__all__ = [
    "CID",
    "HASH_LENGTH",
    "KEY_LENGTH",
    "MAX_CLOCK",
    "MAX_DEPTH",
    "MAX_OWN_DEPTH",
    "Batch",
    "ChildrenCheck",
    "Fragment",
    "GossipValidator",
    "MessageJson",
    "Node",
    "Nodes",
    "SignedMessage",
    "SigningKey",
    "Tree",
    "WritePlan",
    "cbor_decode",
    "cbor_encode",
    "check_children",
    "decode_clock",
    "decode_id",
    "encode_clock",
    "encode_id",
    "frontier",
    "is_ancestor",
    "is_boundary",
    "json_decode",
    "json_encode",
    "leaf_hash",
    "link_record",
    "misplaced",
    "read_batch",
    "read_message",
    "read_message_line",
    "read_message_map",
    "sign",
    "sign_chain",
    "verify",
    "verify_batch",
    "verify_bytes",
]

if not TYPE_CHECKING and _CHOICE == "python":
    from gossiplog import reference

    globals().update({name: getattr(reference, name) for name in __all__})
