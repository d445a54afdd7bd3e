//! Content identifiers, as canvas-js's `multiformats` reads and writes them (wire format, "Links").

use data_encoding::BASE32_NOPAD;

use crate::base58;
use crate::error::Error;

/// Base58 grows faster than the length: this takes some milliseconds. canvas-js has no limit but patience.
pub const MAX_BASE58_BYTES: usize = 1 << 14;

const SHA2_256: f64 = 18.0;

/// An unsigned varint, summed in floating point as JavaScript does: any length, so that the verdicts are the same.
///
/// Returns the number and the bytes it took, or none where the bytes end before it does.
pub(crate) fn varint(data: &[u8]) -> Option<(f64, usize)> {
    let mut sum = 0.0;
    let mut scale = 1.0;
    for (index, byte) in data.iter().enumerate() {
        sum += f64::from(byte & 0x7f) * scale;
        if byte & 0x80 == 0 {
            return Some((sum, index + 1));
        }
        scale *= 128.0;
    }
    None
}

/// The bytes that JavaScript sets aside for a varint at the most; what does not fit is cut off.
const LONGEST_VARINT: usize = 10;

/// Writes a whole number from 0 as canvas-js does, into [`LONGEST_VARINT`] bytes; returns how many it took.
fn write_varint(mut number: f64, out: &mut [u8]) -> usize {
    let digit = |number: f64| (number.trunc() % 256.0) as u8;
    let mut length = 0;
    while length + 1 < LONGEST_VARINT && number >= 128.0 {
        out[length] = digit(number) | 0x80;
        number /= 128.0;
        length += 1;
    }
    out[length] = if number < 128.0 { digit(number) } else { digit(number) | 0x80 };
    length + 1
}

/// A binary CID that was read: what canvas-js writes for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cid<'a> {
    /// Version and codec, in the fewest bytes; nothing for a version 0.
    prefix: [u8; 1 + LONGEST_VARINT],
    prefix_length: usize,
    multihash: &'a [u8],
}

impl<'a> Cid<'a> {
    /// Reads a binary CID.
    ///
    /// # Errors
    /// [`Error::Decode`] with an offset into `data`.
    pub(crate) fn read(data: &'a [u8]) -> Result<Self, Error> {
        let cut_off = || Error::decode("the CID is cut off", data.len());
        let (version, mut at) = varint(data).ok_or_else(cut_off)?;
        let (mut prefix, mut prefix_length) = ([0; 1 + LONGEST_VARINT], 0);
        if version == SHA2_256 {
            at = 0;
        } else {
            let (codec, length) = varint(&data[at..]).ok_or_else(cut_off)?;
            if version != 0.0 && version != 1.0 {
                return Err(Error::decode(format!("a CID of version {version}; 0 and 1 are known"), 0));
            }
            if version == 1.0 {
                if !codec.is_finite() {
                    return Err(Error::decode("the CID's codec is out of range", at));
                }
                prefix[0] = 1;
                prefix_length = 1 + write_varint(codec, &mut prefix[1..]);
            }
            at += length;
        }
        let multihash = &data[at..];
        let (_, code_length) = varint(multihash).ok_or_else(cut_off)?;
        let (size, size_length) = varint(&multihash[code_length..]).ok_or_else(cut_off)?;
        let digest = multihash.len() - code_length - size_length;
        if size != digest as f64 {
            let reason = format!("the CID's digest has {digest} bytes where its length says {size}");
            return Err(Error::decode(reason, at + code_length));
        }
        Ok(Self { prefix, prefix_length, multihash })
    }

    /// The normalised bytes, in two parts: a version 0 is a bare multihash, the version and codec of a version 1 are
    /// minimal, the multihash is kept as it is.
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [&self.prefix[..self.prefix_length], self.multihash]
    }

    /// Whether it is of version 0, but its multihash begins like a version 1.
    pub(crate) fn looks_like_version_1(&self) -> bool {
        self.prefix_length == 0 && self.multihash.first() == Some(&1)
    }

    /// How many normalised bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.prefix_length + self.multihash.len()
    }
}

