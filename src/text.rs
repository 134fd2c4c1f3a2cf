//! Text made fit for where it goes: bytes shown as UTF-8, terminal controls taken out, names that were nearly right,
//! secrets hidden.

use memchr::memmem::Finder;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// `text` without what could steer a terminal: escape sequences and control characters, except newline and tab.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\x1b' => skip_escape(&mut chars),
            '\u{9b}' => skip_csi(&mut chars),
            // Bidirectional overrides reorder what a person reads.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// `text` with `[hidden]` in the place of every sensitive answer of four characters or more: a shorter one would tear
/// holes into plain words.
pub fn hide_answers(answers: &[String], mut text: String) -> String {
    for answer in answers.iter().map(|answer| answer.trim()) {
        if answer.chars().count() >= 4 && text.contains(answer) {
            text = text.replace(answer, "[hidden]");
        }
    }
    text
}

/// Skips what follows an ESC: a CSI sequence, a string sequence up to its terminator, or one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_string(chars);
        }
        Some(' '..='/') => {
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next();
        }
        Some(c) if !c.is_control() => {
            chars.next();
        }
        _ => {}
    }
}

/// Skips a string up to its terminator. One that does not end on its line hides nothing: only its beginning was taken.
fn skip_string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let mut ahead = chars.clone();
    while let Some(c) = ahead.next() {
        let ends = match c {
            '\x07' | '\u{9c}' => true,
            '\x1b' => ahead.next_if_eq(&'\\').is_some(),
            '\n' => return,
            _ => false,
        };
        if ends {
            *chars = ahead;
            return;
        }
    }
}

/// Skips parameters, intermediates and the final character of a control sequence.
fn skip_csi(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

/// The first line of `text`, at most `limit` characters, with `…` where something was left out.
pub fn one_line(text: &str, limit: usize) -> String {
    let mut lines = text.trim().lines();
    let first = lines.next().unwrap_or_default().trim_end();
    let cut = first.chars().count() > limit;
    let mut out: String = first.chars().take(limit).collect();
    if cut || lines.next().is_some() {
        out.push('…');
    }
    out
}

/// `text` as the value of an argument in one line of at most about `limit` characters: in quotes where one could not tell
/// where it ends, its line ends as `⏎`.
pub fn argument(text: &str, limit: usize) -> String {
    let line = text.replace("\r\n", "⏎").replace(['\n', '\r'], "⏎");
    let mut shown: String = line.chars().take(limit).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    let is_word = |c: char| !c.is_whitespace() && !matches!(c, '=' | '"' | '⏎');
    match !shown.is_empty() && shown.chars().all(is_word) {
        true => shown,
        false => format!("\"{}\"", shown.replace('"', "\\\"")),
    }
}

/// Makes JSON text parseable when it holds lone surrogate escapes (`"\ud800"`): each becomes `\ufffd`.
pub fn mend_surrogates(json: &str) -> Cow<'_, str> {
    if !json.contains("\\u") {
        return Cow::Borrowed(json);
    }
    let bytes = json.as_bytes();
    let mut out = String::new();
    let (mut kept, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let Some(unit) = unicode_escape(bytes, at) else {
            at += 2;
            continue;
        };
        let paired = (0xd800..0xdc00).contains(&unit)
            && unicode_escape(bytes, at + 6).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if paired {
            at += 12;
        } else if (0xd800..0xe000).contains(&unit) {
            out.push_str(&json[kept..at]);
            out.push_str("\\ufffd");
            at += 6;
            kept = at;
        } else {
            at += 6;
        }
    }
    if kept == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[kept..]);
    Cow::Owned(out)
}

/// The code unit of a `\uXXXX` that stands at `at`.
fn unicode_escape(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Up to three of `known` that `name` was probably meant to be, nearest first.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = name.to_lowercase();
    let allowed = (wanted.chars().count() / 3).clamp(1, 3);
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(far, candidate)| {
            *far <= allowed
                || (wanted.len() >= 3 && candidate.starts_with(&wanted))
                || (wanted.len() >= 4
                    && (candidate.contains(&wanted) || wanted.contains(candidate)))
        })
        .collect();
    found.sort();
    found.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Edit distance in which swapping two neighbours counts once (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let substitute = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitute.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

/// The `help` line for a name that is not known.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()).as_slice() {
        [] => {
            let all: Vec<_> = known.into_iter().map(|name| format!("`{name}`")).collect();
            format!("known here: {}", all.join(", "))
        }
        [one] => format!("did you mean `{one}`?"),
        several => {
            let several: Vec<_> = several.iter().map(|name| format!("`{name}`")).collect();
            format!("did you mean {}?", several.join(" or "))
        }
    }
}

