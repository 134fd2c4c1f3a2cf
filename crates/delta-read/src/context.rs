//! `delta context ...`: what the LLM sees, block by block.
//!
//! `show` and `diff` read the records of a run; `preview` builds a first request without a run.

use clap::{Args, Subcommand};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_agent::agent::Agent;
use delta_agent::agent::env_layers::EnvLayers;
use delta_base::json::merge_objects;
use delta_llm::llm::LlmRequest;
use delta_operator::arguments::completion_candidates;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::RunArgument;
use delta_operator::runs::run_list;
use delta_program::default_format::TextOrJson;
use delta_program::number_argument::parse_number_in;
use delta_program::stdio;
use delta_report::request_breakdown::{RequestBlock, RequestBreakdown, RequestSummary};
use iteration_request::IterationRequest;
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::sync::Arc;

mod cost;
mod diff;
pub mod iteration_request;
mod preview;
mod request_table;

/// Show what the LLM sees
#[derive(Debug, Subcommand)]
#[command(about = "Show what the LLM sees", defer = true)]
pub enum ContextCommand {
    /// Show the blocks of a request of a run
    Show(ContextShowArgs),
    /// Show what changed between two requests, and where the prompt cache breaks
    Diff(diff::ContextDiffArgs),
    /// Show what runs cost, and what costs more than it must
    Cost(cost::ContextCostArgs),
    /// Show the first request of a run without creating a run or calling the LLM
    Preview(preview::PreviewArgs),
}

/// Show the blocks of a request of a run
///
/// Lists each block with its source, its size and the hash of its bytes in the request, then the tools and everything
/// else. Token counts are estimates.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta context show RUN -w ./work
  delta context show RUN -w ./work --iteration 3 --block journal | less
  delta context show RUN --format json | jq '.blocks[] | {source, tokens}'")]
pub struct ContextShowArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Show the request of iteration N [default: the last]
    #[arg(long, value_name = "N", value_parser = parse_number_in(1..=u32::MAX))]
    iteration: Option<u32>,
    #[command(flatten)]
    view: RequestViewOptions,
}

/// The options that choose the output.
#[derive(Debug, Args)]
struct RequestViewOptions {
    /// Print the messages of one block, given by number or source
    #[arg(long, value_name = "K")]
    block: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

/// Translates a first request of an agent, with the settings of its environment, into the form of its endpoint.
pub type EncodeRequest =
    fn(&Agent, &EnvLayers, &LlmRequest<'_>) -> Result<Arc<String>, CommandFailure>;

/// Runs a subcommand; a preview is in the form into which `encode_request` translates it.
pub fn context_command(
    command: &ContextCommand,
    encode_request: EncodeRequest,
) -> Result<(), CommandFailure> {
    let text = match command {
        ContextCommand::Show(args) => show_request(args),
        ContextCommand::Diff(args) => diff::diff_requests(args),
        ContextCommand::Cost(args) => cost::report_cost(args),
        ContextCommand::Preview(args) => preview::preview_request(args, encode_request),
    };
    stdio::print_text(&text?);
    Ok(())
}

fn show_request(args: &ContextShowArgs) -> Result<String, CommandFailure> {
    let (run, events) = args.run.find_and_read(&args.work_dir)?;
    let requests = IterationRequest::list(&events);
    let request = IterationRequest::find(&requests, args.iteration)?;
    let record = request.read_record(&run.dir)?;
    let breakdown = record.breakdown(request.ratio)?;
    let heading = format!("{} iteration {}", run.id, request.iteration);
    let metadata = json!({
        "run_id": run.id.to_string(),
        "iteration": request.iteration,
        "reported": request.usage,
    });
    let usage = request_table::render_reported_usage(request.usage.as_ref());
    args.view.render(&breakdown, &heading, metadata, &usage)
}

impl RequestViewOptions {
    /// Renders a request. `metadata` is added to JSON output, `footer` to the table.
    fn render(
        &self,
        breakdown: &RequestBreakdown<'_>,
        heading: &str,
        metadata: Json,
        footer: &str,
    ) -> Result<String, CommandFailure> {
        let summary = &breakdown.summary;
        let Some(selector) = &self.block else {
            return Ok(match self.format {
                TextOrJson::Text => {
                    format!("{}{footer}", request_table::render_breakdown(heading, summary))
                }
                TextOrJson::Json => json_line(&merge_objects(metadata, json!(summary))),
            });
        };
        let block = find_block(summary, selector)?;
        let messages: Vec<Json> = breakdown
            .block_messages(block)
            .iter()
            .filter_map(|text| serde_json::from_str(text).ok())
            .collect();
        if messages.is_empty() {
            return Err(no_messages_failure(summary, block));
        }
        Ok(match self.format {
            TextOrJson::Text => messages.iter().map(request_table::render_message).collect(),
            TextOrJson::Json => {
                let block = merge_objects(json!(block), json!({"messages": messages}));
                json_line(&merge_objects(metadata, block))
            }
        })
    }
}

/// Finds a block by its number or its source.
fn find_block<'a>(
    summary: &'a RequestSummary,
    selector: &str,
) -> Result<&'a RequestBlock, CommandFailure> {
    let blocks = &summary.blocks;
    let by_number = blocks.iter().find(|block| block.order.to_string() == selector);
    let block = by_number.or_else(|| blocks.iter().find(|block| block.source == selector));
    block.ok_or_else(|| {
        let names: Vec<String> =
            blocks.iter().map(|block| format!("{} (`{}`)", block.order, block.source)).collect();
        let hint = format!("the blocks are {}", names.join(", "));
        CommandFailure::not_found(format!("there is no block `{selector}`"), hint)
    })
}

fn no_messages_failure(summary: &RequestSummary, block: &RequestBlock) -> CommandFailure {
    let message = format!("block {} (`{}`) has no messages to show", block.order, block.source);
    let hint = match &block.skipped {
        Some(reason) => format!("it was skipped: {reason}"),
        None if summary.replaced => "a hook replaced its messages".to_owned(),
        None => "it produced none".to_owned(),
    };
    CommandFailure::not_found(message, hint)
}

fn json_line(value: &Json) -> String {
    format!("{value}\n")
}
