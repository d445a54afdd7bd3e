//! Values of a stranger that are meant to cost as much as possible, of any size.

use gossiplog_core::cbor::{Item, Writer};
use gossiplog_core::clock;
use gossiplog_core::id::Key;

/// A list of one item, as often as it fits.
fn repeated(size: usize, unit: &[u8]) -> Vec<u8> {
    let count = (size - 5) / unit.len();
    let mut writer = Writer::new();
    writer.item(Item::List(count));
    (0..count).for_each(|_| writer.raw(unit));
    writer.finish()
}

/// A map of these keys, encoded, with null as each value.
fn map(keys: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.item(Item::Map(keys.len()));
    for key in keys {
        writer.raw(key);
        writer.item(Item::Null);
    }
    writer.finish()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.item(Item::Bytes(bytes));
    let mut item = writer.finish();
    // The major type of strings, whether or not the bytes are UTF-8.
    item[0] |= 0x20;
    item
}

/// As many keys as take `size` bytes, descending but for the order of dag-cbor's lengths.
fn keys(size: usize, key: impl Fn(usize) -> Vec<u8>) -> Vec<Vec<u8>> {
    let length = text(&key(0)).len() + 1;
    let count = (size - 5) / length;
    (0..count).rev().map(|number| text(&key(number))).collect()
}

/// A number as text without digits, for keys that are no indices.
fn letters(mut number: usize, width: usize) -> Vec<u8> {
    let mut letters = vec![b'a'; width];
    for letter in letters.iter_mut().rev() {
        *letter = b'0' + (number % 64) as u8;
        number /= 64;
    }
    letters
}

/// A tree of maps with two entries each, in the wrong order.
fn tree(size: usize, leaf: &[u8], key: &[u8]) -> Vec<u8> {
    let mut levels = vec![leaf.to_vec()];
    while let Some(last) = levels.last() {
        let next = [&[0xa2][..], key, last, &[0x60], last].concat();
        if next.len() > size {
            break;
        }
        levels.push(next);
    }
    repeated(size, levels.last().map_or(leaf, |level| level))
}

/// Lists or maps inside one another, each beginning with `open`.
fn nested(open: &[u8], close: &[u8], depth: usize) -> Vec<u8> {
    let mut value = Vec::new();
    (0..depth).for_each(|_| value.extend_from_slice(open));
    value.push(0);
    (0..depth).for_each(|_| value.extend_from_slice(close));
    value
}

const PROTOTYPE: &[u8] = b"\x69__proto__";

/// Keys of parents, as many as take `size` bytes.
pub fn parents(size: usize) -> Vec<Key> {
    let mut target = [0; 8];
    assert_eq!(clock::encode(1, &mut target).unwrap(), 1);
    let parent = |number: usize| {
        let mut key = [target[0]; 20];
        key[12..].copy_from_slice(&number.to_be_bytes());
        key
    };
    (0..size / 21 - 1).map(parent).collect()
}

