//! Grants: the parts of a budget that several hosts share, each taken by one of them.
//!
//! `budget/NNNNNN` is grant N, made by an exclusive link, so that of several hosts that want number N one gets it. Numbers are
//! dense, and the process that makes number N has read all before it: the sum of all grants never exceeds the budget. A holder is the
//! processes of one kernel through one mount, which have an ordinary ledger; the limits of that ledger are its grants.
//! `budget/total-N` is the whole budget as plan N has it; each grant is of the newest one.

use crate::limits::{BudgetAmount, Limits};
use delta_base::durable::{self, FileError};
use delta_base::{hex, random};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What the names of the totals begin with.
const TOTAL_PREFIX: &str = "total-";

/// How often a number is tried that other hosts take.
const MAX_TRIES: u32 = 1000;

/// One grant. One line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetGrant {
    /// The holder.
    pub to: String,
    /// 16 hexadecimal digits that no other grant has.
    pub nonce: String,
    /// How much.
    #[serde(flatten)]
    pub amount: BudgetAmount,
    /// Whether the holder gives the amount back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned: bool,
}

impl BudgetGrant {
    /// A grant to the holder, or back from it.
    pub fn new(to: &str, amount: BudgetAmount, returned: bool) -> Self {
        let nonce = hex::encode_hex(&random::random_bytes::<8>());
        Self { to: to.to_owned(), nonce, amount, returned }
    }
}

/// What all grants of a budget add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantBook {
    /// The number of the last grant.
    pub count: u64,
    /// What each holder has.
    pub holders: BTreeMap<String, BudgetAmount>,
}

impl GrantBook {
    /// Adds the next grant.
    pub fn apply(&mut self, grant: &BudgetGrant) {
        self.count += 1;
        let amount_held = self.holders.entry(grant.to.clone()).or_default();
        *amount_held = if grant.returned {
            amount_held.saturating_sub(grant.amount)
        } else {
            amount_held.saturating_add(grant.amount)
        };
    }

    /// What the holder has.
    pub fn held_by(&self, holder: &str) -> BudgetAmount {
        self.holders.get(holder).copied().unwrap_or_default()
    }

    /// What all holders have.
    pub fn granted(&self) -> BudgetAmount {
        let all = self.holders.values();
        all.fold(BudgetAmount::default(), |sum, amount_held| sum.saturating_add(*amount_held))
    }

    /// The remaining part of the budget `total`: 0 for what `total` does not limit.
    pub fn left_of(&self, total: Limits) -> BudgetAmount {
        let most = BudgetAmount {
            tokens: total.max_tokens.unwrap_or(0),
            cost_usd: total.max_cost.unwrap_or_default(),
        };
        most.saturating_sub(self.granted())
    }

    /// The next grant of the budget `total` to a holder that needs `needed`: its part of a half of what is left, and at least
    /// what it needs. `None` if less than that is left.
    pub fn next_amount(
        &self,
        total: Limits,
        holder: &str,
        needed: BudgetAmount,
    ) -> Option<BudgetAmount> {
        let left = self.left_of(total);
        if needed.tokens > left.tokens || needed.cost_usd > left.cost_usd {
            return None;
        }
        let others = self.holders.keys().filter(|name| *name != holder).count() as u64;
        let part = |amount: u64| amount / 2 / (others + 1);
        Some(BudgetAmount {
            tokens: part(left.tokens).max(needed.tokens),
            cost_usd: left.cost_usd.map_parts(part).max(needed.cost_usd),
        })
    }
}

/// The limits of a ledger whose holder has `amount_held` of the budget `total`.
pub fn limits_of_holder(total: Limits, amount_held: BudgetAmount) -> Limits {
    Limits {
        max_cost: total.max_cost.map(|_| amount_held.cost_usd),
        max_tokens: total.max_tokens.map(|_| amount_held.tokens),
        max_duration_ms: None,
    }
}

/// Where the holder of a ledger gets its grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantSource {
    /// The path of the directory of the grants.
    pub dir: String,
    /// The holder.
    pub holder: String,
    /// The whole budget.
    pub total: Limits,
}

impl GrantSource {
    /// The source with the newest total of the budget, which may be of a later plan than the one of this ledger.
    ///
    /// # Errors
    /// The total cannot be read.
    pub fn with_newest_total(self) -> Result<Self, FileError> {
        let newest = GrantFiles::new(Path::new(&self.dir)).read_total()?;
        Ok(Self { total: newest.unwrap_or(self.total), ..self })
    }
}

