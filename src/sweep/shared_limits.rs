//! What the runs of a sweep share on this host: its part of the sweep's budget, and the rate of LLM calls.

use super::worker_files::{host_file_stem, read_workers};
use crate::failure::CommandFailure;
use crate::process_environment;
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_run::budget::budget_account::LedgerHead;
use delta_run::budget::budget_grant::{GrantFiles, GrantSource};
use delta_run::budget::call_rate::{CallRate, RATE_VARIABLE, RateSettings};
use delta_run::budget::ledger::{self, BUDGET_VARIABLE, Ledger};
use delta_run::limits::{BudgetAmount, Limits, Usd};
use delta_sweep::host_grant::HostGrant;
use delta_sweep::layout::SweepDir;
use delta_sweep::plan::PlanHeader;
use delta_sweep::sweep_file::SweepBudget;
use delta_sweep::worker_state::host_file_name;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The run that owns the budget of a sweep, in ledgers.
const BUDGET_OWNER: &str = "sweep";

/// What the runs of a sweep share on this host.
pub struct SharedLimits {
    ledger: Option<PathBuf>,
    rate: PathBuf,
    cancel: CancelToken,
}

impl SharedLimits {
    /// Opens what the processes of this host share, or makes it. `dir` is absolute. Without `interval_ms`, the time between
    /// two calls stays what it is.
    pub fn open(
        dir: &SweepDir,
        settings: &PlanHeader,
        interval_ms: Option<u64>,
        cancel: &CancelToken,
    ) -> Result<Self, CommandFailure> {
        let parent = process_environment::variable(BUDGET_VARIABLE);
        Self::open_below(parent, dir, settings, interval_ms, cancel)
    }

    /// As [`SharedLimits::open`], for a process that is none of the sweep's own: the budgets around those stay around them.
    pub fn open_beside(
        dir: &SweepDir,
        settings: &PlanHeader,
        cancel: &CancelToken,
    ) -> Result<Self, CommandFailure> {
        let parent = process_environment::variable(BUDGET_VARIABLE);
        let parent = parent.or_else(|| {
            let known = Ledger::open(&own_host_ledger(dir).ok()?).ok()?.head.above?;
            Ledger::open_chain(Path::new(&known)).is_ok().then_some(known)
        });
        Self::open_below(parent, dir, settings, None, cancel)
    }

    fn open_below(
        parent: Option<String>,
        dir: &SweepDir,
        settings: &PlanHeader,
        interval_ms: Option<u64>,
        cancel: &CancelToken,
    ) -> Result<Self, CommandFailure> {
        let holder = host_file_stem(&dir.root)?;
        let rate = host_rate(dir, &holder);
        let concurrent = settings.rate.concurrent;
        let interval_ms = interval_ms.unwrap_or_else(|| CallRate::new(&rate).interval_ms());
        CallRate::create(&rate, RateSettings { concurrent, interval_ms }, cancel)?;
        let total = total_limits(&settings.budget);
        let ledger = if total.are_none() {
            None
        } else {
            // A grant that was lost would be made to another host too.
            durable::ensure_shared_dir_synced(&dir.budget())?;
            let path = host_ledger(dir, &holder);
            let source =
                GrantSource { dir: dir.budget().to_string_lossy().into_owned(), holder, total };
            let head = LedgerHead {
                run_id: RunId::parse(BUDGET_OWNER)
                    .map_err(|error| CommandFailure::config(error.to_string(), None))?,
                limits: Limits::default(),
                given: Limits::default(),
                deadline_unix: None,
                above: parent,
                grants: Some(Box::new(source)),
            };
            ledger::open_shared_ledger(&path, head, cancel)?;
            Some(path)
        };
        Ok(Self { ledger, rate, cancel: cancel.clone() })
    }

