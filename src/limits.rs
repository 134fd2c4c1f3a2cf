//! Limits: what the calls of a run may take in all, and what a ledger of calls says is left. Pure.
//!
//! A call is admitted when everything used, everything reserved and the worst that it could take stay within every
//! limit together. What a call could take is an upper bound and no estimate: a token is at least one byte.

use crate::event::{Event, Payload, ProcessInfo, Thought};
use crate::llm::ToolCall;
use crate::tokens;
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The section `limits:` of agent.yaml.
pub static LIMITS: Mapping = Mapping {
    what: "`limits`",
    about: "What a run and all runs below it may take. A call that could exceed one of them is not made.",
    keys: &[
        Key::optional(
            "max_cost",
            Shape::Number(0.0, f64::MAX),
            "USD for all LLM calls; needs `llm.pricing`. `--max-cost` wins.",
        ),
        Key::optional(
            "max_tokens",
            Shape::Integer(1..1 << 53),
            "Tokens of all LLM calls, requests and answers together. `--max-tokens` wins.",
        ),
        Key::optional(
            "max_duration_ms",
            Shape::Integer(1..1 << 40),
            "Milliseconds that a process may work on the run. `--max-duration` wins.",
        ),
    ],
    one_of: &[],
    open: false,
};

/// How long an answer is taken to be at most when the request does not say it.
pub const ANSWER: u64 = 4096;

/// An amount in USD, kept in whole millionths of a millionth, so that sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(u64);

impl Usd {
    const PARTS: f64 = 1e12;

    /// So many dollars; what is negative or no number counts as none.
    pub fn new(dollars: f64) -> Self {
        // The cast saturates, and makes nothing of what is no number.
        Self((dollars * Self::PARTS).round() as u64)
    }

    fn dollars(self) -> f64 {
        self.0 as f64 / Self::PARTS
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dollars())
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::new)
    }
}

/// What calls take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Tokens of requests and answers.
    pub tokens: u64,
    /// What they cost, as far as that is known.
    pub cost_usd: Usd,
}

impl Amount {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        let cost_usd = Usd(self.cost_usd.0.saturating_add(other.cost_usd.0));
        Self { tokens: self.tokens.saturating_add(other.tokens), cost_usd }
    }

    /// What is left of it without `other`, never less than nothing.
    pub fn without(self, other: Self) -> Self {
        let cost_usd = Usd(self.cost_usd.0.saturating_sub(other.cost_usd.0));
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost_usd }
    }

    /// Whether it is nothing.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// The most that a call can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worst {
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// What both cost.
    pub cost: Usd,
}

impl Worst {
    /// Both together.
    pub fn amount(self) -> Amount {
        Amount { tokens: self.input.saturating_add(self.output), cost_usd: self.cost }
    }
}

/// The most tokens that a request body can be. `last` is an earlier body with the tokens that were reported for it: what
/// both have in common at their beginning and end takes no more than that.
pub fn most_tokens(body: &str, last: Option<(&str, u64)>) -> u64 {
    let bytes = body.len() as u64;
    let Some((earlier, reported)) = last else { return bytes };
    let (new, old) = (body.as_bytes(), earlier.as_bytes());
    let same = new.iter().zip(old).take_while(|(one, other)| one == other).count();
    let ends = new[same..].iter().rev().zip(old[same..].iter().rev());
    let same = same + ends.take_while(|(one, other)| one == other).count();
    bytes.min(reported.saturating_add((new.len() - same) as u64))
}

/// What may be taken; what is `None` is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// USD for all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Usd>,
    /// Tokens of all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Milliseconds of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
}

impl Limits {
    /// Reads the section.
    pub fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &LIMITS)?;
        let cost = fields.given("max_cost").and_then(|node| doc.json(node)?.as_f64());
        Some(Self {
            max_cost: cost.map(Usd::new),
            max_tokens: fields.integer("max_tokens"),
            max_duration_ms: fields.integer("max_duration_ms"),
        })
    }

    /// These, and `others` where these say nothing.
    pub fn or(self, others: Self) -> Self {
        Self {
            max_cost: self.max_cost.or(others.max_cost),
            max_tokens: self.max_tokens.or(others.max_tokens),
            max_duration_ms: self.max_duration_ms.or(others.max_duration_ms),
        }
    }

    /// Whether nothing is limited.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// What is used of a limit of which at least four fifths are; `of` says whose budget it is.
    pub fn nearly_used(&self, used: Amount, of: &str) -> Option<String> {
        let nearly =
            |used: u64, limit: u64| used < limit && u128::from(used) * 5 >= u128::from(limit) * 4;
        match (self.max_cost, self.max_tokens) {
            (Some(limit), _) if nearly(used.cost_usd.0, limit.0) => {
                Some(format!("of the limit of {limit} USD{of} {} are used", used.cost_usd))
            }
            (_, Some(limit)) if nearly(used.tokens, limit) => {
                Some(format!("of the limit of {limit} tokens{of} {} are used", used.tokens))
            }
            _ => None,
        }
    }
}

