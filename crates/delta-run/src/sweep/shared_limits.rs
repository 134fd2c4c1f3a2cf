//! What the runs of a sweep share on this host: its part of the sweep's budget, and the rate of LLM calls.

use crate::budget::budget_account::LedgerHead;
use crate::budget::budget_grant::GrantSource;
use crate::budget::call_rate::{CallRate, RATE_VARIABLE, RateSettings};
use crate::budget::ledger::{self, BUDGET_VARIABLE, Ledger, LedgerError};
use crate::limits::{Limits, Usd};
use crate::sweep::sweep_dir::{SweepBudget, SweepDir, SweepRate};
use crate::sweep::sweep_worker::host_file_stem;
use delta_base::durable::{self, FileError};
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
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
    /// Opens what the processes of this host share, or makes it. `dir` is absolute. `parent` is the ledger around this process,
    /// which [`BUDGET_VARIABLE`] names. Without `interval_ms`, the time between two calls stays what it is; without `is_warm`,
    /// whether calls wait for the first one of their prefix.
    ///
    /// # Errors
    /// A file cannot be read or written, or the wait for a ledger was cancelled.
    pub fn open(
        parent: Option<String>,
        dir: &SweepDir,
        budget: &SweepBudget,
        rate: &SweepRate,
        interval_ms: Option<u64>,
        is_warm: Option<bool>,
        cancel: &CancelToken,
    ) -> Result<Self, LedgerError> {
        let holder = host_file_stem(&dir.root)?;
        let rate_dir = host_rate(dir, &holder);
        let concurrent = rate.concurrent;
        let interval_ms = interval_ms.unwrap_or_else(|| CallRate::new(&rate_dir).interval_ms());
        CallRate::create(&rate_dir, RateSettings { concurrent, interval_ms }, is_warm, cancel)?;
        let total = total_limits(budget);
        let ledger = if total.are_none() {
            None
        } else {
            // A grant that was lost would be made to another host too.
            durable::ensure_shared_dir_synced(&dir.budget())?;
            let path = host_ledger(dir, &holder);
            let source =
                GrantSource { dir: dir.budget().to_string_lossy().into_owned(), holder, total };
            let head = LedgerHead {
                run_id: budget_owner(&path)?,
                limits: Limits::default(),
                given: Limits::default(),
                deadline_unix: None,
                above: parent,
                grants: Some(Box::new(source)),
            };
            ledger::open_shared_ledger(&path, head, cancel)?;
            Some(path)
        };
        Ok(Self { ledger, rate: rate_dir, cancel: cancel.clone() })
    }

    /// As [`SharedLimits::open`], for a process that is none of the sweep's own: the budgets around those stay around them.
    ///
    /// # Errors
    /// As [`SharedLimits::open`].
    pub fn open_beside(
        parent: Option<String>,
        dir: &SweepDir,
        budget: &SweepBudget,
        rate: &SweepRate,
        cancel: &CancelToken,
    ) -> Result<Self, LedgerError> {
        let parent = parent.or_else(|| {
            let known = Ledger::open(&own_host_ledger(dir).ok()?).ok()?.head.above?;
            Ledger::open_chain(Path::new(&known)).is_ok().then_some(known)
        });
        Self::open(parent, dir, budget, rate, None, None, cancel)
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
    ///
    /// # Errors
    /// The ledger or the grants cannot be written.
    pub fn give_back(&self) -> Result<(), LedgerError> {
        if let Some(ledger) = &self.ledger {
            ledger::return_grants(ledger, &self.cancel.for_cleanup())?;
        }
        Ok(())
    }
}

/// The id of no run, which a ledger must name.
fn budget_owner(ledger: &Path) -> Result<RunId, LedgerError> {
    RunId::parse(BUDGET_OWNER).map_err(|error| LedgerError::Damaged {
        path: ledger.to_owned(),
        line: 1,
        reason: error.to_string(),
    })
}

/// The limits of all hosts together.
pub fn total_limits(budget: &SweepBudget) -> Limits {
    Limits {
        max_cost: budget.max_cost.map(Usd::new),
        max_tokens: budget.max_tokens,
        max_duration_ms: None,
    }
}

/// The ledger of this host, whether it exists or not.
pub fn own_host_ledger(dir: &SweepDir) -> Result<PathBuf, FileError> {
    Ok(host_ledger(dir, &host_file_stem(&dir.root)?))
}

/// The directory of the rate of this host, whether it exists or not.
pub fn own_host_rate(dir: &SweepDir) -> Result<PathBuf, FileError> {
    Ok(host_rate(dir, &host_file_stem(&dir.root)?))
}

fn host_rate(dir: &SweepDir, holder: &str) -> PathBuf {
    dir.rate().join(holder)
}

/// The ledger of a holder of grants.
pub fn host_ledger(dir: &SweepDir, holder: &str) -> PathBuf {
    dir.budget().join(format!("{holder}.jsonl"))
}
