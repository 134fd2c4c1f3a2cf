//! `delta context diff`: what changed from one request of a run to another, and what that means for a prompt cache.

use super::asked::Asked;
use super::{Format, joined, line, table};
use crate::cli::completions;
use crate::cli::failure::Failure;
use crate::cli::named::Named;
use crate::composition::{Account, compare};
use crate::durable;
use crate::llm::config::Pricing;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show what changed between two requests of a run, and where the provider's prompt cache breaks
///
/// A provider keeps what it has read of a request, and takes the beginning of the next one from there, as far as both are
/// the same. Tokens are estimates, corrected by what the endpoint reported; money is in USD, from `llm.pricing` of the
/// agent as it was when the run began.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta context diff RUN 3 4 -w ./work
  delta context diff RUN 3 4 -w ./work --format json | jq .breaks")]
pub struct DiffArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Named,
    /// The earlier iteration
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    from: u32,
    /// The later iteration
    #[arg(value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    to: u32,
    /// The workspace that holds it
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The text of the comparison.
pub fn diff(args: &DiffArgs) -> Result<String, Failure> {
    let (found, events) = args.run.read(&args.work_dir)?;
    let (id, dir) = (&found.id, &found.dir);
    let all = Asked::all(&events);
    let (one, other) = (Asked::of(&all, Some(args.from))?, Asked::of(&all, Some(args.to))?);
    let (before, after) = (one.read(dir)?, other.read(dir)?);
    // The best that is known of the endpoint's counting: what it reported for the later one.
    let ratio = other.ratio_after;
    let (before, after) = (before.composition(ratio)?, after.composition(ratio)?);
    let seen = compare(&before, &after, ratio, pricing(dir).as_ref());
    let size = |account: &Account| ratio.tokens(account.bytes);
    let (from, to) = (size(&before.account), size(&after.account));
    Ok(match args.format {
        Format::Text => {
            let names = [format!("iteration {}", args.from), format!("iteration {}", args.to)];
            let heading =
                format!("{} {}, {from} tokens, and {}, {to} tokens", id, names[0], names[1]);
            let names = [names[0].as_str(), names[1].as_str()];
            let reported = table::reported(other.usage.as_ref());
            format!("{}{reported}", table::comparison(&heading, names, &seen))
        }
        Format::Json => {
            let side = |asked: &Asked, account: &Account, tokens: u64| {
                json!({
                    "iteration": asked.iteration,
                    "bytes": account.bytes,
                    "tokens": tokens,
                    "sha256": account.sha256,
                    "reported": asked.usage,
                })
            };
            let about = json!({
                "run_id": id.to_string(),
                "from": side(one, &before.account, from),
                "to": side(other, &after.account, to),
            });
            line(&joined(about, json!(seen)))
        }
    })
}

/// The prices of the agent, from the file that the run keeps.
fn pricing(run_dir: &Path) -> Option<Pricing> {
    let text = durable::read_whole(&run_dir.join("agent/agent.yaml")).ok()?;
    Pricing::of_agent(std::str::from_utf8(&text).ok()?)
}
