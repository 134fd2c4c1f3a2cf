//! What the hosts of a sweep have of its budget.

use delta_run::event::round_usd;
use delta_run::sweep::sweep_dir::SweepBudget;
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
        self.unused_text_with(budget, UsdDigits::for_amounts(&[self.unused_usd]))
    }

    fn unused_text_with(&self, budget: &SweepBudget, digits: UsdDigits) -> Option<String> {
        let usd = budget.max_cost.filter(|_| self.unused_usd > 0.0);
        let usd = usd.map(|_| digits.text(self.unused_usd));
        let tokens = budget.max_tokens.filter(|_| self.unused_tokens > 0);
        let tokens = tokens.map(|_| format!("{} tokens", self.unused_tokens));
        let parts: Vec<String> = usd.into_iter().chain(tokens).collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }
}

/// How many digits the amounts of a line have after the point: the same for all, so that they add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsdDigits(usize);

impl UsdDigits {
    const MIN: usize = 2;
    const MAX: usize = 6;

    /// Cents, or as many digits as the smallest of the amounts needs for two that count.
    pub fn for_amounts(amounts: &[f64]) -> Self {
        let mut digits = Self(Self::MIN);
        while digits.0 < Self::MAX && amounts.iter().any(|amount| digits.cuts(*amount)) {
            digits.0 += 1;
        }
        digits
    }

    /// More digits, so that the two amounts do not look the same.
    fn telling_apart(self, one: f64, other: f64) -> Self {
        let mut digits = self;
        while digits.0 < Self::MAX && digits.text(one) == digits.text(other) {
            digits.0 += 1;
        }
        digits
    }

    /// Whether fewer than two digits of the amount would count.
    fn cuts(self, amount: f64) -> bool {
        amount > 1e-9 && amount * self.scale() < 9.999
    }

    fn scale(self) -> f64 {
        (0..self.0).fold(1.0, |scale, _| scale * 10.0)
    }

    /// The amount as it is printed, as a number.
    fn round(self, amount: f64) -> f64 {
        (amount * self.scale()).round() / self.scale()
    }

    /// `0.0315 USD`.
    pub fn text(self, amount: f64) -> String {
        // The number is rounded first: its decimal text alone would be rounded by its binary fraction.
        format!("{:.*} USD", self.0, self.round(amount))
    }
}

/// What all hosts together have used of the budget, or may have used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BudgetUse {
    /// USD.
    pub usd: f64,
    /// Tokens.
    pub tokens: u64,
}

impl BudgetUse {
    /// The sum over all hosts.
    pub fn sum(grants: &[HostGrant]) -> Self {
        let usd = round_usd(grants.iter().map(|grant| grant.used_usd).sum());
        Self { usd, tokens: grants.iter().map(|grant| grant.used_tokens).sum() }
    }

    /// `12.30 of 200 USD`, and the same of tokens, for each limit.
    pub fn texts(self, budget: &SweepBudget) -> Vec<String> {
        let usd = budget.max_cost.map(|limit| {
            let digits = UsdDigits::for_amounts(&[self.usd, limit - self.usd]);
            format!("{:.*} of {limit} USD", digits.0, digits.round(self.usd))
        });
        let tokens = budget.max_tokens.map(|limit| format!("{} of {limit} tokens", self.tokens));
        usd.into_iter().chain(tokens).collect()
    }
}

/// `3.60 USD granted to n2`, for each host that has something.
pub fn held_texts(budget: &SweepBudget, grants: &[HostGrant], only_silent: bool) -> Vec<String> {
    let amounts: Vec<f64> = grants.iter().map(|grant| grant.unused_usd).collect();
    granted_texts(budget, grants, only_silent, UsdDigits::for_amounts(&amounts))
}

