//! Dialling: a server on loopback, with and without TLS.

#![allow(clippy::result_large_err, clippy::unwrap_used, missing_docs)]

mod support;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::StreamExt;
use gossiplog_net::{Cause, Closed, Error, Event, Handle, Network, StreamTable, Target};
use support::{PROTOCOL, closed_of, limits, network, seconds};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::{accept_async, accept_hdr_async};

fn target(url: String) -> Target {
    Target { url, headers: vec![], ca_file: None, connect: seconds(10), keepalive: seconds(20), message: 1 << 20 }
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("localhost:{port}"))
}

fn tls(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(file)
}

fn acceptor() -> TlsAcceptor {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(tls("localhost.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(tls("localhost.key")).unwrap(),
        )
        .unwrap();
    Arc::new(config).into()
}

/// How dialling went: nothing, if the connection stands.
async fn outcome(network: &Network, dialled: Handle) -> Option<Closed> {
    let mut events = Vec::new();
    loop {
        events.extend(network.poll().unwrap());
        let stands = |event: &Event| matches!(event, Event::Connection { connection, established: true, .. } if *connection == dialled);
        if events.iter().any(stands) {
            return None;
        }
        if let Some(closed) = closed_of(&events, dialled) {
            return Some(closed);
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn accept_with_token(socket: TcpStream) {
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        assert_eq!(request.uri().path(), "/hub");
        assert_eq!(request.headers()["authorization"], "Bearer token");
        Ok(response)
    };
    let mut socket = accept_hdr_async(socket, check).await.unwrap();
    // Yamux begins with a ping.
    assert_eq!(socket.next().await.unwrap().unwrap().into_data()[..4], [0, 2, 0, 1]);
    while let Some(Ok(message)) = socket.next().await {
        if message.is_close() {
            break;
        }
    }
    let _ = socket.close(None).await;
}

#[tokio::test]
async fn a_websocket_is_dialled_with_headers_and_closed() {
    let network = network(limits());
    let (listener, host) = listener().await;
    let server = tokio::spawn(async move { accept_with_token(listener.accept().await.unwrap().0).await });
    let headers = vec![("Authorization".to_owned(), "Bearer token".to_owned())];
    let dialled = network.dial(Target { headers, ..target(format!("ws://{host}/hub")) }, vec![]).unwrap();
    assert_eq!(outcome(&network, dialled).await, None);
    assert!(matches!(network.feed(dialled, b"x"), Err(Error::Invalid(_))));
    network.close(dialled).unwrap();
    assert_eq!(outcome(&network, dialled).await.unwrap().cause, Cause::Local);
    server.await.unwrap();
}

#[tokio::test]
async fn tls_trusts_the_authorities_that_it_is_given_and_no_others() {
    let network = network(limits());
    let (listener, host) = listener().await;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let socket = acceptor().accept(socket).await.unwrap();
                let mut socket = accept_async(socket).await.unwrap();
                while let Some(Ok(_)) = socket.next().await {}
            });
        }
    });
    let trusted = Target { ca_file: Some(tls("ca.pem")), ..target(format!("wss://{host}")) };
    let by_address = Target { url: trusted.url.replace("localhost", "127.0.0.1"), ..trusted.clone() };
    let dialled = network.dial(trusted, vec![]).unwrap();
    assert_eq!(outcome(&network, dialled).await, None);
    let cases = [
        (target(format!("wss://{host}")), "was signed by an authority that this machine does not trust; a file"),
        (by_address, "is not for 127.0.0.1, but for "),
    ];
    for (untrusted, doubt) in cases {
        let dialled = network.dial(untrusted, vec![]).unwrap();
        let closed = outcome(&network, dialled).await.unwrap();
        assert_eq!(closed.cause, Cause::Transport);
        assert!(closed.reason.contains(&format!("is not trusted: its certificate {doubt}")), "{closed:?}");
    }
}

