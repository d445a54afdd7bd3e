//! Why a connection is to end, as everybody who may have it end shares it.

use std::future::poll_fn;
use std::task::Poll;

use crate::error::Closed;
use crate::sync::{AtomicWaker, OnceLock};

/// The first reason that anybody gave, and the task that waits for one.
#[derive(Debug, Default)]
pub struct Halt {
    reason: OnceLock<Closed>,
    /// The task that drives the connection.
    pub driver: AtomicWaker,
}

impl Halt {
    /// Has the connection end, unless somebody has already.
    pub fn end(&self, closed: Closed) {
        // Before anybody is woken, who looks for it.
        let _ = self.reason.set(closed);
        self.driver.wake();
    }

    /// Why it is to end, if it is.
    pub fn reason(&self) -> Option<Closed> {
        self.reason.get().cloned()
    }

    /// Waits until somebody has it end.
    pub async fn wait(&self) -> Closed {
        poll_fn(|context| {
            self.driver.register(context.waker());
            self.reason().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
