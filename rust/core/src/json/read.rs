//! From dag-json text to canonical dag-cbor.
//!
//! White space, escapes and the order of keys are free; everything else is strict, since what is read here is about to be
//! signed or compared.

use data_encoding::BASE64_NOPAD;

use crate::cbor::order::{self, Order, Picked, Rewrites, Sorter, reserve};
use crate::cbor::{Item, MAX_OWN_DEPTH, Writer, head_length, read_head, scan};
use crate::cid;
use crate::error::{Error, shortened};

/// A list or map that is being read.
struct Open {
    /// Where it begins in the text, and in what was written.
    start: usize,
    written: usize,
    count: u32,
    map: Option<OpenMap>,
}

struct OpenMap {
    /// Where the places of its keys begin among those of all open maps.
    first: usize,
    /// Where its last key was written.
    last: usize,
    sorted: bool,
}

/// Reads a text once, and writes its items as they come: the heads of lists and maps with four bytes for the number of what
/// they hold, until that is known, and the entries of maps in any order.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// Where the keys of all open maps were written, those of the innermost last.
    keys: Vec<u32>,
    rewrites: Rewrites,
    sorter: Sorter,
}

/// The head of a list or map that was not closed yet; its number of items follows, in as many bytes as the rest.
const LIST: u8 = 0x9a;
const MAP: u8 = 0xba;
const HEAD: usize = 5;

/// The canonical dag-cbor of a dag-json text.
///
/// # Errors
/// [`Error::Decode`] with the place, for anything but one dag-json value: duplicate keys, numbers out of range, lone
/// surrogates, strings that begin with U+FEFF, more than [`MAX_OWN_DEPTH`] lists and maps inside one another, text behind
/// the value, and maps that other peers would not read as they stand.
pub fn read(text: &[u8]) -> Result<Vec<u8>, Error> {
    // What is written takes less than three times as much.
    order::check_length(text, 3)?;
    if let Err(error) = std::str::from_utf8(text) {
        return Err(Error::decode("the text is not UTF-8", error.valid_up_to()));
    }
    let mut reader = Reader {
        text,
        at: 0,
        out: Vec::new(),
        keys: Vec::new(),
        rewrites: Rewrites::default(),
        sorter: Sorter::default(),
    };
    reader.value()?;
    reader.space();
    if reader.at < text.len() {
        return Err(Error::decode("text follows the end of the value", reader.at));
    }
    let Reader { out, mut rewrites, keys, sorter, .. } = reader;
    drop((keys, sorter));
    let canonical = if rewrites.is_empty() { shrink(out)? } else { sort(&out, &mut rewrites)? };
    if scan(&canonical, 0, 0) != Some(canonical.len()) {
        let reason = "a map whose \"/\" equals its \"bytes\", or a key __proto__: other peers refuse it".to_owned();
        return Err(Error::Decode { reason, offset: None });
    }
    Ok(canonical)
}

/// Where the item at `at` of what was written goes on behind its head and, unless it is a list or map, what it holds; and, for
/// a list or map, the number of its items.
fn item(out: &[u8], at: usize) -> Result<(usize, Option<(usize, bool)>), Error> {
    if let Some([first @ (LIST | MAP), count @ ..]) = out.get(at..).and_then(|rest| rest.first_chunk::<HEAD>()) {
        return Ok((at + HEAD, Some((u32::from_be_bytes(*count) as usize, *first == MAP))));
    }
    let mut items = crate::cbor::events::events(out);
    items.seek(at);
    items.next_item()?;
    Ok((items.position(), None))
}

/// Gives lists and maps the heads that they should have, in place: these are never longer.
fn shrink(mut out: Vec<u8>) -> Result<Vec<u8>, Error> {
    // What was not moved yet: from where, to where.
    let (mut from, mut to, mut at) = (0, 0, 0);
    let mut head = Vec::new();
    while at < out.len() {
        let (end, open) = item(&out, at)?;
        if let Some((count, is_map)) = open {
            let mut writer = Writer::append_to(std::mem::take(&mut head));
            writer.item(if is_map { Item::Map(count) } else { Item::List(count) });
            head = writer.finish();
            out.copy_within(from..at, to);
            to += at - from;
            out[to..to + head.len()].copy_from_slice(&head);
            to += head.len();
            head.clear();
            from = end;
        }
        at = end;
    }
    out.copy_within(from.., to);
    out.truncate(to + at - from);
    out.shrink_to_fit();
    Ok(out)
}

