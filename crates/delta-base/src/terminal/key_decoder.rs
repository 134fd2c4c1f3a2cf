//! Keys from the bytes of a terminal. Pure; a key may be split over any number of reads.

/// The longest control sequence of a key.
const MAX_SEQUENCE: usize = 32;
/// The sequences around a paste, after the terminal was asked for them.
const PASTE_START: &[u8] = b"200";
const PASTE_END: &[u8] = b"\x1b[201~";
/// The bit of Alt in the modifiers of a sequence, which are one more than their sum.
const ALT: u32 = 2;

/// What a person has pressed or pasted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// A text that came at once; line ends in it are not Enter.
    Paste(String),
    /// Enter.
    Enter,
    /// Alt and Enter.
    AltEnter,
    /// Escape alone.
    Escape,
    /// Backspace.
    Backspace,
    /// Delete, or Ctrl-D in a text.
    Delete,
    /// Ctrl-D.
    CtrlD,
    /// Ctrl-W: removes the word before the cursor.
    EraseWord,
    /// Ctrl-U: removes everything before the cursor.
    EraseBefore,
    /// Ctrl-K: removes everything after the cursor.
    EraseAfter,
    /// To the character before.
    Left,
    /// To the character after.
    Right,
    /// To the start of the word before.
    WordLeft,
    /// To the end of the word after.
    WordRight,
    /// To the start.
    Home,
    /// To the end.
    End,
}

/// What the bytes so far are.
enum Parsed {
    /// The start of a key.
    Part,
    /// A key, or none.
    Whole(Option<Key>),
    /// Something that ended before the last byte.
    Before(Option<Key>),
    PasteStart,
}

/// Reads keys from bytes.
#[derive(Debug, Default)]
pub struct KeyDecoder {
    part: Vec<u8>,
    paste: Option<Vec<u8>>,
}

impl KeyDecoder {
    /// The keys that `bytes` complete.
    pub fn decode(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        bytes.iter().for_each(|byte| self.push(*byte, &mut keys));
        keys
    }

    /// Whether the next bytes decide if an ESC was a key: where none follow soon, it was.
    pub fn has_open_escape(&self) -> bool {
        self.paste.is_none() && self.part.first() == Some(&b'\x1b')
    }

    /// The key of an ESC that nothing has followed. The start of a sequence is dropped.
    pub fn end_escape(&mut self) -> Option<Key> {
        if !self.has_open_escape() {
            return None;
        }
        let part = std::mem::take(&mut self.part);
        (part.len() == 1).then_some(Key::Escape)
    }

