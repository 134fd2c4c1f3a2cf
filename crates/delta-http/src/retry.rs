//! Whether another attempt of a request makes sense, and how long to wait before it. The caller does the waiting.

use super::ResponseHead;
use delta_base::time::Timestamp;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The delay after the first failure; each further failure doubles it.
const BASE_DELAY_MS: u64 = 500;
/// The longest delay that the server did not request.
const MAX_DELAY_MS: u64 = 30_000;
/// The longest delay that a server may request of a caller without a time limit of its own.
pub const MAX_SERVER_DELAY: Duration = Duration::from_secs(600);
/// A delay is cut here, so that it can be computed with: no run lasts so long.
const MAX_DELAY_SECONDS: f64 = 1e9;

/// Whether another attempt makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// It would fail in the same way.
    Never,
    /// Without a delay; this attempt does not count as a failure.
    Immediately,
    /// After the engine's own delay.
    Backoff,
    /// After the delay that the server requests, or the engine's own if that is longer.
    After(Duration),
}

impl RetryDecision {
    /// The delay before the next attempt, or `None` if there is none left, or if the server requests one that is too long;
    /// counts the failure in `failures`.
    pub fn next_delay(self, failures: &mut u32, max_retries: u32) -> Option<Duration> {
        match self {
            Self::Immediately => return Some(Duration::ZERO),
            Self::Never => return None,
            Self::After(delay) if delay > MAX_SERVER_DELAY => return None,
            _ if *failures >= max_retries => return None,
            _ => *failures += 1,
        }
        Some(self.requested_delay().max(backoff_delay(*failures, random_number())))
    }

    /// The delay before the next attempt of a request that the server throttles, whatever their number; counts the failure
    /// in `failures`. `None` if another attempt makes no sense. For a caller with a time limit, which ends every delay.
    pub fn next_throttled_delay(self, failures: &mut u32) -> Option<Duration> {
        *failures += 1;
        match self {
            Self::Never => None,
            Self::Immediately => Some(Duration::ZERO),
            Self::After(_) | Self::Backoff => {
                Some(self.requested_delay().max(throttled_delay(*failures, random_number())))
            }
        }
    }

    /// The delay that the server requests, if a caller without a time limit does not wait so long.
    pub fn long_delay(self) -> Option<Duration> {
        Some(self.requested_delay()).filter(|delay| *delay > MAX_SERVER_DELAY)
    }

    fn requested_delay(self) -> Duration {
        match self {
            Self::After(delay) => delay,
            Self::Never | Self::Immediately | Self::Backoff => Duration::ZERO,
        }
    }

