//! What the parts that read a stranger's bytes do with any bytes: the targets of `make fuzz-rust`.

#![allow(clippy::expect_used, reason = "a target fails by panicking")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use libp2p::StreamProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::budget::Budget;
use crate::inbox::Inbox;
use crate::ledger::{HEADER, Header, Ledger, Scanner};
use crate::limits::Limits;
use crate::link::{Link, Shared};
use crate::mesh::frames::Frames;
use crate::watched::PIPE;
use crate::websocket::{run, upgrade};

/// The largest message of a WebSocket, in bytes.
const LARGEST: usize = 1 << 16;

/// Split the bytes: what the first of them says how to cut, and the rest.
fn cut(data: &[u8]) -> Option<(usize, &[u8])> {
    data.split_first().map(|(first, rest)| (usize::from(*first) + 1, rest))
}

/// Keep the account of a connection's frames, between calls of its caller: what is kept is what was not read.
pub fn ledger(data: &[u8]) {
    let budget = Arc::new(Budget::new(usize::MAX, usize::MAX));
    let ledger = Ledger::new(&budget);
    let mut unread: HashMap<u32, usize> = HashMap::new();
    let mut held = 0;
    for operation in data.chunks(1 + HEADER) {
        let Some((kind, rest)) = operation.split_first() else { continue };
        let mut header = [0; HEADER];
        header[..rest.len()].copy_from_slice(rest);
        // Few streams, so that they meet again.
        let stream = u32::from(header[7] % 8);
        header[4..8].copy_from_slice(&stream.to_be_bytes());
        match kind % 8 {
            // Numbers of streams are never used again.
            0 if !unread.contains_key(&stream) => {
                unread.insert(stream, 0);
                ledger.opened(stream);
            }
            1 => {
                let bytes = usize::from(header[11]).min(unread.get(&stream).copied().unwrap_or(0));
                ledger.read(stream, bytes);
                if let Some(left) = unread.get_mut(&stream) {
                    *left -= bytes;
                    held -= bytes;
                }
            }
            2 => {
                ledger.dropped(stream);
                held -= unread.remove(&stream).unwrap_or(0);
            }
            3 => ledger.reset(stream),
            4 => ledger.set_blocked(header[11] % 2 == 0),
            5 => _ = ledger.next_reset(),
            _ => {
                let before = budget.held();
                ledger.received(Header::parse(&header));
                let kept = budget.held() - before;
                *unread.entry(stream).or_insert(0) += kept;
                held += kept;
            }
        }
        _ = ledger.ending(stream);
        assert_eq!(budget.held(), held, "bytes that nobody keeps, or that nobody counts");
    }
    (0..8).for_each(|stream| ledger.dropped(stream));
    assert_eq!(budget.held(), 0, "bytes of streams that are gone");
}

/// Find yamux's headers and gossip's frames: the same however the bytes are cut.
pub fn frames(data: &[u8]) {
    let Some((size, rest)) = cut(data) else { return };
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    let (mut one, mut other) = (Scanner::default(), Scanner::default());
    one.advance(rest, |header| whole.push(header));
    rest.chunks(size).for_each(|piece| other.advance(piece, |header| pieces.push(header)));
    assert_eq!((whole, one.at_boundary()), (pieces, other.at_boundary()));

    // Half of them on a stream on which gossip was agreed.
    let agreed = if size % 2 == 0 { &b"\x13/multistream/1.0.0\n\x0f/meshsub/1.1.0\n"[..] } else { b"" };
    let others: Arc<[StreamProtocol]> = Arc::from([StreamProtocol::new("/a")]);
    let read = |sizes: usize| {
        let mut frames = Frames::new(&others);
        let mut cost = frames.advance(agreed);
        rest.chunks(sizes).for_each(|piece| cost += frames.advance(piece));
        assert!(frames.kept() <= agreed.len() + rest.len(), "more is kept than there was");
        (cost, frames.kept(), frames.are_gossip(), frames.take_control())
    };
    assert_eq!(read(rest.len().max(1)), read(size));
}

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
}

/// Run what a hub sends: as the answer to a client's handshake, or as frames of a WebSocket with yamux's in them.
pub fn websocket(data: &[u8]) {
    let Some((size, rest)) = cut(data) else { return };
    RUNTIME.with_borrow_mut(|runtime| {
        let made = || Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.get_or_insert_with(made).block_on(connect(size, rest));
    });
}

async fn connect(size: usize, sent: &[u8]) {
    let (ours, mut theirs) = duplex(PIPE);
    let sending = async {
        for piece in sent.chunks(size) {
            if theirs.write_all(piece).await.is_err() {
                return;
            }
        }
        _ = theirs.shutdown().await;
        let mut answer = Vec::new();
        _ = theirs.read_to_end(&mut answer).await;
    };
    if size.is_multiple_of(4) {
        let request = "ws://localhost".into_client_request().expect("a request");
        let answered = async { upgrade(request, Box::new(ours), LARGEST).await.map(drop) };
        _ = futures::future::join(answered, sending).await;
        return;
    }
    let config = WebSocketConfig::default().max_message_size(Some(LARGEST)).max_frame_size(Some(LARGEST));
    let socket = WebSocketStream::from_raw_socket(Box::new(ours) as Box<_>, Role::Client, Some(config)).await;
    let limits = Limits { closing: Duration::from_millis(1), ..Limits::small() };
    let shared = Arc::new(Shared::new(Arc::new(Inbox::new().expect("a socket pair")), limits));
    let link = Arc::new(Link::new(&shared, vec!["/a".to_owned()]));
    let (_, ()) = futures::future::join(run(&link, socket, Duration::from_secs(60)), sending).await;
    drop(link);
    assert_eq!(shared.budget.held(), 0, "bytes of a connection that is gone");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return bytes that look a little like headers.
    fn bytes(state: &mut u64, count: usize) -> Vec<u8> {
        let mut next = || {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*state >> 33) as u8
        };
        (0..count).map(|_| if next() % 2 == 0 { next() % 5 } else { next() }).collect()
    }

    #[test]
    fn no_bytes_break_what_holds_for_all() {
        let mut state = 1;
        for round in 0..600 {
            let data = bytes(&mut state, round);
            ledger(&data);
            frames(&data);
            if round % 3 == 0 {
                // A binary frame of a WebSocket, of a hub's.
                websocket(&[&[1, 0x82, data.len().min(125) as u8], &data[..data.len().min(125)]].concat());
                websocket(&data);
            }
        }
    }

    #[test]
    fn a_hub_s_answer_that_is_no_websocket_s_ends_the_handshake() {
        for answer in [&b"HTTP/1.1 404 Not Found\r\n\r\n"[..], b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"\r\n"] {
            websocket(&[&[3], answer].concat());
        }
    }
}
