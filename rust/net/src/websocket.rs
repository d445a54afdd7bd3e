//! The client's end of a WebSocket: binary messages in and out of a connection's pipe.

use std::fmt::Display;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{Either, join, select};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf, duplex,
};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use yamux::Mode;

use crate::connection::drive;
use crate::error::{Cause, Closed, Error};
use crate::limits::Counters;
use crate::link::Link;
use crate::redacted_url::redacted_url;
use crate::tls;
use crate::watched::PIPE;

/// Headers by which a hub says what it serves, and what the client may do (wire format, "Streams").
const HELLO: [&str; 2] = ["gossiplog-topic", "gossiplog-access"];
/// Bytes of such a header; a longer one is passed over.
const LONGEST_HELLO: usize = 4096;
/// Bytes of an answer that opens no WebSocket in which its reason is looked for.
const LONGEST_ANSWER: usize = 4096;
/// Characters of a reason that are shown.
const LONGEST_REASON: usize = 300;
/// How long the rest of such an answer may take.
const ANSWER: Duration = Duration::from_secs(1);

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// `ws://` or `wss://`.
    pub url: String,
    /// More headers for the opening request.
    pub headers: Vec<(String, String)>,
    /// A PEM file of certificate authorities to trust beside the platform's.
    pub ca_file: Option<PathBuf>,
    /// How long the connection may take to stand.
    pub connect: Duration,
    /// How often a ping goes out. After twice as long without any sign of life, the connection is given up.
    pub keepalive: Duration,
    /// The largest message that is accepted, in bytes.
    pub message: usize,
}

/// A checked target.
#[derive(Debug)]
pub struct Address {
    request: Request,
    host: String,
    port: u16,
    secure: bool,
    target: Target,
}

impl Target {
    /// Check the URL and the headers.
    pub fn check(self) -> Result<Address, Error> {
        let wrong = |what: &str| {
            Error::Invalid(format!("{:?} {what}; expected something like ws://localhost:8000", redacted_url(&self.url)))
        };
        let mut request =
            self.url.as_str().into_client_request().map_err(|_| wrong("is not the URL of a WebSocket"))?;
        let uri = request.uri().clone();
        let secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            Some(scheme @ ("http" | "https")) => {
                let right = if scheme == "http" { "ws" } else { "wss" };
                return Err(wrong(&format!("begins with {scheme}://, where a hub's begins with {right}://")));
            }
            _ => return Err(wrong("begins with neither ws:// nor wss://")),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("holds a user name, which WebSockets do not send"));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("names no host"))?;
        // What is no number of 16 bits is taken for no port by the library, and the usual one in its place.
        let port = uri.authority().map_or("", |authority| authority.as_str().trim_start_matches(host));
        if port.len() > 1 && uri.port_u16().is_none_or(|port| port == 0) {
            return Err(wrong(&format!("has the port {}, which is none from 1 to 65535", &port[1..])));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        for (name, value) in &self.headers {
            let name = HeaderName::try_from(name)
                .map_err(|_| Error::Invalid(format!("{name:?} is not the name of a header")))?;
            let value = HeaderValue::try_from(value)
                .map_err(|_| Error::Invalid(format!("the value of header {name} cannot be sent")))?;
            request.headers_mut().insert(name, value);
        }
        Ok(Address { request, host, port, secure, target: self })
    }
}

/// Any byte stream that a WebSocket runs on.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A WebSocket over any byte stream.
pub type Socket = WebSocketStream<Box<dyn Bytes>>;

/// What a hub said of itself when it opened a WebSocket: names and values of headers.
pub type Hello = Vec<(String, String)>;

/// Open a connection, in the time that the target allows.
pub async fn connect(address: Address) -> Result<(Socket, Hello), Closed> {
    let (limit, url) = (address.target.connect, redacted_url(&address.target.url));
    let late = |_| Closed::new(Cause::Transport, format!("{url} did not answer within {} s", limit.as_secs_f64()));
    let failed = |closed: Closed| Closed { reason: format!("{url} {}", closed.reason), ..closed };
    timeout(limit, handshake(address)).await.map_err(late)?.map_err(failed)
}