/// The directory of the grants of a budget.
#[derive(Debug)]
pub struct GrantFiles {
    dir: PathBuf,
}

impl GrantFiles {
    /// The grants in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:06}"))
    }

    /// Reads all grants. Without the directory there are none.
    ///
    /// # Errors
    /// A grant is missing or cannot be read.
    pub fn read(&self) -> Result<GrantBook, FileError> {
        let newest = self.newest_number(|name| Some(name).filter(|name| name.len() >= 6))?;
        let mut book = GrantBook::default();
        for number in 1..=newest.unwrap_or(0) {
            book.apply(
                &self.read_grant(number).map_err(FileError::at("read", &self.path(number)))?,
            );
        }
        Ok(book)
    }

    /// Reads the newest total of the budget; `None` before one is written.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_total(&self) -> Result<Option<Limits>, FileError> {
        let newest = self.newest_number(|name| name.strip_prefix(TOTAL_PREFIX))?;
        let path = newest.map(|number| self.total_path(number));
        path.map(|path| read_listed_file(&path).map_err(FileError::at("read", &path))).transpose()
    }

    /// Writes the total of the budget as plan `number` has it, unless that is written. Durable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_total(&self, number: u64, total: Limits) -> Result<(), FileError> {
        durable::ensure_shared_dir_synced(&self.dir)?;
        let line = serde_json::to_string(&total).unwrap_or_default() + "\n";
        match durable::create_read_only_once(&self.total_path(number), line.as_bytes()) {
            Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            written => written,
        }
    }

    fn total_path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{TOTAL_PREFIX}{number}"))
    }

    /// The highest of the numbers that `digits` finds in the names of the files; `None` without one.
    fn newest_number(
        &self,
        digits: impl Fn(&str) -> Option<&str>,
    ) -> Result<Option<u64>, FileError> {
        let entries = match durable::read_dir_no_follow(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(FileError::at("read", &self.dir))?,
        };
        let numbers = entries.iter().filter_map(|entry| {
            let digits = digits(entry.name.to_str()?)?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse::<u64>().ok())?
        });
        Ok(numbers.max())
    }

    fn read_grant(&self, number: u64) -> io::Result<BudgetGrant> {
        read_listed_file(&self.path(number))
    }

    /// Makes `grant` the grant with this number; false if another one has it. Durable.
    ///
    /// # Errors
    /// A file could not be written, or the file system does not say which grant has the number.
    fn add(&self, number: u64, grant: &BudgetGrant) -> Result<bool, FileError> {
        let draft = self.dir.join(format!("grant.{}", grant.nonce));
        let line = serde_json::to_string(grant).unwrap_or_default() + "\n";
        durable::create_private_synced(&draft, &mut line.as_bytes())?;
        let path = self.path(number);
        // Whatever it returns, the file says who has the number: a reply can be lost.
        let linked = durable::link_exclusive_synced(&draft, &path);
        let _ = durable::remove_file_no_follow(&draft);
        match (self.read_grant(number), linked) {
            (Ok(named), _) => Ok(named.nonce == grant.nonce),
            (Err(_), Err(source)) => Err(FileError { action: "create", path, source }),
            (Err(source), Ok(())) => Err(FileError { action: "read", path, source }),
        }
    }

    /// Takes back what a holder has and has not used, which no process of the holder may use any more.
    ///
    /// # Errors
    /// The grants cannot be read or written.
    pub fn take_back(&self, holder: &str, used: BudgetAmount) -> Result<GrantBook, FileError> {
        self.add_next(|book| {
            let unused = book.held_by(holder).saturating_sub(used);
            (!unused.is_zero()).then(|| BudgetGrant::new(holder, unused, true))
        })
    }

    /// Adds the grant that `choose` wants when all others are known; returns all grants. Tries again while other hosts take
    /// the numbers.
    ///
    /// # Errors
    /// The grants cannot be read or written.
    pub fn add_next(
        &self,
        choose: impl Fn(&GrantBook) -> Option<BudgetGrant>,
    ) -> Result<GrantBook, FileError> {
        durable::ensure_shared_dir_synced(&self.dir)?;
        for _ in 0..MAX_TRIES {
            let mut book = self.read()?;
            let Some(grant) = choose(&book) else { return Ok(book) };
            if self.add(book.count + 1, &grant)? {
                book.apply(&grant);
                return Ok(book);
            }
        }
        let source = io::Error::other("other hosts take every number");
        Err(FileError { action: "add a grant to", path: self.dir.clone(), source })
    }
}

