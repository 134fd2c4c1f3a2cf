//! Exact decimal numbers: `1` and `1.0` are equal, and `0.3` is a multiple of `0.1`.

use serde_json::Number;
use std::cmp::Ordering;
use std::fmt;

/// A decimal number: `digits` × 10^`exponent`. Each number has one representation, so equal numbers
/// are equal values.
///
/// A number with a fraction has the digits of the shortest JSON text that reads as the same `f64`,
/// not the digits of that binary fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    /// Without trailing zeros.
    digits: u64,
    exponent: i32,
}

impl Decimal {
    /// The value of a JSON number.
    pub(super) fn from_number(number: &Number) -> Self {
        if let Some(integer) = number.as_u64() {
            return Self::new(false, integer, 0);
        }
        if let Some(integer) = number.as_i64() {
            return Self::new(integer < 0, integer.unsigned_abs(), 0);
        }
        let shortest = format!("{:e}", number.as_f64().unwrap_or_default());
        let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
        let unsigned = mantissa.trim_start_matches('-');
        let (integer, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        // There are at most 17 digits, and the exponent has at most three.
        let digits = format!("{integer}{fraction}").parse().unwrap_or(0);
        let exponent = exponent.parse::<i32>().unwrap_or(0);
        let places = i32::try_from(fraction.len()).unwrap_or(0);
        Self::new(mantissa.starts_with('-'), digits, exponent - places)
    }

    fn new(is_negative: bool, mut digits: u64, mut exponent: i32) -> Self {
        if digits == 0 {
            return Self { is_negative: false, digits: 0, exponent: 0 };
        }
        while digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        Self { is_negative, digits, exponent }
    }

    /// Whether the number has no fraction.
    pub(super) fn is_integer(self) -> bool {
        self.exponent >= 0
    }

    /// Whether the number is greater than zero.
    pub(super) fn is_positive(self) -> bool {
        self.digits > 0 && !self.is_negative
    }

    /// The number as a count, at most `usize::MAX`; `None` if it is negative or has a fraction.
    pub(super) fn to_count(self) -> Option<usize> {
        if self.is_negative || !self.is_integer() {
            return None;
        }
        let power = 10u64.checked_pow(self.exponent.unsigned_abs());
        let count = power.and_then(|power| self.digits.checked_mul(power));
        Some(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX))
    }

    /// Whether the number is an integer multiple of `unit`, which must be positive.
    pub(super) fn is_multiple_of(self, unit: Self) -> bool {
        let digits = u128::from(self.digits);
        let unit_digits = u128::from(unit.digits);
        let shift = (self.exponent - unit.exponent).unsigned_abs();
        if self.exponent >= unit.exponent {
            // A remainder is below 2^64, so ten times a remainder cannot overflow.
            let remainder =
                (0..shift).fold(digits % unit_digits, |rest, _| rest * 10 % unit_digits);
            return remainder == 0;
        }
        // A scaled unit that overflows is larger than `digits`.
        let scaled = 10u128.checked_pow(shift).and_then(|power| unit_digits.checked_mul(power));
        digits == 0 || scaled.is_some_and(|scaled| digits.is_multiple_of(scaled))
    }

    fn cmp_magnitude(self, other: Self) -> Ordering {
        let max_log10 = self.digits_log10().max(other.digits_log10());
        (self.digits != 0)
            .cmp(&(other.digits != 0))
            .then_with(|| self.leading_exponent().cmp(&other.leading_exponent()))
            .then_with(|| self.align_digits(max_log10).cmp(&other.align_digits(max_log10)))
    }

    /// The number of digits after the first one.
    fn digits_log10(self) -> i32 {
        self.digits.checked_ilog10().unwrap_or(0).cast_signed()
    }

    /// The exponent of the first digit.
    fn leading_exponent(self) -> i32 {
        self.digits_log10() + self.exponent
    }

    /// The digits with as many zeros appended as give them the given logarithm.
    fn align_digits(self, log10: i32) -> u128 {
        u128::from(self.digits) * 10u128.pow((log10 - self.digits_log10()).unsigned_abs())
    }
}

/// Equal numbers have equal texts.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_negative { "-" } else { "" };
        write!(f, "{sign}{}e{}", self.digits, self.exponent)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.cmp_magnitude(*other),
            (true, true) => other.cmp_magnitude(*self),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::from_number(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn numbers_are_compared_exactly() {
        let ascending = [
            "-1e300",
            "-9007199254740993",
            "-9007199254740992",
            "-1.5",
            "-1",
            "-1e-300",
            "0",
            "5e-324",
            "1e-300",
            "0.1",
            "0.2",
            "1",
            "1.0000000000000002",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551614",
            "18446744073709551615",
            "1e20",
            "1e300",
        ];
        for (index, left) in ascending.iter().enumerate() {
            for (other, right) in ascending.iter().enumerate() {
                assert_eq!(decimal(left).cmp(&decimal(right)), index.cmp(&other), "{left} {right}");
            }
        }
        for (left, right) in [("1", "1.0"), ("0", "-0.0"), ("100", "1e2"), ("1e20", "100e18")] {
            assert_eq!(decimal(left), decimal(right));
        }
    }

    #[test]
    fn integers_and_multiples_are_exact() {
        for (text, is_integer) in
            [("1.0", true), ("1.5", false), ("1e300", true), ("1e-300", false), ("-0.0", true)]
        {
            assert_eq!(decimal(text).is_integer(), is_integer, "{text}");
        }
        for (text, unit, expected) in [
            ("0.3", "0.1", true),
            ("4.35", "0.01", true),
            ("4.355", "0.01", false),
            ("0.0075", "0.0001", true),
            ("1e308", "0.5", true),
            ("1e308", "7", false),
            ("1e308", "0.123456789", false),
            ("0", "1e300", true),
            ("1", "1e300", false),
            ("18446744073709551615", "18446744073709551615", true),
            ("18446744073709551615", "5e-324", true),
            ("18446744073709551614", "18446744073709551615", false),
            ("-9", "3", true),
        ] {
            assert_eq!(decimal(text).is_multiple_of(decimal(unit)), expected, "{text} {unit}");
        }
    }
}