fn granted_texts(
    budget: &SweepBudget,
    grants: &[HostGrant],
    only_silent: bool,
    digits: UsdDigits,
) -> Vec<String> {
    let visible = grants.iter().filter(|grant| grant.is_silent || !only_silent);
    let texts = visible.filter_map(|grant| {
        let is_silent = if grant.is_silent { ", which is silent" } else { "" };
        let unused = grant.unused_text_with(budget, digits)?;
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
    let used = BudgetUse::sum(grants);
    let granted_usd: f64 = grants.iter().map(|grant| grant.unused_usd).sum();
    let granted_tokens: u64 = grants.iter().map(|grant| grant.unused_tokens).sum();
    let next_usd = next_call.and_then(|text| text.strip_suffix(" USD")?.parse::<f64>().ok());
    let limit_usd = budget.max_cost.unwrap_or_default();
    let left_usd = (limit_usd - used.usd - granted_usd).max(0.0);
    let mut amounts: Vec<f64> = grants.iter().map(|grant| grant.unused_usd).collect();
    amounts.extend([used.usd, left_usd, next_usd.unwrap_or_default()]);
    let digits = UsdDigits::for_amounts(&amounts);
    let digits = next_usd.map_or(digits, |amount| digits.telling_apart(left_usd, amount));
    let mut limits = Vec::new();
    let mut spent = Vec::new();
    let mut left = Vec::new();
    if let Some(limit) = budget.max_cost {
        limits.push(format!("{limit} USD"));
        spent.push(digits.text(used.usd));
        let granted: f64 = grants.iter().map(|grant| digits.round(grant.unused_usd)).sum();
        left.push(digits.text((limit - digits.round(used.usd) - granted).max(0.0)));
    }
    if let Some(limit) = budget.max_tokens {
        limits.push(format!("{limit} tokens"));
        spent.push(format!("{} tokens", used.tokens));
        left.push(format!("{} tokens", limit.saturating_sub(used.tokens + granted_tokens)));
    }
    let mut parts = vec![format!("{} spent", spent.join(" and "))];
    parts.extend(granted_texts(budget, grants, false, digits));
    parts.push(format!("{} left", left.join(" and ")));
    let next_call = next_usd.map(|amount| digits.text(amount)).or(next_call.map(str::to_owned));
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
            "the sweep's budget of 200 USD does not allow another call: 196.40 USD spent, 3.60 USD granted to n2, which is silent, 0.00 USD left, and the next call may take 0.30 USD"
        );
        assert!(grants[0].is_of("n-1") && !grants[0].is_of("n"));
    }

    #[test]
    fn amounts_of_a_line_have_the_same_digits_and_add_up() {
        let grant = HostGrant {
            holder: "n-1-5f2a-801".to_owned(),
            used_usd: 0.0084,
            used_tokens: 0,
            unused_usd: 0.0,
            unused_tokens: 0,
            is_silent: false,
        };
        let budget = SweepBudget { max_cost: Some(0.01), max_tokens: None };
        let line = |next| describe_used_budget(&budget, std::slice::from_ref(&grant), Some(next));
        let begin = "the sweep's budget of 0.01 USD does not allow another call: ";
        let figures = "0.0084 USD spent, 0.0016 USD left, and the next call may take 0.0300 USD";
        assert_eq!(line("0.03 USD"), format!("{begin}{figures}"));
        let half = HostGrant { used_usd: 0.0215, ..grant.clone() };
        let larger = SweepBudget { max_cost: Some(0.05), max_tokens: None };
        let line_of_half = describe_used_budget(&larger, &[half], Some("0.032 USD"));
        assert!(line_of_half.contains("0.022 USD spent, 0.028 USD left, "), "{line_of_half}");
        assert!(line("0.00162 USD").contains("0.00840 USD spent, 0.00160 USD left, "));
        let used = BudgetUse { usd: 0.0984, tokens: 7 };
        let budget = SweepBudget { max_cost: Some(0.1), max_tokens: Some(9) };
        assert_eq!(used.texts(&budget), ["0.0984 of 0.1 USD", "7 of 9 tokens"]);
    }
}
