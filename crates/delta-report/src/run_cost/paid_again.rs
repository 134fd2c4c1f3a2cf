//! Why a request paid again for input that a cache could have had. Pure.
//!
//! A request could read what the endpoint kept of the request before it, and the first request of a run what other runs had
//! written. Estimates decide where no report does, so a request that has read three quarters of that counts as a hit.

use delta_base::time::Timestamp;
use delta_words::{CacheLifetime, CacheUse, TokenPrices, Usage};
use std::collections::HashMap;
use std::time::Duration;

/// Endpoints keep no shorter prefixes, if nothing is known of the model.
pub(super) const MIN_PREFIX_TOKENS: u64 = 1024;
/// What a write costs for an entry of an hour, by the price of one of five minutes.
const LONG_WRITE_FACTOR: f64 = 2.0 / 1.25;

/// A request that was answered.
#[derive(Debug, Clone)]
pub struct PricedRequest {
    pub iteration: u32,
    pub asked_at: Timestamp,
    pub answered_at: Timestamp,
    pub usage: Usage,
    pub prices: Option<TokenPrices>,
    /// The least tokens that the endpoint keeps.
    pub min_prefix: u64,
    /// Whether an answer of the run reports that a cache was used.
    pub reports_cache: bool,
    /// How long the endpoint keeps an entry after its last use; the shortest time if it does not say.
    pub lifetime: CacheLifetime,
    /// How the request uses the cache; `Unused` also if it marks nothing where only marks count.
    pub cache_use: CacheUse,
    /// How it differs from the request before it; `None` if there is none.
    pub change: Option<RequestChange>,
}

/// How a request differs from the one before it, in what a cache could have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestChange {
    /// It only appends.
    None,
    /// Blocks after the conversation differ, as they may.
    AfterJournal { common_tokens: u64 },
    /// Another model is asked.
    Model,
    /// The tools differ.
    Tools,
    /// A block before the conversation differs, with so many tokens now.
    Block { source: String, tokens: u64 },
    /// The conversation begins with other messages: some were left out or summarised.
    Conversation,
    /// A hook replaced the messages, or the record does not name their blocks.
    Replaced,
}

/// Why input was paid for again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PaidAgainCause {
    /// The first request of a run, whose constant prefix an earlier run had.
    FirstRequest(UnreadPrefix),
    Block(String),
    /// Nothing changed, and the time since the last use is longer than the lifetime of the entry.
    Expired,
    Model,
    Tools,
    Conversation,
    Replaced,
    /// Nothing changed, and the request before marked nothing for the cache.
    Unmarked,
    /// Nothing changed, and the endpoint has read less than it had.
    Unread,
}

/// Why a first request did not read the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnreadPrefix {
    /// The request does not mark it, and the endpoint keeps only what is marked.
    NoMark,
    /// The run that had it before was not answered yet.
    NotAnswered,
    /// The endpoint did not read it.
    NotRead,
}

/// Input that a request paid for again.
#[derive(Debug, Clone, PartialEq)]
pub struct PaidAgain {
    pub cause: PaidAgainCause,
    /// The iteration of the request.
    pub iteration: u32,
    /// The iteration of the request before it.
    pub before: Option<u32>,
    pub tokens: u64,
    /// What this cost more than reading it, if the prices are known.
    pub usd: Option<f64>,
    /// Whether an entry of an hour would have been read.
    pub fits_hour: bool,
}

impl PricedRequest {
    /// Whether reading input would cost less than sending it again, as far as that is known.
    fn has_cache(&self) -> bool {
        self.prices.map_or(self.reports_cache, |prices| prices.cached_input < prices.input)
    }

    /// What the endpoint has of this request in its cache when it has answered.
    fn kept_tokens(&self) -> u64 {
        match self.usage.cache_write_tokens {
            None if self.cache_use == CacheUse::Automatic => self.usage.input_tokens,
            written => self.usage.cached_input_tokens.saturating_add(written.unwrap_or(0)),
        }
    }

