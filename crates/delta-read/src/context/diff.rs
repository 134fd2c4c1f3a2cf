//! `delta context diff`: compares two requests of a run, and finds where the prompt cache breaks.

use super::iteration_request::IterationRequest;
use super::json_line;
use crate::context::request_table;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::durable;
use delta_base::json::merge_objects;
use delta_llm::llm::pricing_from_agent_yaml;
use delta_operator::arguments::completion_candidates;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::{self, RunArgument};
use delta_operator::runs::run_list;
use delta_program::default_format::TextOrJson;
use delta_program::number_argument::parse_number_in;
use delta_report::request_breakdown::{RequestPrices, RequestSummary, compare_breakdowns};
use delta_words::Pricing;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show what changed between two requests, and where the prompt cache breaks
///
/// Token counts are estimates; costs are in USD, at the prices that the run recorded.
#[derive(Debug, Args)]
#[command(
    override_usage = "delta context diff [OPTIONS] [RUN] <N> <M>",
    after_long_help = "\
Examples:
  delta context diff 3 4 -w ./work          # of the run that was updated last
  delta context diff RUN 3 4 -w ./work
  delta context diff RUN 3 4 -w ./work --format json | jq .breaks"
)]
pub struct ContextDiffArgs {
    /// Run: id, unique prefix or suffix, directory or `last` [default: last]
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(run_list::run_candidates))]
    run: Option<String>,
    /// Earlier iteration
    #[arg(value_name = "N")]
    from: Option<String>,
    /// Later iteration
    #[arg(value_name = "M")]
    to: Option<String>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

const ARGUMENTS_HINT: &str = "the arguments are `delta context diff [RUN] <N> <M>`";

impl ContextDiffArgs {
    /// The run and the two iterations. Two positional arguments are the iterations of the run that was updated last.
    fn operands(&self) -> Result<(RunArgument, u32, u32), CommandFailure> {
        let (run, from, to) = match (&self.run, &self.from, &self.to) {
            (Some(run), Some(from), Some(to)) => (run.as_str(), from, to),
            (Some(from), Some(to), None) => (run_argument::LAST, from, to),
            _ => {
                let message = "expected two iterations to compare";
                return Err(CommandFailure::usage(message, ARGUMENTS_HINT));
            }
        };
        let run =
            RunArgument::parse(run).map_err(|message| CommandFailure::usage(message, None))?;
        Ok((run, parse_iteration("N", from)?, parse_iteration("M", to)?))
    }
}

fn parse_iteration(name: &str, text: &str) -> Result<u32, CommandFailure> {
    parse_number_in(1..=u32::MAX)(text).map_err(|expected| {
        CommandFailure::usage(
            format!("invalid value '{text}' for '<{name}>': {expected}"),
            ARGUMENTS_HINT,
        )
    })
}

/// Renders the comparison.
pub fn diff_requests(args: &ContextDiffArgs) -> Result<String, CommandFailure> {
    let (run, from_iteration, to_iteration) = args.operands()?;
    let (run, events) = run.find_and_read(&args.work_dir)?;
    let requests = IterationRequest::list(&events);
    let from = IterationRequest::find(&requests, Some(from_iteration))?;
    let to = IterationRequest::find(&requests, Some(to_iteration))?;
    let from_record = from.read_record(&run.dir)?;
    let to_record = to.read_record(&run.dir)?;
    // The best known correction, which includes what the endpoint reported for the later request.
    let ratio = to.ratio_after;
    let before = from_record.breakdown(ratio)?;
    let after = to_record.breakdown(ratio)?;
    let pricing = to.pricing.clone().or_else(|| agent_copy_pricing(&run.dir));
    let cache_use = to_record.cache_use;
    let prices = pricing.as_ref().map(|pricing| RequestPrices { pricing, cache_use });
    let diff = compare_breakdowns(&before, &after, ratio, prices);
    let from_tokens = before.total_tokens(ratio);
    let to_tokens = after.total_tokens(ratio);
    Ok(match args.format {
        TextOrJson::Text => {
            let from_name = format!("iteration {from_iteration}");
            let to_name = format!("iteration {to_iteration}");
            let heading = format!(
                "{} {from_name}, {from_tokens} tokens, and {to_name}, {to_tokens} tokens",
                run.id
            );
            let usage = request_table::render_reported_usage(to.usage.as_ref());
            let table = request_table::render_request_diff(&heading, [&from_name, &to_name], &diff);
            format!("{table}{usage}")
        }
        TextOrJson::Json => {
            let side = |request: &IterationRequest, summary: &RequestSummary, tokens: u64| {
                json!({
                    "iteration": request.iteration,
                    "bytes": summary.bytes,
                    "tokens": tokens,
                    "sha256": summary.sha256,
                    "reported": request.usage,
                })
            };
            let metadata = json!({
                "run_id": run.id.to_string(),
                "from": side(from, &before.summary, from_tokens),
                "to": side(to, &after.summary, to_tokens),
            });
            json_line(&merge_objects(metadata, json!(diff)))
        }
    })
}

/// The prices in the run's copy of the agent, for a run of a version that did not record the prices.
fn agent_copy_pricing(run_dir: &Path) -> Option<Pricing> {
    let text = durable::read_no_follow_at_most(
        &run_dir.join("agent/agent.yaml"),
        durable::MAX_REGULAR_BYTES,
    )
    .ok()?;
    pricing_from_agent_yaml(std::str::from_utf8(&text).ok()?)
}
