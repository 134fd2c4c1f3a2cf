//! The account of a budget: the fold of a ledger's lines, and whether it admits a call.

use super::{Amount, Limits, Usd, Worst};
use crate::event::ProcessInfo;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

    /// How much of each limit is used, in words.
    pub fn shares(&self) -> Vec<String> {
        let share = |it: Measure| {
            let (limit, used) = ((it.show)(it.limit?), (it.show)(it.used));
            Some(format!("{used} of {limit} {} are used, by this run and those below it", it.unit))
        };
        self.measures(Amount::default()).into_iter().filter_map(share).collect()
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
}