/// Return an end that is nobody's fault. `reason`: a clause about the hub, as all reasons of a handshake are.
fn transport(reason: impl Display) -> Closed {
    // Without what the system's text repeats: that a name was looked up, and the number of the error.
    let reason = reason.to_string();
    let reason = reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason);
    let reason = reason.split_once(" (os error ").map_or(reason, |(text, _)| text);
    Closed::new(Cause::Transport, format!("cannot be reached: {reason}"))
}

async fn handshake(address: Address) -> Result<(Socket, Hello), Closed> {
    let Address { request, host, port, secure, target } = address;
    let socket = TcpStream::connect((host.as_str(), port)).await.map_err(transport)?;
    socket.set_nodelay(true).map_err(transport)?;
    let bytes: Box<dyn Bytes> = if secure {
        let ca_file = target.ca_file.clone();
        let connector = spawn_blocking(move || tls::connector(ca_file.as_deref()));
        let connector = connector.await.map_err(transport)?;
        let connector =
            connector.map_err(|error| Closed::new(Cause::Transport, format!("cannot be checked: {error}")))?;
        let name = host.try_into().map_err(|_| transport("its host is not a name that TLS can check"))?;
        let explained = |error| Closed::new(Cause::Transport, tls::explain(&error, target.ca_file.as_deref()));
        Box::new(connector.connect(name, socket).await.map_err(explained)?)
    } else {
        Box::new(socket)
    };
    upgrade(request, bytes, target.message).await
}

pub async fn upgrade(request: Request, bytes: Box<dyn Bytes>, message: usize) -> Result<(Socket, Hello), Closed> {
    let config = WebSocketConfig::default()
        .read_buffer_size(PIPE)
        .write_buffer_size(PIPE)
        .max_message_size(Some(message))
        .max_frame_size(Some(message));
    let secure = request.uri().scheme_str() == Some("wss");
    let (give_back, given_back) = oneshot::channel();
    let lent: Box<dyn Bytes> = Box::new(Lent { bytes, give_back: Some(give_back) });
    match client_async_with_config(request, lent, Some(config)).await {
        Ok((socket, answer)) => Ok((socket, hello(answer.headers()))),
        Err(WebSocketError::Http(answer)) => {
            let (head, body) = answer.into_parts();
            let body = read_answer(&head.headers, body.unwrap_or_default(), given_back).await;
            Err(refusal(head.status, said(&String::from_utf8_lossy(&body))))
        }
        Err(error) => Err(unanswered(&error, secure)),
    }
}

/// Bytes that a handshake gives back when it fails: it reads an answer's head, and not all of its body.
struct Lent {
    bytes: Box<dyn Bytes>,
    give_back: Option<oneshot::Sender<Box<dyn Bytes>>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            // Nobody waits for them after a handshake that went well.
            let _ = give_back.send(mem::replace(&mut self.bytes, Box::new(tokio::io::empty())));
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(context, into)
    }
}

impl AsyncWrite for Lent {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}

/// Return the body of an answer, as far as it is looked at and comes in time. `begun`: what has come with its head.
async fn read_answer(headers: &HeaderMap, mut begun: Vec<u8>, bytes: oneshot::Receiver<Box<dyn Bytes>>) -> Vec<u8> {
    let length = headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    let wanted = length.unwrap_or(0).min(LONGEST_ANSWER);
    let rest = async {
        let Ok(mut bytes) = bytes.await else { return };
        while begun.len() < wanted && matches!(bytes.read_buf(&mut begun).await, Ok(1..)) {}
    };
    let _ = timeout(ANSWER, rest).await;
    begun.truncate(LONGEST_ANSWER);
    begun
}

