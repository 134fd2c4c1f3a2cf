//! Numbers, times and counts as values of options: an error says what is valid.

use delta_base::quantity::{parse_count, parse_time_ms};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The parser of clap for a number in `range`.
pub fn parse_number_in<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let max = range.end().to_string();
            if max == u64::MAX.to_string() {
                format!("expected a whole number of at least {}", range.start())
            } else {
                format!("expected a whole number from {} to {max}", range.start())
            }
        })
    }
}

/// The parser of clap for a time with a unit, in milliseconds, in `range`.
pub fn parse_time_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        if text.parse::<u64>().is_ok_and(|number| number > 0) {
            return Err(format!(
                "a time needs a unit: write {text}s, or {text}ms for milliseconds"
            ));
        }
        let millis = parse_time_ms(text).ok_or_else(|| format!("expected {TIME_WITH_UNIT}"))?;
        if range.contains(&millis) {
            return Ok(millis);
        }
        let least = whole_time(*range.start());
        Err(format!("expected a time from {least} to {}", whole_time(*range.end())))
    }
}

/// A time in its largest unit, rounded down: `500ms`, `1h`.
fn whole_time(millis: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let unit = units.into_iter().find(|(_, length)| *length <= millis);
    unit.map_or_else(|| "0s".to_owned(), |(unit, length)| format!("{}{unit}", millis / length))
}

/// The parser of clap for milliseconds without a unit, or a time with one, in `range`: for options whose name has the unit.
pub fn parse_millis_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let millis = text.parse().ok().or_else(|| parse_time_ms(text));
        let millis = millis.filter(|millis| range.contains(millis));
        millis.ok_or_else(|| format!("expected milliseconds, or {TIME_WITH_UNIT}"))
    }
}

const TIME_WITH_UNIT: &str = "a time with a unit, such as 90s, 10m, 2h or 3d";

/// The parser of clap for a count of tokens in `range`: a whole number, or one such as 2k or 1.5M.
pub fn parse_tokens_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let count = text.parse().ok().or_else(|| parse_count(text));
        count.filter(|count| range.contains(count)).ok_or_else(|| {
            format!(
                "expected a whole number from {} to {}, or a count such as 2k or 1.5M",
                range.start(),
                range.end()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_outside_of_the_range_names_the_range() {
        let parse = parse_time_in(500..=3_600_000);
        assert_eq!((parse("500ms"), parse("1h")), (Ok(500), Ok(3_600_000)));
        for wrong in ["2h", "499ms", "0s"] {
            assert_eq!(parse(wrong), Err("expected a time from 500ms to 1h".to_owned()), "{wrong}");
        }
        assert!(parse("soon").unwrap_err().starts_with("expected a time with a unit"));
        assert_eq!((whole_time(0), whole_time(86_400_000)), ("0s".to_owned(), "1d".to_owned()));
    }

    #[test]
    fn a_number_outside_of_the_range_names_the_range() {
        let parse = parse_number_in(1..=100_u32);
        assert_eq!((parse("1"), parse("100")), (Ok(1), Ok(100)));
        for wrong in ["0", "101", "1k", "1.5", "-1", ""] {
            assert_eq!(parse(wrong), Err("expected a whole number from 1 to 100".to_owned()));
        }
    }
}
