//! Resamples of values, the same for the same seed in every version.

/// How many resamples an interval has.
const RESAMPLES: usize = 10_000;

/// The means of [`RESAMPLES`] draws, with replacement, of as many values as there are.
pub(crate) fn resampled_means(values: &[f64], seed: u64) -> Vec<f64> {
    let mut numbers = SplitMix64(seed);
    let count = values.len();
    (0..RESAMPLES)
        .map(|_| (0..count).map(|_| values[numbers.below(count)]).sum::<f64>() / count as f64)
        .collect()
}

/// A generator of numbers that never changes, unlike the generators of libraries: a collected table must not change with a
/// version.
/// G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators" (2014).
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    }

    /// The next number below a bound; its bias is below the bound's share of 2⁶⁴.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_paper() {
        let mut numbers = SplitMix64(1_234_567);
        let first = [numbers.next(), numbers.next(), numbers.next()];
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn each_value_is_drawn_as_often_as_the_others() {
        let means = resampled_means(&[0.0, 0.0, 0.0, 1.0], 7);
        let middle = means.iter().sum::<f64>() / means.len() as f64;
        assert!((middle - 0.25).abs() < 0.01, "{middle}");
    }
}