/// What the answers in a journal took: as the endpoint reported it, or else estimated.
pub fn spent(events: &[Event]) -> Amount {
    let amount = |event: &Event| match &event.payload {
        Payload::Thought(thought) => thought_took(thought),
        _ => Amount::default(),
    };
    events.iter().map(amount).fold(Amount::default(), Amount::plus)
}

fn thought_took(thought: &Thought) -> Amount {
    match &thought.usage {
        Some(usage) => Amount {
            tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            cost_usd: Usd::new(usage.cost_usd.unwrap_or_default()),
        },
        None => {
            let tokens = thought.estimated_tokens.unwrap_or_default();
            let answer = answer_tokens(&thought.content, None, &thought.tool_calls);
            Amount { tokens: tokens.saturating_add(answer), cost_usd: Usd::default() }
        }
    }
}

/// The tokens of an answer of which no usage was reported, estimated.
pub fn answer_tokens(content: &str, reasoning: Option<&str>, calls: &[ToolCall]) -> u64 {
    let calls = calls.iter().map(|it| it.function.name.len() + it.function.arguments.len());
    tokens::estimate(content.len() + reasoning.map_or(0, str::len) + calls.sum::<usize>())
}

/// One line of a ledger. The number of a call is that of the line that reserved for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Entry {
    /// A process took up the run whose budget it is: these limits hold from now on.
    Limits(Box<Head>),
    /// A call is about to be made.
    Reserve {
        /// The run that makes it.
        run_id: String,
        /// The most that it can take.
        #[serde(flatten)]
        amount: Amount,
        /// The process that makes it.
        #[serde(flatten)]
        process: ProcessInfo,
    },
    /// A call is over.
    Settle {
        /// The call.
        call: u64,
        /// The run that made it.
        run_id: String,
        /// What it took.
        #[serde(flatten)]
        amount: Amount,
    },
    /// The process that was to make a call died.
    Release {
        /// The call.
        call: u64,
    },
    /// What a run had used that no other line says.
    Use {
        /// The run.
        run_id: String,
        /// What it used.
        #[serde(flatten)]
        amount: Amount,
    },
}

/// See [`Entry::Limits`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The run whose budget it is.
    pub run_id: String,
    /// What holds.
    pub limits: Limits,
    /// What of it the operator said, now or for an earlier process.
    #[serde(default, skip_serializing_if = "Limits::are_none")]
    pub given: Limits,
    /// When the time of the process is over, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_unix: Option<i64>,
    /// The ledger of the budget that holds as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
}

/// A reservation that is not settled.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// The process that made it.
    pub process: ProcessInfo,
    amount: Amount,
}

/// The fold of a ledger's lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// What holds now.
    pub head: Head,
    /// The calls that go on, by their numbers.
    pub open: BTreeMap<u64, Reservation>,
    /// What all runs have used.
    pub used: Amount,
    by_run: BTreeMap<String, Amount>,
    /// The number of lines.
    lines: u64,
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Now,
    /// It may when other calls turn out to take less than they could, and not before.
    Later(Refusal),
    /// It may not, whatever becomes of others.
    Never(Refusal),
}

/// Why a call may not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which limit, with all numbers.
    pub message: String,
    /// The option that gives more.
    pub flag: &'static str,
}

impl Account {
    /// The account that begins with `head`.
    pub fn new(head: Head) -> Self {
        let (open, by_run) = (BTreeMap::new(), BTreeMap::new());
        Self { head, open, used: Amount::default(), by_run, lines: 1 }
    }

    /// The number of the next line.
    pub fn next(&self) -> u64 {
        self.lines + 1
    }

