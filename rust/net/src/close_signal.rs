//! The signal that ends a connection, with its reason.

use std::future::poll_fn;
use std::task::Poll;

use crate::error::Closed;
use crate::sync::{AtomicWaker, OnceLock};

/// The first reason given, and the task that waits for one.
#[derive(Debug, Default)]
pub struct CloseSignal {
    reason: OnceLock<Closed>,
    /// The task that drives the connection.
    pub task: AtomicWaker,
}

impl CloseSignal {
    /// End the connection, unless it is to end already.
    pub fn end(&self, closed: Closed) {
        // Set before the task is woken, which then finds it.
        let _ = self.reason.set(closed);
        self.task.wake();
    }

    /// Return why it is to end, if it is.
    pub fn reason(&self) -> Option<Closed> {
        self.reason.get().cloned()
    }

    /// Wait until it is to end.
    pub async fn wait(&self) -> Closed {
        poll_fn(|context| {
            self.task.register(context.waker());
            self.reason().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