/// Return the reason in an answer, as this package's hubs give it: the first text in JSON that is named `error`.
fn said(body: &str) -> Option<String> {
    let (_, text) = body.split_once("\"error\"")?;
    let text = text.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut reason = String::new();
    let mut characters = text.chars();
    // Without its quote it was cut off.
    while let Some(character) = characters.next().filter(|&character| character != '"') {
        let character = match character {
            '\\' => match characters.next()? {
                'u' => {
                    let digits: String = characters.by_ref().take(4).collect();
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?).unwrap_or(char::REPLACEMENT_CHARACTER)
                }
                'b' | 'f' | 'n' | 'r' | 't' => ' ',
                plain => plain,
            },
            plain => plain,
        };
        reason.push(if character.is_control() { ' ' } else { character });
        if reason.chars().count() >= LONGEST_REASON {
            reason.push('…');
            break;
        }
    }
    Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty())
}

/// Return what an answer means that opens no WebSocket. `said`: the reason that it gives.
fn refusal(status: StatusCode, said: Option<String>) -> Closed {
    let (cause, meaning) = match status {
        StatusCode::REQUEST_TIMEOUT => (Cause::Unavailable, ""),
        StatusCode::TOO_MANY_REQUESTS => {
            (Cause::Unavailable, "this address has too many connections, or a client at it broke a rule before")
        }
        _ if status.is_server_error() => (Cause::Unavailable, ""),
        StatusCode::UNAUTHORIZED => (Cause::Token, "it asks for a token, or for another one"),
        StatusCode::FORBIDDEN => (Cause::Refused, "it does not let this client in"),
        _ => (Cause::Refused, "there is no hub at this address"),
    };
    let reason = said.unwrap_or_else(|| meaning.to_owned());
    let colon = if reason.is_empty() { "" } else { ": " };
    let reason = format!("answered with HTTP status {status}{colon}{reason}");
    Closed { status: Some(status.as_u16()), ..Closed::new(cause, reason) }
}

/// Return the reason of a handshake that got no HTTP answer, or an invalid one.
fn unanswered(error: &WebSocketError, secure: bool) -> Closed {
    let hint = if secure { "" } else { "; a hub with TLS is reached by wss://" };
    let reason = match error {
        WebSocketError::Protocol(ProtocolError::HandshakeIncomplete) | WebSocketError::Io(_) => {
            format!("closed the connection before it answered{hint}")
        }
        WebSocketError::Protocol(ProtocolError::HttparseError(_)) => format!("speaks no HTTP{hint}"),
        error => format!("opens no WebSocket: {error}"),
    };
    Closed::new(Cause::Transport, reason)
}

/// Return what a hub says of itself.
fn hello(headers: &HeaderMap) -> Hello {
    let text = |name: &str| headers.get(name)?.to_str().ok().filter(|text| text.len() <= LONGEST_HELLO);
    HELLO.iter().filter_map(|&name| Some((name.to_owned(), text(name)?.to_owned()))).collect()
}

/// Drive a connection over a WebSocket until it ends.
pub async fn run(link: &Arc<Link>, socket: Socket, keepalive: Duration) -> Closed {
    let (near, far) = duplex(PIPE);
    join(drive(link, near, Mode::Client), carry(link, socket, far, keepalive)).await.0
}

