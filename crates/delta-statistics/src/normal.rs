//! The normal distribution.

/// The value below which a share of the distribution is, to 9 digits. The share is at least 1/2 and at most 0.9999999.
///
/// Newton's method from 0: the density falls from there on, so each step comes closer from the same side.
pub(crate) fn normal_quantile(share: f64) -> f64 {
    let closer = |value: f64| {
        let density = (-value * value / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        value + (share - 0.5) / density - area_over_density(value)
    };
    let mut value = 0.0;
    let mut next = closer(value);
    while next > value {
        value = next;
        next = closer(value);
    }
    value
}

/// The chance of a value between 0 and this one, over its density.
///
/// M. Abramowitz, I. A. Stegun, "Handbook of Mathematical Functions" (1964), 26.2.11, a series without negative terms.
fn area_over_density(value: f64) -> f64 {
    let mut term = value;
    let mut sum = value;
    let mut odd = 1.0;
    while term > sum * f64::EPSILON / 16.0 {
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
}
