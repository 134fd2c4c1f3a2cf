//! The ids of runs, snapshots and sessions.

use crate::hex::encode_hex;
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use std::fmt;

/// The id of a run. It is also the name of its directory, so only plain names are valid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunId(String);

/// A text is not a valid run id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a run id: expected 1 to 128 letters, digits, `.`, `_` or `-`, starting with a letter or digit (and not `VERSION`)"
)]
pub struct RunIdError(String);

impl RunId {
    /// Parses `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`, except `VERSION`, which is a file in `.delta/`.
    pub fn parse(text: &str) -> Result<Self, RunIdError> {
        let mut bytes = text.bytes();
        let is_valid = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
            && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
            && text.len() <= 128
            && !text.eq_ignore_ascii_case("VERSION");
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(RunIdError(crate::terminal_text::strip_terminal_controls(text)))
        }
    }

    /// A new id: `YYYYMMDD_HHMMSS_` and six hexadecimal digits from `random`.
    pub fn new(now: Timestamp, random: [u8; 3]) -> Self {
        let stamp = now.to_compact();
        Self(format!("{}_{}_{}", &stamp[..8], &stamp[9..15], encode_hex(&random)))
    }

    /// The id as a string slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The UUID (RFC 9562, version 8) of a text: the same for the same text.
pub fn text_uuid(text: &str) -> String {
    let mut bytes = Sha256::digest(text);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = encode_hex(&bytes[..16]);
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    groups.map(|group| &digits[group]).join("-")
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The id of a snapshot, and of each object in it: its SHA-256, displayed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId([u8; 32]);

impl SnapshotId {
    /// The id of an entry without content.
    pub const NONE: Self = Self([0; 32]);

    /// The id of an object with the content `bytes`.
    pub fn from_content(bytes: &[u8]) -> Self {
        Self::from_digest(Sha256::digest(bytes).into())
    }

    /// The id of an object with the SHA-256 `digest`.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        crate::hex::decode_hex(text)?.try_into().ok().map(Self)
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::hex::encode_hex(&self.0))
    }
}

impl fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SnapshotId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SnapshotId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let text = crate::terminal_text::strip_terminal_controls(&text);
            de::Error::custom(format!(
                "`{text}` is not a snapshot id: expected 64 hexadecimal digits"
            ))
        })
    }
}

/// The id of a session. It is also the name of its directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(String);

/// A text is not a valid session id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a session id: expected the `session_id` from `delta-sessions start`, such as `sess_a1b2c3d4`"
)]
pub struct SessionIdError(String);

impl SessionId {
    /// Parses the same names as [`RunId::parse`].
    pub fn parse(text: &str) -> Result<Self, SessionIdError> {
        RunId::parse(text).map(|id| Self(id.0)).map_err(|RunIdError(text)| SessionIdError(text))
    }

    /// A new id: `sess_` and eight hexadecimal digits from `random`.
    pub fn new(random: [u8; 4]) -> Self {
        Self(format!("sess_{}", encode_hex(&random)))
    }

    /// The id as a string slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_5_3_ids_are_plain_names() {
        for good in ["a", "20251013_143522_a1b2c3", "X.y-z_0", &"a".repeat(128)] {
            assert_eq!(RunId::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "-a",
            "_a",
            "a b",
            "a\0",
            "ä",
            "VERSION",
            &"a".repeat(129),
        ] {
            assert!(RunId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn c_5_3_new_ids_contain_the_time() {
        let id = RunId::new(Timestamp::from_millis(1_760_366_122_123), [0xa1, 0xb2, 0x03]);
        assert_eq!(id.as_str(), "20251013_143522_a1b203");
        assert!(RunId::parse(id.as_str()).is_ok());
    }

    #[test]
    fn c_6_1_ids_are_json_strings_and_others_are_refused() {
        let run = RunId::parse("20251013_143522_a1b203").unwrap();
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(text, "\"20251013_143522_a1b203\"");
        assert_eq!(serde_json::from_str::<RunId>(&text).unwrap(), run);
        let digits = "0123456789abcdef".repeat(4);
        let snapshot = SnapshotId::parse(&digits).unwrap();
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(text, format!("\"{digits}\""));
        assert_eq!(serde_json::from_str::<SnapshotId>(&text).unwrap(), snapshot);
        for bad in ["\"\"", "\"../x\"", "5", "null", "[]"] {
            assert!(serde_json::from_str::<RunId>(bad).is_err(), "{bad}");
            assert!(serde_json::from_str::<SnapshotId>(bad).is_err(), "{bad}");
        }
        let error = serde_json::from_str::<SnapshotId>("\"t\\u001b\"").unwrap_err().to_string();
        assert!(error.starts_with("`t` is not a snapshot id"), "{error}");
    }

    #[test]
    fn c_14_1_session_ids_are_plain_names() {
        let id = SessionId::new([0xa1, 0xb2, 0, 4]);
        assert_eq!(id.as_str(), "sess_a1b20004");
        assert_eq!(SessionId::parse(id.as_str()).unwrap(), id);
        assert!(SessionId::parse("../sess_a1b20004").is_err());
    }
}