/// Carry bytes between a WebSocket and the far end of a connection's pipe until either ends.
async fn carry(link: &Link, socket: Socket, pipe: DuplexStream, keepalive: Duration) {
    let (mut sink, mut stream) = socket.split();
    let (from_pipe, to_pipe) = tokio::io::split(pipe);
    let start = Instant::now();
    let alive = AtomicU64::new(0);
    let seen = || alive.store(start.elapsed().as_millis() as u64, Ordering::Relaxed);
    let silent = async {
        loop {
            let last = start + Duration::from_millis(alive.load(Ordering::Relaxed));
            if last.elapsed() >= 2 * keepalive {
                let reason = format!("the peer gave no sign of life for {} s", 2.0 * keepalive.as_secs_f64());
                return Closed::new(Cause::Transport, reason);
            }
            sleep_until(last + 2 * keepalive).await;
        }
    };
    // A block, so that the pipe is gone after it: the connection's own task finds the end while the peer is notified.
    let ended = {
        let received = pin!(receive(&mut stream, to_pipe, &link.shared.counters, seen));
        let sent = pin!(send(&mut sink, from_pipe, &link.shared.counters, keepalive));
        match select(received, select(sent, pin!(silent))).await {
            Either::Left((closed, _)) | Either::Right((Either::Right((closed, _)), _)) => {
                link.explain(closed.clone());
                Some(closed)
            }
            Either::Right((Either::Left((sent, _)), _)) => sent.err().inspect(|closed| link.explain(closed.clone())),
        }
    };
    let code = match ended.as_ref().map(|closed| closed.cause) {
        Some(Cause::Violation) => CloseCode::Policy,
        _ if link.ledger.violation().is_some() => CloseCode::Protocol,
        _ if link.ledger.close_signal.reason().is_some_and(|closed| closed.cause == Cause::Violation) => {
            CloseCode::Policy
        }
        _ => CloseCode::Normal,
    };
    let farewell = async {
        let _ = sink.send(Message::Close(Some(CloseFrame { code, reason: "".into() }))).await;
        let _ = sink.close().await;
        // The system resets a connection that is released with bytes unread, and the peer may lose what was sent last.
        // So what it still sends is discarded until it ends, too, as RFC 6455 has it (section 7.1.1).
        while ended.is_none() && code == CloseCode::Normal && matches!(stream.next().await, Some(Ok(_))) {}
    };
    let _ = timeout(link.shared.limits.closing, farewell).await;
}

/// Copy from the WebSocket into the pipe.
async fn receive(
    stream: &mut SplitStream<Socket>,
    mut pipe: WriteHalf<DuplexStream>,
    counters: &Counters,
    seen: impl Fn(),
) -> Closed {
    loop {
        let message = stream.next().await;
        seen();
        match message {
            Some(Ok(Message::Binary(bytes))) => {
                Counters::add_bytes(&counters.bytes_received, bytes.len());
                if pipe.write_all(&bytes).await.is_err() {
                    // The connection's task is over, and knows why.
                    return Closed::new(Cause::Local, "the connection was closed");
                }
                seen();
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Text(_))) => {
                return Closed::new(Cause::Violation, "the peer sent a text message: only binary ones carry streams");
            }
            Some(Ok(Message::Close(Some(frame)))) => {
                let CloseFrame { code, reason } = frame;
                let meaning = match code {
                    CloseCode::Away => " (it goes away)",
                    CloseCode::Restart => " (it restarts, or stops)",
                    _ => "",
                };
                let said = if reason.is_empty() { String::new() } else { format!(": {:?}", reason.as_str()) };
                let code = u16::from(code);
                return Closed::new(
                    Cause::Remote,
                    format!("the peer closed the WebSocket with code {code}{meaning}{said}"),
                );
            }
            Some(Ok(Message::Close(None))) => return Closed::new(Cause::Remote, "the peer closed the WebSocket"),
            Some(Err(error)) => return judge(&error),
            None => return Closed::new(Cause::Transport, "the WebSocket ended without a farewell"),
        }
    }
}

/// Copy from the pipe into the WebSocket, with regular pings. Ok: the pipe has ended.
async fn send(
    sink: &mut SplitSink<Socket, Message>,
    mut pipe: ReadHalf<DuplexStream>,
    counters: &Counters,
    keepalive: Duration,
) -> Result<(), Closed> {
    let mut pings = interval(keepalive);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.tick().await;
    let mut buffer = vec![0; PIPE];
    loop {
        let message = {
            let read = pin!(pipe.read(&mut buffer));
            let ping = pin!(pings.tick());
            match select(read, ping).await {
                Either::Left((Ok(0) | Err(_), _)) => return Ok(()),
                Either::Left((Ok(read), _)) => Message::binary(buffer[..read].to_vec()),
                Either::Right(_) => Message::Ping(Vec::new().into()),
            }
        };
        let bytes = if message.is_binary() { message.len() } else { 0 };
        sink.send(message).await.map_err(|error| judge(&error))?;
        Counters::add_bytes(&counters.bytes_sent, bytes);
    }
}

