//! Keys by name, as the bytes that xterm sends for them.

use delta_base::suggest::did_you_mean;
use delta_base::terminal_text::strip_terminal_controls;

/// A name that is not a key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{}` is not a key: expected a character, a name such as Enter, Esc, Tab, Up, PageDown or F1, or one of them after C-, M- or S-{}",
    strip_terminal_controls(.0),
    similar_key(.0)
)]
pub(crate) struct KeyNameError(String);

/// ` (did you mean ...?)`, when a key has a similar name.
fn similar_key(name: &str) -> String {
    let name = name.rsplit_once(['-', '+']).map_or(name, |(_, rest)| rest).to_lowercase();
    match did_you_mean(&name, KEY_NAMES.iter().map(|(known, _)| *known)) {
        suggestion if suggestion.is_empty() => suggestion,
        suggestion => format!(" ({suggestion})"),
    }
}

/// The bytes that a key sends.
#[derive(Debug, Clone, Copy)]
enum KeySequence {
    Byte(u8),
    /// `ESC [` and this letter, or `ESC O` in application cursor mode.
    Cursor(char),
    /// `ESC O` and this letter.
    Function(char),
    /// `ESC [`, this number and `~`.
    Number(u8),
}

#[rustfmt::skip]
const KEY_NAMES: [(&str, KeySequence); 40] = {
    use KeySequence::{Byte, Cursor, Function, Number};
    [
        ("enter", Byte(b'\r')), ("return", Byte(b'\r')), ("tab", Byte(b'\t')), ("esc", Byte(0x1b)), ("escape", Byte(0x1b)),
        ("space", Byte(b' ')), ("backspace", Byte(0x7f)), ("bs", Byte(0x7f)),
        ("up", Cursor('A')), ("down", Cursor('B')), ("right", Cursor('C')), ("left", Cursor('D')),
        ("home", Cursor('H')), ("end", Cursor('F')),
        ("insert", Number(2)), ("ins", Number(2)), ("delete", Number(3)), ("del", Number(3)),
        ("pageup", Number(5)), ("pgup", Number(5)), ("pagedown", Number(6)), ("pgdn", Number(6)), ("pgdown", Number(6)),
        ("page_up", Number(5)), ("page_down", Number(6)),
        ("f1", Function('P')), ("f2", Function('Q')), ("f3", Function('R')), ("f4", Function('S')),
        ("f5", Number(15)), ("f6", Number(17)), ("f7", Number(18)), ("f8", Number(19)),
        ("f9", Number(20)), ("f10", Number(21)), ("f11", Number(23)), ("f12", Number(24)),
        ("minus", Byte(b'-')), ("plus", Byte(b'+')), ("caret", Byte(b'^')),
    ]
};

#[rustfmt::skip]
const MODIFIER_PREFIXES: [(&str, KeyModifier); 10] = {
    use KeyModifier::{Control, Meta, Shift};
    [
        ("c-", Control), ("ctrl-", Control), ("ctrl+", Control), ("^", Control),
        ("m-", Meta), ("alt-", Meta), ("alt+", Meta),
        ("s-", Shift), ("shift-", Shift), ("shift+", Shift),
    ]
};

#[derive(Debug, Clone, Copy)]
enum KeyModifier {
    Shift,
    Meta,
    Control,
}

/// The modifiers pressed with a key.
#[derive(Debug, Default, Clone, Copy)]
struct KeyModifiers {
    shift: bool,
    meta: bool,
    control: bool,
}

impl KeyModifiers {
    /// The number by which xterm encodes modifiers.
    fn xterm_parameter(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.meta) + 4 * u8::from(self.control)
    }
}

/// The bytes that the key `name` sends. In `application` cursor mode the cursor keys have another form.
pub(super) fn encode_key(name: &str, application: bool) -> Result<Vec<u8>, KeyNameError> {
    let unknown = || KeyNameError(name.to_owned());
    let (modifiers, key) = parse_key_modifiers(name);
    let mut characters = key.chars();
    if let (Some(character), None) = (characters.next(), characters.next()) {
        return encode_character(character, modifiers).ok_or_else(unknown);
    }
    let key = key.to_lowercase();
    let (_, sequence) = KEY_NAMES.iter().find(|(known, _)| *known == key).ok_or_else(unknown)?;
    let parameter = modifiers.xterm_parameter();
    let text = match *sequence {
        KeySequence::Byte(b'\t') if modifiers.shift => "\x1b[Z".to_owned(),
        KeySequence::Byte(byte) => {
            let modifiers = KeyModifiers { shift: false, ..modifiers };
            return encode_character(char::from(byte), modifiers).ok_or_else(unknown);
        }
        KeySequence::Cursor(letter) | KeySequence::Function(letter) if parameter > 1 => {
            format!("\x1b[1;{parameter}{letter}")
        }
        KeySequence::Cursor(letter) if !application => format!("\x1b[{letter}"),
        KeySequence::Cursor(letter) | KeySequence::Function(letter) => format!("\x1bO{letter}"),
        KeySequence::Number(code) if parameter > 1 => format!("\x1b[{code};{parameter}~"),
        KeySequence::Number(code) => format!("\x1b[{code}~"),
    };
    Ok(text.into_bytes())
}

/// Splits a name into modifiers and key. The last character always belongs to the key.
fn parse_key_modifiers(name: &str) -> (KeyModifiers, &str) {
    let mut modifiers = KeyModifiers::default();
    let mut key = name;
    while let Some((prefix, modifier)) = MODIFIER_PREFIXES.iter().find(|(prefix, _)| {
        key.len() > prefix.len()
            && key.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    }) {
        match modifier {
            KeyModifier::Shift => modifiers.shift = true,
            KeyModifier::Meta => modifiers.meta = true,
            KeyModifier::Control => modifiers.control = true,
        }
        key = &key[prefix.len()..];
    }
    (modifiers, key)
}

fn encode_character(character: char, modifiers: KeyModifiers) -> Option<Vec<u8>> {
    let mut bytes = if modifiers.meta { vec![0x1b] } else { Vec::new() };
    match character {
        _ if !modifiers.control => {
            let is_upper = modifiers.shift && character.is_ascii_lowercase();
            let typed = if is_upper { character.to_ascii_uppercase() } else { character };
            bytes.extend(typed.encode_utf8(&mut [0; 4]).bytes());
        }
        'a'..='z' | '@'..='_' => bytes.push(u8::try_from(character).ok()? & 0x1f),
        ' ' => bytes.push(0),
        '?' => bytes.push(0x7f),
        // Terminals have no other code for these with Control.
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
        String::from_utf8(encode_key(name, false).unwrap()).unwrap()
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
        for (name, sequence) in expected.into_iter().filter(|(_, sequence)| !sequence.is_empty()) {
            assert_eq!(sent(name), sequence, "{name}");
        }
        assert_eq!(encode_key("Up", true).unwrap(), b"\x1bOA");
        assert_eq!(encode_key("C-Up", true).unwrap(), b"\x1b[1;5A");
    }

    #[test]
    fn c_14_5_a_name_that_is_not_a_key_is_refused() {
        for name in ["", "C--", "C-ä", "Entre", "F13", "up down"] {
            assert!(encode_key(name, false).is_err(), "{name}");
        }
        let error = encode_key("Entre", false).unwrap_err().to_string();
        assert!(error.contains("`enter`"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn c_14_5_no_name_is_a_panic(name in "\\PC{0,12}", prefix in "(C-|M-|\\^|S-){0,3}") {
            let _ = encode_key(&format!("{prefix}{name}"), true);
        }
    }
}
