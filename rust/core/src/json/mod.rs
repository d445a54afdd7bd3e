//! dag-json, the other codec that messages may be signed in (wire format, "dag-json").

mod lookalike;
mod read;
mod write;

pub use lookalike::{is_unreadable, resolve};
pub use read::read;
pub use write::{Sink, Text, write, write_text};