/// Return whose fault a WebSocket's error is.
fn judge(error: &WebSocketError) -> Closed {
    match error {
        WebSocketError::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            let reason = format!("the peer sent a WebSocket message of {size} bytes, more than {max_size}");
            Closed::new(Cause::Violation, reason)
        }
        WebSocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) | WebSocketError::Io(_) => {
            Closed::new(Cause::Transport, format!("the WebSocket broke: {error}"))
        }
        WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed => {
            Closed::new(Cause::Remote, "the peer closed the WebSocket")
        }
        error => Closed::new(Cause::Violation, format!("the peer broke the rules of WebSockets: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;
    use tokio_tungstenite::accept_async;
    use tokio_tungstenite::tungstenite::Bytes as Body;

    use super::*;
    use crate::inbox::{Event, Inbox};
    use crate::limits::Limits;
    use crate::link::Shared;

    const KEEPALIVE: Duration = Duration::from_secs(20);
    const LIMIT: usize = 100_000;

    type Server = WebSocketStream<DuplexStream>;

    /// Create a connection, and the server's end of its WebSocket.
    async fn connected() -> (Arc<Link>, JoinHandle<Closed>, Server) {
        let inbox = Arc::new(Inbox::new().unwrap());
        let limits = Limits { closing: Duration::from_secs(5), ..Limits::small() };
        let link = Arc::new(Link::new(&Arc::new(Shared::new(inbox, limits)), vec!["/a".to_owned()]));
        let (ours, theirs) = duplex(PIPE);
        let request = "ws://localhost".into_client_request().unwrap();
        let (socket, server) = join(upgrade(request, Box::new(ours), LIMIT), accept_async(theirs)).await;
        let (running, (socket, _)) = (Arc::clone(&link), socket.unwrap());
        let task = tokio::spawn(async move { run(&running, socket, KEEPALIVE).await });
        (link, task, server.unwrap())
    }

    /// Read to the end; the code that the client closed with.
    async fn close_code(server: &mut Server) -> Option<CloseCode> {
        while let Some(Ok(message)) = server.next().await {
            if let Message::Close(frame) = message {
                return frame.map(|frame| frame.code);
            }
        }
        None
    }

    #[tokio::test]
    async fn what_no_stream_is_made_of_is_a_violation() {
        let bad_frame = Message::binary(vec![9; 12]);
        let cases = [
            (Message::text("hello"), "text message", CloseCode::Policy),
            (
                Message::binary(vec![0; LIMIT + 1]),
                "a WebSocket message of 100001 bytes, more than 100000",
                CloseCode::Policy,
            ),
            (bad_frame, "no yamux frame", CloseCode::Normal),
        ];
        for (message, reason, code) in cases {
            let (_, task, mut server) = connected().await;
            // The last bytes of a message that is too large are not taken.
            let (_, closed) = join(server.send(message), task).await;
            let closed = closed.unwrap();
            assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
            assert!(closed.reason.contains(reason), "{closed:?}");
            assert_eq!(close_code(&mut server).await, Some(code));
        }
    }

    /// Return what a client makes of an answer that comes in parts.
    async fn answered(parts: &[&[u8]]) -> Result<Hello, Closed> {
        let (ours, mut theirs) = duplex(PIPE);
        let request = "ws://localhost".into_client_request().unwrap();
        let client = tokio::spawn(upgrade(request, Box::new(ours), LIMIT));
        let _ = theirs.read(&mut [0; 1000]).await.unwrap();
        for part in parts {
            theirs.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        drop(theirs);
        client.await.unwrap().map(|(_, hello)| hello)
    }

    #[tokio::test]
    async fn a_refusal_has_the_reason_that_the_hub_gives() {
        let head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 40\r\n\r\n";
        let cases: [(&[&[u8]], &str); 4] = [
            (&[head, b"{\"error\":\"10.0.0.1 has", b" its 32 connections\"}"], "10.0.0.1 has its 32 connections"),
            (&[head, b"{\"error\": \"a \\\"b\\\"\\u000a\xc3\xa9 c"], "a \"b\" \u{e9} c"),
            (&[head, b"<html>"], "this address has too many connections, or a client at it broke a rule before"),
            (
                &[b"HTTP/1.1 429 Too Many Requests\r\n\r\n"],
                "this address has too many connections, or a client at it broke a rule before",
            ),
        ];
        for (parts, reason) in cases {
            let expected = format!("answered with HTTP status 429 Too Many Requests: {reason}");
            let closed = answered(parts).await.unwrap_err();
            assert_eq!(closed, Closed { status: Some(429), ..Closed::new(Cause::Unavailable, expected) });
        }
        let long = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: 9999\r\n\r\n{{\"error\":\"{}", "é".repeat(4000));
        let closed = answered(&[long.as_bytes()]).await.unwrap_err();
        let expected = format!("answered with HTTP status 403 Forbidden: {}…", "é".repeat(LONGEST_REASON));
        assert_eq!(closed, Closed { status: Some(403), ..Closed::new(Cause::Refused, expected) });
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_reason_times_out() {
        let (ours, mut theirs) = duplex(PIPE);
        let request = "ws://localhost".into_client_request().unwrap();
        theirs.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 40\r\n\r\n").await.unwrap();
        let start = Instant::now();
        let closed = upgrade(request, Box::new(ours), LIMIT).await.err().unwrap();
        assert_eq!(
            (closed.reason.as_str(), start.elapsed()),
            ("answered with HTTP status 503 Service Unavailable", ANSWER)
        );
    }

    #[tokio::test]
    async fn another_protocol_is_named() {
        let closed = answered(&[]).await.unwrap_err();
        assert_eq!(closed.reason, "closed the connection before it answered; a hub with TLS is reached by wss://");
        // An alert of TLS.
        let closed = answered(&[&[21, 3, 1, 0, 2, 2, 70]]).await.unwrap_err();
        assert_eq!(closed.reason, "speaks no HTTP; a hub with TLS is reached by wss://");
    }

    #[test]
    fn a_hub_says_what_it_serves() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("gossiplog-topic", "a:b"), ("gossiplog-access", "read"), ("other", "x")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(hello(&headers), [named("gossiplog-topic", "a:b"), named("gossiplog-access", "read")]);
        headers.insert("gossiplog-topic", HeaderValue::from_str(&"a".repeat(LONGEST_HELLO + 1)).unwrap());
        assert_eq!(hello(&headers), [named("gossiplog-access", "read")]);
        assert_eq!(hello(&HeaderMap::new()), []);
    }

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        let checked = |url: &str| {
            let target = Target {
                url: url.to_owned(),
                headers: Vec::new(),
                ca_file: None,
                connect: KEEPALIVE,
                keepalive: KEEPALIVE,
                message: LIMIT,
            };
            target.check()
        };
        for (url, wrong) in [
            ("http://localhost", "begins with http://, where a hub's begins with ws://;"),
            ("https://localhost", "begins with https://, where a hub's begins with wss://;"),
            ("ftp://localhost", "begins with neither ws:// nor wss://"),
            ("ws://localhost:99999", "has the port 99999, which is none from 1 to 65535"),
            ("ws://[::1]:65536/hub", "has the port 65536,"),
            ("ws://localhost:0", "has the port 0,"),
        ] {
            assert!(matches!(checked(url), Err(Error::Invalid(reason)) if reason.contains(wrong)), "{url}");
        }
        for (url, port) in
            [("ws://localhost", 80), ("wss://[::1]/a:99999", 443), ("ws://a:65535", 65535), ("ws://a:", 80)]
        {
            assert_eq!(checked(url).unwrap().port, port);
        }
    }

    #[tokio::test]
    async fn a_close_says_its_code() {
        let (_, task, mut server) = connected().await;
        server.close(Some(CloseFrame { code: CloseCode::Away, reason: "restart".into() })).await.unwrap();
        let (code, closed) = join(close_code(&mut server), task).await;
        assert_eq!(code, Some(CloseCode::Away));
        let expected =
            Closed::new(Cause::Remote, "the peer closed the WebSocket with code 1001 (it goes away): \"restart\"");
        assert_eq!(closed.unwrap(), expected);
    }

    #[tokio::test]
    async fn a_close_of_a_server_that_restarts_says_so() {
        let (_, task, mut server) = connected().await;
        server.close(Some(CloseFrame { code: CloseCode::Restart, reason: "".into() })).await.unwrap();
        let (_, closed) = join(close_code(&mut server), task).await;
        let reason = "the peer closed the WebSocket with code 1012 (it restarts, or stops)";
        assert_eq!(closed.unwrap().reason, reason);
    }

    #[tokio::test]
    async fn a_peer_that_vanishes_blames_nobody() {
        let (_, task, server) = connected().await;
        drop(server);
        assert_eq!(task.await.unwrap().cause, Cause::Transport);
    }

    #[tokio::test]
    async fn what_came_before_the_end_is_read() {
        let (link, task, mut server) = connected().await;
        let frame = |flags: u8, body: &[u8]| [&[0, 0, 0, flags, 0, 0, 0, 2, 0, 0, 0, body.len() as u8], body].concat();
        let select = b"\x13/multistream/1.0.0\n\x03/a\n";
        server.send(Message::binary(frame(1, select))).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"/a\n") {
            answer.extend(server.next().await.unwrap().unwrap().into_data());
        }
        let counts = link.shared.counters.read();
        let received = (12 + select.len()) as u64;
        assert!(counts.bytes_received == received && counts.bytes_sent >= answer.len() as u64, "{counts:?}");
        // A ping asks for an answer that nobody will take.
        let last = [&[0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7], &frame(0, b"last words")[..]].concat();
        server.send(Message::binary(last)).await.unwrap();
        drop(server);
        assert_eq!(task.await.unwrap().cause, Cause::Transport);
        let opened = |event| match event {
            Event::Stream { stream, protocol: Some(_), .. } => Some(stream),
            _ => None,
        };
        let stream = link.shared.inbox.take().into_iter().find_map(opened).unwrap();
        let mut buffer = [0; 20];
        assert_eq!(link.stream(stream).unwrap().read(&mut buffer), Ok(Some(10)));
        assert!(buffer.starts_with(b"last words"));
    }

    #[tokio::test]
    async fn this_side_says_farewell() {
        let (link, task, mut server) = connected().await;
        link.end(Closed::new(Cause::Local, "enough"));
        let mut bytes = Vec::new();
        while let Some(Ok(message)) = server.next().await {
            match message {
                Message::Binary(body) => bytes.extend(body),
                Message::Close(frame) => assert_eq!(frame.unwrap().code, CloseCode::Normal),
                other => panic!("{other:?}"),
            }
        }
        // Yamux's GoAway without an error.
        assert!(bytes.ends_with(&[0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(task.await.unwrap().cause, Cause::Local);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_the_peers_end_for_a_while() {
        for ends in [true, false] {
            let (link, task, mut server) = connected().await;
            let start = Instant::now();
            link.end(Closed::new(Cause::Local, "enough"));
            while !matches!(server.next().await, Some(Ok(Message::Close(_)))) {}
            sleep_until(start + Duration::from_secs(2)).await;
            assert!(!task.is_finished());
            if ends {
                drop(server);
            }
            assert_eq!(task.await.unwrap().cause, Cause::Local);
            assert_eq!(start.elapsed().as_secs(), if ends { 2 } else { 5 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_without_a_sign_of_life_is_given_up() {
        let (_, task, _server) = connected().await;
        let start = Instant::now();
        let closed = task.await.unwrap();
        assert_eq!(closed, Closed::new(Cause::Transport, "the peer gave no sign of life for 40 s"));
        // And the time that the farewell may take.
        assert!((40..=46).contains(&start.elapsed().as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_answers_pings_is_kept() {
        let (link, task, mut server) = connected().await;
        // Reading answers pings.
        let quiet =
            timeout(100 * KEEPALIVE, async { while server.next().await.is_some_and(|read| read.is_ok()) {} }).await;
        assert!(quiet.is_err() && !task.is_finished());
        server.send(Message::Ping(Body::from_static(b"hello"))).await.unwrap();
        link.end(Closed::new(Cause::Local, "enough"));
        join(close_code(&mut server), task).await.1.unwrap();
    }
}
