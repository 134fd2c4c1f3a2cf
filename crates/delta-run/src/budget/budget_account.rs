//! The account of a budget: what the entries of a ledger add up to, and whether it admits a call.

use crate::budget::budget_grant::GrantSource;
use crate::event::{ProcessInfo, is_zero_number};
use crate::limits::{BudgetAmount, CallUpperBound, Limits, Usd};
use crate::record::open_call::read_used_amount;
use delta_base::id::RunId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// One line of a ledger. The number of the line that reserves for a call is the number of the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum LedgerEntry {
    /// A process started or continued the run that owns the budget. These limits apply from now on.
    Limits(Box<LedgerHead>),
    /// A call is about to be made.
    Reserve {
        /// The run that makes the call.
        run_id: String,
        /// The most that the call can use.
        #[serde(flatten)]
        amount: BudgetAmount,
        /// The file with what has arrived, an absolute path; absent in ledgers of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<String>,
        /// The number of attempts in that file that are settled: what they used does not count again.
        #[serde(default, skip_serializing_if = "is_zero_number")]
        settled: usize,
        /// The process that makes the call.
        #[serde(flatten)]
        process: ProcessInfo,
    },
    /// A call has ended.
    Settle {
        /// The number of the call.
        call: u64,
        /// The run that made the call.
        run_id: String,
        /// What the call used.
        #[serde(flatten)]
        amount: BudgetAmount,
    },
    /// The process that reserved for a call died, in ledgers of earlier versions.
    Release {
        /// The number of the call.
        call: u64,
    },
    /// What a run used before the ledger recorded it.
    Use {
        /// The run.
        run_id: String,
        /// What it used.
        #[serde(flatten)]
        amount: BudgetAmount,
    },
    /// What the lines up to a number have added up to, which were removed.
    Carry {
        /// The number of the last of them: calls keep their numbers.
        line: u64,
        /// What calls used.
        #[serde(flatten)]
        amount: BudgetAmount,
        /// The calls that had not ended.
        open: Vec<OpenCall>,
    },
}

/// A call that had not ended when the lines before were removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The number of the call.
    pub call: u64,
    /// What is reserved for it.
    #[serde(flatten)]
    pub reservation: Reservation,
}

/// The limits of a budget from one process on: see [`LedgerEntry::Limits`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerHead {
    /// The run that owns the budget.
    pub run_id: RunId,
    /// The limits that apply.
    pub limits: Limits,
    /// The limits that the user passed as options, to this process or an earlier one.
    #[serde(default, skip_serializing_if = "Limits::are_none")]
    pub given: Limits,
    /// The deadline of the process, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_unix: Option<i64>,
    /// The path of the parent run's ledger, whose limits apply too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
    /// Where the limits can be raised: they are a part of a budget that several hosts share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Box<GrantSource>>,
}

/// What a call that has not ended may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// The run that makes the call; absent in ledgers of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(flatten)]
    amount: BudgetAmount,
    /// The file with what has arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    /// The number of attempts in it that are settled.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    settled: usize,
    /// The process that makes the call.
    #[serde(flatten)]
    pub process: ProcessInfo,
}

impl Reservation {
    /// What the call counts with when its process has died: the request and what had arrived of the answer, or what is
    /// reserved if that is unknown.
    pub(crate) fn amount_at_death(&self) -> BudgetAmount {
        let known =
            self.record.as_ref().and_then(|path| read_used_amount(Path::new(path), self.settled));
        known.unwrap_or(self.amount)
    }

    /// What is reserved.
    pub(crate) fn amount(&self) -> BudgetAmount {
        self.amount
    }
}

/// The state of a budget, folded from the entries of its ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetAccount {
    /// The limits that apply now.
    pub head: LedgerHead,
    /// The calls that have not ended, by number.
    pub open_calls: BTreeMap<u64, Reservation>,
    /// What all runs of the budget used.
    pub used: BudgetAmount,
    used_by_run: BTreeMap<String, BudgetAmount>,
    line_count: u64,
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The call fits into every limit.
    Now,
    /// The call may fit when other calls have ended.
    Later(LimitRefusal),
    /// The call does not fit even if all other calls use nothing.
    Never(LimitRefusal),
}

/// A limit that does not admit a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRefusal {
    /// The message for the user, with all numbers.
    pub message: String,
    /// The command-line option that raises the limit.
    pub option: &'static str,
    /// A value of the option that would have admitted the call, and one that is a little larger.
    pub proposed: String,
}

impl BudgetAccount {
    /// The account of a ledger whose first entry has these limits.
    pub fn new(head: LedgerHead) -> Self {
        Self {
            head,
            open_calls: BTreeMap::new(),
            used: BudgetAmount::default(),
            used_by_run: BTreeMap::new(),
            line_count: 1,
        }
    }

    /// The number of the next line.
    pub fn next_line(&self) -> u64 {
        self.line_count + 1
    }

