//! Clocks as order-preserving variable-length integers (wire format, "Clock").
//!
//! The big-endian value stands right-aligned behind a unary count of the bytes that follow the first: `1` for each, then
//! `0`. So encodings sort as the numbers do.

use crate::error::Error;

/// The largest clock: 2^53 - 1, the largest integer that JavaScript counts exactly.
pub const MAX_CLOCK: u64 = (1 << 53) - 1;

/// The bytes that a clock takes, 1 to 8: seven bits of value fit into each.
fn encoded_length(clock: u64) -> usize {
    let bits = (u64::BITS - clock.leading_zeros()) as usize;
    bits.div_ceil(7).max(1)
}

/// Writes `clock` into the front of `target` and returns the number of bytes written.
///
/// # Errors
/// [`Error::Encode`] for a clock above [`MAX_CLOCK`].
pub fn encode(clock: u64, target: &mut [u8; 8]) -> Result<usize, Error> {
    if clock > MAX_CLOCK {
        return Err(Error::Encode(format!("the clock {clock} is above 2^53 - 1")));
    }
    let length = encoded_length(clock);
    // The prefix of `length` bytes: length - 1 ones from the top of the first byte.
    let prefix = !(0xff_u8 >> (length - 1));
    let bytes = clock.to_be_bytes();
    target[..length].copy_from_slice(&bytes[8 - length..]);
    target[0] |= prefix;
    Ok(length)
}

/// Reads a clock from the front of `data`: the clock and the bytes it took. Longer forms than needed are accepted.
///
/// # Errors
/// [`Error::Decode`] where the bytes end too early or the clock is above [`MAX_CLOCK`].
pub fn decode_lenient(data: &[u8]) -> Result<(u64, usize), Error> {
    let Some(&first) = data.first() else {
        return Err(Error::decode("a clock is missing: the input is empty", 0));
    };
    let extra = first.leading_ones() as usize;
    if extra > 7 {
        return Err(Error::decode("no clock begins with the byte 0xff", 0));
    }
    let Some(rest) = data.get(1..=extra) else {
        return Err(Error::decode(
            format!("the clock is cut off: {} bytes are needed, {} are there", extra + 1, data.len()),
            data.len(),
        ));
    };
    let mut clock = u64::from(first & (0x7f_u8 >> extra));
    for &byte in rest {
        clock = clock << 8 | u64::from(byte);
    }
    if clock > MAX_CLOCK {
        return Err(Error::decode(format!("the clock {clock} is above 2^53 - 1"), 0));
    }
    Ok((clock, extra + 1))
}

/// Like [`decode_lenient`], but accepts only the shortest form.
///
/// # Errors
/// As [`decode_lenient`], and for a longer form than the value needs.
pub fn decode(data: &[u8]) -> Result<(u64, usize), Error> {
    let (clock, length) = decode_lenient(data)?;
    let shortest = encoded_length(clock);
    if length != shortest {
        return Err(Error::decode(format!("the clock {clock} takes {length} bytes instead of {shortest}"), 0));
    }
    Ok((clock, length))
}