/// What is wrong with JSON that is not of the expected form, without the words and places of a program.
pub fn of_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    [
        ("unknown field ", "unknown key "),
        ("missing field ", "there is no "),
        ("unknown variant ", "unknown value "),
        (", expected one of ", "; known here: "),
        (", expected ", "; expected here: "),
    ]
    .iter()
    .fold(text.to_owned(), |text, (from, to)| text.replacen(from, to, 1))
}

/// Values that must never be written anywhere, and what stands in their place. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// What is looked for: each value, and what JSON makes of it.
    forms: Arc<[Finder<'static>]>,
}

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

impl Secrets {
    /// A key shorter than this is a placeholder for a local server (`ollama`, `none`), and hiding it would only
    /// tear holes into plain words.
    pub const SHORTEST: usize = 8;

    /// Hides each of `values` that is long enough to be a secret.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> =
            values.into_iter().filter(|value| value.len() >= Self::SHORTEST).collect();
        // Of two that begin alike the longer one goes first: hiding the shorter one would leave the other's rest.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let forms = values.iter().flat_map(|value| forms(value));
        let forms = forms.map(|form| Finder::new(form.as_bytes()).into_owned()).collect();
        Self { forms }
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// As [`Secrets::hide`], for a text that is at hand.
    pub fn hidden(&self, text: String) -> String {
        match self.hide(&text) {
            Cow::Owned(hidden) => hidden,
            Cow::Borrowed(_) => text,
        }
    }

    /// `text` with every secret replaced; also where it stands in its JSON-escaped form, and where JSON stands in a
    /// string of JSON, as the arguments of a call do.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for form in &*self.forms {
            if form.find(text.as_bytes()).is_some() {
                let form = String::from_utf8_lossy(form.needle());
                text = Cow::Owned(text.replace(&*form, REDACTED));
            }
        }
        text
    }

    /// Whether [`Secrets::hide`] would change `text`.
    pub fn is_in(&self, text: &str) -> bool {
        self.forms.iter().any(|form| form.find(text.as_bytes()).is_some())
    }

    /// A filter for bytes that come in pieces.
    pub fn stream(&self) -> SecretStream {
        let forms = Arc::clone(&self.forms);
        let mut begins = [false; 256];
        forms.iter().for_each(|form| begins[usize::from(form.needle()[0])] = true);
        SecretStream { forms, begins, held: Vec::new(), found: false }
    }
}

/// A secret as it stands in a text; where JSON escapes something of it, also as it stands in a string of JSON in a string
/// of JSON, and in a string of JSON, the longest first.
fn forms(secret: &str) -> Vec<String> {
    let once = json_escaped(secret);
    match once == secret {
        true => vec![once],
        false => vec![secret.to_owned(), json_escaped(&once), once],
    }
}

fn json_escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Hides secrets in a stream of bytes, also where one is cut over two pieces.
#[derive(Debug)]
pub struct SecretStream {
    forms: Arc<[Finder<'static>]>,
    /// Whether a secret begins with this byte: most bytes need no closer look.
    begins: [bool; 256],
    held: Vec<u8>,
    found: bool,
}

impl SecretStream {
    /// Gives what of the stream so far is known to be clean; a possible beginning of a secret is held back.
    pub fn push<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        if self.forms.is_empty() {
            return Cow::Borrowed(piece);
        }
        let plain = |bytes: &[u8]| bytes.iter().position(|byte| self.begins[usize::from(*byte)]);
        if self.held.is_empty() && plain(piece).is_none() {
            return Cow::Borrowed(piece);
        }
        self.held.extend_from_slice(piece);
        let mut out = Vec::with_capacity(self.held.len());
        let mut at = 0;
        'next: while let Some(skipped) = plain(&self.held[at..]) {
            out.extend_from_slice(&self.held[at..at + skipped]);
            at += skipped;
            let rest = &self.held[at..];
            for secret in self.forms.iter().map(Finder::needle) {
                if rest.starts_with(secret) {
                    out.extend_from_slice(REDACTED.as_bytes());
                    self.found = true;
                    at += secret.len();
                    continue 'next;
                }
            }
            if self.forms.iter().any(|form| form.needle().starts_with(rest)) {
                self.held.drain(..at);
                return Cow::Owned(out);
            }
            out.push(self.held[at]);
            at += 1;
        }
        out.extend_from_slice(&self.held[at..]);
        self.held.clear();
        Cow::Owned(out)
    }

    /// Whether a secret was found so far.
    pub fn found(&self) -> bool {
        self.found
    }

    /// Gives what was still held back when the stream ended.
    pub fn finish(self) -> Vec<u8> {
        self.held
    }
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for four in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(four)]));
        }
    }
    text
}

