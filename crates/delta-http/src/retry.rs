//! Whether another attempt of a request makes sense, and how long to wait before it. The caller does the waiting.

use super::ResponseHead;
use delta_base::time::Timestamp;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The delay after the first failure; each further failure doubles it.
const BASE_DELAY_MS: u64 = 500;
/// The longest delay that the server did not request.
const MAX_DELAY_MS: u64 = 30_000;
/// The longest delay that a server may request.
pub const MAX_SERVER_DELAY: Duration = Duration::from_secs(600);

/// Whether another attempt makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// It would fail in the same way.
    Never,
    /// Without a delay; this attempt does not count as a failure.
    Immediately,
    /// After the engine's own delay.
    Backoff,
    /// After the delay that the server requests.
    After(Duration),
}

impl RetryDecision {
    /// The delay before the next attempt, or `None` if there is none left; counts the failure in `failures`.
    pub fn next_delay(self, failures: &mut u32, max_retries: u32) -> Option<Duration> {
        match self {
            Self::Immediately => return Some(Duration::ZERO),
            Self::Never => return None,
            _ if *failures >= max_retries => return None,
            _ => *failures += 1,
        }
        match self {
            Self::After(delay) => Some(delay),
            _ => Some(backoff_delay(*failures, random_number())),
        }
    }

    /// The delay before the next attempt of a request that the server throttles, whatever their number; counts the failure
    /// in `failures`. `None` if another attempt makes no sense.
    pub fn next_throttled_delay(self, failures: &mut u32) -> Option<Duration> {
        *failures += 1;
        match self {
            Self::Never => None,
            Self::Immediately => Some(Duration::ZERO),
            Self::After(delay) => Some(delay),
            Self::Backoff => Some(throttled_delay(*failures, random_number())),
        }
    }

    /// A retry after the delay that the server requests in its body; `None` if it is not a number.
    pub fn after_seconds(seconds: f64) -> Option<Self> {
        if !seconds.is_finite() {
            return None;
        }
        let seconds = seconds.clamp(0.0, MAX_SERVER_DELAY.as_secs_f64());
        Duration::try_from_secs_f64(seconds).ok().map(Self::After)
    }

    /// The decision in `x-should-retry`, by which some servers overrule what the status means.
    pub fn from_should_retry(head: &ResponseHead, now: Timestamp) -> Option<Self> {
        match head.header_text("x-should-retry")?.trim() {
            "true" => Some(Self::from_headers(head, now)),
            "false" => Some(Self::Never),
            _ => None,
        }
    }

    /// A retry after the delay that the headers request, or else after the engine's own.
    pub fn from_headers(head: &ResponseHead, now: Timestamp) -> Self {
        server_delay(head, now).map_or(Self::Backoff, Self::After)
    }
}

/// The delay after failure number `failures`: doubled each time, capped, and up to a quarter shorter or longer, so that
/// many agents that failed together do not retry together.
fn backoff_delay(failures: u32, random: u64) -> Duration {
    let exponent = failures.saturating_sub(1).min(16);
    let doubled = BASE_DELAY_MS.saturating_mul(1 << exponent).min(MAX_DELAY_MS);
    let jittered = doubled * (750 + random % 501) / 1000;
    Duration::from_millis(jittered.min(MAX_DELAY_MS))
}

/// The delay after answer number `failures` that throttles: any time up to twice the one before, capped. Clients that
/// are refused together then spread over the whole time ("full jitter" in Brooker, Exponential Backoff And Jitter, 2015).
fn throttled_delay(failures: u32, random: u64) -> Duration {
    let exponent = failures.min(16);
    let longest = BASE_DELAY_MS.saturating_mul(1 << exponent).min(MAX_DELAY_MS);
    Duration::from_millis(random % (longest + 1))
}

fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

