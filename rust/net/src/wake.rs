//! The socket pair that wakes an event loop.
//!
//! A pair of sockets, because that is what every event loop can wait for on every platform.

use std::io::{self, Read, Write};

#[cfg(unix)]
use std::os::unix::net::UnixStream as Socket;

#[cfg(windows)]
use std::net::TcpStream as Socket;

/// Readable while there is news.
#[derive(Debug)]
pub struct Wake {
    waiting: Socket,
    waking: Socket,
}

impl Wake {
    /// Create a pair of non-blocking sockets.
    pub fn new() -> io::Result<Self> {
        #[cfg(unix)]
        let (waiting, waking) = Socket::pair()?;
        #[cfg(windows)]
        let (waiting, waking) = loopback_pair()?;
        waiting.set_nonblocking(true)?;
        waking.set_nonblocking(true)?;
        Ok(Self { waiting, waking })
    }

    /// Return what an event loop waits for: a file descriptor, on Windows a socket handle.
    pub fn fileno(&self) -> i64 {
        #[cfg(unix)]
        let number = i64::from(std::os::fd::AsRawFd::as_raw_fd(&self.waiting));
        #[cfg(windows)]
        let number = std::os::windows::io::AsRawSocket::as_raw_socket(&self.waiting) as i64;
        number
    }

    /// Make it readable. A send that fails found the buffer full: it is readable already.
    pub fn notify(&self) {
        let _ = (&self.waking).write(&[0]);
    }

    /// Make it not readable.
    pub fn clear(&self) {
        let mut bytes = [0; 16];
        while matches!((&self.waiting).read(&mut bytes), Ok(read) if read == bytes.len()) {}
    }
}

/// Return a pair over loopback, where the platform has no other: only the connection that was just made is let in.
#[cfg(any(windows, test))]
fn loopback_pair() -> io::Result<(std::net::TcpStream, std::net::TcpStream)> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    let waking = std::net::TcpStream::connect(listener.local_addr()?)?;
    loop {
        let (waiting, address) = listener.accept()?;
        if address == waking.local_addr()? {
            waking.set_nodelay(true)?;
            return Ok((waiting, waking));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_readable_until_it_is_cleared() {
        let wake = Wake::new().unwrap();
        let mut byte = [0];
        let peek = |byte: &mut [u8; 1]| (&wake.waiting).read(byte).map_err(|error| error.kind());
        assert_eq!(peek(&mut byte), Err(io::ErrorKind::WouldBlock));
        for _ in 0..40 {
            wake.notify();
        }
        assert_eq!(peek(&mut byte), Ok(1));
        wake.clear();
        assert_eq!(peek(&mut byte), Err(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn a_pair_over_loopback_is_connected() {
        let (mut waiting, mut waking) = loopback_pair().unwrap();
        waking.write_all(&[7]).unwrap();
        let mut byte = [0];
        waiting.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    }
}