/// What is written where maps are not in order.
fn sort(out: &[u8], rewrites: &mut Rewrites) -> Result<Vec<u8>, Error> {
    enum Writing {
        InPlace(usize),
        Picked(Picked),
    }
    let mut rewrites = rewrites.finish();
    let mut writer = Writer::append_to(Vec::with_capacity(out.len()));
    let mut stack: Vec<Writing> = Vec::new();
    let mut at = 0;
    loop {
        let (end, open) = item(out, at)?;
        match open {
            None => writer.raw(&out[at..end]),
            Some((count, is_map)) => {
                writer.item(if is_map { Item::Map(count) } else { Item::List(count) });
                stack.push(match rewrites.find(at, count) {
                    Some(picked) if is_map => Writing::Picked(picked),
                    _ => Writing::InPlace(if is_map { 2 * count } else { count }),
                });
            }
        }
        at = end;
        loop {
            match stack.last_mut() {
                None => {
                    let mut canonical = writer.finish();
                    canonical.shrink_to_fit();
                    return Ok(canonical);
                }
                Some(Writing::InPlace(0)) => _ = stack.pop(),
                Some(Writing::InPlace(remaining)) => {
                    *remaining -= 1;
                    break;
                }
                Some(Writing::Picked(picked)) => match rewrites.advance(picked, at) {
                    Ok(key) => {
                        let (end, _) = item(out, key)?;
                        writer.raw(&out[key..end]);
                        at = end;
                        break;
                    }
                    Err(end) => {
                        at = end;
                        stack.pop();
                    }
                },
            }
        }
    }
}

/// The bytes of the key that was written at `at`.
fn key_at(out: &[u8], at: usize) -> &[u8] {
    let head = read_head(out, at).ok();
    head.and_then(|head| out.get(head.end..head.end + head.argument as usize)).unwrap_or(&[])
}

/// What `{"/": value}` stands for: a link or bytes, or none for a map like any other. Of maps in `value` the heads are as they
/// were written first.
fn reserved(value: &[u8], at: usize) -> Result<Option<Vec<u8>>, Error> {
    let mut items = crate::cbor::events::events(value);
    let mut writer = Writer::new();
    if value.starts_with(&[MAP, 0, 0, 0, 1]) {
        items.seek(HEAD);
        let Some(Item::Text("bytes")) = items.next_item()? else {
            return Ok(None);
        };
        let decoded = match items.next_item() {
            Ok(Some(Item::Text(text))) => BASE64_NOPAD.decode(text.as_bytes()).ok(),
            _ => None,
        };
        let reason = "{\"/\": {\"bytes\": ...}} must hold base64 without padding";
        writer.item(Item::Bytes(&decoded.ok_or_else(|| Error::decode(reason, at))?));
    } else if let Ok(Some(Item::Text(text))) = items.next_item()
        && let Ok(link) = cid::parse(text)
    {
        writer.item(Item::Link(&link));
    } else {
        return Ok(None);
    }
    Ok(Some(writer.finish()))
}

