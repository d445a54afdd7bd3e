//! From dag-json text to canonical dag-cbor.
//!
//! White space, escapes and the order of keys are free; everything else is strict, since what is read here is about to be
//! signed or compared.

use std::collections::HashSet;

use data_encoding::BASE64_NOPAD;

use crate::cbor::{Item, MAX_OWN_DEPTH, Writer, key_order, scan};
use crate::cid;
use crate::error::Error;

/// A list or map that is being read; its items gather in `body`.
struct Open {
    start: usize,
    body: Vec<u8>,
    count: usize,
    /// For a map: the keys with the ranges of their values in `body`.
    entries: Option<Vec<(String, usize, usize)>>,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// The canonical dag-cbor of a dag-json text.
///
/// # Errors
/// [`Error::Decode`] with the place, for anything but one dag-json value: duplicate keys, numbers out of range, lone
/// surrogates, strings that begin with U+FEFF, more than [`MAX_OWN_DEPTH`] lists and maps inside one another, text behind
/// the value, and maps that other peers would not read as they stand.
pub fn read(text: &[u8]) -> Result<Vec<u8>, Error> {
    if let Err(error) = std::str::from_utf8(text) {
        return Err(Error::decode("the text is not UTF-8", error.valid_up_to()));
    }
    let mut reader = Reader { text, at: 0 };
    let mut stack: Vec<Open> = Vec::new();
    let canonical = loop {
        reader.space();
        let start = reader.at;
        let mut complete = match reader.peek() {
            Some(open @ (b'[' | b'{')) => {
                if stack.len() >= MAX_OWN_DEPTH {
                    return Err(Error::decode(format!("more than {MAX_OWN_DEPTH} lists and maps are nested"), start));
                }
                reader.at += 1;
                let entries = (open == b'{').then(Vec::new);
                stack.push(Open { start, body: Vec::new(), count: 0, entries });
                None
            }
            _ => Some(reader.scalar()?),
        };
        let finished = loop {
            let Some(top) = stack.last_mut() else {
                break complete.take();
            };
            if let Some(value) = complete.take() {
                top.add(&value);
            }
            if reader.continues(top)? {
                break None;
            }
            if let Some(open) = stack.pop() {
                complete = Some(open.close()?);
            }
        };
        if let Some(finished) = finished {
            break finished;
        }
    };
    reader.space();
    if reader.at < text.len() {
        return Err(Error::decode("text follows the end of the value", reader.at));
    }
    if scan(&canonical, 0, 0) != Some(canonical.len()) {
        let reason = "a map whose \"/\" equals its \"bytes\", or a key __proto__: other peers refuse it".to_owned();
        return Err(Error::Decode { reason, offset: None });
    }
    Ok(canonical)
}

impl Open {
    fn add(&mut self, value: &[u8]) {
        let from = self.body.len();
        self.body.extend_from_slice(value);
        self.count += 1;
        if let Some((_, start, end)) = self.entries.as_mut().and_then(|entries| entries.last_mut()) {
            (*start, *end) = (from, from + value.len());
        }
    }

