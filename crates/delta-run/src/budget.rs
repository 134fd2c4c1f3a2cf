//! What limits a run while it works: the ledger of what it has reserved and used, grants of a shared budget,
//! the rate of calls.

pub mod budget_account;
pub mod budget_grant;
pub mod call_rate;
pub mod ledger;
pub mod prefix_wait;