impl Reader<'_> {
    /// Reads one value.
    fn value(&mut self) -> Result<(), Error> {
        let mut stack: Vec<Open> = Vec::new();
        loop {
            self.space();
            let start = self.at;
            match self.peek() {
                Some(open @ (b'[' | b'{')) => {
                    if stack.len() >= MAX_OWN_DEPTH {
                        return Err(Error::decode(
                            format!("more than {MAX_OWN_DEPTH} lists and maps are nested"),
                            start,
                        ));
                    }
                    self.at += 1;
                    let map = (open == b'{').then_some(OpenMap { first: self.keys.len(), last: 0, sorted: true });
                    stack.push(Open { start, written: self.out.len(), count: 0, map });
                    let head = if open == b'{' { MAP } else { LIST };
                    self.put(&[head, 0, 0, 0, 0]);
                }
                _ => {
                    self.scalar()?;
                    if let Some(top) = stack.last_mut() {
                        top.count += 1;
                    }
                }
            }
            loop {
                let Some(top) = stack.last_mut() else {
                    return Ok(());
                };
                if self.continues(top)? {
                    break;
                }
                if let Some(open) = stack.pop() {
                    self.close(&open)?;
                    if let Some(around) = stack.last_mut() {
                        around.count += 1;
                    }
                }
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        reserve(&mut self.out, bytes.len());
        self.out.extend_from_slice(bytes);
    }

    fn write(&mut self, item: Item<'_>) {
        reserve(&mut self.out, 9);
        let mut writer = Writer::append_to(std::mem::take(&mut self.out));
        writer.item(item);
        self.out = writer.finish();
    }

    fn close(&mut self, open: &Open) -> Result<(), Error> {
        let Some(map) = &open.map else {
            self.out[open.written + 1..open.written + HEAD].copy_from_slice(&open.count.to_be_bytes());
            return Ok(());
        };
        let Self { out, keys, rewrites, sorter, .. } = self;
        let own = &keys[map.first..];
        if let [key] = own
            && key_at(out, *key as usize) == b"/"
            && let Some(special) = reserved(&out[*key as usize + 2..], open.start)?
        {
            keys.truncate(map.first);
            out.truncate(open.written);
            self.put(&special);
            return Ok(());
        }
        if !map.sorted {
            let key = |number: usize| key_at(out, own[number] as usize);
            let mut before = None;
            for number in sorter.sort(Order::Length, own.len(), key) {
                let key = key(number);
                if before.replace(key) == Some(key) {
                    let key = shortened(&String::from_utf8_lossy(key));
                    return Err(Error::decode(format!("the map key {key} stands twice"), open.start));
                }
            }
            rewrites.reorder(open.written, own.len(), sorter.numbers().map(|number| own[number]));
        }
        out[open.written + 1..open.written + HEAD].copy_from_slice(&open.count.to_be_bytes());
        keys.truncate(map.first);
        Ok(())
    }

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
        let end = if open.map.is_some() { b'}' } else { b']' };
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
        if let Some(map) = &mut open.map {
            if self.peek() != Some(b'"') {
                return self.refuse("a map key, in double quotes, is expected");
            }
            let at = self.out.len();
            self.string()?;
            let ascends = || Order::Length.compare(key_at(&self.out, map.last), key_at(&self.out, at)).is_lt();
            map.sorted = map.sorted && (open.count == 0 || ascends());
            map.last = at;
            reserve(&mut self.keys, 1);
            self.keys.push(at as u32);
            self.space();
            if self.peek() != Some(b':') {
                return self.refuse("a colon is expected after a map key");
            }
            self.at += 1;
        }
        Ok(true)
    }

    fn scalar(&mut self) -> Result<(), Error> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                self.write(number);
                Ok(())
            }
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
                self.write(item);
                Ok(())
            }
        }
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
        let text = std::str::from_utf8(&self.text[start..self.at]).unwrap_or("");
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

    /// Reads a string, and writes it.
    fn string(&mut self) -> Result<(), Error> {
        let start = self.at;
        self.at += 1;
        // A head of one byte, for which most are short enough.
        let head = self.out.len();
        self.put(&[0]);
        loop {
            let from = self.at;
            while self.peek().is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            let plain = &self.text[from..self.at];
            self.put(plain);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    break;
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return self.refuse("a control character in a string must be escaped"),
                None => return self.refuse("the text ends within a string"),
            }
        }
        let text = head + 1;
        if self.out[text..].starts_with("\u{feff}".as_bytes()) {
            return Err(Error::decode("a string begins with U+FEFF, which other peers drop", start));
        }
        let length = self.out.len() - text;
        let missing = head_length(length as u64) - 1;
        if missing == 0 {
            self.out[head] = 0x60 | length as u8;
            return Ok(());
        }
        self.put(&[0; 8][..missing]);
        self.out.copy_within(text..text + length, text + missing);
        let mut written = Writer::new();
        written.text_head(length);
        self.out[head..=head + missing].copy_from_slice(&written.finish());
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Error> {
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
                self.put(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return self.refuse("an unknown escape"),
        };
        self.put(&[byte]);
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
