//! Connections and streams by their handles: the interface that a network and a host share.

use std::sync::Arc;

use crate::error::Error;
use crate::inbox::Handle;
use crate::slot::Slot;

/// Connections and streams by their handles. No call waits.
pub trait StreamTable: Send + Sync {
    /// Begin to close a connection: what was written goes out first, if the peer takes it in time.
    fn close(&self, connection: Handle) -> Result<(), Error>;

    /// Release a connection and its streams, and ends it at once if it has not ended. Does nothing for an unknown
    /// handle.
    fn release(&self, connection: Handle) -> Result<(), Error>;

    /// Begin to open a stream that speaks `protocol`.
    fn open(&self, connection: Handle, protocol: &str) -> Result<Handle, Error>;

    /// Find a stream by its handle.
    fn slot(&self, stream: Handle) -> Result<Arc<Slot>, Error>;

    /// Release a stream once all that was written is sent and both directions have ended, for which the peer has the
    /// time that the limits allow. Does nothing for an unknown handle.
    fn finish(&self, stream: Handle) -> Result<(), Error>;

    /// Release a stream at once: the peer sees a reset. Does nothing for an unknown handle.
    fn reset(&self, stream: Handle) -> Result<(), Error>;

    /// Take what a stream received, as much as fits. None: nothing now. 0: the peer sent all it had to.
    fn read(&self, stream: Handle, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        self.slot(stream)?.read(buffer)
    }

    /// Give a stream bytes to send, and returns how many were taken: 0 if there is no room now.
    fn write(&self, stream: Handle, bytes: &[u8]) -> Result<usize, Error> {
        self.slot(stream)?.write(bytes)
    }

    /// Set how many bytes the caller itself keeps in memory for a stream. They count with those that were not read,
    /// until the next call or the release of the stream.
    fn reserve_memory(&self, stream: Handle, bytes: usize) -> Result<(), Error> {
        self.slot(stream)?.reserve_memory(bytes);
        Ok(())
    }
}
