//! What threads share values by. The tests of interleavings (`tests/interleavings`) have a module of their own instead.

pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Mutex, MutexGuard, OnceLock};

pub use futures::task::AtomicWaker;
