//! Estimates of how many tokens a text is, made without the endpoint's vocabulary.
//!
//! The estimate is four bytes per token, a rule of thumb for English text, corrected by what the endpoint reported for
//! an earlier request of the same run. It is computed in integers, so every machine gets the same number.

/// Bytes per token before the endpoint has reported anything.
const BYTES_PER_TOKEN: u64 = 4;
/// The largest factor by which a report corrects the estimate, up or down. A larger one has another cause than the text.
const MAX_CORRECTION: u64 = 5;

/// How many tokens an endpoint counts per estimated token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRatio {
    reported: u64,
    estimated: u64,
}

impl Default for TokenRatio {
    fn default() -> Self {
        Self { reported: 1, estimated: 1 }
    }
}

impl TokenRatio {
    /// Relates the tokens that the endpoint reported for a request to the uncorrected estimate of that request.
    pub fn new(reported: u64, estimated: u64) -> Self {
        let estimated = estimated.max(1);
        let least = estimated.div_ceil(MAX_CORRECTION);
        let most = estimated.saturating_mul(MAX_CORRECTION);
        Self { reported: reported.clamp(least, most), estimated }
    }

    /// Estimates the tokens of a text of `bytes` bytes with images of so many tokens before a correction.
    pub fn request_tokens(self, bytes: usize, image_tokens: u64) -> u64 {
        let images = usize::try_from(bytes_of_tokens(image_tokens)).unwrap_or(usize::MAX);
        self.tokens(bytes.saturating_add(images))
    }

    /// Estimates the tokens of a text of `bytes` bytes, rounded up.
    pub fn tokens(self, bytes: usize) -> u64 {
        let reported = bytes as u128 * u128::from(self.reported);
        let estimated = u128::from(BYTES_PER_TOKEN) * u128::from(self.estimated);
        u64::try_from(reported.div_ceil(estimated)).unwrap_or(u64::MAX)
    }
}

/// Estimates the tokens of `bytes` bytes without a correction, as the journal records it next to the reported usage.
pub fn estimate_tokens(bytes: usize) -> u64 {
    TokenRatio::default().tokens(bytes)
}

/// The bytes of text that count as much as these tokens before a correction.
pub fn bytes_of_tokens(tokens: u64) -> u64 {
    tokens.saturating_mul(BYTES_PER_TOKEN)
}

/// Estimates the tokens of a request, or of a part of one, without a correction: of its text and of its images.
pub fn estimate_request_tokens(text: &str, image_tokens: u64) -> u64 {
    estimate_tokens(text.len()).saturating_add(image_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_8_4_an_estimate_is_corrected_by_what_was_reported() {
        assert_eq!([0, 1, 4, 5].map(estimate_tokens), [0, 1, 1, 2]);
        let half = TokenRatio::new(50, 100);
        assert_eq!(half.tokens(400), 50);
        assert_eq!(half.tokens(401), 51, "rounded up");
        assert_eq!(TokenRatio::new(0, 100).tokens(400), 20, "no further than a fifth");
        assert_eq!(TokenRatio::new(9_000, 100).tokens(400), 500, "nor than five times");
        assert_eq!(TokenRatio::new(7, 0).tokens(4), 5);
        assert_eq!(TokenRatio::new(u64::MAX, u64::MAX).tokens(usize::MAX), (u64::MAX / 4) + 1);
    }
}