    /// What the input that could have been read cost more, if it is not a hit.
    fn pay_again(&self, cause: PaidAgainCause, readable: u64) -> Option<PaidAgain> {
        let read = self.usage.cached_input_tokens;
        let is_hit = read.saturating_mul(4) >= readable.saturating_mul(3);
        // A block that changes is known, however little depends on it.
        let is_certain = matches!(cause, PaidAgainCause::Block(_));
        let unread = readable.min(self.usage.input_tokens).saturating_sub(read);
        let counts = readable >= self.min_prefix && unread > 0 && (is_certain || !is_hit);
        (self.has_cache() && counts).then(|| PaidAgain {
            cause,
            iteration: self.iteration,
            before: None,
            tokens: unread,
            usd: self.prices.map(|prices| prices.paid_again(&self.usage, unread)),
            fits_hour: false,
        })
    }

    /// What the writes of this request would cost more with entries of an hour, without what such an entry would have saved;
    /// `None` if the price is unknown.
    pub fn longer_entry_usd(&self, paid_again: Option<&PaidAgain>) -> Option<f64> {
        let mended = paid_again.filter(|paid| paid.fits_hour).map_or(0, |paid| paid.tokens);
        let written = self.usage.cache_write_tokens.unwrap_or(0).saturating_sub(mended);
        if self.cache_use != CacheUse::Marked
            || self.lifetime == CacheLifetime::Long
            || written == 0
        {
            return Some(0.0);
        }
        Some(written as f64 * self.prices?.cache_write * (LONG_WRITE_FACTOR - 1.0) / 1e6)
    }
}

impl PaidAgain {
    /// What `later` paid for again of `earlier`, the request of the run before it.
    pub fn find(earlier: &PricedRequest, later: &PricedRequest) -> Option<Self> {
        let sent = earlier.usage.input_tokens.min(later.usage.input_tokens);
        let idle = time_between(earlier.asked_at, later.asked_at);
        let is_expired = idle >= earlier.lifetime.duration();
        let (cause, readable) = match later.change.clone()? {
            RequestChange::Model => (PaidAgainCause::Model, sent),
            RequestChange::Tools => (PaidAgainCause::Tools, sent),
            RequestChange::Conversation => (PaidAgainCause::Conversation, sent),
            RequestChange::Replaced => (PaidAgainCause::Replaced, sent),
            RequestChange::Block { source, tokens } => {
                (PaidAgainCause::Block(source), sent.saturating_sub(tokens))
            }
            _ if earlier.cache_use == CacheUse::Unused => (PaidAgainCause::Unmarked, sent),
            unchanged => {
                let readable = match unchanged {
                    RequestChange::AfterJournal { common_tokens } => {
                        earlier.kept_tokens().min(common_tokens)
                    }
                    _ => earlier.kept_tokens(),
                };
                let cause =
                    if is_expired { PaidAgainCause::Expired } else { PaidAgainCause::Unread };
                (cause, readable)
            }
        };
        let fits_hour = cause == PaidAgainCause::Expired
            && earlier.cache_use == CacheUse::Marked
            && earlier.lifetime == CacheLifetime::Short
            && idle < CacheLifetime::Long.duration();
        let paid = later.pay_again(cause, readable)?;
        Some(Self { before: Some(earlier.iteration), fits_hour, ..paid })
    }
}

fn time_between(earlier: Timestamp, later: Timestamp) -> Duration {
    let millis = later.as_millis().saturating_sub(earlier.as_millis());
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// A part with which the first requests of several runs begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPrefix {
    /// The same for requests that begin with it at one endpoint.
    pub key: String,
    pub tokens: u64,
}

/// The first request of a run.
#[derive(Debug, Clone)]
pub struct OpeningRequest {
    pub answered: PricedRequest,
    /// What other runs may begin with, the shortest first.
    pub prefixes: Vec<SharedPrefix>,
    /// Whether the endpoint keeps such a prefix: it does by itself, or the request marks it.
    pub has_mark: bool,
    /// When the last request of the run was sent, which also begins with it.
    pub last_use: Timestamp,
}

/// The time in which runs have used a prefix.
#[derive(Debug, Clone, Copy)]
struct PrefixUse {
    answered_at: Timestamp,
    last_use: Timestamp,
}

