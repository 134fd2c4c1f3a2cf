//! `delta context ...`: what the LLM sees, block by block.
//!
//! `show` and `diff` read what a run has recorded; `preview` builds a first request without making a run.

use super::failure::Failure;
use super::named::Named;
use super::{completions, stdout};
use crate::composition::{Account, Composition, Part};
use asked::Asked;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::process::ExitCode;

pub mod asked;
mod diff;
mod preview;
mod table;

/// Look at what the LLM sees
#[derive(Debug, Subcommand)]
#[command(about = "Look at what the LLM sees")]
pub enum ContextCommand {
    Show(ShowArgs),
    Diff(diff::DiffArgs),
    Preview(preview::PreviewArgs),
}

/// Show what a request of a run was made of
///
/// Each block with its source, its size and the hash of its bytes in the request; the tools; the rest. Tokens are
/// estimates, corrected by what the endpoint has reported before.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta context show RUN -w ./work
  delta context show RUN -w ./work --iteration 3 --block journal | less
  delta context show RUN -w ./work --format json | jq '.blocks[] | {source, tokens}'")]
pub struct ShowArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Named,
    /// The workspace that holds it
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// The iteration (the last one by default)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iteration: Option<u32>,
    #[command(flatten)]
    view: View,
}

/// How a request is shown.
#[derive(Debug, Args)]
struct View {
    /// Print the messages of one block: its number or its source
    #[arg(long, value_name = "K")]
    block: Option<String>,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    Text,
    /// One JSON object
    Json,
}

/// Looks at what the LLM sees; gives the exit code.
pub fn context(command: &ContextCommand) -> ExitCode {
    let text = match command {
        ContextCommand::Show(args) => show(args),
        ContextCommand::Diff(args) => diff::diff(args),
        ContextCommand::Preview(args) => preview::preview(args),
    };
    match text {
        Ok(text) => {
            stdout::write(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => failure.complain(),
    }
}

fn show(args: &ShowArgs) -> Result<String, Failure> {
    let (found, events) = args.run.read(&args.work_dir)?;
    let asked = Asked::all(&events);
    let asked = Asked::of(&asked, args.iteration)?;
    let recorded = asked.read(&found.dir)?;
    let composition = recorded.composition(asked.ratio)?;
    let heading = format!("{} iteration {}", found.id, asked.iteration);
    let about = json!({
        "run_id": found.id.to_string(),
        "iteration": asked.iteration,
        "reported": asked.usage,
    });
    args.view.of(&composition, &heading, about, &table::reported(asked.usage.as_ref()))
}

impl View {
    /// The text of a request's account. `about` is what is said of it beside that, `below` the lines under the table.
    fn of(
        &self,
        composition: &Composition<'_>,
        heading: &str,
        about: Json,
        below: &str,
    ) -> Result<String, Failure> {
        let account = &composition.account;
        match (&self.block, self.format) {
            (None, Format::Text) => Ok(format!("{}{below}", table::account(heading, account))),
            (None, Format::Json) => Ok(line(&joined(about, json!(account)))),
            (Some(wanted), format) => {
                let part = find_block(account, wanted)?;
                let messages = composition.messages_of(part);
                if messages.is_empty() {
                    return Err(nothing(account, part));
                }
                let parsed: Vec<Json> =
                    messages.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
                Ok(match format {
                    Format::Text => parsed.iter().map(table::message).collect(),
                    Format::Json => {
                        line(&joined(about, joined(json!(part), json!({"messages": parsed}))))
                    }
                })
            }
        }
    }
}

/// A block by its number or its source.
fn find_block<'a>(account: &'a Account, wanted: &str) -> Result<&'a Part, Failure> {
    let by_number = |part: &&Part| part.order.to_string() == wanted;
    let by_source = |part: &&Part| part.source == wanted;
    let blocks = &account.blocks;
    blocks.iter().find(by_number).or_else(|| blocks.iter().find(by_source)).ok_or_else(|| {
        let known: Vec<String> =
            blocks.iter().map(|part| format!("{} (`{}`)", part.order, part.source)).collect();
        let hint = format!("the blocks are {}", known.join(", "));
        Failure::no_run(format!("there is no block `{wanted}`"), hint)
    })
}

/// Why a block has no messages to show.
fn nothing(account: &Account, part: &Part) -> Failure {
    let message = format!("block {} (`{}`) has no messages to show", part.order, part.source);
    let hint = match (&part.skipped, account.replaced) {
        (Some(why), _) => format!("it was skipped: {why}"),
        (None, true) => "a hook has put other messages in their place".to_owned(),
        (None, false) => "it gave none".to_owned(),
    };
    Failure::no_run(message, hint)
}

/// One object with the members of both.
fn joined(mut one: Json, other: Json) -> Json {
    if let (Some(one), Json::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

fn line(value: &Json) -> String {
    format!("{value}\n")
}
