//! Messages of protocol buffers, written and read by hand.

/// A number of seven bits a byte, the lowest first.
pub fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of a protobuf message that holds bytes.
pub fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// What has its length before it.
pub fn frame(fields: &[u8]) -> Vec<u8> {
    [varint(fields.len() as u64), fields.to_vec()].concat()
}

/// The number that bytes begin with, and what follows it.
pub fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0)?;
    let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, &bytes[end + 1..]))
}

/// The fields of a message that hold bytes.
pub fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while let Some((key, rest)) = number(bytes) {
        let (value, rest) = number(rest).unwrap();
        bytes = rest;
        if key & 7 == 2 {
            let (content, rest) = rest.split_at(value as usize);
            found.push((key >> 3, content));
            bytes = rest;
        }
    }
    found
}
