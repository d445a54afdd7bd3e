"""The reference implementation of the core, in Python: its algorithms to be read, and the tests' oracle.

It offers the names of `_core.pyi`, with the same types, promises and exceptions; `gossiplog.core` chooses between the
two, and arguments are documented in one of them. Its layers, each over those before: numbers and bytes (base58, varint,
blake3, ed25519); ids, links and signatures; values and nodes; encodings (dag-cbor, dag-json); messages, ancestors and
trees; batches; what is accepted of gossip.
"""

from gossiplog.reference.ancestors import frontier, is_ancestor, link_record
from gossiplog.reference.batch import Batch, WritePlan, read_batch, sign_chain, verify_batch
from gossiplog.reference.canonical import cbor_encode
from gossiplog.reference.cbor import cbor_decode
from gossiplog.reference.fragment import Fragment
from gossiplog.reference.id import decode_clock, decode_id, encode_clock, encode_id
from gossiplog.reference.json import json_decode, json_encode
from gossiplog.reference.limits import HASH_LENGTH, KEY_LENGTH, MAX_CLOCK, MAX_DEPTH, MAX_OWN_DEPTH
from gossiplog.reference.message import SignedMessage, SigningKey, misplaced, read_message, sign, verify, verify_bytes
from gossiplog.reference.message_json import MessageJson, read_message_line, read_message_map
from gossiplog.reference.multiformats import CID
from gossiplog.reference.node import ChildrenCheck, Node, Nodes, check_children, is_boundary, leaf_hash
from gossiplog.reference.tree import Tree
from gossiplog.reference.validator import GossipValidator