    /// The variables with which runs find what they share.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = vec![(RATE_VARIABLE.into(), self.rate.clone().into())];
        if let Some(ledger) = &self.ledger {
            variables.push((BUDGET_VARIABLE.into(), ledger.clone().into()));
        }
        variables
    }

    /// The ledger of this host; `None` if the sweep has no budget.
    pub fn ledger_path(&self) -> Option<&Path> {
        self.ledger.as_deref()
    }

    /// The directory of the rate of this host.
    pub fn rate_dir(&self) -> &Path {
        &self.rate
    }

    /// Gives back what the runs of this host have not used of the budget.
    pub fn give_back(&self) -> Result<(), CommandFailure> {
        if let Some(ledger) = &self.ledger {
            ledger::return_grants(ledger, &self.cancel.for_cleanup())?;
        }
        Ok(())
    }
}

fn total_limits(budget: &SweepBudget) -> Limits {
    Limits {
        max_cost: budget.max_cost.map(Usd::new),
        max_tokens: budget.max_tokens,
        max_duration_ms: None,
    }
}

/// The ledger of this host, whether it exists or not.
pub fn own_host_ledger(dir: &SweepDir) -> Result<PathBuf, CommandFailure> {
    Ok(host_ledger(dir, &host_file_stem(&dir.root)?))
}

/// The directory of the rate of this host, whether it exists or not.
pub fn own_host_rate(dir: &SweepDir) -> Result<PathBuf, CommandFailure> {
    Ok(host_rate(dir, &host_file_stem(&dir.root)?))
}

fn host_rate(dir: &SweepDir, holder: &str) -> PathBuf {
    dir.rate().join(holder)
}

fn host_ledger(dir: &SweepDir, holder: &str) -> PathBuf {
    dir.budget().join(format!("{holder}.jsonl"))
}

/// What each host has of the budget of the sweep, and has used of it.
pub fn read_host_grants(dir: &SweepDir) -> Result<Vec<HostGrant>, CommandFailure> {
    let book = GrantFiles::new(&dir.budget()).read()?;
    if book.count == 0 {
        return Ok(Vec::new());
    }
    let now = time::current_time();
    let workers = read_workers(dir)?;
    let live: Vec<String> = workers
        .iter()
        .filter(|worker| !worker.is_silent(now))
        .map(|worker| host_file_name(&worker.host, &worker.boot))
        .collect();
    book.holders
        .iter()
        .map(|(holder, amount_held)| {
            let used = read_used(&host_ledger(dir, holder))?;
            let unused = amount_held.saturating_sub(used);
            let is_silent = !live.iter().any(|host| holder.starts_with(&**host));
            Ok(HostGrant {
                holder: holder.clone(),
                used_usd: used.cost_usd.dollars(),
                used_tokens: used.tokens,
                unused_usd: unused.cost_usd.dollars(),
                unused_tokens: unused.tokens,
                is_silent,
            })
        })
        .collect()
}

/// What the calls of a holder have used, or may have used.
fn read_used(ledger: &Path) -> Result<BudgetAmount, CommandFailure> {
    let state = Ledger::read_account_at(ledger)?;
    Ok(state.map(|state| state.committed()).unwrap_or_default())
}

/// Takes back what a host holds that is dead: its name, as `status` prints it. Returns what each of its holders had.
pub fn reclaim(dir: &SweepDir, host: &str) -> Result<Vec<HostGrant>, CommandFailure> {
    let grants = read_host_grants(dir)?;
    let named: Vec<HostGrant> = grants.into_iter().filter(|grant| grant.is_of(host)).collect();
    if named.is_empty() {
        let message = format!("no host `{host}` has a part of the budget");
        let hint = "`delta sweep status DIR --format json` lists them in `grants`".to_owned();
        return Err(CommandFailure::config(message, hint));
    }
    if named.iter().any(|grant| !grant.is_silent) {
        let message = format!("processes on host `{host}` work on the sweep");
        let hint = "what they do not use comes back at their end".to_owned();
        return Err(CommandFailure::config(message, hint));
    }
    for grant in &named {
        GrantFiles::new(&dir.budget())
            .take_back(&grant.holder, read_used(&host_ledger(dir, &grant.holder))?)?;
    }
    Ok(named)
}
