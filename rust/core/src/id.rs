//! Message keys and ids (wire format, "Message id").

use data_encoding::{DecodeKind, Encoding, Specification};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

use crate::clock;
use crate::error::Error;

/// The bytes of a key.
pub const KEY_LENGTH: usize = 20;
/// The characters of an id.
pub const ID_LENGTH: usize = 32;

/// A message's key: its clock, then as much of the SHA-256 of its stored value as fits.
pub type Key = [u8; KEY_LENGTH];

/// Base32hex in lower case, which keeps the order of the bytes.
static BASE32HEX: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("0123456789abcdefghijklmnopqrstuv");
    // The alphabet has 32 distinct symbols, so it is a valid specification.
    specification.encoding().unwrap_or(data_encoding::BASE32HEX_NOPAD)
});

/// The key of a stored value with this clock.
///
/// # Errors
/// [`Error::Encode`] for a clock above [`clock::MAX_CLOCK`].
pub fn key(clock: u64, value: &[u8]) -> Result<Key, Error> {
    let mut prefix = [0; 8];
    let length = clock::encode(clock, &mut prefix)?;
    let mut key = [0; KEY_LENGTH];
    key[..length].copy_from_slice(&prefix[..length]);
    key[length..].copy_from_slice(&Sha256::digest(value)[..KEY_LENGTH - length]);
    Ok(key)
}

/// The characters of a key's id, as bytes of ASCII.
pub fn encode_ascii(key: &Key) -> [u8; ID_LENGTH] {
    let mut id = [0; ID_LENGTH];
    BASE32HEX.encode_mut(key, &mut id);
    id
}

/// A key as an id.
pub fn encode(key: &Key) -> String {
    BASE32HEX.encode(key)
}

/// An id as a key.
///
/// # Errors
/// [`Error::Decode`] for anything but 32 characters of `0-9a-v`.
pub fn decode(id: &str) -> Result<Key, Error> {
    if id.len() != ID_LENGTH {
        let reason = format!("an id has {ID_LENGTH} ASCII characters, this has {} bytes", id.len());
        return Err(Error::Decode { reason, offset: None });
    }
    let mut key = [0; KEY_LENGTH];
    match BASE32HEX.decode_mut(id.as_bytes(), &mut key) {
        Ok(_) => Ok(key),
        Err(partial) => {
            let reason = match partial.error.kind {
                DecodeKind::Symbol => "an id consists of the characters 0-9 and a-v",
                _ => "the id cannot be decoded",
            };
            Err(Error::decode(reason, partial.error.position))
        }
    }
}