/// The binary form that canvas-js writes for a CID that it has read.
///
/// # Errors
/// [`Error::Decode`] with an offset into `data`.
pub fn normalize(data: &[u8]) -> Result<Vec<u8>, Error> {
    Cid::read(data).map(|cid| cid.parts().concat())
}

/// Whether these bytes are a CID as it is written.
pub(crate) fn is_normalized(data: &[u8]) -> bool {
    let same = |cid: Cid<'_>| cid.len() == data.len() && data.starts_with(cid.parts()[0]);
    Cid::read(data).is_ok_and(same)
}

/// Whether a binary form is of version 0. Its bare multihash begins like a version 1 where its code does.
pub(crate) fn has_version_0(data: &[u8]) -> bool {
    varint(data).is_some_and(|(version, _)| version != 1.0)
}

/// Whether these normalised bytes are read as version 0: a bare multihash.
pub(crate) fn is_version_0(normalized: &[u8]) -> bool {
    normalized.first() != Some(&1)
}

/// Whether a normalised CID has a text form.
///
/// # Errors
/// [`Error::Encode`] for a version 0 of more than [`MAX_BASE58_BYTES`].
pub fn check_text(normalized: &[u8]) -> Result<(), Error> {
    if !is_version_0(normalized) || normalized.len() <= MAX_BASE58_BYTES {
        return Ok(());
    }
    let length = normalized.len();
    let reason = format!("a link of version 0 with {length} bytes has no text form; {MAX_BASE58_BYTES} at most");
    Err(Error::Encode(reason))
}

/// The text of a normalised CID: base58btc for version 0, base32 for version 1.
///
/// # Errors
/// [`Error::Encode`] for a version 0 of more than [`MAX_BASE58_BYTES`].
pub fn format(normalized: &[u8]) -> Result<String, Error> {
    format_as(normalized, is_version_0(normalized))
}

/// The text of a CID as one of version 0, or of version 1, whatever it is.
pub(crate) fn format_as(normalized: &[u8], as_version_0: bool) -> Result<String, Error> {
    if !as_version_0 {
        let mut text = BASE32_NOPAD.encode(normalized);
        text.make_ascii_lowercase();
        return Ok(format!("b{text}"));
    }
    check_text(normalized)?;
    Ok(base58::encode(normalized))
}

/// The normalised binary form of a CID's text: base32 (`b…`), base58btc (`z…`), or a version 0 (`Q…`).
///
/// # Errors
/// [`Error::Decode`] for any other text.
pub fn parse(text: &str) -> Result<Vec<u8>, Error> {
    let refuse = |reason: &str| Error::decode(reason, 0);
    let base58btc = |digits: &str| {
        if digits.len() > 2 * MAX_BASE58_BYTES {
            return Err(refuse("the CID is too long"));
        }
        base58::decode(digits).ok_or_else(|| refuse("the CID is not base58"))
    };
    let bytes = match text.as_bytes().first() {
        Some(b'b') => BASE32_NOPAD
            .decode(text[1..].to_ascii_uppercase().as_bytes())
            .ok()
            .filter(|_| !text[1..].bytes().any(|byte| byte.is_ascii_uppercase()))
            .ok_or_else(|| refuse("the CID is not lower-case base32"))?,
        Some(b'z') => base58btc(&text[1..])?,
        Some(b'Q') => base58btc(text)?,
        _ => {
            return Err(refuse("a CID begins with 'b' (base32), 'z' (base58btc) or 'Q' (version 0)"));
        }
    };
    let normalized = normalize(&bytes)?;
    if is_version_0(&normalized) && !text.starts_with('Q') {
        return Err(refuse("a CID of version 0 is written without a multibase prefix"));
    }
    Ok(normalized)
}
