//! How many tokens a request is, as far as that can be told without the endpoint's vocabulary.
//!
//! The estimate is four bytes to a token, a rule of thumb for English text, corrected by what the endpoint has reported
//! for an earlier request of the same run. In whole numbers, so that every machine comes to the same figure.

/// Bytes to a token before anything was reported.
const BYTES: u64 = 4;
/// How far a correction goes, up and down: a report beyond that is about something else than the text.
const FURTHEST: u64 = 5;

/// What an endpoint counts for what was estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    reported: u64,
    estimated: u64,
}

impl Default for Ratio {
    fn default() -> Self {
        Self { reported: 1, estimated: 1 }
    }
}

impl Ratio {
    /// The ratio of a request that was estimated without any, and of what the endpoint reported for it.
    pub fn of(reported: u64, estimated: u64) -> Self {
        let estimated = estimated.max(1);
        let least = estimated.div_ceil(FURTHEST);
        let most = estimated.saturating_mul(FURTHEST);
        Self { reported: reported.clamp(least, most), estimated }
    }

    /// The tokens of a text of so many bytes, rounded up.
    pub fn tokens(self, bytes: usize) -> u64 {
        let reported = bytes as u128 * u128::from(self.reported);
        let estimated = u128::from(BYTES) * u128::from(self.estimated);
        u64::try_from(reported.div_ceil(estimated)).unwrap_or(u64::MAX)
    }
}

/// The estimate without any correction, as the journal keeps it beside what was reported.
pub fn estimate(bytes: usize) -> u64 {
    Ratio::default().tokens(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_8_4_an_estimate_is_corrected_by_what_was_reported() {
        assert_eq!([0, 1, 4, 5].map(estimate), [0, 1, 1, 2]);
        let half = Ratio::of(50, 100);
        assert_eq!(half.tokens(400), 50);
        assert_eq!(half.tokens(401), 51, "rounded up");
        assert_eq!(Ratio::of(0, 100).tokens(400), 20, "no further than a fifth");
        assert_eq!(Ratio::of(9_000, 100).tokens(400), 500, "nor than five times");
        assert_eq!(Ratio::of(7, 0).tokens(4), 5);
        assert_eq!(Ratio::of(u64::MAX, u64::MAX).tokens(usize::MAX), (u64::MAX / 4) + 1);
    }
}
