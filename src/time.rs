//! The only wall clock, and how a moment is written.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A moment in UTC, kept to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(jiff::Timestamp);

/// Gives the present moment; a function pointer, so that a test can hand in a fixed one.
pub type Clock = fn() -> Timestamp;

/// The present moment.
#[expect(clippy::disallowed_methods, reason = "the one wall clock")]
pub fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

impl Timestamp {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub fn from_millis(millis: i64) -> Self {
        Self(jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
    }

    /// The moment that a text in RFC 3339 tells.
    pub fn parse(text: &str) -> Option<Self> {
        written(text.as_bytes()).or_else(|| text.parse().ok()).map(Self)
    }

    /// Milliseconds since the Unix epoch.
    pub fn millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// `YYYYMMDDTHHMMSSmmmZ`, the form in the names of io/ files.
    pub fn compact(self) -> String {
        self.to_string().chars().filter(|c| !matches!(c, '-' | ':' | '.')).collect()
    }

    /// The moment in the [`FORM`]; none for a year that has not four digits.
    fn text(self) -> Option<[u8; FORM.len()]> {
        let moment = jiff::tz::Offset::UTC.to_datetime(self.0);
        let mut text = *FORM;
        let mut put = |from: usize, to: usize, number: i16| {
            let mut rest = number;
            for byte in text[from..to].iter_mut().rev() {
                *byte += (rest % 10) as u8;
                rest /= 10;
            }
        };
        put(0, 4, Some(moment.year()).filter(|year| *year >= 0)?);
        put(5, 7, moment.month().into());
        put(8, 10, moment.day().into());
        put(11, 13, moment.hour().into());
        put(14, 16, moment.minute().into());
        put(17, 19, moment.second().into());
        put(20, 23, moment.millisecond());
        Some(text)
    }
}

/// The one form in which moments are written: where the digits stand, and what stands between them.
const FORM: &[u8; 24] = b"0000-00-00T00:00:00.000Z";

/// Reads the [`FORM`].
fn written(text: &[u8]) -> Option<jiff::Timestamp> {
    let as_digit = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    if text.len() != FORM.len() || text.iter().zip(FORM).any(|(byte, it)| as_digit(*byte) != *it) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].iter().fold(0, |number, byte| 10 * number + i16::from(byte - b'0'))
    };
    let small = |from: usize| number(from, from + 2) as i8;
    let nanoseconds = i32::from(number(20, 23)) * 1_000_000;
    let date = jiff::civil::Date::new(number(0, 4), small(5), small(8)).ok()?;
    let time = jiff::civil::Time::new(small(11), small(14), small(17), nanoseconds).ok()?;
    jiff::tz::Offset::UTC.to_timestamp(date.to_datetime(time)).ok()
}

/// RFC 3339 in UTC with milliseconds: `2026-11-21T12:30:00.123Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?),
            None => write!(f, "{:.3}", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.text() {
            Some(text) => serializer.serialize_str(&String::from_utf8_lossy(&text)),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A span of time as a person reads it: `850ms`, `2.4s`, `2m 30s`, `1h 02m`.
pub fn human_duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..=59 => format!("{}.{}s", seconds, millis % 1000 / 100),
        60..=3599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_are_written_in_utc_with_milliseconds() {
        let moment = Timestamp::from_millis(1_760_366_122_123);
        assert_eq!(moment.to_string(), "2025-10-13T14:35:22.123Z");
        assert_eq!(moment.compact(), "20251013T143522123Z");
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        let text = serde_json::to_string(&moment).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), moment);
        let early = Timestamp::parse("-000004-02-29T12:00:00Z").unwrap();
        assert_eq!(early.to_string(), "-000004-02-29T12:00:00.000Z");
    }

    proptest! {
        #[test]
        fn a_moment_is_written_as_the_library_writes_it(millis in 0i64..=253_402_207_200_999) {
            let moment = Timestamp::from_millis(millis);
            prop_assert_eq!(moment.to_string(), format!("{:.3}", moment.0));
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        }
    }

    #[test]
    fn moments_are_read_in_every_form() {
        for (text, millis) in [
            ("2025-10-13T14:35:22.123Z", Some(1_760_366_122_123)),
            ("2025-10-13T16:35:22.123+02:00", Some(1_760_366_122_123)),
            ("0001-02-29T00:00:00.000Z", None),
            ("2024-02-29T23:59:60.000Z", Some(1_709_251_199_000)),
            ("2024-02-29T24:00:00.000Z", None),
            ("2024-02-29 23:59:59.000", None),
        ] {
            assert_eq!(Timestamp::parse(text).map(Timestamp::millis), millis, "{text}");
        }
    }

    #[test]
    fn durations_are_read_by_people() {
        let shown: Vec<_> = [7, 2_450, 150_000, 3_725_000].map(human_duration).into();
        assert_eq!(shown, ["7ms", "2.4s", "2m 30s", "1h 02m"]);
    }
}
