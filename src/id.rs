//! Ids of runs and sessions: made, parsed, refused.

use crate::time::Timestamp;
use std::fmt;

/// The id of a run; also the name of its directory, so nothing that is not a plain name gets here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(String);

/// Why a text is not a run id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a run id: write 1 to 128 letters, digits, `.`, `_` or `-`, beginning with a letter or digit (and not `VERSION`)"
)]
pub struct BadRunId(String);

impl RunId {
    /// Takes `[A-Za-z0-9][A-Za-z0-9._-]{0,127}` except `VERSION`, the one other name in `.delta/`.
    pub fn parse(text: &str) -> Result<Self, BadRunId> {
        let mut bytes = text.bytes();
        let fine = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
            && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
            && text.len() <= 128
            && !text.eq_ignore_ascii_case("VERSION");
        if fine { Ok(Self(text.to_owned())) } else { Err(BadRunId(crate::text::printable(text))) }
    }

    /// `YYYYMMDD_HHMMSS_` and six hexadecimal digits of `random`.
    pub fn mint(now: Timestamp, random: [u8; 3]) -> Self {
        let stamp = now.compact();
        let [a, b, c] = random;
        Self(format!("{}_{}_{a:02x}{b:02x}{c:02x}", &stamp[..8], &stamp[9..15]))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a session; also the name of its directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(String);

/// Why a text is not the id of a session.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a session id: write what `delta-sessions start` gave as `session_id`, such as `sess_a1b2c3d4`"
)]
pub struct BadSessionId(String);

impl SessionId {
    /// Takes what is a run id too.
    pub fn parse(text: &str) -> Result<Self, BadSessionId> {
        RunId::parse(text).map(|id| Self(id.0)).map_err(|BadRunId(shown)| BadSessionId(shown))
    }

    /// `sess_` and eight hexadecimal digits of `random`.
    pub fn mint(random: [u8; 4]) -> Self {
        Self(format!("sess_{:08x}", u32::from_be_bytes(random)))
    }

    /// The id as text.
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
    fn c_5_3_minted_ids_hold_the_time() {
        let id = RunId::mint(Timestamp::from_millis(1_760_366_122_123), [0xa1, 0xb2, 0x03]);
        assert_eq!(id.as_str(), "20251013_143522_a1b203");
        assert!(RunId::parse(id.as_str()).is_ok());
    }

    #[test]
    fn c_14_1_session_ids_are_plain_names() {
        let id = SessionId::mint([0xa1, 0xb2, 0, 4]);
        assert_eq!(id.as_str(), "sess_a1b20004");
        assert_eq!(SessionId::parse(id.as_str()).unwrap(), id);
        assert!(SessionId::parse("../sess_a1b20004").is_err());
    }
}
