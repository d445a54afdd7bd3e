//! What can go wrong in the core.

use std::fmt;

/// An error of the core; the bindings turn each kind into the exception of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Bytes or text that cannot be decoded.
    Decode {
        /// What was wrong.
        reason: String,
        /// Where, in bytes from the start; none where no single place is to blame.
        offset: Option<usize>,
    },
    /// A value that cannot be written, or that other peers would read as something else.
    Encode(String),
    /// A message that every peer refuses.
    Invalid(String),
    /// Entries or rows that no prolly tree can hold.
    Tree(String),
    /// Arrow arrays that cannot be taken, or made.
    Column(String),
}

impl Error {
    /// A decoding error at a byte offset.
    pub fn decode(reason: impl Into<String>, offset: usize) -> Self {
        Self::Decode { reason: reason.into(), offset: Some(offset) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode { reason, offset: Some(offset) } => write!(formatter, "{reason} (at byte {offset})"),
            Self::Decode { reason, offset: None }
            | Self::Encode(reason)
            | Self::Invalid(reason)
            | Self::Tree(reason)
            | Self::Column(reason) => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for Error {}

/// Text of a stranger as it stands in a message to a user: in quotes, and no longer than a line.
pub(crate) fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
        None => format!("{text:?}"),
    }
}
