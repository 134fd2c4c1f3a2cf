//! Keys by their names, as the bytes that a keyboard of xterm sends.

use crate::text::{did_you_mean, printable};

/// Why a name is no key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{}` is no key: write a character, a name such as Enter, Esc, Tab, Up, PageDown, F1, or one with C-, M- or S- before it{}",
    printable(.0),
    hint(.0)
)]
pub struct NoKey(String);

fn hint(name: &str) -> String {
    let name = name.rsplit_once(['-', '+']).map_or(name, |(_, rest)| rest).to_lowercase();
    match did_you_mean(&name, NAMES.iter().map(|(known, _)| *known)) {
        meant if meant.is_empty() => meant,
        meant => format!(" ({meant})"),
    }
}

/// What a key sends.
#[derive(Debug, Clone, Copy)]
enum Sends {
    /// This byte.
    Byte(u8),
    /// `ESC [` and this letter, or `ESC O` where the program asked for it.
    Cursor(char),
    /// `ESC O` and this letter.
    Function(char),
    /// `ESC [`, this number and `~`.
    Number(u8),
}

/// The keys that have a name.
#[rustfmt::skip]
const NAMES: [(&str, Sends); 40] = [
    ("enter", Sends::Byte(b'\r')), ("return", Sends::Byte(b'\r')), ("tab", Sends::Byte(b'\t')),
    ("esc", Sends::Byte(0x1b)), ("escape", Sends::Byte(0x1b)), ("space", Sends::Byte(b' ')),
    ("backspace", Sends::Byte(0x7f)), ("bs", Sends::Byte(0x7f)),
    ("up", Sends::Cursor('A')), ("down", Sends::Cursor('B')), ("right", Sends::Cursor('C')), ("left", Sends::Cursor('D')),
    ("home", Sends::Cursor('H')), ("end", Sends::Cursor('F')),
    ("insert", Sends::Number(2)), ("ins", Sends::Number(2)), ("delete", Sends::Number(3)), ("del", Sends::Number(3)),
    ("pageup", Sends::Number(5)), ("pgup", Sends::Number(5)), ("pagedown", Sends::Number(6)), ("pgdn", Sends::Number(6)),
    ("pgdown", Sends::Number(6)), ("page_up", Sends::Number(5)), ("page_down", Sends::Number(6)),
    ("f1", Sends::Function('P')), ("f2", Sends::Function('Q')), ("f3", Sends::Function('R')), ("f4", Sends::Function('S')),
    ("f5", Sends::Number(15)), ("f6", Sends::Number(17)), ("f7", Sends::Number(18)), ("f8", Sends::Number(19)),
    ("f9", Sends::Number(20)), ("f10", Sends::Number(21)), ("f11", Sends::Number(23)), ("f12", Sends::Number(24)),
    ("minus", Sends::Byte(b'-')), ("plus", Sends::Byte(b'+')), ("caret", Sends::Byte(b'^')),
];

/// How a modifier is written.
#[rustfmt::skip]
const MODIFIERS: [(&str, Modifier); 10] = [
    ("c-", Modifier::Control), ("ctrl-", Modifier::Control), ("ctrl+", Modifier::Control), ("^", Modifier::Control),
    ("m-", Modifier::Meta), ("alt-", Modifier::Meta), ("alt+", Modifier::Meta),
    ("s-", Modifier::Shift), ("shift-", Modifier::Shift), ("shift+", Modifier::Shift),
];

#[derive(Debug, Clone, Copy)]
enum Modifier {
    Shift,
    Meta,
    Control,
}

/// The modifiers held with a key.
#[derive(Debug, Default, Clone, Copy)]
struct Held {
    shift: bool,
    meta: bool,
    control: bool,
}

impl Held {
    /// As xterm writes it in the sequence of a key.
    fn number(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.meta) + 4 * u8::from(self.control)
    }
}

