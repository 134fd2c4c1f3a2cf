//! What the hosts have of the budget of a sweep, and what a dead host gives back.

use crate::formats::host_grant::HostGrant;
use crate::formats::plan::PlanHeader;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_operator::environment;
use delta_operator::failure::CommandFailure;
use delta_run::budget::budget_grant::GrantFiles;
use delta_run::budget::ledger::{BUDGET_VARIABLE, Ledger};
use delta_run::limits::BudgetAmount;
use delta_run::sweep::shared_limits::{SharedLimits, host_ledger, total_limits};
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::sweep::sweep_worker::{host_file_name, read_workers};
use std::path::Path;

/// Writes the budget of the newest plan where hosts that are at work read it before each grant. A plan without a budget lifts
/// the one of a plan before it.
pub fn write_newest_total(dir: &SweepDir, plans: &[PlanHeader]) -> Result<(), CommandFailure> {
    let totals = || plans.iter().map(|plan| total_limits(&plan.budget));
    if let Some(newest) = totals().next_back()
        && !totals().all(|total| total.are_none())
    {
        GrantFiles::new(&dir.budget()).write_total(plans.len() as u64, newest)?;
    }
    Ok(())
}

/// Opens what the runs of a sweep share on this host, inside of the budget around this process.
pub fn open_shared_limits(
    dir: &SweepDir,
    settings: &PlanHeader,
    interval_ms: Option<u64>,
    is_warm: Option<bool>,
    cancel: &CancelToken,
) -> Result<SharedLimits, CommandFailure> {
    let parent = environment::variable(BUDGET_VARIABLE);
    let PlanHeader { budget, rate, .. } = settings;
    Ok(SharedLimits::open(parent, dir, budget, rate, interval_ms, is_warm, cancel)?)
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
        let hint = "`delta sweep status DIR --format json` lists them in `grants`";
        return Err(CommandFailure::config(message, hint));
    }
    if named.iter().any(|grant| !grant.is_silent) {
        let message = format!("processes on host `{host}` work on the sweep");
        let hint = "what they do not use comes back at their end";
        return Err(CommandFailure::config(message, hint));
    }
    for grant in &named {
        GrantFiles::new(&dir.budget())
            .take_back(&grant.holder, read_used(&host_ledger(dir, &grant.holder))?)?;
    }
    Ok(named)
}
