//! What the hosts of a sweep have of its budget.

use crate::sweep_file::SweepBudget;
use delta_run::limits::Usd;
use serde::Serialize;

/// What a host has of the budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostGrant {
    /// The processes of one kernel through one mount: the host's name, its boot and its mount.
    pub holder: String,
    /// USD that its calls have used, or may have used.
    pub used_usd: f64,
    /// The same in tokens.
    pub used_tokens: u64,
    /// USD that it has and has not used.
    pub unused_usd: f64,
    /// The same in tokens.
    pub unused_tokens: u64,
    /// Whether no process of it gives a sign of life.
    #[serde(rename = "silent")]
    pub is_silent: bool,
}

impl HostGrant {
    /// The name of the host.
    pub fn host(&self) -> &str {
        let name = self.holder.rsplit_once('-').map_or(&*self.holder, |(name, _)| name);
        name.rsplit_once('-').map_or(name, |(host, _)| host)
    }

    /// Whether it is of this host, or is this holder.
    pub fn is_of(&self, host: &str) -> bool {
        self.holder == host || self.host() == host
    }

    /// What it has and has not used, as text; `None` if that is nothing.
    pub fn unused_text(&self, budget: &SweepBudget) -> Option<String> {
        let usd = budget.max_cost.filter(|_| self.unused_usd > 0.0);
        let usd = usd.map(|_| format!("{:.2} USD", self.unused_usd));
        let tokens = budget.max_tokens.filter(|_| self.unused_tokens > 0);
        let tokens = tokens.map(|_| format!("{} tokens", self.unused_tokens));
        let parts: Vec<String> = usd.into_iter().chain(tokens).collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }
}

/// `3.60 USD granted to n2, which is silent`, for each host that has something.
pub fn held_texts(budget: &SweepBudget, grants: &[HostGrant], only_silent: bool) -> Vec<String> {
    let visible = grants.iter().filter(|grant| grant.is_silent || !only_silent);
    let texts = visible.filter_map(|grant| {
        let is_silent = if grant.is_silent { ", which is silent" } else { "" };
        let unused = grant.unused_text(budget)?;
        Some(format!("{unused} granted to {}{is_silent}", grant.host()))
    });
    texts.collect()
}

/// Why no call of the sweep is made any more: what was spent, what is left, and what the next call may take.
pub fn describe_used_budget(
    budget: &SweepBudget,
    grants: &[HostGrant],
    next_call: Option<&str>,
) -> String {
    let usd: f64 = grants.iter().map(|grant| grant.used_usd).sum();
    let tokens: u64 = grants.iter().map(|grant| grant.used_tokens).sum();
    let granted_usd: f64 = grants.iter().map(|grant| grant.unused_usd).sum();
    let granted_tokens: u64 = grants.iter().map(|grant| grant.unused_tokens).sum();
    let mut limits = Vec::new();
    let mut spent = Vec::new();
    let mut left = Vec::new();
    if let Some(limit) = budget.max_cost {
        limits.push(format!("{limit} USD"));
        spent.push(format!("{usd:.2} USD"));
        left.push(format!("{} USD", Usd::new(limit - usd - granted_usd)));
    }
    if let Some(limit) = budget.max_tokens {
        limits.push(format!("{limit} tokens"));
        spent.push(format!("{tokens} tokens"));
        left.push(format!("{} tokens", limit.saturating_sub(tokens + granted_tokens)));
    }
    let mut parts = vec![format!("{} spent", spent.join(" and "))];
    parts.extend(held_texts(budget, grants, false));
    parts.push(format!("{} left", left.join(" and ")));
    parts.extend(next_call.map(|amount| format!("and the next call may take {amount}")));
    format!(
        "the sweep's budget of {} does not allow another call: {}",
        limits.join(" and "),
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_26_8_a_used_budget_names_what_a_silent_host_holds() {
        let grant = |holder: &str, used_usd, unused_usd, is_silent| HostGrant {
            holder: holder.to_owned(),
            used_usd,
            used_tokens: 0,
            unused_usd,
            unused_tokens: 0,
            is_silent,
        };
        let grants =
            [grant("n-1-5f2a-801", 100.0, 0.0, false), grant("n2-77aa-801", 96.4, 3.6, true)];
        let budget = SweepBudget { max_cost: Some(200.0), max_tokens: None };
        assert_eq!(
            describe_used_budget(&budget, &grants, Some("0.3 USD")),
            "the sweep's budget of 200 USD does not allow another call: 196.40 USD spent, 3.60 USD granted to n2, which is silent, 0 USD left, and the next call may take 0.3 USD"
        );
        assert!(grants[0].is_of("n-1") && !grants[0].is_of("n"));
    }
}