#[tokio::test]
async fn what_keeps_a_connection_from_standing_is_named() {
    let network = network(limits());
    let (listener, host) = listener().await;
    let answers = [
        ("401 Unauthorized", Cause::Token, "HTTP status 401 Unauthorized: it asks for a token"),
        ("403 Forbidden", Cause::Refused, "HTTP status 403 Forbidden: it does not let this client in"),
        ("404 Not Found", Cause::Refused, "HTTP status 404 Not Found: there is no hub"),
        ("200 OK", Cause::Refused, "HTTP status 200 OK: there is no hub"),
        ("503 Service Unavailable", Cause::Unavailable, "HTTP status 503 Service Unavailable"),
        ("429 Too Many Requests", Cause::Unavailable, "HTTP status 429 Too Many Requests"),
    ];
    tokio::spawn(async move {
        for (status, _, _) in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await;
        }
    });
    // Once it has given its answers, nobody listens there any more.
    for (status, cause, reason) in answers.into_iter().chain([("", Cause::Transport, "refused")]) {
        let dialled = network.dial(target(format!("ws://{host}/?token=secret")), vec![]).unwrap();
        let closed = outcome(&network, dialled).await.unwrap();
        assert_eq!(closed.cause, cause);
        assert_eq!(closed.status, status.split(' ').next().and_then(|code| code.parse().ok()));
        assert!(closed.reason.contains(reason) && closed.reason.contains(&host), "{closed:?}");
        assert!(!closed.reason.contains("secret"), "{closed:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let network = network(limits());
    let (_listener, host) = listener().await;
    let impatient = Target { connect: std::time::Duration::from_millis(20), ..target(format!("ws://{host}")) };
    let dialled = network.dial(impatient, vec![]).unwrap();
    let closed = outcome(&network, dialled).await.unwrap();
    assert!(closed.reason.contains("did not answer within 0.02 s"), "{closed:?}");
}

#[tokio::test]
async fn dialling_can_be_given_up() {
    let network = network(limits());
    let (_listener, host) = listener().await;
    let dialled = network.dial(target(format!("ws://{host}")), vec![]).unwrap();
    network.close(dialled).unwrap();
    assert_eq!(outcome(&network, dialled).await.unwrap().cause, Cause::Local);
}

#[tokio::test]
async fn letting_go_ends_what_was_dialled() {
    let network = network(limits());
    let (listener, host) = listener().await;
    for standing in [true, false] {
        let dialled = network.dial(target(format!("ws://{host}")), vec![]).unwrap();
        let (mut socket, _) = listener.accept().await.unwrap();
        if standing {
            let (server, outcome) = futures::join!(accept_async(socket), outcome(&network, dialled));
            assert_eq!(outcome, None);
            network.release(dialled).unwrap();
            let mut server = server.unwrap();
            while let Some(Ok(_)) = server.next().await {}
        } else {
            network.release(dialled).unwrap();
            while !matches!(socket.read(&mut [0; 4096]).await, Ok(0) | Err(_)) {}
        }
        assert!(matches!(network.open(dialled, PROTOCOL), Err(Error::UnknownConnection(_))));
    }
    assert_eq!(network.poll().unwrap(), []);
}

#[tokio::test]
async fn addresses_and_headers_are_checked() {
    let network = network(limits());
    for url in ["", "localhost", "http://localhost", "ws://", "ws://user@localhost", "ws:///path", "ws://local host"] {
        let error = network.dial(target(url.to_owned()), vec![]).unwrap_err();
        assert!(
            matches!(&error, Error::Invalid(reason) if reason.contains("expected something like")),
            "{url}: {error:?}"
        );
    }
    for url in ["ws://user:secret@localhost", "ws://user:sec ret@localhost", "http://localhost?token=secret"] {
        let error = network.dial(target(url.to_owned()), vec![]).unwrap_err();
        assert!(!error.to_string().contains("ret"), "{error:?}");
    }
    for (name, value) in [("a b", "c"), ("a", "b\nc")] {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let error = network.dial(Target { headers, ..target("ws://localhost".to_owned()) }, vec![]).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)));
    }
}

#[test]
fn networks_start_and_stop() {
    for _ in 0..20 {
        let networks = [Network::start(limits()).unwrap(), Network::start(limits()).unwrap()];
        for network in &networks {
            network.attach(vec![], true).unwrap();
            assert!(network.fileno().unwrap() > 0);
        }
        networks[0].stop().unwrap();
        networks[0].stop().unwrap();
        assert!(matches!(networks[0].poll(), Err(Error::Stopped(_))));
        assert!(matches!(networks[0].attach(vec![], true), Err(Error::Stopped(_))));
        assert!(networks[1].poll().is_ok());
    }
}
