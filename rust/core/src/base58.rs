//! Base58 in Bitcoin's alphabet, as did:key URIs and CIDs of version 0 use it (draft-msporny-base58).
//!
//! The arithmetic is `num-bigint`'s: it divides and conquers on machine words. The usual loop over bytes and digits takes
//! the square of the length, which a stranger could make us pay.

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

/// Writes bytes as base58; each leading zero byte becomes a `1`.
pub(crate) fn encode(data: &[u8]) -> String {
    let zeros = data.iter().take_while(|byte| **byte == 0).count();
    // A byte takes 1.37 digits.
    let mut text = String::with_capacity(data.len() + data.len() / 2 + 1);
    text.extend(std::iter::repeat_n('1', zeros));
    if data.len() - zeros <= SHORT {
        encode_short(&data[zeros..], &mut text);
    } else {
        let digits = BigUint::from_bytes_be(&data[zeros..]).to_radix_be(58);
        text.extend(digits.iter().map(|digit| char::from(ALPHABET[usize::from(*digit)])));
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
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::{decode, encode};

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
    fn refuses_other_letters() {
        for text in ["0", "2O", "I2", "lz", "é", " 2", "2\n"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