/// Payloads of about `size` bytes: a name, the payload, and whether it is accepted.
pub fn payloads(size: usize) -> Vec<(&'static str, Vec<u8>, bool)> {
    let mut all: Vec<(&'static str, Vec<u8>, bool)> = Vec::new();
    let mut add = |name, payload: Vec<u8>, accepted| all.push((name, payload, accepted));
    let half = (size / 2).saturating_sub(64);

    add("parents", vec![0xf6], true);
    for (name, unit) in [
        ("unsorted maps", &b"\xa2\x61a\x00\x60\x00"[..]),
        ("unsorted in JavaScript", b"\xa2\x61b\x00\x62aa\x00"),
        ("unsorted twice", b"\xa3\x62aa\x00\x61b\x00\x60\x00"),
        ("empty lists", b"\x80"),
        ("empty maps", b"\xa0"),
        ("maps", b"\xa1\x60\xf6"),
        ("integers", b"\x00"),
        ("large integers", b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("false", b"\xf4"),
        ("undefined", b"\xf7"),
        ("short floats", b"\xf9\x00\x01"),
        ("single floats", b"\xfa\x00\x12\x34\x56"),
        ("floats", b"\xfb\x01\x23\x45\x67\x89\xab\xcd\xef"),
        ("broken strings", b"\x61\xff"),
        ("marked strings", b"\x63\xef\xbb\xbf"),
        ("empty strings", b"\x60"),
        ("empty bytes", b"\x40"),
        ("links", b"\xd8\x2a\x43\x00\x12\x00"),
        ("links that are not normal", b"\xd8\x2a\x47\x00\x81\x80\x00\x55\x12\x00"),
        ("links of version 1", b"\xd8\x2a\x45\x00\x01\x55\x12\x00"),
        ("slashes", b"\xa1\x61/\x00"),
        ("slashes and bytes", b"\xa2\x65bytes\x01\x61/\x00"),
        ("prototypes", b"\xa1\x69__proto__\x00"),
        ("prototypes that are null", b"\xa2\x69__proto__\xf6\x69__proto__\xa0"),
        ("maps that are links", b"\xa2\x69__proto__\xf6\x69__proto__\xd8\x2a\x43\x00\x12\x00"),
        ("broken keys", b"\xa2\x62a\xff\x00\x61\xff\x00"),
    ] {
        add(name, repeated(size, unit), true);
    }
    add("a tree of maps", tree(size, b"\x00", b"\x61a"), true);
    add("a tree with floats", tree(size, b"\xf9\x00\x01", b"\x61a"), true);
    add("a tree with broken keys", tree(size, b"\xf9\x00\x01", b"\x61\xff"), true);

    add("an unsorted map", map(&keys(size, |number| letters(number, 4))), true);
    add("a sorted map", map(&keys(size, |number| letters(number, 4)).into_iter().rev().collect::<Vec<_>>()), true);
    let prefixed = |prefix: usize| map(&keys(size, |number| [vec![b'x'; prefix], letters(number, 4)].concat()));
    add("keys of 17 bytes", prefixed(13), true);
    add("keys of 64 bytes", prefixed(60), true);
    add("keys of 1000 bytes", prefixed(996), true);
    add("broken keys in a map", map(&keys(size, |number| [&b"\xff"[..], &letters(number, 4)].concat())), true);
    add("long broken keys", map(&keys(size, |number| [&[0xff; 1000][..], &letters(number, 4)].concat())), true);
    let two = [text(&vec![0xff; half]), text(&vec![0xff; half - 1])];
    add("two long broken keys", map(&two), true);
    // Their lengths put them in another order than JavaScript's, which begins with other bytes.
    let mut mixed = keys(size / 2, |number| ["\u{e000}".as_bytes(), &letters(number, 4)].concat());
    mixed.extend(keys(size / 2, |number| ["\u{10000}".as_bytes(), &letters(number, 4)].concat()));
    add("surrogates in keys", map(&mixed), true);
    let mut lengths = Vec::new();
    let mut room = size - 8;
    while room > lengths.len() + 4 {
        room -= lengths.len() + 4;
        lengths.push(text(&vec![b'z' - (lengths.len() % 25) as u8; lengths.len()]));
    }
    add("keys of all lengths", map(&lengths), true);

    let mut repeats = keys(size - 8, |number| letters(number, 4));
    repeats.push(repeats[0].clone());
    add("a repeated key", map(&repeats), false);
    let mut repeats = keys(size - 8, |number| letters(number, 4));
    repeats.reverse();
    repeats.push(repeats[0].clone());
    add("a key repeated at last", map(&repeats), false);

    let depth = 2190;
    let chain = nested(b"\xa2\x61a\x00\x60", b"", depth);
    add("chains of unsorted maps", repeated(size, &chain), true);
    let rest = text(&vec![b'x'; size - chain.len() - 16]);
    let mut deep = nested(b"\xa2\x61a\x00\x60", b"", depth);
    deep.pop();
    deep.extend_from_slice(&rest);
    add("a long string deep inside", deep, true);
    add("chains of lists", repeated(size, &nested(b"\x81", b"", depth)), true);
    add("lists too deep", nested(b"\x81", b"", size), false);

    add("a broken string", text(&vec![0xff; size - 8]), true);
    add("a string half broken", text(&b"a\xff".repeat(size / 2 - 8)), true);
    add("control characters", text(&vec![1; size - 8]), true);
    add(
        "bytes",
        {
            let mut writer = Writer::new();
            writer.item(Item::Bytes(&vec![7; size - 8]));
            writer.finish()
        },
        true,
    );
    let mut binary = vec![1, 0x55, 0x12];
    let digest = size - 32;
    let mut varint = digest;
    while varint > 0 {
        binary.push((varint & 0x7f) as u8 | if varint > 0x7f { 0x80 } else { 0 });
        varint >>= 7;
    }
    binary.extend(vec![7; digest]);
    let mut writer = Writer::new();
    writer.item(Item::Link(&binary));
    add("a long link", writer.finish(), true);

    // Numbers that are assigned to something that passes for bytes, until it does no more.
    let mut swallowed: Vec<Vec<u8>> = (0..size / 10).map(|number| text(number.to_string().as_bytes())).collect();
    let count = swallowed.len() + 2;
    let mut writer = Writer::new();
    writer.item(Item::Map(count));
    let mut value = writer.finish();
    value.extend([PROTOTYPE, b"\x40"].concat());
    swallowed.drain(..).for_each(|key| value.extend([&key[..], b"\xf6"].concat()));
    value.extend([PROTOTYPE, b"\xa0"].concat());
    add("swallowed numbers", value, true);

    // Each map inherits what stands under `/` and `bytes` from the one inside.
    let long = |last: u8| text(&[&vec![b'x'; half - 12 * 2200][..], &[last]].concat());
    if half > 20 * 2200 {
        let inner = [&b"\xa2\x61/"[..], &long(b'1'), b"\x65bytes", &long(b'2')].concat();
        let around = [&b"\xa2"[..], PROTOTYPE, b"\xf6", PROTOTYPE].concat();
        let depth = 900;
        let mut value = around.repeat(depth);
        value.extend(inner);
        add("inherited marks", value, true);
    }

    // Just short enough for a text.
    let digest = (1 << 14) - 4;
    let mut link = vec![0x12, (digest & 0x7f) as u8 | 0x80, (digest >> 7) as u8];
    link.extend(vec![0xff; digest]);
    let mut writer = Writer::new();
    writer.item(Item::Link(&link));
    add("long links of version 0", repeated(size, &writer.finish()), true);
    let mut link = vec![0x12, 100];
    link.extend([0xff; 100]);
    let mut writer = Writer::new();
    writer.item(Item::Link(&link));
    add("links of 102 bytes", repeated(size, &writer.finish()), true);
    all
}

/// JSON texts of about `size` bytes.
pub fn texts(size: usize) -> Vec<(&'static str, Vec<u8>)> {
    let list = |unit: &str| {
        let count = (size - 2) / (unit.len() + 1);
        format!("[{}]", vec![unit; count].join(",")).into_bytes()
    };
    let numbered = |key: &dyn Fn(usize) -> String| {
        let length = key(0).len() + 5;
        let entries: Vec<String> = (0..size / length).rev().map(|number| format!("\"{}\":0", key(number))).collect();
        format!("{{{}}}", entries.join(",")).into_bytes()
    };
    let deep = |unit: &str| {
        let inside = "0,".repeat((size - 499 * unit.len()) / 2 - 500);
        let close: String = unit
            .chars()
            .rev()
            .filter_map(|open| match open {
                '[' => Some(']'),
                '{' => Some('}'),
                _ => None,
            })
            .collect();
        format!("{}[{inside}0]{}", unit.repeat(498), close.repeat(498)).into_bytes()
    };
    vec![
        ("empty lists", list("[]")),
        ("empty maps", list("{}")),
        ("integers", list("0")),
        ("floats", list("0.5")),
        ("long floats", list("5.960464477539063e-8")),
        ("strings", list("\"\"")),
        ("escapes", format!("\"{}\"", "\\n".repeat(size / 2 - 2)).into_bytes()),
        ("surrogates", format!("\"{}\"", "\\ud83d\\ude00".repeat(size / 12 - 1)).into_bytes()),
        ("unsorted maps", list("{\"b\":0,\"\":0}")),
        ("unsorted maps of floats", list("{\"b\":0.5,\"\":0.5}")),
        ("a map", numbered(&|number| format!("{number:05}"))),
        ("a map of long keys", numbered(&|number| format!("{}{number:05}", "x".repeat(100)))),
        ("bytes", list("{\"/\":{\"bytes\":\"\"}}")),
        ("links", list("{\"/\":\"bafyaa\"}")),
        ("long links of version 0", list(&format!("{{\"/\":\"Q{}\"}}", "z".repeat(20_000)))),
        ("nested lists", deep("[")),
        ("nested maps", deep("{\"a\":")),
        ("nested unsorted maps", deep("{\"b\":0,\"a\":")),
        ("open lists", vec![b'['; size]),
        ("one digit after the other", vec![b'1'; size]),
        ("a long fraction", [b"0.", &vec![b'1'; size][..]].concat()),
        ("a long exponent", [b"1e-", &vec![b'0'; size][..], b"1"].concat()),
    ]
}