    /// Adds the next entry of the ledger.
    pub fn apply(&mut self, entry: LedgerEntry) {
        self.line_count += 1;
        match entry {
            LedgerEntry::Limits(head) => self.head = *head,
            LedgerEntry::Reserve { run_id, amount, record, settled, process } => {
                let run_id = Some(run_id);
                let reservation = Reservation { run_id, amount, record, settled, process };
                self.open_calls.insert(self.line_count, reservation);
            }
            LedgerEntry::Settle { call, run_id, amount } => {
                self.open_calls.remove(&call);
                self.add_usage(run_id, amount);
            }
            LedgerEntry::Release { call } => drop(self.open_calls.remove(&call)),
            LedgerEntry::Use { run_id, amount } => self.add_usage(run_id, amount),
            LedgerEntry::Carry { line, amount, open } => {
                self.line_count = line;
                self.used = self.used.saturating_add(amount);
                self.open_calls.extend(open.into_iter().map(|one| (one.call, one.reservation)));
            }
        }
    }

    /// Replaces the limits, and adds the use that the entries lack, by what the run's own process knows of both.
    pub(crate) fn trust_owner(&mut self, head: &LedgerHead, used: BudgetAmount) {
        self.head = head.clone();
        let missing = used.saturating_sub(self.used_by(head.run_id.as_str()));
        self.add_usage(head.run_id.to_string(), missing);
    }

    /// The entry that replaces all lines so far, apart from the limits.
    pub(crate) fn carry(&self) -> LedgerEntry {
        let open = self
            .open_calls
            .iter()
            .map(|(call, reservation)| OpenCall { call: *call, reservation: reservation.clone() });
        LedgerEntry::Carry { line: self.line_count, amount: self.used, open: open.collect() }
    }

    /// What calls have used or may use.
    pub fn committed(&self) -> BudgetAmount {
        self.used.saturating_add(self.reserved())
    }

    fn add_usage(&mut self, run_id: String, amount: BudgetAmount) {
        self.used = self.used.saturating_add(amount);
        let used_by_run = self.used_by_run.entry(run_id).or_default();
        *used_by_run = used_by_run.saturating_add(amount);
    }

    /// What the run with this id used.
    pub fn used_by(&self, run_id: &str) -> BudgetAmount {
        self.used_by_run.get(run_id).copied().unwrap_or_default()
    }

    /// What each run used.
    pub(crate) fn used_by_runs(&self) -> Vec<(String, BudgetAmount)> {
        self.used_by_run.iter().map(|(run, amount)| (run.clone(), *amount)).collect()
    }

    /// What is reserved for calls that have not ended.
    pub fn reserved(&self) -> BudgetAmount {
        self.open_calls
            .values()
            .fold(BudgetAmount::default(), |sum, one| sum.saturating_add(one.amount))
    }

    /// How much of each limit is used, one sentence per limit.
    pub fn describe_usage(&self) -> Vec<String> {
        let measures = self.measures(BudgetAmount::default()).into_iter();
        let sentences = measures.filter_map(|measure| {
            let limit = (measure.format)(measure.limit?);
            let used = (measure.format)(measure.used);
            Some(format!(
                "{used} of {limit} {} are used, by this run and its child runs",
                measure.unit
            ))
        });
        sentences.collect()
    }

    /// Decides whether a call fits into the limits. `budget` says in messages whose limits they are.
    pub fn admission(&self, bound: CallUpperBound, budget: &str) -> Admission {
        let mut admission = Admission::Now;
        for measure in self.measures(bound.amount()) {
            let Some(limit) = measure.limit else { continue };
            if measure.used.saturating_add(measure.upper_bound) > limit {
                return Admission::Never(measure.refusal(limit, bound, budget));
            }
            let committed = measure.used.saturating_add(measure.reserved);
            if committed.saturating_add(measure.upper_bound) > limit && admission == Admission::Now
            {
                admission = Admission::Later(measure.refusal(limit, bound, budget));
            }
        }
        admission
    }

    /// The cost and the tokens, each compared with its limit for a call that may use `bound`.
    fn measures(&self, bound: BudgetAmount) -> [LimitMeasure; 2] {
        let reserved = self.reserved();
        let limits = &self.head.limits;
        let cost = LimitMeasure {
            limit: limits.max_cost.map(|limit| limit.0),
            used: self.used.cost_usd.0,
            reserved: reserved.cost_usd.0,
            upper_bound: bound.cost_usd.0,
            format: |parts| Usd(parts).to_string(),
            unit: "USD",
            option: "--max-cost",
        };
        let tokens = LimitMeasure {
            limit: limits.max_tokens,
            used: self.used.tokens,
            reserved: reserved.tokens,
            upper_bound: bound.tokens,
            format: |tokens| tokens.to_string(),
            unit: "tokens",
            option: "--max-tokens",
        };
        [cost, tokens]
    }
}

/// One of the limited quantities, in its own unit.
struct LimitMeasure {
    limit: Option<u64>,
    used: u64,
    reserved: u64,
    upper_bound: u64,
    format: fn(u64) -> String,
    unit: &'static str,
    option: &'static str,
}

