//! Streams by their handles, whoever carries them.

use std::sync::Arc;

use crate::error::Error;
use crate::inbox::Handle;
use crate::slot::Slot;

/// Streams by their handles: what a network and a host have in common. No call waits.
pub trait StreamTable {
    /// The stream that a handle stands for.
    fn slot(&self, stream: Handle) -> Result<Arc<Slot>, Error>;

    /// Lets go of a stream: at once, so that the peer sees a reset; or (`finishing`) with all that was written sent and
    /// both directions ended, for which the peer has the time that the limits allow.
    fn let_go(&self, stream: Handle, finishing: bool) -> Result<(), Error>;

    /// Takes what a stream received, as much as fits. None: nothing now. 0: the peer sent all it had to.
    fn read(&self, stream: Handle, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        self.slot(stream)?.read(buffer)
    }

    /// Gives a stream bytes to send, and says how many were taken: 0 if there is no room now.
    fn write(&self, stream: Handle, bytes: &[u8]) -> Result<usize, Error> {
        self.slot(stream)?.write(bytes)
    }

    /// Says how many bytes the caller itself keeps in memory for a stream. They count with those that were not read, until
    /// it says otherwise or lets go of the stream.
    fn hold(&self, stream: Handle, bytes: usize) -> Result<(), Error> {
        self.slot(stream)?.hold(bytes);
        Ok(())
    }
}
