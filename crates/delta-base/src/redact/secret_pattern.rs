//! What is searched for a secret: its characters, each in its usual spellings, and its digits in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use memchr::memmem::Finder;

/// A text to redact, as one way of spelling has it.
pub(super) struct SecretPattern {
    pub(super) units: Vec<Unit>,
    /// The bytes with which it can begin.
    pub(super) first_bytes: Vec<u8>,
    /// Whether line ends, and an indent after each, do not matter inside it.
    pub(super) may_wrap: bool,
    /// The length of its longest spelling.
    pub(super) longest: usize,
    /// The secret that it spells, by its place in [`Secrets::values`](super::Secrets::values).
    pub(super) secret: usize,
    /// One of these is in every text that has the pattern, unless a display leaves out something of the text.
    runs: Vec<Finder<'static>>,
}

/// A character of a secret.
pub(super) enum Unit {
    /// A letter or digit, which nothing escapes.
    Plain(u8),
    /// Another character: its spellings, of which none begins with another.
    Spelled(Vec<Vec<u8>>),
}

/// How a text spells a backslash and a percent sign, with which escapes begin. Other characters are recognised in all spellings
/// at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escaping {
    None,
    Json,
    /// JSON inside a JSON string, such as the arguments of a call.
    JsonTwice,
    Percent,
}

/// The digits of base64 in which one of two runs is looked for: a line has at least so many, so that one run is whole.
const DIGITS_OF_RUNS: usize = 16;

impl SecretPattern {
    /// The patterns of a secret that is spelled out: more than one if it has a backslash or a percent sign.
    pub(super) fn spelled(secret: &str, index: usize) -> Vec<Self> {
        // Longest first: an escaped backslash is not taken for one that nothing escapes.
        let escapings = [Escaping::JsonTwice, Escaping::Json, Escaping::Percent, Escaping::None];
        let matter = escapings.into_iter().filter(|escaping| match escaping {
            Escaping::JsonTwice | Escaping::Json => secret.contains('\\'),
            Escaping::Percent => secret.contains('%'),
            Escaping::None => true,
        });
        let patterns = matter.map(|escaping| {
            let units = secret.chars().map(|character| Unit::new(character, escaping)).collect();
            Self::new(units, false, index)
        });
        patterns.collect()
    }

    /// The digits in base64, in both alphabets, that depend on the secret alone: it can begin at each of the three bytes of a
    /// group.
    pub(super) fn base64(secret: &str, index: usize) -> Vec<Self> {
        let patterns = (0..3).map(|before| {
            let bytes = [&vec![0; before][..], secret.as_bytes()].concat();
            let digits = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
            let digits = STANDARD_NO_PAD.encode(&bytes)[digits].to_owned();
            Self::new(digits.chars().map(Unit::of_base64).collect(), true, index)
        });
        patterns.collect()
    }

    fn new(units: Vec<Unit>, may_wrap: bool, secret: usize) -> Self {
        let first_bytes = match &units[0] {
            Unit::Plain(byte) => vec![*byte],
            Unit::Spelled(spellings) => spellings.iter().map(|spelling| spelling[0]).collect(),
        };
        let searched = if may_wrap { &units[..units.len().min(DIGITS_OF_RUNS)] } else { &units };
        let parts =
            searched.chunks(if may_wrap { searched.len().div_ceil(2) } else { searched.len() });
        let runs = parts.map(|part| Finder::new(&longest_run(part)).into_owned()).collect();
        let longest = units.iter().map(Unit::longest).sum();
        Self { units, first_bytes, may_wrap, longest, secret, runs }
    }

    /// Whether the pattern may be in a text of which a display leaves out nothing: a quick test that most texts fail.
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        self.runs.iter().any(|run| run.find(text.as_bytes()).is_some())
    }
}

/// The longest run of letters and digits; empty, which is in every text, if there is none.
fn longest_run(units: &[Unit]) -> Vec<u8> {
    let runs = units.split(|unit| matches!(unit, Unit::Spelled(_)));
    let longest = runs.max_by_key(|run| run.len()).unwrap_or_default();
    let bytes = longest.iter().filter_map(|unit| match unit {
        Unit::Plain(byte) => Some(*byte),
        Unit::Spelled(_) => None,
    });
    bytes.collect()
}

impl Unit {
    fn new(character: char, escaping: Escaping) -> Self {
        if character.is_ascii_alphanumeric() {
            return Self::Plain(character as u8);
        }
        let once = json_escapes(character);
        let twice: Vec<String> = once.iter().map(|escape| escape_for_json(escape)).collect();
        let plain = [character.to_string()];
        let percent = percent_escapes(character);
        let spellings: Vec<String> = match (character, escaping) {
            ('\\', Escaping::Json) => once,
            ('\\', Escaping::JsonTwice) => twice,
            ('\\', Escaping::None | Escaping::Percent) => {
                plain.into_iter().chain(percent).collect()
            }
            ('%', Escaping::Percent) => percent,
            ('%', _) => plain.into_iter().chain(once).chain(twice).collect(),
            _ => plain.into_iter().chain(once).chain(twice).chain(percent).collect(),
        };
        Self::Spelled(spellings.into_iter().map(String::into_bytes).collect())
    }

    fn of_base64(digit: char) -> Self {
        match Self::new(digit, Escaping::None) {
            Self::Spelled(mut spellings) => {
                spellings.push(if digit == '+' { b"-".to_vec() } else { b"_".to_vec() });
                Self::Spelled(spellings)
            }
            plain @ Self::Plain(_) => plain,
        }
    }

    fn longest(&self) -> usize {
        match self {
            Self::Plain(_) => 1,
            Self::Spelled(spellings) => spellings.iter().map(Vec::len).max().unwrap_or_default(),
        }
    }
}

/// The escapes of a character in a JSON string: the short one, if it has one, and its UTF-16 units, in small and capital digits.
fn json_escapes(character: char) -> Vec<String> {
    let mut escapes = vec![];
    let short = escape_for_json(&character.to_string());
    if character == '/' {
        escapes.push("\\/".to_owned());
    } else if short.starts_with('\\') {
        escapes.push(short);
    }
    let mut units = [0; 2];
    let units = character.encode_utf16(&mut units);
    escapes.push(units.iter().map(|unit| format!("\\u{unit:04x}")).collect());
    escapes.push(units.iter().map(|unit| format!("\\u{unit:04X}")).collect());
    escapes.sort();
    escapes.dedup();
    escapes
}

/// A character in percent-encoding, in capital and small digits.
fn percent_escapes(character: char) -> Vec<String> {
    let text = character.to_string();
    let mut escapes = vec![
        text.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        text.bytes().map(|byte| format!("%{byte:02x}")).collect(),
    ];
    escapes.dedup();
    escapes
}

fn escape_for_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
