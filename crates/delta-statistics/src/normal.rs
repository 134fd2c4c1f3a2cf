//! The normal distribution.

/// The value below which a share of the distribution is, to 9 digits. The share is at least 1/2 and at most 0.9999999.
///
/// Newton's method: the density falls from 0 on, so each step comes closer from the same side.
pub(crate) fn normal_quantile(share: f64) -> f64 {
    climb_from_zero(|value| {
        value + (share - 0.5) / normal_density(value) - area_over_density(value)
    })
}

/// Where the steps from 0 end that `closer` takes, each of which is up but for rounding.
pub(crate) fn climb_from_zero(closer: impl Fn(f64) -> f64) -> f64 {
    let mut value = 0.0;
    let mut next = closer(value);
    while next > value {
        value = next;
        next = closer(value);
    }
    value
}

pub(crate) fn normal_density(value: f64) -> f64 {
    (-value * value / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The chance of a value above this one, to 15 decimals.
pub(crate) fn normal_tail(value: f64) -> f64 {
    // Beyond, the tail is 0 or 1 to all decimals.
    let value = value.clamp(-9.0, 9.0);
    (0.5 - normal_density(value) * area_over_density(value)).clamp(0.0, 1.0)
}

/// The chance of a value between 0 and this one, over its density; below 0 for one below 0.
///
/// M. Abramowitz, I. A. Stegun, "Handbook of Mathematical Functions" (1964), 26.2.11, a series of terms of one sign.
fn area_over_density(value: f64) -> f64 {
    let mut term = value;
    let mut sum = value;
    let mut odd = 1.0;
    while term.abs() > sum.abs() * f64::EPSILON / 16.0 {
        odd += 2.0;
        term *= value * value / odd;
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the error function of mpmath 1.3, with 40 digits.
    #[test]
    fn quantiles_are_exact() {
        for (share, expected) in [
            (0.5, 0.0),
            (0.6, 0.253_347_103_135_799_8),
            (0.9, 1.281_551_565_544_6),
            (0.975, 1.959_963_984_540_054),
            (0.993_75, 2.497_705_474_412_373),
            (0.999, 3.090_232_306_167_814),
            (0.999_9, 3.719_016_485_455_681),
            (0.999_999_9, 5.199_337_582_192_817),
        ] {
            let found = normal_quantile(share);
            assert!((found - expected).abs() < 1e-9, "{share}: {found}");
        }
    }

    /// M. Abramowitz, I. A. Stegun, "Handbook of Mathematical Functions" (1964), tables 26.1 and 26.2.
    #[test]
    fn tails_are_those_of_the_published_tables() {
        for (value, tail) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457),
            (1.96, 0.024_997_895_148_220),
            (3.0, 0.001_349_898_031_630),
            (5.0, 0.000_000_286_651_572),
            (9.0, 0.0),
        ] {
            assert!((normal_tail(value) - tail).abs() < 1e-15, "{value}: {}", normal_tail(value));
            assert!((normal_tail(-value) - (1.0 - tail)).abs() < 1e-15, "-{value}");
        }
        assert_eq!((normal_tail(f64::INFINITY), normal_tail(f64::NEG_INFINITY)), (0.0, 1.0));
    }
}
