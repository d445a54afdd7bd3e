//! The names that logs may have (wire format, "Message, signature, stored value").

use crate::error::Error;

/// Accepts what version 0.13.14 of canvas-js does (`^[a-zA-Z0-9.\-]+(#[a-zA-Z0-9]+)?$`) or its repository's head
/// (`^[a-zA-Z0-9:.\-]+$`).
///
/// # Errors
/// [`Error::Encode`] for anything else.
pub fn check(topic: &str) -> Result<(), Error> {
    let plain = |text: &str, also: &[u8]| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || also.contains(&byte))
    };
    let (name, fragment) = topic.split_once('#').map_or((topic, None), |(name, rest)| (name, Some(rest)));
    let older = plain(name, b".-") && fragment.is_none_or(|fragment| plain(fragment, b""));
    if older || plain(topic, b":.-") {
        return Ok(());
    }
    Err(Error::Encode(format!(
        "{topic:?} is no topic: letters, digits, '.', '-' and ':', or without ':' and with one '#' before a last part of \
         letters and digits"
    )))
}
