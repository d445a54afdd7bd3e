//! Work without the interpreter's lock.

use pyo3::Python;
use pyo3::marker::Ungil;

/// Bytes that are worked on in much less than a millisecond.
pub const SHORT: usize = 1 << 14;

/// Messages, nodes or keys of which the same is true.
pub const FEW: usize = 64;

/// Runs `work`, without the interpreter's lock where it is long. A thread that lets go of the lock may wait for others, five milliseconds
/// each, until it has it again; so short work keeps it.
pub fn unlocked<T: Ungil>(py: Python<'_>, is_long: bool, work: impl Ungil + FnOnce() -> T) -> T {
    if is_long { py.detach(work) } else { work() }
}