fn read_listed_file<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    // A name that was just listed may belong to a file that the client of a network file system does not know yet.
    let bytes =
        durable::read_small_no_follow(path).or_else(|_| durable::read_small_no_follow(path))?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Usd;
    use proptest::prelude::*;

    fn tokens(tokens: u64) -> BudgetAmount {
        BudgetAmount { tokens, cost_usd: Usd::default() }
    }

    fn limit(tokens: u64) -> Limits {
        Limits { max_tokens: Some(tokens), ..Limits::default() }
    }

    #[test]
    fn the_first_host_gets_a_half_and_the_last_call_gets_the_rest() {
        let mut book = GrantBook::default();
        let mut amounts = Vec::new();
        while let Some(amount) = book.next_amount(limit(1000), "a", tokens(100)) {
            amounts.push(amount.tokens);
            book.apply(&BudgetGrant::new("a", amount, false));
        }
        assert_eq!(amounts, [500, 250, 125, 100]);
        assert_eq!(book.left_of(limit(1000)).tokens, 25);
        // Three hosts: a sixth of what is left each.
        book.apply(&BudgetGrant::new("b", tokens(0), false));
        book.apply(&BudgetGrant::new("a", tokens(875), true));
        assert_eq!(book.next_amount(limit(1000), "c", tokens(1)).unwrap().tokens, 900 / 2 / 3);
        assert_eq!(book.held_by("a").tokens, 100);
    }

    /// What a host does: ask, spend, give back, or die.
    #[derive(Debug, Clone)]
    enum HostAct {
        Ask { host: usize, needed: u64 },
        Spend { host: usize, percent: u64 },
        GiveBack { host: usize },
    }

    fn host_acts() -> impl Strategy<Value = Vec<HostAct>> {
        let ask = (0..5_usize, 0..300_u64).prop_map(|(host, needed)| HostAct::Ask { host, needed });
        let spend =
            (0..5_usize, 0..=100_u64).prop_map(|(host, percent)| HostAct::Spend { host, percent });
        let give_back = (0..5_usize).prop_map(|host| HostAct::GiveBack { host });
        prop::collection::vec(prop_oneof![3 => ask, 3 => spend, 1 => give_back], 0..100)
    }

    proptest! {
        #[test]
        fn c_26_8_any_number_of_hosts_keeps_the_budget(acts in host_acts(), total in 0..5000_u64) {
            let mut book = GrantBook::default();
            let mut spent = [0_u64; 5];
            for act in acts {
                match act {
                    HostAct::Ask { host, needed } => {
                        let name = host.to_string();
                        if let Some(amount) = book.next_amount(limit(total), &name, tokens(needed)) {
                            prop_assert!(amount.tokens >= needed);
                            book.apply(&BudgetGrant::new(&name, amount, false));
                        }
                    }
                    HostAct::Spend { host, percent } => {
                        let free = book.held_by(&host.to_string()).tokens - spent[host];
                        spent[host] += free * percent / 100;
                    }
                    HostAct::GiveBack { host } => {
                        let name = host.to_string();
                        let free = book.held_by(&name).tokens - spent[host];
                        book.apply(&BudgetGrant::new(&name, tokens(free), true));
                    }
                }
                prop_assert!(book.granted().tokens <= total);
                prop_assert!(spent.iter().sum::<u64>() <= total);
            }
        }
    }

    #[test]
    fn c_26_8_hosts_that_ask_at_the_same_time_get_what_there_is_once() {
        let dir = tempfile::tempdir().unwrap();
        let ask = |host: usize| {
            let files = GrantFiles::new(dir.path());
            let name = format!("host{host}");
            let mut got = 0;
            loop {
                let needed = tokens(7 + host as u64);
                let before = files.read().unwrap().held_by(&name).tokens;
                let book = files.add_next(|book| {
                    let amount = book.next_amount(limit(10_000), &name, needed)?;
                    Some(BudgetGrant::new(&name, amount, false))
                });
                let amount_held = book.unwrap().held_by(&name).tokens;
                got += amount_held - before;
                if amount_held == before {
                    return got;
                }
            }
        };
        let got: u64 = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|host| scope.spawn(move || ask(host))).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).sum()
        });
        let book = GrantFiles::new(dir.path()).read().unwrap();
        assert_eq!(got, book.granted().tokens);
        assert!(got <= 10_000 && got > 10_000 - 15, "{got}");
        let names = std::fs::read_dir(dir.path()).unwrap().count() as u64;
        assert_eq!(names, book.count, "drafts are removed");
    }
}