    /// Takes one more line in.
    pub fn apply(&mut self, entry: Entry) {
        self.lines += 1;
        match entry {
            Entry::Limits(head) => self.head = *head,
            Entry::Reserve { amount, process, .. } => {
                self.open.insert(self.lines, Reservation { process, amount });
            }
            Entry::Settle { call, run_id, amount } => {
                self.open.remove(&call);
                self.count(run_id, amount);
            }
            Entry::Release { call } => drop(self.open.remove(&call)),
            Entry::Use { run_id, amount } => self.count(run_id, amount),
        }
    }

    fn count(&mut self, run_id: String, amount: Amount) {
        self.used = self.used.plus(amount);
        let own = self.by_run.entry(run_id).or_default();
        *own = own.plus(amount);
    }

    /// What one run has used.
    pub fn used_by(&self, run_id: &str) -> Amount {
        self.by_run.get(run_id).copied().unwrap_or_default()
    }

    /// What is reserved for calls that go on.
    pub fn reserved(&self) -> Amount {
        self.open.values().fold(Amount::default(), |sum, one| sum.plus(one.amount))
    }

    /// Whether a call may be made; `of` says in messages whose budget it is.
    pub fn admission(&self, worst: Worst, of: &str) -> Admission {
        let mut answer = Admission::Now;
        for measure in self.measures(worst.amount()) {
            let Some(limit) = measure.limit else { continue };
            if measure.used.saturating_add(measure.could) > limit {
                return Admission::Never(measure.refusal(limit, worst, of));
            }
            let sure = measure.used.saturating_add(measure.reserved);
            if sure.saturating_add(measure.could) > limit && answer == Admission::Now {
                answer = Admission::Later(measure.refusal(limit, worst, of));
            }
        }
        answer
    }

    /// What is limited, each in units of its own.
    fn measures(&self, could: Amount) -> [Measure; 2] {
        let (used, reserved, limits) = (self.used, self.reserved(), &self.head.limits);
        let cost = Measure {
            limit: limits.max_cost.map(|limit| limit.0),
            used: used.cost_usd.0,
            reserved: reserved.cost_usd.0,
            could: could.cost_usd.0,
            show: |parts| Usd(parts).to_string(),
            unit: "USD",
            flag: "--max-cost",
        };
        let tokens = Measure {
            limit: limits.max_tokens,
            used: used.tokens,
            reserved: reserved.tokens,
            could: could.tokens,
            show: |tokens| tokens.to_string(),
            unit: "tokens",
            flag: "--max-tokens",
        };
        [cost, tokens]
    }
}

/// One of the things that are limited, in units of its own.
struct Measure {
    limit: Option<u64>,
    used: u64,
    reserved: u64,
    could: u64,
    show: fn(u64) -> String,
    unit: &'static str,
    flag: &'static str,
}

