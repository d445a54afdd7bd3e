//! Base58 in Bitcoin's alphabet, as did:key URIs and CIDs of version 0 use it (draft-msporny-base58).
//!
//! The usual loop over bytes and digits takes the square of the length, which a stranger could make us pay. So long numbers
//! are divided into halves of as many digits, with `num-bigint`'s multiplication, which takes less than the square, and
//! reciprocals instead of its division, which takes the square (Brent and Zimmermann, Modern Computer Arithmetic,
//! algorithms 1.26 and 2.5).

use std::sync::LazyLock;

use num_bigint::BigUint;

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const NO_DIGIT: u8 = u8::MAX;
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < ALPHABET.len() {
        digits[ALPHABET[digit] as usize] = digit as u8;
        digit += 1;
    }
    digits
};

/// Up to so many bytes the square of the length costs less than what large numbers take for themselves.
const SHORT: usize = 256;

/// As many digits as one step takes together, and how many numbers they make.
const STEP: usize = 5;
const BASE: u64 = 58_u64.pow(STEP as u32);

/// The digits of a number of at most [`SHORT`] bytes.
fn encode_short(data: &[u8], text: &mut String) {
    // Five digits have more than 29 bits.
    let mut places = [0_u32; SHORT * 8 / 29 + 1];
    let mut length = 0;
    let (head, words) = data.split_at(data.len() % 4);
    for word in std::iter::once(head).chain(words.chunks_exact(4)) {
        let mut carry = word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        for place in &mut places[..length] {
            let sum = u64::from(*place) << 32 | carry;
            *place = (sum % BASE) as u32;
            carry = sum / BASE;
        }
        while carry > 0 {
            places[length] = (carry % BASE) as u32;
            carry /= BASE;
            length += 1;
        }
    }
    for (index, place) in places[..length].iter().enumerate().rev() {
        let mut digits = [0; STEP];
        let mut rest = *place;
        for digit in digits.iter_mut().rev() {
            *digit = ALPHABET[(rest % 58) as usize];
            rest /= 58;
        }
        let zeros = digits.iter().take_while(|digit| **digit == ALPHABET[0]).count();
        let leading = if index + 1 == length { zeros } else { 0 };
        text.extend(digits[leading..].iter().map(|digit| char::from(*digit)));
    }
}

/// A power of 58 by which numbers of up to twice its digits are divided.
struct Divisor {
    digits: usize,
    power: BigUint,
    bits: u64,
    /// `2^(2 * bits) / power`, rounded down.
    reciprocal: BigUint,
}

/// Of 175 digits, which are few enough for [`encode_short`], and then of twice as many each: the square of the last is above
/// all numbers of 16 KiB.
static DIVISORS: LazyLock<Vec<Divisor>> = LazyLock::new(|| {
    (0..7)
        .map(|doublings| {
            let digits = 175 << doublings;
            let power = BigUint::from(58_u32).pow(digits);
            let bits = power.bits();
            let reciprocal = (BigUint::from(1_u32) << (2 * bits)) / &power;
            Divisor { digits: digits as usize, power, bits, reciprocal }
        })
        .collect()
});

impl Divisor {
    /// The quotient and the remainder of a number below the square of the power.
    fn divide(&self, number: &BigUint) -> (BigUint, BigUint) {
        let mut quotient = ((number >> (self.bits - 1)) * &self.reciprocal) >> (self.bits + 1);
        let mut rest = number - &quotient * &self.power;
        while rest >= self.power {
            rest -= &self.power;
            quotient += 1_u32;
        }
        (quotient, rest)
    }
}

/// Writes the digits of a number below the square of the last divisor, or below the first; leading zeros fill up.
fn encode_long(number: &BigUint, divisors: &[Divisor], text: &mut String) {
    if let Some((divisor, smaller)) = divisors.split_last() {
        let (quotient, rest) = divisor.divide(number);
        encode_long(&quotient, smaller, text);
        encode_long(&rest, smaller, text);
    } else {
        let mut digits = String::with_capacity(DIVISORS[0].digits);
        encode_short(&number.to_bytes_be(), &mut digits);
        text.extend(std::iter::repeat_n('1', DIVISORS[0].digits - digits.len()));
        text.push_str(&digits);
    }
}

/// Writes bytes as base58; each leading zero byte becomes a `1`.
pub(crate) fn encode(data: &[u8]) -> String {
    let zeros = data.iter().take_while(|byte| **byte == 0).count();
    // A byte takes 1.37 digits.
    let mut text = String::with_capacity(data.len() + data.len() / 2 + 1);
    text.extend(std::iter::repeat_n('1', zeros));
    if data.len() - zeros <= SHORT {
        encode_short(&data[zeros..], &mut text);
        return text;
    }
    let number = BigUint::from_bytes_be(&data[zeros..]);
    if let Some(index) = DIVISORS.iter().position(|divisor| number.bits() < 2 * divisor.bits - 1) {
        let mut digits = String::with_capacity(2 * DIVISORS[index].digits);
        encode_long(&number, &DIVISORS[..=index], &mut digits);
        text.push_str(digits.trim_start_matches('1'));
    } else {
        text.extend(number.to_radix_be(58).iter().map(|digit| char::from(ALPHABET[usize::from(*digit)])));
    }
    text
}

/// Reads base58; none where a character is not in the alphabet.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().map(|letter| DIGITS[usize::from(letter)]).collect();
    if digits.contains(&NO_DIGIT) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let mut data = vec![0; zeros];
    if zeros < digits.len() {
        data.extend(BigUint::from_radix_be(&digits[zeros..], 58)?.to_bytes_be());
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::{ALPHABET, DIVISORS, decode, encode};

    #[test]
    fn agrees_with_bs58() {
        let mut rng = StdRng::seed_from_u64(58);
        for length in 0..400 {
            // A third begin with zeros, which are written apart.
            let zeros = if length % 3 == 0 { rng.random_range(0..=length) } else { 0 };
            let mut data = vec![0; zeros];
            data.extend((zeros..length).map(|_| rng.random::<u8>()));
            let text = encode(&data);
            assert_eq!(text, bs58::encode(&data).into_string(), "{data:?}");
            assert_eq!(decode(&text), Some(data), "{text}");
        }
    }

    #[test]
    fn long_numbers_agree_with_a_division_by_58() {
        let mut rng = StdRng::seed_from_u64(58);
        let powers = DIVISORS.iter().flat_map(|divisor| {
            let square = &divisor.power * &divisor.power;
            [&divisor.power - 1_u32, divisor.power.clone(), &square - 1_u32, square]
        });
        let lengths = [257, 1023, 5000, 16 * 1024, 16 * 1024 + 100];
        let random = lengths.map(|length| BigUint::from_bytes_be(&vec![rng.random_range(1..=255); length]));
        for number in powers.chain(random) {
            let digits = number.to_radix_be(58);
            let text: String = digits.iter().map(|digit| char::from(ALPHABET[usize::from(*digit)])).collect();
            assert_eq!(encode(&number.to_bytes_be()), text, "{} bits", number.bits());
        }
    }

    #[test]
    fn refuses_other_letters() {
        for text in ["0", "2O", "I2", "lz", "é", " 2", "2\n"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