/// `text` as one word of a shell command.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A path as one word of a command line that can be pasted: one that begins with a hyphen would be an option there.
pub fn path_word(path: &Path) -> String {
    let word = path.to_string_lossy();
    let hyphen = if word.starts_with('-') { "./" } else { "" };
    shell_word(&format!("{hyphen}{word}"))
}

/// What is wrong with a regular expression, in one line: the error draws the pattern over several, and the last has it.
pub fn not_a_pattern(error: &regex::Error) -> String {
    let error = error.to_string();
    let reason = error.lines().last().unwrap_or_default();
    format!("not a regular expression: {}", reason.strip_prefix("error: ").unwrap_or(reason))
}

/// The hash of a text, in hexadecimal digits, as `sha256sum` prints it.
pub fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_15_5_terminal_controls_are_stripped() {
        let check =
            |input: &str, expected: &str| assert_eq!(printable(input), expected, "{input:?}");
        check("plain\n\ttext ä€😀", "plain\n\ttext ä€😀");
        check("a\x1b[31mred\x1b[0m", "ared");
        check("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc");
        check("a\u{9b}2Jb\x1b(Bc\x1bcd\r\x08e\x7ff", "abcdef");
        check("\x1b[", "");
        check("\x1b", "");
        // What is not ended takes nothing with it.
        check("a\x1b]0;b\nc\x07", "a0;b\nc");
        check("a\x1bPb", "ab");
        check("abc\u{202e}def", "abcdef");
    }

    #[test]
    fn c_4_4_lone_surrogates_become_replacement_characters() {
        let check = |input: &str, expected: &str| {
            let mended = mend_surrogates(input);
            assert_eq!(serde_json::from_str::<String>(&mended).unwrap(), expected, "{input}");
        };
        check(r#""a\ud800b""#, "a\u{fffd}b");
        check(r#""\ud83d\ude00""#, "😀");
        check(r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}");
        check(r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀");
        check(r#""\\ud800""#, "\\ud800");
        check(r#""\u00e4""#, "ä");
    }

    #[test]
    fn names_that_were_nearly_right_are_found() {
        let known = ["tools", "timeout_ms", "name", "description", "max_iterations"];
        assert_eq!(nearest("tolls", known), ["tools"]);
        assert_eq!(nearest("timeout", known), ["timeout_ms"]);
        assert_eq!(nearest("nmae", known), ["name"]);
        assert_eq!(nearest("zzz", known), Vec::<&str>::new());
        assert!(did_you_mean("zzz", known).starts_with("known here: `tools`"));
    }

    #[test]
    fn c_15_3_secrets_are_hidden_however_they_are_cut() {
        let secrets = Secrets::new(["sk-abcdef\"x".to_owned(), "short".to_owned()]);
        assert_eq!(secrets.hide("a sk-abcdef\"x b short"), "a [redacted] b short");
        assert_eq!(secrets.hide(r#"{"a":"sk-abcdef\"x"}"#), r#"{"a":"[redacted]"}"#);
        let text = b"1 sk-abc sk-abcdef\"x sk-sk-abcdef\\\"xsk-abcdef\\\\\\\"x sk-ab";
        for size in 1..text.len() {
            let mut stream = secrets.stream();
            let mut out = Vec::new();
            for piece in text.chunks(size) {
                out.extend_from_slice(&stream.push(piece));
            }
            out.extend(stream.finish());
            let shown = String::from_utf8(out).unwrap();
            assert_eq!(
                shown, "1 sk-abc [redacted] sk-[redacted][redacted] sk-ab",
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn one_line_says_that_something_is_left_out() {
        assert_eq!(one_line("abc", 5), "abc");
        assert_eq!(one_line("abcdef", 5), "abcde…");
        assert_eq!(one_line("a\nb", 5), "a…");
    }

    #[test]
    fn an_argument_tells_where_it_ends() {
        assert_eq!(argument("a/b.txt", 9), "a/b.txt");
        assert_eq!(argument("port = 80 new=port", 9), "\"port = 80…\"");
        assert_eq!(argument("a\r\nb\n", 9), "\"a⏎b⏎\"");
        assert_eq!(argument("\"a\"", 9), "\"\\\"a\\\"\"");
        assert_eq!((argument("", 9), argument("abc", 2)), ("\"\"".to_owned(), "ab…".to_owned()));
    }
}
