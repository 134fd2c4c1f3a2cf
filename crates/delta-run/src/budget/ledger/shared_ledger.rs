//! The ledger of a host that has a part of a budget: its limits are grants, and it asks for more when a call does not fit.
//!
//! Its path outlives many runs and its calls are many, so its lines are replaced by their sum now and then.

use super::{
    LedgerContents, LedgerEntry, LedgerError, LedgerResult, LockedLedger, ledger_line, lock_ledger,
};
use crate::budget::budget_account::LedgerHead;
use crate::budget::budget_grant::{
    BudgetGrant, GrantBook, GrantFiles, GrantSource, limits_of_holder,
};
use crate::limits::{BudgetAmount, CallUpperBound};
use delta_base::durable;
use delta_base::signal::CancelToken;
use std::path::Path;

/// From so many lines on they are replaced by their sum: reading them takes a fraction of a millisecond.
const MAX_LINES: usize = 256;

/// The words of a refusal before the amount that the call could take.
const NEXT_CALL: &str = ", and the call could take ";

/// Opens or creates the ledger at `path` of a holder of grants. Runs get its path in DELTA_BUDGET.
///
/// # Errors
/// The ledger or the grants cannot be read or written.
pub fn open_shared_ledger(
    path: &Path,
    mut head: LedgerHead,
    cancel: &CancelToken,
) -> LedgerResult<()> {
    if let Some(source) = head.grants.take() {
        let source = source.with_newest_total()?;
        let amount_held = GrantFiles::new(Path::new(&source.dir)).read()?.held_by(&source.holder);
        head.limits = limits_of_holder(source.total, amount_held);
        head.grants = Some(Box::new(source));
    }
    LockedLedger::open_or_create(path, head, lock_ledger(path, cancel)?).map(|_| ())
}

/// Gives back what no call of the holder of the ledger at `path` has used. Call this when the process starts no more runs;
/// others that still work ask again.
///
/// # Errors
/// The ledger or the grants cannot be read or written.
pub fn return_grants(path: &Path, cancel: &CancelToken) -> LedgerResult<()> {
    let mut ledger = LockedLedger::open(path, lock_ledger(path, cancel)?)?;
    ledger.settle_dead_calls()?;
    let Some(source) = ledger.newest_source()? else { return Ok(()) };
    let files = GrantFiles::new(Path::new(&source.dir));
    let amount_held = files.read()?.held_by(&source.holder);
    let committed = ledger.account.committed();
    let unused = amount_held.saturating_sub(committed);
    if unused.is_zero() {
        return Ok(());
    }
    // From here on the ledger admits nothing of it, so it can be given to others.
    ledger.set_limits(&source, amount_held.saturating_sub(unused))?;
    files.add_next(|book| {
        let is_there = book.held_by(&source.holder) == amount_held;
        is_there.then(|| BudgetGrant::new(&source.holder, unused, true))
    })?;
    Ok(())
}

/// Replaces the lines of a long ledger of a holder of grants by their sum.
pub(super) fn shorten(path: &Path, contents: LedgerContents) -> LedgerResult<LedgerContents> {
    let Some(state) = contents.account.as_ref().filter(|state| {
        contents.lines > MAX_LINES + state.open_calls.len() && state.head.grants.is_some()
    }) else {
        return Ok(contents);
    };
    let limits = LedgerEntry::Limits(Box::new(state.head.clone()));
    let text = ledger_line(&limits) + &ledger_line(&state.carry());
    durable::replace_private_synced(path, text.as_bytes())?;
    Ok(LedgerContents { length: text.len() as u64, lines: 2, ..contents })
}

impl LockedLedger {
    /// Where the grants are from, with the newest total.
    fn newest_source(&self) -> LedgerResult<Option<GrantSource>> {
        let source = self.account.head.grants.as_deref().cloned();
        Ok(source.map(GrantSource::with_newest_total).transpose()?)
    }