    fn push(&mut self, byte: u8, keys: &mut Vec<Key>) {
        if let Some(paste) = &mut self.paste {
            paste.push(byte);
            if paste.ends_with(PASTE_END) {
                let text = String::from_utf8_lossy(&paste[..paste.len() - PASTE_END.len()]);
                keys.push(Key::Paste(text.replace("\r\n", "\n").replace('\r', "\n")));
                self.paste = None;
            }
            return;
        }
        self.part.push(byte);
        match parse(&self.part) {
            Parsed::Part => {}
            Parsed::Whole(key) => {
                self.part.clear();
                keys.extend(key);
            }
            Parsed::Before(key) => {
                self.part.clear();
                keys.extend(key);
                self.push(byte, keys);
            }
            Parsed::PasteStart => {
                self.part.clear();
                self.paste = Some(Vec::new());
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Parsed {
    match bytes {
        [b'\x1b'] | [b'\x1b', b'[' | b'O'] => Parsed::Part,
        [b'\x1b', b'\n' | b'\r'] => Parsed::Whole(Some(Key::AltEnter)),
        [b'\x1b', 0x7f | 0x08] => Parsed::Whole(Some(Key::EraseWord)),
        [b'\x1b', b'b'] => Parsed::Whole(Some(Key::WordLeft)),
        [b'\x1b', b'f'] => Parsed::Whole(Some(Key::WordRight)),
        [b'\x1b', b'\x1b'] => Parsed::Before(Some(Key::Escape)),
        [b'\x1b', b'O', last] => Parsed::Whole(sequence_key(b"", *last)),
        [b'\x1b', b'[', rest @ ..] => parse_sequence(rest),
        // Alt with another key is the key.
        [b'\x1b', _] => Parsed::Before(None),
        [byte] if byte.is_ascii() => Parsed::Whole(byte_key(*byte)),
        bytes => parse_character(bytes),
    }
}

/// Parses what follows ESC and `[`.
fn parse_sequence(bytes: &[u8]) -> Parsed {
    let Some((last, parameters)) = bytes.split_last() else { return Parsed::Part };
    match last {
        b'~' if parameters == PASTE_START => Parsed::PasteStart,
        0x40..=0x7e => Parsed::Whole(sequence_key(parameters, *last)),
        0x20..=0x3f if bytes.len() < MAX_SEQUENCE => Parsed::Part,
        0x20..=0x3f => Parsed::Whole(None),
        _ => Parsed::Before(None),
    }
}

fn sequence_key(parameters: &[u8], last: u8) -> Option<Key> {
    let text = std::str::from_utf8(parameters).unwrap_or_default();
    let mut numbers = text.split(';').map(|number| number.parse::<u32>().unwrap_or(1));
    let first = numbers.next();
    let modifiers = numbers.next().unwrap_or(1).saturating_sub(1);
    let enter = || if modifiers & ALT == 0 { Key::Enter } else { Key::AltEnter };
    match (last, first) {
        (b'C', _) if modifiers > 0 => Some(Key::WordRight),
        (b'D', _) if modifiers > 0 => Some(Key::WordLeft),
        (b'C', _) => Some(Key::Right),
        (b'D', _) => Some(Key::Left),
        (b'H', _) | (b'~', Some(1 | 7)) => Some(Key::Home),
        (b'F', _) | (b'~', Some(4 | 8)) => Some(Key::End),
        (b'~', Some(3)) => Some(Key::Delete),
        (b'~', Some(27)) if numbers.next() == Some(13) => Some(enter()),
        (b'u', Some(13)) => Some(enter()),
        (b'u', Some(27)) => Some(Key::Escape),
        (b'u', Some(127)) => Some(Key::Backspace),
        _ => None,
    }
}

fn byte_key(byte: u8) -> Option<Key> {
    Some(match byte {
        0x01 => Key::Home,
        0x02 => Key::Left,
        0x04 => Key::CtrlD,
        0x05 => Key::End,
        0x06 => Key::Right,
        0x08 | 0x7f => Key::Backspace,
        b'\n' | b'\r' => Key::Enter,
        0x0b => Key::EraseAfter,
        0x15 => Key::EraseBefore,
        0x17 => Key::EraseWord,
        b' '..=b'~' => Key::Char(char::from(byte)),
        _ => return None,
    })
}

/// Parses a character that is not ASCII. Bytes that are none show as U+FFFD.
fn parse_character(bytes: &[u8]) -> Parsed {
    match std::str::from_utf8(bytes) {
        Ok(text) => Parsed::Whole(text.chars().next().map(Key::Char)),
        Err(error) if error.error_len().is_none() => Parsed::Part,
        Err(_) if bytes.len() > 1 => Parsed::Before(Some(Key::Char(char::REPLACEMENT_CHARACTER))),
        Err(_) => Parsed::Whole(Some(Key::Char(char::REPLACEMENT_CHARACTER))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Vec<Key> {
        KeyDecoder::default().decode(bytes)
    }

    #[test]
    fn c_33_17_keys_are_read_from_their_sequences() {
        for (bytes, key) in [
            (&b"\x1b\n"[..], Key::AltEnter),
            (b"\x1b[13;3u", Key::AltEnter),
            (b"\x1b[27;3;13~", Key::AltEnter),
            (b"\r", Key::Enter),
            (b"\x1b[D", Key::Left),
            (b"\x1bOC", Key::Right),
            (b"\x1b[1;5D", Key::WordLeft),
            (b"\x1b[3~", Key::Delete),
            (b"\x1b[H", Key::Home),
            (b"\x1b[4~", Key::End),
            (b"\x17", Key::EraseWord),
            ("日".as_bytes(), Key::Char('日')),
            (b"\x1b[200~a\r\nb\rc\x1b[201~", Key::Paste("a\nb\nc".to_owned())),
        ] {
            assert_eq!(decode(bytes), [key], "{bytes:?}");
        }
        assert_eq!(decode(b"\x1b[A\x1b[24~\x1b[?1u\t\0"), []);
        assert_eq!(decode(b"\x1bx"), [Key::Char('x')]);
        assert_eq!(decode(b"\xff\xe6a"), ['\u{fffd}', '\u{fffd}', 'a'].map(Key::Char));
    }

    #[test]
    fn c_33_17_an_escape_is_a_key_when_nothing_follows() {
        let mut decoder = KeyDecoder::default();
        assert_eq!(decoder.decode(b"\x1b"), []);
        assert!(decoder.has_open_escape());
        assert_eq!(decoder.end_escape(), Some(Key::Escape));
        assert_eq!(decoder.decode(b"\x1b["), []);
        assert_eq!(decoder.end_escape(), None, "the start of a sequence");
        assert_eq!(decoder.decode(b"x\xe6\x97"), [Key::Char('x')]);
        assert_eq!((decoder.has_open_escape(), decoder.end_escape()), (false, None));
        assert_eq!(decoder.decode(b"\xa5"), [Key::Char('日')]);
    }

    /// Bytes of keys and of anything.
    fn input() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<Vec<u8>>(),
            ".{0,4}".prop_map(String::into_bytes),
            prop::sample::select(vec!["\x1b", "\x1b[", "\x1b[200~", "\x1b[201~", "\x1b[1;3", "\n"])
                .prop_map(|text| text.as_bytes().to_vec()),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn c_33_17_a_key_may_be_split_anywhere(bytes in input(), at in any::<prop::sample::Index>()) {
            let at = at.index(bytes.len() + 1);
            let mut decoder = KeyDecoder::default();
            let mut split = decoder.decode(&bytes[..at]);
            split.extend(decoder.decode(&bytes[at..]));
            prop_assert_eq!(split, decode(&bytes));
        }

        #[test]
        fn c_33_17_a_pasted_text_arrives_whole(text in "[^\r\x1b]{0,40}") {
            let bytes = format!("\x1b[200~{text}\x1b[201~\n");
            prop_assert_eq!(decode(bytes.as_bytes()), [Key::Paste(text), Key::Enter]);
        }
    }
}