    /// A retry after the delay that a server requests in the words of its body, such as `try again in 1m20.5s`.
    pub fn from_words(body: &str, now: Timestamp) -> Option<Self> {
        let lower = body.to_lowercase();
        let requested = DELAY_PHRASES.iter().find_map(|phrase| {
            let (_, rest) = lower.split_once(phrase)?;
            let rest = rest.trim_start_matches(|c: char| "\": ".contains(c));
            if phrase.ends_with('"') && rest.starts_with(|c: char| c.is_ascii_digit()) {
                let end = rest.find([',', '}', '"']).unwrap_or(rest.len());
                let unit = if phrase.ends_with("_ms\"") { "ms" } else { "" };
                return parse_delay(&format!("{}{unit}", rest[..end].trim()), now);
            }
            let date = rest.split_whitespace().next().unwrap_or_default();
            let date = date.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if let Ok(date) = date.parse::<jiff::Timestamp>() {
                return delay_until(date, now);
            }
            let words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
            let words = words.filter(|word| !FILLER_WORDS.contains(word));
            let words: Vec<_> = words.take(MAX_DELAY_WORDS).collect();
            // The longest beginning that is one: more words follow.
            (1..=words.len())
                .rev()
                .find_map(|count| parse_span(words[..count].join(" ").trim_end_matches('.')))
        });
        requested.or_else(|| delay_until_reset(body, now)).map(Self::After)
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

/// What comes before a delay or a date in the words of servers. The last ones are members of errors of Google, OpenAI and
/// others.
const DELAY_PHRASES: [&str; 20] = [
    "again in ",
    "again after ",
    "again at ",
    "retry in ",
    "retry after",
    "please wait ",
    "reset in ",
    "resets in ",
    "reset at ",
    "resets at ",
    "reset after ",
    "resets after ",
    "\"retrydelay\"",
    "\"resets_in_seconds\"",
    "\"resets_at\"",
    "\"retry_after\"",
    "\"retry_after_seconds\"",
    "\"retry_after_ms\"",
    "\"retryafter\"",
    "\"retryafterms\"",
];
/// Words inside of a delay that are not a part of it.
const FILLER_WORDS: [&str; 5] = ["", "about", "approximately", "another", "and"];
/// What comes before the date of a reset in the words of Zhipu, whose dates are of Beijing.
const RESET_PHRASES: [&str; 2] = ["limit will reset at ", "您的限额将在 "];
const BEIJING_OFFSET: jiff::tz::Offset = jiff::tz::offset(8);
const DATE_BYTES: usize = "2026-11-30 18:25:58".len();
/// As in `1 day 2 hours 3 minutes 4 seconds`.
const MAX_DELAY_WORDS: usize = 8;
/// The older forms of a date in a header, which every recipient has to read (RFC 9110 5.6.7).
const OLD_DATE_FORMS: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"];

/// The delay that the headers request, or else the one until a limit that is used up is renewed.
fn server_delay(head: &ResponseHead, now: Timestamp) -> Option<Duration> {
    let in_millis = ["retry-after-ms", "x-ms-retry-after-ms"]
        .into_iter()
        .find_map(|name| head.header_text(name)?.trim().parse().ok());
    in_millis
        .and_then(|millis: f64| from_seconds(millis / 1000.0))
        .or_else(|| parse_delay(head.header_text("retry-after")?, now))
        .or_else(|| parse_delay(head.header_text("x-ratelimit-reset-after")?, now))
        .or_else(|| {
            let resets = head.headers.iter().filter_map(|(name, value)| {
                let value = value.to_str().ok()?;
                if name == "ratelimit" {
                    return delay_of_policies(value, now);
                }
                let has_beside = |member: &str, expected: &str| {
                    let beside = name.as_str().replace("reset", member);
                    let is_limit = name.as_str().contains("ratelimit") && beside != name.as_str();
                    is_limit && head.header_text(&beside).is_some_and(|it| it.trim() == expected)
                };
                let is_used_up = has_beside("remaining", "0") || has_beside("status", "rejected");
                is_used_up.then(|| parse_delay(value, now))?
            });
            resets.max()
        })
}

/// The delay until the limits that are used up are renewed, in both forms of the header `RateLimit` of the IETF:
/// `"default";r=0;t=3` and `limit=10, remaining=0, reset=3`.
fn delay_of_policies(header: &str, now: Timestamp) -> Option<Duration> {
    let mut is_used_up = false;
    let mut delay = None;
    for (name, value) in header.split([';', ',']).filter_map(|pair| pair.trim().split_once('=')) {
        match name {
            "r" | "remaining" => is_used_up = value == "0",
            "t" | "reset" if is_used_up => delay = delay.max(parse_delay(value, now)),
            _ => {}
        }
    }
    delay
}

/// A delay in seconds, with units, or as the date of the next attempt; a date in the past gives none.
fn parse_delay(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let until = |millis: f64| from_seconds((millis - now.as_millis() as f64) / 1000.0);
    if let Ok(number) = text.parse::<f64>() {
        // So many seconds, or even milliseconds, since 1970: no server asks for a delay of years.
        return match number {
            1e11.. => until(number),
            5e8.. => until(number * 1000.0),
            _ => from_seconds(number),
        };
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
    let date = date.or_else(|| text.parse::<jiff::Timestamp>().ok());
    let date = date.or_else(|| {
        let forms = OLD_DATE_FORMS.iter();
        let date =
            forms.filter_map(|form| jiff::civil::DateTime::strptime(form, text).ok()).next()?;
        jiff::tz::Offset::UTC.to_timestamp(date).ok()
    });
    date.map_or_else(|| parse_span(text), |date| delay_until(date, now))
}

fn delay_until(date: jiff::Timestamp, now: Timestamp) -> Option<Duration> {
    from_seconds((date.as_millisecond() - now.as_millis()) as f64 / 1000.0)
}

/// The delay until the date that a body names.
fn delay_until_reset(body: &str, now: Timestamp) -> Option<Duration> {
    let rest = RESET_PHRASES.iter().find_map(|phrase| Some(body.split_once(phrase)?.1))?;
    let date: jiff::civil::DateTime = rest.get(..DATE_BYTES)?.parse().ok()?;
    delay_until(BEIJING_OFFSET.to_timestamp(date).ok()?, now)
}

/// A span with units, such as `1m20.5s`, `20ms`, `6 seconds` or `4 days 20 hours`.
fn parse_span(text: &str) -> Option<Duration> {
    let span = jiff::fmt::friendly::SpanParser::new().parse_span(text).ok()?;
    let duration = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    from_seconds(duration.as_secs_f64())
}

fn from_seconds(seconds: f64) -> Option<Duration> {
    let seconds = Some(seconds).filter(|seconds| !seconds.is_nan())?;
    Duration::try_from_secs_f64(seconds.clamp(0.0, MAX_DELAY_SECONDS)).ok()
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
        let requested = RetryDecision::After(Duration::from_secs(40));
        assert_eq!(requested.next_throttled_delay(&mut failures), Some(Duration::from_secs(40)));
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
        check("retry-after", "86400", Some(86_400_000));
        check("retry-after", "784111785", Some(20_000));
        check("retry-after", "1m20.5s", Some(80_500));
        check("retry-after", "1994-11-06T08:49:38Z", Some(13_000));
        check("retry-after", "soon", None);
        check("retry-after", "NaN", None);
        check("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", Some(12_000));
        check("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT", Some(0));
        check("retry-after", "Mon, 07 Nov 1994 08:49:37 GMT", Some(86_412_000));
        check("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT", Some(12_000));
        check("retry-after", "Sun Nov  6 08:49:37 1994", Some(12_000));
        check("retry-after", "Sun Nov 13 08:49:37 1994", Some(7 * 86_400_000 + 12_000));
        check("retry-after", "1d2h3m", Some(93_780_000));
        check("retry-after-ms", "250", Some(250));
        check("retry-after-ms", "-1", Some(0));
        check("x-other", "5", None);
        check("x-ratelimit-reset-requests", "5s", None);
        check("x-ms-retry-after-ms", "250", Some(250));
        check("x-ratelimit-reset-after", "3", Some(3_000));
        check("ratelimit", "\"default\";r=0;t=3", Some(3_000));
        check(
            "ratelimit",
            "\"minute\";r=0;t=3, \"day\";r=0;t=700, \"week\";r=1;t=9000",
            Some(700_000),
        );
        check("ratelimit", "limit=10, remaining=0, reset=3", Some(3_000));
        check("ratelimit", "limit=10, remaining=1, reset=3", None);
    }

    #[test]
    fn c_37_4_a_limit_that_is_used_up_says_when_it_is_renewed() {
        let delay = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
            });
            let status = http::StatusCode::TOO_MANY_REQUESTS;
            let head = ResponseHead { status, headers: headers.collect() };
            server_delay(&head, Timestamp::from_millis(1_700_000_000_000))
        };
        let used_up = [
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
            ("x-ratelimit-remaining-requests", "1"),
            ("x-ratelimit-reset-requests", "9h"),
        ];
        assert_eq!(delay(&used_up), Some(Duration::from_secs(360)));
        assert_eq!(
            delay(&[used_up[0], used_up[1], ("retry-after", "2")]),
            Some(Duration::from_secs(2))
        );
        let at = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000007000")];
        assert_eq!(delay(&at), Some(Duration::from_secs(7)));
        let at = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2023-11-14T22:13:29Z"),
        ];
        assert_eq!(delay(&at), Some(Duration::from_secs(9)));
        assert_eq!(delay(&used_up[2..]), None);
        let unified = [
            ("anthropic-ratelimit-unified-status", "rejected"),
            ("anthropic-ratelimit-unified-reset", "1700007200"),
        ];
        assert_eq!(delay(&unified), Some(Duration::from_secs(7200)));
        assert_eq!(delay(&[("anthropic-ratelimit-unified-status", "allowed"), unified[1]]), None);
    }

    #[test]
    fn c_37_4_the_words_of_a_body_may_name_a_delay() {
        let check = |body: &str, millis: Option<u64>| {
            let expected = millis.map(|millis| RetryDecision::After(Duration::from_millis(millis)));
            let now = Timestamp::from_millis(1_800_000_000_000);
            assert_eq!(RetryDecision::from_words(body, now), expected, "{body}");
        };
        check("Rate limit reached. Please try again in 20s.", Some(20_000));
        check("Please try again in 1m30.5s. Visit https://x", Some(90_500));
        check("please try again in 20ms", Some(20));
        check("Please retry after 6 seconds. To increase your limit", Some(6_000));
        check("Try again in 1 hour 2 minutes, or", Some(3_720_000));
        check("Please retry in 45.838s.", Some(45_838));
        check(r#"{"@type": "x.RetryInfo", "retryDelay": "0s"}"#, Some(0));
        check(r#"{"retryDelay":"7.5s"}"#, Some(7_500));
        check(r#"{"resets_in_seconds":7200}"#, Some(7_200_000));
        check(r#"{"retry_after": "2", "a": 1}"#, Some(2_000));
        // 2027-01-15T08:00:00Z
        check("Your limit will reset at 2027-01-15 16:00:20", Some(20_000));
        check("达到 5 小时的使用上限。您的限额将在 2027-01-15 16:01:00 重置。", Some(60_000));
        check("Your limit will reset at 1pm (Etc/GMT+5).", None);
        check("try again in 4 days 20 hours 9 minutes.", Some(418_140_000));
        check("Please try again in 1 hour and 5 minutes.", Some(3_900_000));
        check("Please try again in 1 day.", Some(86_400_000));
        check("Try again in 2 weeks", Some(14 * 86_400_000));
        check("Please try again in 1d2h3m.", Some(93_780_000));
        check("Your quota will reset after 18h31m10s.", Some(66_670_000));
        check("The limit resets in 3s", Some(3_000));
        check("Please try again in about 3 seconds", Some(3_000));
        check("Retry after: 3 seconds", Some(3_000));
        check("Try again at 2027-01-15T08:00:30Z.", Some(30_000));
        check(r#"{"resets_at": 1800007200}"#, Some(7_200_000));
        check(r#"{"resets_at": "2027-01-15T08:00:30Z"}"#, Some(30_000));
        check(r#"{"retry_after_seconds": 3}"#, Some(3_000));
        check(r#"{"retry_after_ms": 250, "retryAfter": 9}"#, Some(250));
        check(r#"{"retryAfter": 9}"#, Some(9_000));
        check("try again in 5 seconds and 3 others wait", Some(5_000));
        check("Please try again in a few minutes, 5 s", None);
        check("try again later", None);
        check("wait 5", None);
    }

    #[test]
    fn c_37_4_a_requested_delay_is_a_floor_and_a_long_one_ends_the_tries() {
        let after = |millis| RetryDecision::After(Duration::from_millis(millis));
        for failures in 0..12 {
            let delay = after(0).next_delay(&mut failures.clone(), 20).unwrap();
            assert!(delay >= backoff_delay(failures + 1, 0), "after {failures}");
        }
        assert_eq!(after(600_000).next_delay(&mut 0, 1), Some(MAX_SERVER_DELAY));
        assert_eq!(after(600_001).next_delay(&mut 0, 1), None);
        assert_eq!(after(600_001).long_delay(), Some(Duration::from_millis(600_001)));
        assert_eq!((after(600_000).long_delay(), RetryDecision::Never.long_delay()), (None, None));
        let throttled = after(86_400_000).next_throttled_delay(&mut 0);
        assert_eq!(throttled, Some(Duration::from_secs(86_400)));
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
            RetryDecision::After(Duration::from_secs(3)).next_delay(&mut failures, 2),
            Some(Duration::from_secs(3))
        );
        assert_eq!(RetryDecision::Backoff.next_delay(&mut failures, 2), None);
        assert_eq!(RetryDecision::Never.next_delay(&mut 0, 2), None);
    }
}