    /// Asks for a grant with which a call that may use `bound` fits, if there is enough left of the budget.
    pub(super) fn request_grant(&mut self, bound: BudgetAmount) -> LedgerResult<()> {
        let needed = self.account.committed().saturating_add(bound);
        self.extend_grants(needed, |book, source, missing| {
            book.next_amount(source.total, &source.holder, missing)
        })
    }

    /// Takes what calls have used beyond the grants, as far as it is left: other holders must not get it.
    pub(super) fn take_overrun(&mut self) -> LedgerResult<()> {
        let committed = self.account.committed();
        if self.account.head.limits.allow(committed) {
            return Ok(());
        }
        self.extend_grants(committed, |book, source, missing| {
            let left = book.left_of(source.total);
            Some(BudgetAmount {
                tokens: missing.tokens.min(left.tokens),
                cost_usd: missing.cost_usd.min(left.cost_usd),
            })
        })
    }

    /// Adds the grant that `choose` finds for what the holder lacks of `needed`.
    fn extend_grants(
        &mut self,
        needed: BudgetAmount,
        choose: impl Fn(&GrantBook, &GrantSource, BudgetAmount) -> Option<BudgetAmount>,
    ) -> LedgerResult<()> {
        let Some(source) = self.newest_source()? else { return Ok(()) };
        let book = GrantFiles::new(Path::new(&source.dir)).add_next(|book| {
            let missing = needed.saturating_sub(book.held_by(&source.holder));
            let missing = BudgetAmount {
                tokens: source.total.max_tokens.map_or(0, |_| missing.tokens),
                cost_usd: source.total.max_cost.map(|_| missing.cost_usd).unwrap_or_default(),
            };
            if missing.is_zero() {
                return None;
            }
            let amount = choose(book, &source, missing).filter(|amount| !amount.is_zero())?;
            Some(BudgetGrant::new(&source.holder, amount, false))
        })?;
        self.set_limits(&source, book.held_by(&source.holder))
    }

    /// Makes the limits of the ledger what its holder has.
    fn set_limits(&mut self, source: &GrantSource, amount_held: BudgetAmount) -> LedgerResult<()> {
        let limits = limits_of_holder(source.total, amount_held);
        if limits == self.account.head.limits {
            return Ok(());
        }
        let head = LedgerHead { limits, ..self.account.head.clone() };
        self.append_entry(LedgerEntry::Limits(Box::new(head))).map(|_| ())
    }

    /// Why the whole budget does not allow a call, where the calls of this host count as `spent`.
    pub(super) fn describe_shared_refusal(
        &self,
        bound: CallUpperBound,
        spent: BudgetAmount,
    ) -> LedgerResult<String> {
        let Some(source) = self.newest_source()? else { return Ok(String::new()) };
        let book = GrantFiles::new(Path::new(&source.dir)).read()?;
        let free = book.held_by(&source.holder).saturating_sub(spent);
        let left = book.left_of(source.total).saturating_add(free);
        let amount = bound.amount();
        let (limit, left, could) = match (source.total.max_cost, source.total.max_tokens) {
            (Some(limit), _) if left.cost_usd < amount.cost_usd => (
                format!("{limit} USD"),
                format!("{} USD", left.cost_usd),
                format!("{} USD", amount.cost_usd),
            ),
            (_, limit) => (
                format!("{} tokens", limit.unwrap_or_default()),
                left.tokens.to_string(),
                format!("{} tokens", amount.tokens),
            ),
        };
        Ok(format!(
            "the budget of the sweep, {limit}, does not allow another call: {left} are left{NEXT_CALL}{could}"
        ))
    }
}

/// The amount that the refused call could take, in the message of a run whose call the budget of its sweep did not allow.
pub fn amount_of_refused_call(message: &str) -> Option<&str> {
    message.split_once(NEXT_CALL).map(|(_, amount)| amount)
}

impl LedgerError {
    /// Whether a budget that several hosts share does not allow the call: the run itself has done nothing wrong.
    pub fn is_shared_limit(&self) -> bool {
        matches!(self, Self::SharedLimitReached(_))
    }
}