/// What first requests paid for again of earlier runs, in the order of the requests.
pub fn judge_first_requests<'a>(requests: &[&'a OpeningRequest]) -> Vec<Option<PaidAgain>> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|index| requests[*index].answered.asked_at);
    // By prefix, and whether only what an endpoint keeps counts: a request without a mark could have had one.
    let mut uses: HashMap<(&'a str, bool), PrefixUse> = HashMap::new();
    let mut judged = vec![None; requests.len()];
    for index in order {
        let request = requests[index];
        let asked_at = request.answered.asked_at;
        let lifetime = request.answered.lifetime.duration();
        // An entry that has expired is gone, for the runs after this one too.
        let is_alive = |known: &PrefixUse| {
            asked_at <= known.last_use || time_between(known.last_use, asked_at) < lifetime
        };
        let known = request.prefixes.iter().rev().find_map(|prefix| {
            let known = uses
                .get(&(prefix.key.as_str(), request.has_mark))
                .filter(|known| is_alive(known))?;
            Some((prefix.tokens, *known))
        });
        judged[index] = known.and_then(|(tokens, known)| {
            let reason = match known {
                _ if !request.has_mark => UnreadPrefix::NoMark,
                known if known.answered_at > asked_at => UnreadPrefix::NotAnswered,
                _ => UnreadPrefix::NotRead,
            };
            request.answered.pay_again(PaidAgainCause::FirstRequest(reason), tokens)
        });
        let new =
            PrefixUse { answered_at: request.answered.answered_at, last_use: request.last_use };
        let keys = request
            .prefixes
            .iter()
            .flat_map(|prefix| [(prefix.key.as_str(), false), (prefix.key.as_str(), true)]);
        for key in keys.filter(|(_, is_kept)| request.has_mark || !is_kept) {
            let known = uses.entry(key).or_insert(new);
            let joined = PrefixUse {
                answered_at: known.answered_at.min(new.answered_at),
                last_use: known.last_use.max(new.last_use),
            };
            *known = if is_alive(known) { joined } else { new };
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PRICES: TokenPrices = TokenPrices {
        input: 4.0,
        cached_input: 0.4,
        cache_write: 5.0,
        output: 20.0,
        reasoning: 20.0,
    };

    /// A request after so many seconds, answered in two, with so many tokens, read and written.
    fn request(second: i64, input: u64, read: u64, written: u64) -> PricedRequest {
        PricedRequest {
            iteration: u32::try_from(second).unwrap_or(0),
            asked_at: Timestamp::from_millis(second * 1000),
            answered_at: Timestamp::from_millis(second * 1000 + 2000),
            usage: Usage {
                input_tokens: input,
                cached_input_tokens: read,
                cache_write_tokens: Some(written),
                ..Usage::default()
            },
            prices: Some(PRICES),
            min_prefix: MIN_PREFIX_TOKENS,
            reports_cache: true,
            lifetime: CacheLifetime::Short,
            cache_use: CacheUse::Marked,
            change: Some(RequestChange::None),
        }
    }

    fn paid(earlier: &PricedRequest, later: &PricedRequest) -> Option<(PaidAgainCause, u64)> {
        PaidAgain::find(earlier, later).map(|paid| (paid.cause, paid.tokens))
    }

    #[test]
    fn c_35_20_the_time_decides_whether_an_entry_has_expired() {
        let first = request(0, 5000, 0, 5000);
        assert_eq!(paid(&first, &request(299, 6000, 5000, 1000)), None);
        assert_eq!(paid(&first, &request(299, 6000, 4000, 2000)), None, "three quarters are a hit");
        let unread = request(299, 6000, 0, 6000);
        assert_eq!(paid(&first, &unread), Some((PaidAgainCause::Unread, 5000)));
        let late = request(300, 6000, 1000, 5000);
        assert_eq!(paid(&first, &late), Some((PaidAgainCause::Expired, 4000)));
        let lost = PaidAgain::find(&first, &late).unwrap();
        assert_eq!((lost.usd, lost.fits_hour), (Some(4000.0 * 4.6 / 1e6), true));
        // Of 5000 tokens, 4000 would not have been written.
        assert_eq!(
            late.longer_entry_usd(Some(&lost)),
            Some(1000.0 * 5.0 * 0.6000000000000001 / 1e6)
        );
        assert!(!PaidAgain::find(&first, &request(4000, 6000, 0, 6000)).unwrap().fits_hour);
    }

    #[test]
    fn c_35_20_another_model_other_tools_and_a_block_are_causes_of_their_own() {
        let first = request(0, 5000, 0, 5000);
        for (change, cause, tokens) in [
            (RequestChange::Model, PaidAgainCause::Model, 5000),
            (RequestChange::Tools, PaidAgainCause::Tools, 5000),
            (RequestChange::Conversation, PaidAgainCause::Conversation, 5000),
            (
                RequestChange::Block { source: "notes".to_owned(), tokens: 300 },
                PaidAgainCause::Block("notes".to_owned()),
                4700,
            ),
        ] {
            let later = PricedRequest { change: Some(change), ..request(1, 6000, 0, 0) };
            assert_eq!(paid(&first, &later), Some((cause, tokens)));
        }
        let tail = RequestChange::AfterJournal { common_tokens: 2000 };
        let later = PricedRequest { change: Some(tail), ..request(1, 6000, 2000, 0) };
        assert_eq!(paid(&first, &later), None);
        let unmarked = PricedRequest { cache_use: CacheUse::Unused, ..request(0, 5000, 0, 0) };
        let seen = paid(&unmarked, &request(1, 6000, 0, 0));
        assert_eq!(seen, Some((PaidAgainCause::Unmarked, 5000)));
    }

    #[test]
    fn c_35_20_an_unknown_price_is_not_a_price_of_nothing() {
        let first = request(0, 5000, 0, 5000);
        let unpriced = PricedRequest { prices: None, ..request(1, 6000, 0, 6000) };
        let lost = PaidAgain::find(&first, &unpriced).unwrap();
        assert_eq!((lost.usd, lost.tokens), (None, 5000));
        assert_eq!(unpriced.longer_entry_usd(None), None);
        // Without a price or a report of a cache, there may be none.
        let silent = PricedRequest { reports_cache: false, ..unpriced };
        assert_eq!(PaidAgain::find(&first, &silent), None);
        let equal = TokenPrices { cached_input: 4.0, ..PRICES };
        let free_of_caches = PricedRequest { prices: Some(equal), ..request(1, 6000, 0, 0) };
        assert_eq!(PaidAgain::find(&first, &free_of_caches), None);
    }

    fn first(second: i64, read: u64, has_mark: bool) -> OpeningRequest {
        let answered = PricedRequest { change: None, ..request(second, 5000, read, 2000 - read) };
        let prefixes = vec![SharedPrefix { key: "prefix".to_owned(), tokens: 2000 }];
        OpeningRequest { last_use: answered.asked_at, answered, prefixes, has_mark }
    }

    fn reasons(requests: &[OpeningRequest]) -> Vec<Option<PaidAgainCause>> {
        let requests: Vec<&OpeningRequest> = requests.iter().collect();
        judge_first_requests(&requests).into_iter().map(|paid| Some(paid?.cause)).collect()
    }

    #[test]
    fn c_35_20_a_first_request_pays_again_what_an_earlier_run_had() {
        let cause = |reason| Some(PaidAgainCause::FirstRequest(reason));
        let read = [first(100, 2000, true), first(0, 0, true)];
        assert_eq!(reasons(&read), [None, None]);
        let unread =
            [first(0, 0, true), first(1, 0, true), first(100, 0, true), first(101, 0, false)];
        let expected = [
            None,
            cause(UnreadPrefix::NotAnswered),
            cause(UnreadPrefix::NotRead),
            cause(UnreadPrefix::NoMark),
        ];
        assert_eq!(reasons(&unread), expected);
        // What an earlier run did not mark cannot be read.
        let unmarked = [first(0, 0, false), first(100, 0, true), first(200, 2000, true)];
        assert_eq!(reasons(&unmarked), [None, None, None]);
        // What has expired cannot be read.
        assert_eq!(reasons(&[first(0, 0, true), first(300, 0, true)]), [None, None]);
    }

    proptest! {
        /// Nothing is counted twice: a request pays for its input once.
        #[test]
        fn c_35_20_no_more_is_paid_again_than_was_not_read(
            earlier in (0u64..9000, 0u64..9000, 0u64..9000),
            later in (0u64..9000, 0u64..9000, 0u64..9000),
            second in 0i64..4000,
        ) {
            let sent = |second, (input, read, written): (u64, u64, u64)| {
                let read = read.min(input);
                request(second, input, read, written.min(input - read))
            };
            let (earlier, later) = (sent(0, earlier), sent(second, later));
            if let Some(lost) = PaidAgain::find(&earlier, &later) {
                let usage = &later.usage;
                prop_assert!(lost.tokens <= usage.input_tokens - usage.cached_input_tokens);
                let most = lost.tokens as f64 * 4.6 / 1e6 + 1e-12;
                prop_assert!((0.0..=most).contains(&lost.usd.unwrap()));
            }
        }
    }
}
