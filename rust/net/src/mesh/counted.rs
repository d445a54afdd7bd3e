//! A pipe whose bytes are counted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};

use crate::limits::Counters;

/// A TCP connection of a host, with what WebSockets, noise and yamux add to its streams.
pub struct Counted<T> {
    pipe: T,
    counters: Arc<Counters>,
}

impl<T> Counted<T> {
    /// Count the bytes of `pipe`.
    pub fn new(pipe: T, counters: Arc<Counters>) -> Self {
        Self { pipe, counters }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            Counters::add_bytes(&self.counters.bytes_sent, bytes);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.pipe).poll_read(context, buffer);
        if let Poll::Ready(Ok(bytes)) = read {
            Counters::add_bytes(&this.counters.bytes_received, bytes);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.pipe).poll_write(context, bytes);
        this.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.pipe).poll_write_vectored(context, parts);
        this.wrote(written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().pipe).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().pipe).poll_close(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::io::{AsyncReadExt, AsyncWriteExt, Cursor};

    use super::*;

    #[test]
    fn bytes_are_counted_by_direction() {
        let counters = Arc::<Counters>::default();
        let counts = || counters.read();
        let mut pipe = Counted::new(Cursor::new(vec![7; 100]), Arc::clone(&counters));
        let mut taken = [0; 60];
        block_on(pipe.read_exact(&mut taken)).unwrap();
        assert_eq!((counts().bytes_received, counts().bytes_sent), (60, 0));
        block_on(pipe.write_all(&[1; 30])).unwrap();
        assert_eq!(block_on(pipe.write_vectored(&[IoSlice::new(&[2; 4]), IoSlice::new(&[3; 5])])).unwrap(), 9);
        assert_eq!((counts().bytes_received, counts().bytes_sent), (60, 39));
        assert_eq!(block_on(pipe.read(&mut taken)).unwrap(), 1);
        assert_eq!(block_on(pipe.read(&mut taken)).unwrap(), 0);
        assert_eq!((counts().bytes_received, counts().bytes_sent), (61, 39));
    }
}
