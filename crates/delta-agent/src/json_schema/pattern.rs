//! Translates the patterns of JSON Schema, which are regular expressions of ECMAScript, for `regex`.
//!
//! Syntax with the same meaning is copied and other syntax is translated. Syntax that `regex` does
//! not support is an error.

use delta_base::error_text;
use regex::Regex;
use std::iter::Peekable;
use std::str::Chars;

/// The white space that `\s` matches in ECMAScript, as the members of a class.
const WHITE_SPACE: &str = r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";

/// Compiles a regular expression of ECMAScript.
///
/// # Errors
/// The pattern is invalid, too large, or uses syntax that `regex` does not support.
pub(super) fn compile_ecma_regex(pattern: &str) -> Result<Regex, String> {
    let translated =
        PatternTranslator { rest: pattern.chars().peekable(), out: String::new() }.translate()?;
    Regex::new(&translated).map_err(|error| error_text::describe_regex_error(&error))
}

struct PatternTranslator<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
}

impl PatternTranslator<'_> {
    fn translate(mut self) -> Result<String, String> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.translate_escape(false)?,
                '[' => self.translate_class()?,
                '(' => self.translate_group()?,
                '.' => self.out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
                '{' if self.rest.peek() == Some(&',') => {
                    return Err("a repetition `{,n}` has no lower limit; write `{0,n}`".to_owned());
                }
                c => self.out.push(c),
            }
        }
        Ok(self.out)
    }

    /// Translates the start of a group after `(`. Other groups of `regex`, such as `(?i)`, are errors.
    fn translate_group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        match (self.rest.next(), self.rest.peek()) {
            (Some(':'), _) => self.out.push_str("?:"),
            (Some('<'), Some(c)) if !matches!(c, '=' | '!') => self.out.push_str("?<"),
            (Some('=' | '!' | '<'), _) => {
                return Err("lookahead and lookbehind are not supported".to_owned());
            }
            _ => {
                return Err("only the groups `(...)`, `(?:...)` and `(?<name>...)` are supported"
                    .to_owned());
            }
        }
        Ok(())
    }

    /// Translates a class after `[`. In ECMAScript, `[`, `&&`, `--` and `~~` have no special meaning
    /// inside a class.
    fn translate_class(&mut self) -> Result<(), String> {
        let is_negated = self.rest.next_if_eq(&'^').is_some();
        if self.rest.next_if_eq(&']').is_some() {
            self.out.push_str(if is_negated { r"(?s:.)" } else { r"[^\x00-\u{10FFFF}]" });
            return Ok(());
        }
        self.out.push_str(if is_negated { "[^" } else { "[" });
        while let Some(c) = self.rest.next() {
            match c {
                ']' => {
                    self.out.push(']');
                    return Ok(());
                }
                '\\' => self.translate_escape(true)?,
                '[' | '&' | '~' | '^' => self.out.extend(['\\', c]),
                // The first of two hyphens starts a range if it is first in the class. Otherwise the
                // second one ends a range.
                '-' if self.rest.peek() == Some(&'-') => {
                    self.rest.next();
                    let is_first = self.out.ends_with('[') || self.out.ends_with("[^");
                    self.out.push_str(if is_first { r"\--" } else { r"-\-" });
                }
                c => self.out.push(c),
            }
        }
        Err("a `[` has no `]`".to_owned())
    }

    /// Translates an escape after `\`.
    fn translate_escape(&mut self, in_class: bool) -> Result<(), String> {
        let c = self.rest.next().ok_or("a `\\` ends the pattern")?;
        match c {
            'd' => self.push_set("0-9", false),
            'D' => self.push_set("0-9", true),
            'w' => self.push_set("0-9A-Za-z_", false),
            'W' => self.push_set("0-9A-Za-z_", true),
            's' => self.push_set(WHITE_SPACE, false),
            'S' => self.push_set(WHITE_SPACE, true),
            'b' if in_class => self.out.push_str(r"\x08"),
            'b' => self.out.push_str(r"(?-u:\b)"),
            'B' if !in_class => {
                return Err("`\\B` is not supported".to_owned());
            }
            't' | 'n' | 'v' | 'f' | 'r' => self.out.extend(['\\', c]),
            'p' | 'P' => self.out.extend(['\\', c]),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => {
                self.out.push_str(r"\x00");
            }
            'c' => {
                let letter = self.rest.next().filter(char::is_ascii_alphabetic);
                let letter = letter.ok_or("`\\c` must be followed by a letter")?;
                self.push_code_point(u32::from(letter) % 32)?;
            }
            'x' => {
                let code = self.read_hex(2)?;
                self.push_code_point(code)?;
            }
            'u' => {
                let code = self.read_unicode_escape()?;
                self.push_code_point(code)?;
            }
            '1'..='9' | 'k' => return Err("backreferences are not supported".to_owned()),
            c if c.is_ascii_alphanumeric() => return Err(format!("unknown escape `\\{c}`")),
            c => self.push_code_point(u32::from(c))?,
        }
        Ok(())
    }

    /// Writes a nested class, so that a hyphen after it does not form a range, as in `[\w-.]`.
    fn push_set(&mut self, members: &str, is_negated: bool) {
        self.out.push_str(if is_negated { "[^" } else { "[" });
        self.out.push_str(members);
        self.out.push(']');
    }

    fn push_code_point(&mut self, code: u32) -> Result<(), String> {
        char::from_u32(code).ok_or_else(|| format!("U+{code:04X} is not a character"))?;
        self.out.push_str(&format!(r"\x{{{code:X}}}"));
        Ok(())
    }

    /// Reads the code point after `\u`: four digits, two surrogates of four digits each, or any number
    /// of digits in braces.
    fn read_unicode_escape(&mut self) -> Result<u32, String> {
        if self.rest.next_if_eq(&'{').is_some() {
            let mut code = 0u32;
            loop {
                match self.rest.next() {
                    Some('}') => return Ok(code),
                    Some(c) if c.is_ascii_hexdigit() => {
                        code = code.saturating_mul(16).saturating_add(c.to_digit(16).unwrap_or(0));
                    }
                    _ => {
                        return Err(
                            "`\\u{` must be followed by hexadecimal digits and `}`".to_owned()
                        );
                    }
                }
            }
        }
        let high = self.read_hex(4)?;
        if !(0xd800..0xdc00).contains(&high) {
            return Ok(high);
        }
        let mut lookahead = self.rest.clone();
        if lookahead.next() != Some('\\') || lookahead.next() != Some('u') {
            return Ok(high);
        }
        self.rest = lookahead;
        let low = self.read_hex(4)?;
        if !(0xdc00..0xe000).contains(&low) {
            return Err(format!("U+{high:04X} must be followed by U+DC00 to U+DFFF"));
        }
        Ok(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
    }

    fn read_hex(&mut self, length: usize) -> Result<u32, String> {
        (0..length).try_fold(0, |code, _| {
            let digit = self.rest.next().and_then(|c| c.to_digit(16));
            let digit = digit.ok_or_else(|| format!("expected {length} hexadecimal digits"))?;
            Ok(code * 16 + digit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_ecmascript() {
        for (pattern, matching, other) in [
            ("^a*$", "aaa", "ab"),
            ("a+", "xxaayy", "xxyy"),
            (r"^\d+$", "17", "١٧"),
            (r"^\w$", "a", "é"),
            (r"^\W$", "é", "a"),
            (r"^\s$", "\u{feff}", "\u{85}"),
            (r"^[\s]$", "\u{2003}", "x"),
            (r"^[^\S]$", " ", "x"),
            (r"^[\D]$", "x", "5"),
            ("^.$", "é", "\u{2028}"),
            ("^a$", "a", "a\n"),
            (r"^[a[]$", "[", "b"),
            (r"^[a&&b]$", "&", "c"),
            (r"^[a~~b]$", "~", "c"),
            (r"^[--/]$", ".", "!"),
            (r"^[+--]$", ",", "."),
            (r"^[^--/]$", ",", "."),
            (r"^[\w-.]$", "-", "+"),
            (r"^[\d\-x]$", "-", "+"),
            (r"^[^^]$", "a", "^"),
            ("^a[^]b$", "a\nb", "ab"),
            ("a|[]", "a", "b"),
            (r"^\cC$", "\u{3}", "C"),
            (r"^\x41\u0042\u{43}$", "ABC", "abc"),
            (r"^\ud83d\ude00$", "😀", "x"),
            (r"^[\u0041-\u0043]$", "B", "D"),
            (r"^\/\-\@\_\<$", "/-@_<", "/-@_"),
            (r"^[\b]$", "\u{8}", "b"),
            (r"\bcat\b", "a cat!", "concat"),
            ("^(?:ab)+$", "abab", "aba"),
            ("^(?<year>[0-9]{4})$", "2026", "26"),
            (r"^\0$", "\0", "0"),
            (r"^\p{L}+$", "äö", "5"),
            ("^[a-z]{2,3}?$", "ab", "a"),
            ("^🐲*$", "🐲🐲", "🐉"),
        ] {
            let regex =
                compile_ecma_regex(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert!(regex.is_match(matching), "{pattern} {regex}");
            assert!(!regex.is_match(other), "{pattern} {regex}");
        }
    }

    #[test]
    fn unsupported_patterns_are_rejected() {
        for (pattern, reason) in [
            ("(?=a)", "lookahead"),
            ("(?<!a)b", "lookbehind"),
            (r"(a)\1", "backreferences"),
            ("(?i)a", "only the groups"),
            ("(?P<n>a)", "only the groups"),
            (r"\a", r"unknown escape `\a`"),
            (r"a\B", r"`\B`"),
            ("[a", "has no `]`"),
            ("(a", "unclosed group"),
            ("a\\", "ends the pattern"),
            (r"\ud800", "U+D800"),
            (r"\ud83d\u0041", "U+D83D"),
            (r"\u12", "expected 4 hexadecimal digits"),
            ("a{,3}", "write `{0,n}`"),
            ("(a{1000}){1000}", "exceeds size limit"),
        ] {
            let error = compile_ecma_regex(pattern).unwrap_err();
            assert!(error.contains(reason), "{pattern}: {error}");
        }
    }
}
