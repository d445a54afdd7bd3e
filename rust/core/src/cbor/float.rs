//! Floats and JavaScript's one number type (wire format, "What is written").

/// 2^53 - 1: up to here, on both sides of zero, a float with an integral value is written as an integer.
pub const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// The integer as which a float is written, or none where it stays a float.
pub fn canonical(float: f64) -> Option<i64> {
    (float.abs() <= MAX_SAFE_INTEGER && float.fract() == 0.0).then_some(float as i64)
}

/// A 16-bit float, from its bits (RFC 8949, appendix D).
pub(super) fn from_half(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 0x1f);
    let mantissa = f64::from(bits & 0x3ff);
    let magnitude = match exponent {
        0 => mantissa * (-24_f64).exp2(),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (mantissa + 1024.0) * f64::from(exponent - 25).exp2(),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}