impl LimitMeasure {
    fn refusal(&self, limit: u64, bound: CallUpperBound, budget: &str) -> LimitRefusal {
        let format = self.format;
        let unit = self.unit;
        let left = limit.saturating_sub(self.used.saturating_add(self.reserved));
        let reserved = match self.reserved {
            0 => String::new(),
            reserved => format!("{} are reserved for other calls, ", format(reserved)),
        };
        let message = format!(
            "the limit of {} {unit}{budget} does not allow another call: {} are used, {reserved}{} are left, and the \
             call could take {} (with {} tokens for the request and {} for the answer)",
            format(limit),
            format(self.used),
            format(left),
            format(self.upper_bound),
            bound.input_tokens,
            bound.output_tokens
        );
        // A message that continues the run makes the next request larger.
        let needed = self.used.saturating_add(self.reserved).saturating_add(self.upper_bound);
        let proposed = format(round_up(needed.saturating_add(self.upper_bound / 8)));
        LimitRefusal { message, option: self.option, proposed }
    }
}

/// `amount` rounded up to two significant digits.
fn round_up(amount: u64) -> u64 {
    let unit = 10_u64.pow(amount.checked_ilog10().unwrap_or(0).saturating_sub(1));
    amount.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn account(limits: Limits) -> BudgetAccount {
        BudgetAccount::new(LedgerHead {
            run_id: RunId::parse("r").unwrap(),
            limits,
            given: limits,
            deadline_unix: None,
            above: None,
            grants: None,
        })
    }

    fn worst(input: u64, output: u64) -> CallUpperBound {
        CallUpperBound {
            input_tokens: input,
            output_tokens: output,
            cost: Usd::new((input + 2 * output) as f64 * 1e-6),
        }
    }

    fn reserve(amount: BudgetAmount) -> LedgerEntry {
        let (hostname, process_name) = ("h".to_owned(), "delta".to_owned());
        let process = ProcessInfo { pid: 1, hostname, start_time_unix: 0, process_name };
        LedgerEntry::Reserve { run_id: "r".to_owned(), amount, record: None, settled: 0, process }
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
                let open: Vec<u64> = account.open_calls.keys().copied().collect();
                let pick = |which: usize| open.get(which % open.len().max(1)).copied();
                match deed {
                    Deed::Ask { input, output } => {
                        let worst = worst(input, output);
                        if account.admission(worst, "") == Admission::Now {
                            account.apply(reserve(worst.amount()));
                        }
                    }
                    Deed::End { which, percent } => if let Some(call) = pick(which) {
                        let could = account.open_calls[&call].amount;
                        let part = |of: u64| of * percent / 100;
                        let cost_usd = Usd(part(could.cost_usd.0));
                        let amount = BudgetAmount { tokens: part(could.tokens), cost_usd };
                        account.apply(LedgerEntry::Settle { call, run_id: "r".to_owned(), amount });
                    },
                    Deed::Die { which } => if let Some(call) = pick(which) {
                        account.apply(LedgerEntry::Release { call });
                    },
                }
                let most = account.used.saturating_add(account.reserved());
                prop_assert!(max_tokens.is_none_or(|limit| most.tokens <= limit));
                prop_assert!(max_cost.is_none_or(|limit| most.cost_usd <= limit));
            }
            for call in account.open_calls.keys().copied().collect::<Vec<_>>() {
                account.apply(LedgerEntry::Release { call });
            }
            // Released reservations can be used again.
            let fits = |limit: u64, used: u64| limit.saturating_sub(used);
            let left = max_tokens.map_or(100, |limit| fits(limit, account.used.tokens));
            let free = CallUpperBound { input_tokens: left, output_tokens: 0, cost: Usd::default() };
            prop_assert_eq!(account.admission(free, ""), Admission::Now);
        }
    }

    #[test]
    fn c_12_8_a_proposed_limit_has_two_digits() {
        let rounded = [0, 9, 10, 99, 100, 101, 1_234, 513_500_000_000, u64::MAX].map(round_up);
        assert_eq!(rounded[..8], [0, 9, 10, 99, 100, 110, 1_300, 520_000_000_000]);
        assert_eq!(rounded[8], u64::MAX);
    }

    #[test]
    fn c_12_8_a_refusal_says_every_number() {
        let limits = Limits { max_tokens: Some(1000), ..Limits::default() };
        let mut account = account(limits);
        account.apply(reserve(BudgetAmount { tokens: 300, cost_usd: Usd::default() }));
        let Admission::Later(refusal) = account.admission(worst(700, 50), " of run r") else {
            panic!("the call was not refused for now")
        };
        assert_eq!(refusal.proposed, "1200");
        assert_eq!(
            refusal.message,
            "the limit of 1000 tokens of run r does not allow another call: 0 are used, 300 are reserved for other calls, 700 are left, and the call could take 750 (with 700 tokens for the request and 50 for the answer)"
        );
        let amount = BudgetAmount { tokens: 1200, cost_usd: Usd::default() };
        account.apply(LedgerEntry::Settle { call: 2, run_id: "r".to_owned(), amount });
        let Admission::Never(refusal) = account.admission(worst(1, 0), "") else {
            panic!("the call was not refused for good")
        };
        assert!(refusal.message.contains("1200 are used, 0 are left"), "{}", refusal.message);
    }
}
