//! gossiplog._core: the Python bindings. Each module wraps modules of gossiplog-core, `net`, `host` and `streams`
//! those of gossiplog-net, `validator` joins both; nothing is computed here.

// pyo3's macros expand to items without documentation.
#![allow(missing_docs)]

mod arrow;
mod batch;
mod codec;
mod columns;
mod errors;
mod fragment;
mod gather;
mod host;
mod message;
mod message_json;
mod net;
mod nodes;
mod streams;
mod tree;
mod unlocked;
mod validator;
mod value;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use gossiplog_core::{cbor, clock, id};
    use pyo3::panic::PanicException;
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::arrow::ArrowArray;
    #[pymodule_export]
    use super::batch::{
        Batch, WritePlan, frontier, is_ancestor, link_record, misplaced, read_batch, sign_chain, verify_batch,
    };
    #[pymodule_export]
    use super::codec::{
        cbor_decode, cbor_encode, decode_clock, decode_id, encode_clock, encode_id, json_decode, json_encode,
    };
    #[pymodule_export]
    use super::columns::{decode_columns, fragment_of_columns, leaf_hash_column, verify_columns};
    #[pymodule_export]
    use super::fragment::Fragment;
    #[pymodule_export]
    use super::gather::gather_columns;
    #[pymodule_export]
    use super::host::{GossipMessage, Host, HostEvent, MeshEvent, PeerEvent, PeerInfo, check_address, check_peer_id};
    #[pymodule_export]
    use super::message::{SignedMessage, SigningKey, read_message, sign, verify, verify_bytes};
    #[pymodule_export]
    use super::message_json::{MessageJson, read_message_line, read_message_map};
    #[pymodule_export]
    use super::net::{Closed, ConnectionEvent, Network, StreamEvent, redacted_url};
    #[pymodule_export]
    use super::nodes::{Node, Nodes};
    #[pymodule_export]
    use super::streams::Streams;
    #[pymodule_export]
    use super::tree::{ChildrenCheck, Tree, check_children, is_boundary, leaf_hash};
    #[pymodule_export]
    use super::validator::GossipValidator;
    #[pymodule_export]
    use super::value::Cid;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("PanicException", module.py().get_type::<PanicException>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("MAX_CLOCK", clock::MAX_CLOCK)?;
        module.add("MAX_DEPTH", cbor::MAX_DEPTH)?;
        module.add("MAX_OWN_DEPTH", cbor::MAX_OWN_DEPTH)?;
        module.add("KEY_LENGTH", id::KEY_LENGTH)?;
        module.add("HASH_LENGTH", size_of::<gossiplog_core::tree::Hash>())
    }
}
