//! When a failed try is worth another, and how long to wait before it. Knows the answer's headers and nothing else;
//! the waiting itself is done by the caller.

use super::Head;
use crate::time::Timestamp;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The wait before the second try; it doubles with every further one.
const BASE_MS: u64 = 500;
/// The longest wait that the endpoint did not ask for.
const CAP_MS: u64 = 30_000;
/// The longest wait that the endpoint may ask for.
const ASKED_CAP: Duration = Duration::from_secs(600);

/// Whether another try makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It would fail in the same way.
    Never,
    /// At once, and it does not count: this try was none.
    AtOnce,
    /// After the engine's own wait.
    Backoff,
    /// After the wait that the endpoint asked for.
    After(Duration),
}

impl Retry {
    /// How long to wait after this failure, if another try is left; counts it in `failures`.
    pub fn pause(self, failures: &mut u32, max_retries: u32) -> Option<Duration> {
        match self {
            Self::AtOnce => return Some(Duration::ZERO),
            Self::Never => return None,
            _ if *failures >= max_retries => return None,
            _ => *failures += 1,
        }
        match self {
            Self::After(wait) => Some(wait),
            _ => Some(backoff(*failures, random())),
        }
    }

    /// After the wait that an answer asks for, else after the engine's own.
    pub fn asked(head: &Head, now: Timestamp) -> Self {
        asked_wait(head, now).map_or(Self::Backoff, Self::After)
    }
}

/// The wait after the `failures`th failure: doubling, capped, and up to a quarter shorter or longer, so that many
/// agents that failed together do not come back together.
fn backoff(failures: u32, random: u64) -> Duration {
    let doubled = BASE_MS.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(CAP_MS);
    let jittered = doubled * (750 + random % 501) / 1000;
    Duration::from_millis(jittered.min(CAP_MS))
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// The wait that the answer asks for: milliseconds, seconds or the date of the next try.
fn asked_wait(head: &Head, now: Timestamp) -> Option<Duration> {
    let seconds = |text: &str, unit: f64| {
        let value = text.trim().parse::<f64>().ok().filter(|value| value.is_finite())?;
        Duration::try_from_secs_f64((value / unit).clamp(0.0, ASKED_CAP.as_secs_f64())).ok()
    };
    if let Some(wait) = head.text("retry-after-ms").and_then(|text| seconds(text, 1000.0)) {
        return Some(wait);
    }
    let asked = head.text("retry-after")?;
    seconds(asked, 1.0).or_else(|| {
        let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(asked.trim()).ok()?;
        let wait = u64::try_from(date.as_millisecond().saturating_sub(now.millis())).unwrap_or(0);
        Some(Duration::from_millis(wait).min(ASKED_CAP))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::http::{HeaderMap, HeaderName, StatusCode};

    fn head(status: u16, name: &str, value: &str) -> Head {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        Head { status: StatusCode::from_u16(status).unwrap(), headers }
    }

    #[test]
    fn c_7_3_the_wait_doubles_up_to_its_cap_with_a_quarter_of_jitter() {
        for (failures, base) in
            [(1, 500), (2, 1000), (3, 2000), (6, 16_000), (7, 30_000), (60, 30_000)]
        {
            let shortest = backoff(failures, 0).as_millis();
            assert_eq!(shortest, base * 3 / 4, "after {failures}");
            assert_eq!(backoff(failures, 250).as_millis(), base, "after {failures}");
            assert_eq!(
                backoff(failures, 500).as_millis(),
                (base * 5 / 4).min(30_000),
                "after {failures}"
            );
        }
        let waits: std::collections::HashSet<_> = (0..50).map(|_| backoff(5, random())).collect();
        assert!(waits.len() > 5, "no jitter: {waits:?}");
    }

    #[test]
    fn c_7_3_retry_after_is_read_in_all_its_forms() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let date = 784_111_777_000;
        let check = |name: &str, value: &str, expected: Option<u64>| {
            let wait = asked_wait(&head(429, name, value), Timestamp::from_millis(date - 12_000));
            assert_eq!(wait, expected.map(Duration::from_millis), "{name}: {value}");
        };
        check("retry-after", "7", Some(7_000));
        check("retry-after", "0", Some(0));
        check("retry-after", "1.5", Some(1_500));
        check("retry-after", "-3", Some(0));
        check("retry-after", "86400", Some(600_000));
        check("retry-after", "soon", None);
        check("retry-after", "NaN", None);
        check("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", Some(12_000));
        check("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT", Some(0));
        check("retry-after", "Mon, 07 Nov 1994 08:49:37 GMT", Some(600_000));
        check("retry-after-ms", "250", Some(250));
        check("x-other", "5", None);
    }

    #[test]
    fn c_7_3_only_so_many_tries_are_left() {
        let mut failures = 0;
        assert_eq!(Retry::AtOnce.pause(&mut failures, 0), Some(Duration::ZERO));
        assert_eq!(Retry::Backoff.pause(&mut failures, 0), None);
        assert!(Retry::Backoff.pause(&mut failures, 2).is_some());
        assert_eq!(
            Retry::After(Duration::from_millis(3)).pause(&mut failures, 2),
            Some(Duration::from_millis(3))
        );
        assert_eq!(Retry::Backoff.pause(&mut failures, 2), None);
        assert_eq!(Retry::Never.pause(&mut 0, 2), None);
    }
}