    fn close(self) -> Result<Vec<u8>, Error> {
        let mut writer = Writer::new();
        let Some(mut entries) = self.entries else {
            writer.item(Item::List(self.count));
            writer.raw(&self.body);
            return Ok(writer.finish());
        };
        if let [(key, start, end)] = &entries[..]
            && key == "/"
            && let Some(special) = reserved(&self.body[*start..*end], self.start)?
        {
            return Ok(special);
        }
        entries.sort_unstable_by(|(left, ..), (right, ..)| key_order(left, right));
        let mut keys = HashSet::new();
        writer.item(Item::Map(entries.len()));
        for (key, start, end) in &entries {
            if !keys.insert(key.as_str()) {
                return Err(Error::decode(format!("the map key {key:?} stands twice"), self.start));
            }
            writer.item(Item::Text(key));
            writer.raw(&self.body[*start..*end]);
        }
        Ok(writer.finish())
    }
}

/// What `{"/": value}` stands for: a link or bytes, or none for a map like any other.
fn reserved(value: &[u8], at: usize) -> Result<Option<Vec<u8>>, Error> {
    let mut items = crate::cbor::events::events(value);
    let mut writer = Writer::new();
    match items.next_item()? {
        Some(Item::Text(text)) => {
            let Ok(link) = cid::parse(text) else {
                return Ok(None);
            };
            writer.item(Item::Link(&link));
        }
        Some(Item::Map(1)) => {
            let Some(Item::Text("bytes")) = items.next_item()? else {
                return Ok(None);
            };
            let decoded = match items.next_item()? {
                Some(Item::Text(text)) => BASE64_NOPAD.decode(text.as_bytes()).ok(),
                _ => None,
            };
            let reason = "{\"/\": {\"bytes\": ...}} must hold base64 without padding";
            writer.item(Item::Bytes(&decoded.ok_or_else(|| Error::decode(reason, at))?));
        }
        _ => return Ok(None),
    }
    Ok(Some(writer.finish()))
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn refuse<T>(&self, reason: &str) -> Result<T, Error> {
        Err(Error::decode(reason, self.at))
    }

    /// Whether another item follows in `open`, read up to where it begins; otherwise its end was read.
    fn continues(&mut self, open: &mut Open) -> Result<bool, Error> {
        self.space();
        let end = if open.entries.is_some() { b'}' } else { b']' };
        match self.peek() {
            Some(byte) if byte == end => {
                self.at += 1;
                return Ok(false);
            }
            Some(b',') if open.count > 0 => {
                self.at += 1;
                self.space();
            }
            Some(_) if open.count == 0 => {}
            Some(_) => return self.refuse("a comma, or the end of the list or map, is expected"),
            None => return self.refuse("the text ends within a list or map"),
        }
        if let Some(entries) = &mut open.entries {
            if self.peek() != Some(b'"') {
                return self.refuse("a map key, in double quotes, is expected");
            }
            entries.push((self.string()?, 0, 0));
            self.space();
            if self.peek() != Some(b':') {
                return self.refuse("a colon is expected after a map key");
            }
            self.at += 1;
        }
        Ok(true)
    }

    fn scalar(&mut self) -> Result<Vec<u8>, Error> {
        let mut writer = Writer::new();
        match self.peek() {
            Some(b'"') => writer.item(Item::Text(&self.string()?)),
            Some(b'-' | b'0'..=b'9') => writer.item(self.number()?),
            _ => {
                let rest = &self.text[self.at..];
                let words = [("null", Item::Null), ("true", Item::Bool(true)), ("false", Item::Bool(false))];
                let Some((word, item)) = words.into_iter().find(|(word, _)| rest.starts_with(word.as_bytes())) else {
                    return self.refuse(if rest.is_empty() {
                        "the text ends where a value should begin"
                    } else {
                        "a value is expected: null, true, false, a number, a string, a list or a map"
                    });
                };
                self.at += word.len();
                writer.item(item);
            }
        }
        Ok(writer.finish())
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Item<'static>, Error> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let count = self.digits();
        if count == 0 || (leading_zero && count > 1) {
            self.at = start;
            return self.refuse("a number needs digits, without zeros before them");
        }
        let mut integral = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            integral = false;
            if self.digits() == 0 {
                return self.refuse("digits are expected after the decimal point");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            integral = false;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.refuse("digits are expected in the exponent");
            }
        }
        // Digits, signs, points and exponents only.
        let text = String::from_utf8_lossy(&self.text[start..self.at]);
        if integral {
            let range = -(1_i128 << 64)..1_i128 << 64;
            return match text.parse::<i128>() {
                Ok(value) if range.contains(&value) => Ok(Item::Integer(value)),
                _ => Err(Error::decode("an integer must be from -2^64 to 2^64 - 1", start)),
            };
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Item::Float(value)),
            _ => Err(Error::decode("the number is too large", start)),
        }
    }

    fn string(&mut self) -> Result<String, Error> {
        let start = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            let from = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            bytes.extend_from_slice(&self.text[from..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    break;
                }
                Some(b'\\') => self.escape(&mut bytes)?,
                Some(_) => return self.refuse("a control character in a string must be escaped"),
                None => return self.refuse("the text ends within a string"),
            }
        }
        let text = String::from_utf8(bytes).map_err(|_| Error::decode("the string is not UTF-8", start))?;
        if text.starts_with('\u{feff}') {
            return Err(Error::decode("a string begins with U+FEFF, which other peers drop", start));
        }
        Ok(text)
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.at += 1;
        let byte = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let start = self.at;
                let unit = self.unit()?;
                let mut code = u32::from(unit);
                if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with(b"\\u") {
                    self.at += 1;
                    let low = self.unit()?;
                    if (0xdc00..0xe000).contains(&low) {
                        code = 0x10000 + (u32::from(unit - 0xd800) << 10) + u32::from(low - 0xdc00);
                    }
                }
                let Some(character) = char::from_u32(code) else {
                    return Err(Error::decode("a lone surrogate is no text", start));
                };
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return self.refuse("an unknown escape"),
        };
        bytes.push(byte);
        self.at += 1;
        Ok(())
    }

    /// The four digits behind the `u` at which the reader stands.
    fn unit(&mut self) -> Result<u16, Error> {
        let digits = self.text.get(self.at + 1..self.at + 5).and_then(|digits| {
            let all_hex = digits.iter().all(u8::is_ascii_hexdigit);
            std::str::from_utf8(digits).ok().filter(|_| all_hex)
        });
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let Some(unit) = unit else {
            return self.refuse("four hexadecimal digits are expected after \\u");
        };
        self.at += 5;
        Ok(unit)
    }
}