/// What the key `name` sends; `application` is whether the program asked for the other form of the cursor keys.
pub fn bytes(name: &str, application: bool) -> Result<Vec<u8>, NoKey> {
    let none = || NoKey(name.to_owned());
    let (held, rest) = modifiers(name);
    let mut characters = rest.chars();
    if let (Some(character), None) = (characters.next(), characters.next()) {
        return of_character(character, held).ok_or_else(none);
    }
    let lower = rest.to_lowercase();
    let (_, sends) = NAMES.iter().find(|(known, _)| *known == lower).ok_or_else(none)?;
    let number = held.number();
    Ok(match *sends {
        Sends::Byte(b'\t') if held.shift => b"\x1b[Z".to_vec(),
        Sends::Byte(byte) => {
            let plain = Held { shift: false, ..held };
            return of_character(char::from(byte), plain).ok_or_else(none);
        }
        Sends::Cursor(letter) | Sends::Function(letter) if number > 1 => {
            format!("\x1b[1;{number}{letter}").into_bytes()
        }
        Sends::Cursor(letter) if !application => format!("\x1b[{letter}").into_bytes(),
        Sends::Cursor(letter) | Sends::Function(letter) => format!("\x1bO{letter}").into_bytes(),
        Sends::Number(code) if number > 1 => format!("\x1b[{code};{number}~").into_bytes(),
        Sends::Number(code) => format!("\x1b[{code}~").into_bytes(),
    })
}

/// Takes the modifiers from the beginning of a name; the last character is always the key.
fn modifiers(name: &str) -> (Held, &str) {
    let (mut held, mut rest) = (Held::default(), name);
    while let Some((prefix, modifier)) = MODIFIERS.iter().find(|(prefix, _)| {
        rest.len() > prefix.len()
            && rest.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    }) {
        match modifier {
            Modifier::Shift => held.shift = true,
            Modifier::Meta => held.meta = true,
            Modifier::Control => held.control = true,
        }
        rest = &rest[prefix.len()..];
    }
    (held, rest)
}

fn of_character(character: char, held: Held) -> Option<Vec<u8>> {
    let mut bytes = if held.meta { vec![0x1b] } else { Vec::new() };
    match character {
        _ if !held.control => {
            let upper = held.shift && character.is_ascii_lowercase();
            let shown = if upper { character.to_ascii_uppercase() } else { character };
            bytes.extend(shown.encode_utf8(&mut [0; 4]).bytes());
        }
        'a'..='z' | '@'..='_' => bytes.push(u8::try_from(character).ok()? & 0x1f),
        ' ' => bytes.push(0),
        '?' => bytes.push(0x7f),
        // As terminals do: these have no other code with Control.
        '\r' | '\t' | '\u{1b}' => bytes.push(u8::try_from(character).ok()?),
        '\u{7f}' => bytes.push(8),
        _ => return None,
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: &str) -> String {
        String::from_utf8(bytes(name, false).unwrap()).unwrap()
    }

    #[test]
    fn c_14_5_keys_are_what_xterm_sends() {
        let expected = [
            ("Enter", "\r"),
            ("esc", "\x1b"),
            ("q", "q"),
            ("Q", "Q"),
            ("-", "-"),
            ("^", "^"),
            ("ä", "ä"),
            ("C-c", "\x03"),
            ("Ctrl+C", "\x03"),
            ("^c", "\x03"),
            ("C-Space", "\0"),
            ("C-]", "\x1d"),
            ("C-[", "\x1b"),
            ("C--", ""),
            ("M-x", "\x1bx"),
            ("M-C-x", "\x1b\x18"),
            ("alt-Enter", "\x1b\r"),
            ("S-Tab", "\x1b[Z"),
            ("s-a", "A"),
            ("Up", "\x1b[A"),
            ("C-Right", "\x1b[1;5C"),
            ("PageUp", "\x1b[5~"),
            ("S-Delete", "\x1b[3;2~"),
            ("F1", "\x1bOP"),
            ("F12", "\x1b[24~"),
        ];
        for (name, want) in expected.into_iter().filter(|(_, want)| !want.is_empty()) {
            assert_eq!(sent(name), want, "{name}");
        }
        assert_eq!(bytes("Up", true).unwrap(), b"\x1bOA");
        assert_eq!(bytes("C-Up", true).unwrap(), b"\x1b[1;5A");
    }

    #[test]
    fn c_14_5_what_is_no_key_is_said_so() {
        for name in ["", "C--", "C-ä", "Entre", "F13", "up down"] {
            assert!(bytes(name, false).is_err(), "{name}");
        }
        let said = bytes("Entre", false).unwrap_err().to_string();
        assert!(said.contains("`enter`"), "{said}");
    }

    proptest::proptest! {
        #[test]
        fn c_14_5_no_name_is_a_panic(name in "\\PC{0,12}", prefix in "(C-|M-|\\^|S-){0,3}") {
            let _ = bytes(&format!("{prefix}{name}"), true);
        }
    }
}