impl Measure {
    /// Why a call cannot be made.
    fn refusal(&self, limit: u64, worst: Worst, of: &str) -> Refusal {
        let (show, unit) = (self.show, self.unit);
        let left = limit.saturating_sub(self.used.saturating_add(self.reserved));
        let reserved = match self.reserved {
            0 => String::new(),
            reserved => format!("{} are reserved for other calls, ", show(reserved)),
        };
        let message = format!(
            "the limit of {} {unit}{of} does not allow another call: {} are used, {reserved}{} are left, and the call \
             could take {} (with {} tokens for the request and {} for the answer)",
            show(limit),
            show(self.used),
            show(left),
            show(self.could),
            worst.input,
            worst.output
        );
        Refusal { message, flag: self.flag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn account(limits: Limits) -> Account {
        let (given, deadline_unix, above) = (limits, None, None);
        Account::new(Head { run_id: "r".to_owned(), limits, given, deadline_unix, above })
    }

    fn worst(input: u64, output: u64) -> Worst {
        Worst { input, output, cost: Usd::new((input + 2 * output) as f64 * 1e-6) }
    }

    fn reserve(amount: Amount) -> Entry {
        let (hostname, process_name) = ("h".to_owned(), "delta".to_owned());
        let process = ProcessInfo { pid: 1, hostname, start_time_unix: 0, process_name };
        Entry::Reserve { run_id: "r".to_owned(), amount, process }
    }

    /// What the processes of a tree do, in any order: each number picks one.
    #[derive(Debug, Clone)]
    enum Deed {
        Ask {
            input: u64,
            output: u64,
        },
        /// The call that is picked takes this many percent of what it could.
        End {
            which: usize,
            percent: u64,
        },
        Die {
            which: usize,
        },
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let ask =
            (0..2_000_u64, 0..500_u64).prop_map(|(input, output)| Deed::Ask { input, output });
        let end =
            (any::<usize>(), 0..=100_u64).prop_map(|(which, percent)| Deed::End { which, percent });
        let die = any::<usize>().prop_map(|which| Deed::Die { which });
        prop::collection::vec(prop_oneof![3 => ask, 2 => end, 1 => die], 0..200)
    }

    proptest! {
        #[test]
        fn c_12_8_no_interleaving_of_calls_exceeds_a_limit(
            deeds in deeds(),
            max_tokens in prop::option::of(1..20_000_u64),
            cost in prop::option::of(0..30_000_u64),
        ) {
            let max_cost = cost.map(|it| Usd::new(it as f64 * 1e-6));
            let limits = Limits { max_cost, max_tokens, max_duration_ms: None };
            let mut account = account(limits);
            for deed in deeds {
                let open: Vec<u64> = account.open.keys().copied().collect();
                let pick = |which: usize| open.get(which % open.len().max(1)).copied();
                match deed {
                    Deed::Ask { input, output } => {
                        let worst = worst(input, output);
                        if account.admission(worst, "") == Admission::Now {
                            account.apply(reserve(worst.amount()));
                        }
                    }
                    Deed::End { which, percent } => if let Some(call) = pick(which) {
                        let could = account.open[&call].amount;
                        let part = |of: u64| of * percent / 100;
                        let cost_usd = Usd(part(could.cost_usd.0));
                        let amount = Amount { tokens: part(could.tokens), cost_usd };
                        account.apply(Entry::Settle { call, run_id: "r".to_owned(), amount });
                    },
                    Deed::Die { which } => if let Some(call) = pick(which) {
                        account.apply(Entry::Release { call });
                    },
                }
                let most = account.used.plus(account.reserved());
                prop_assert!(max_tokens.is_none_or(|limit| most.tokens <= limit));
                prop_assert!(max_cost.is_none_or(|limit| most.cost_usd <= limit));
            }
            for call in account.open.keys().copied().collect::<Vec<_>>() {
                account.apply(Entry::Release { call });
            }
            // What nobody uses is free again, whatever happened before.
            let fits = |limit: u64, used: u64| limit.saturating_sub(used);
            let left = max_tokens.map_or(100, |limit| fits(limit, account.used.tokens));
            let free = Worst { input: left, output: 0, cost: Usd::default() };
            prop_assert_eq!(account.admission(free, ""), Admission::Now);
        }

        #[test]
        fn a_body_takes_no_more_than_its_bytes(
            (before, common, after) in ("[a-z]{0,20}", "[a-z]{0,20}", "[a-z]{0,20}"),
            reported in 0..100_u64,
        ) {
            let (old, new) = (format!("{before}{common}"), format!("{before}{after}{common}"));
            let most = most_tokens(&new, Some((&old, reported)));
            prop_assert_eq!(most, (new.len() as u64).min(reported + after.len() as u64));
        }
    }

    #[test]
    fn c_12_8_a_refusal_says_every_number() {
        let limits = Limits { max_tokens: Some(1000), ..Limits::default() };
        let mut account = account(limits);
        account.apply(reserve(Amount { tokens: 300, cost_usd: Usd::default() }));
        let Admission::Later(refusal) = account.admission(worst(700, 50), " of run r") else {
            panic!("it fits beside the other call")
        };
        assert_eq!(
            refusal.message,
            "the limit of 1000 tokens of run r does not allow another call: 0 are used, 300 are reserved for other calls, 700 are left, and the call could take 750 (with 700 tokens for the request and 50 for the answer)"
        );
        let amount = Amount { tokens: 1200, cost_usd: Usd::default() };
        account.apply(Entry::Settle { call: 2, run_id: "r".to_owned(), amount });
        let Admission::Never(refusal) = account.admission(worst(1, 0), "") else {
            panic!("what was really used counts")
        };
        assert!(refusal.message.contains("1200 are used, 0 are left"), "{}", refusal.message);
    }

    #[test]
    fn amounts_survive_being_written() {
        for dollars in [0.0, 0.1, 1.5e-7, 3.75e-8, 1234.56] {
            let text = serde_json::to_string(&Usd::new(dollars)).unwrap();
            assert_eq!(serde_json::from_str::<Usd>(&text).unwrap(), Usd::new(dollars));
            assert_eq!(Usd::new(dollars).to_string(), dollars.to_string());
        }
        assert_eq!([-1.0, f64::NAN].map(Usd::new), [Usd::default(); 2]);
    }
}