/// The delay that the headers request: in milliseconds, in seconds, or as the date of the next attempt.
fn server_delay(head: &ResponseHead, now: Timestamp) -> Option<Duration> {
    let parse_delay = |text: &str, units_per_second: f64| {
        let value = text.trim().parse::<f64>().ok().filter(|value| value.is_finite())?;
        let seconds = (value / units_per_second).clamp(0.0, MAX_SERVER_DELAY.as_secs_f64());
        Duration::try_from_secs_f64(seconds).ok()
    };
    let retry_after_ms = head.header_text("retry-after-ms");
    if let Some(delay) = retry_after_ms.and_then(|text| parse_delay(text, 1000.0)) {
        return Some(delay);
    }
    let retry_after = head.header_text("retry-after")?;
    parse_delay(retry_after, 1.0).or_else(|| {
        let parser = jiff::fmt::rfc2822::DateTimeParser::new();
        let date = parser.parse_timestamp(retry_after.trim()).ok()?;
        let millis = date.as_millisecond().saturating_sub(now.as_millis());
        let delay = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        Some(delay.min(MAX_SERVER_DELAY))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_7_3_the_delay_doubles_up_to_its_cap_with_a_quarter_of_jitter() {
        for (failures, base) in
            [(1, 500), (2, 1000), (3, 2000), (6, 16_000), (7, 30_000), (60, 30_000)]
        {
            let shortest = backoff_delay(failures, 0).as_millis();
            assert_eq!(shortest, base * 3 / 4, "after {failures}");
            assert_eq!(backoff_delay(failures, 250).as_millis(), base, "after {failures}");
            assert_eq!(
                backoff_delay(failures, 500).as_millis(),
                (base * 5 / 4).min(30_000),
                "after {failures}"
            );
        }
        let delays: std::collections::HashSet<_> =
            (0..50).map(|_| backoff_delay(5, random_number())).collect();
        assert!(delays.len() > 5, "no jitter: {delays:?}");
    }

    #[test]
    fn c_7_3_throttled_clients_spread_over_the_whole_delay() {
        for (failures, longest) in [(1, 1000), (2, 2000), (5, 16_000), (6, 30_000), (900, 30_000)] {
            let delay = |random| throttled_delay(failures, random).as_millis();
            assert_eq!(delay(0), 0, "after {failures}");
            assert_eq!(delay(longest), u128::from(longest), "after {failures}");
            assert_eq!(delay(longest + 1), 0, "after {failures}");
        }
        let mut failures = 0;
        for count in 1..=200 {
            assert!(RetryDecision::Backoff.next_throttled_delay(&mut failures).is_some());
            assert_eq!(failures, count);
        }
        let requested = RetryDecision::After(Duration::from_millis(7));
        assert_eq!(requested.next_throttled_delay(&mut failures), Some(Duration::from_millis(7)));
        assert_eq!(RetryDecision::Never.next_throttled_delay(&mut failures), None);
    }

    #[test]
    fn c_7_3_retry_after_is_parsed_in_all_its_forms() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let date = 784_111_777_000;
        let check = |name: &str, value: &str, expected: Option<u64>| {
            let delay = server_delay(
                &ResponseHead::with_header(429, name, value),
                Timestamp::from_millis(date - 12_000),
            );
            assert_eq!(delay, expected.map(Duration::from_millis), "{name}: {value}");
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
    fn c_23_1_a_server_may_overrule_what_its_status_means() {
        let now = Timestamp::from_millis(0);
        let decision = |name: &str, value: &str| {
            RetryDecision::from_should_retry(&ResponseHead::with_header(400, name, value), now)
        };
        assert_eq!(decision("x-should-retry", "true"), Some(RetryDecision::Backoff));
        assert_eq!(decision("x-should-retry", "false"), Some(RetryDecision::Never));
        assert_eq!(decision("x-should-retry", "maybe"), None);
        assert_eq!(decision("retry-after", "1"), None);
    }

    #[test]
    fn c_7_3_the_number_of_attempts_is_limited() {
        let mut failures = 0;
        assert_eq!(RetryDecision::Immediately.next_delay(&mut failures, 0), Some(Duration::ZERO));
        assert_eq!(RetryDecision::Backoff.next_delay(&mut failures, 0), None);
        assert!(RetryDecision::Backoff.next_delay(&mut failures, 2).is_some());
        assert_eq!(
            RetryDecision::After(Duration::from_millis(3)).next_delay(&mut failures, 2),
            Some(Duration::from_millis(3))
        );
        assert_eq!(RetryDecision::Backoff.next_delay(&mut failures, 2), None);
        assert_eq!(RetryDecision::Never.next_delay(&mut 0, 2), None);
    }
}
