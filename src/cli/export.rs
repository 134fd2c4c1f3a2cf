//! `delta export`: runs in the forms of others.

use super::failure::Failure;
use super::named::Named;
use super::{completions, drive, stdout, usage_error};
use crate::durable;
use crate::export::collector::{Accepted, Collector, SendError};
use crate::export::{Subject, atif, markdown, openai, otlp};
use crate::llm::endpoint::{Origin, Setting};
use crate::terminal;
use crate::text::printable;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Give runs in the form of other tools: traces, trajectories, conversations, documents
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ExportArgs {
    /// The runs: their ids, or the paths of their directories
    #[arg(value_name = "RUN", required = true, value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    runs: Vec<Named>,
    /// The form
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,
    /// The workspace that holds them
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// Write to FILE instead of stdout; what is there is replaced
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["endpoint", "send"])]
    output: Option<PathBuf>,
    /// Send the spans to the OTLP endpoint at URL, over HTTP; /v1/traces is added to it
    #[arg(long, value_name = "URL", conflicts_with = "send")]
    endpoint: Option<String>,
    /// Send the spans to the endpoint that OTEL_EXPORTER_OTLP_ENDPOINT names, else http://localhost:4318
    #[arg(long)]
    send: bool,
    /// Put the texts of people, of the LLM and of tools into the spans too
    #[arg(long)]
    content: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta export RUN --to markdown -o run.md
  delta export RUN --to atif > trajectory.json
  delta export RUN1 RUN2 --to openai >> training.jsonl
  delta export RUN --to otlp > spans.jsonl
  delta export RUN --to otlp --endpoint http://localhost:4318";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// OpenTelemetry spans, as lines of OTLP/JSON or sent to an endpoint
    Otlp,
    /// A trajectory in the Agent Trajectory Interchange Format, on a line
    Atif,
    /// The conversation in the form of Chat Completions, on a line
    Openai,
    /// An account for people
    Markdown,
}

/// Exports runs; gives the exit code.
pub fn export(args: &ExportArgs) -> ExitCode {
    let sends = args.send || args.endpoint.is_some();
    if args.to != Format::Otlp && (sends || args.content) {
        let option = match (args.content, args.send) {
            (true, _) => "--content",
            (_, true) => "--send",
            _ => "--endpoint",
        };
        return usage_error("export", &format!("`{option}` is for `--to otlp`"));
    }
    match perform(args, sends) {
        Ok(code) => code,
        Err(failure) => failure.complain(),
    }
}

fn perform(args: &ExportArgs, sends: bool) -> Result<ExitCode, Failure> {
    let mut subjects = Vec::new();
    for run in &args.runs {
        let (found, events) = run.read(&args.work_dir)?;
        subjects.push(Subject::read(&found.dir, events));
    }
    if sends {
        return send(args, &subjects);
    }
    let texts: Vec<String> = subjects.iter().map(|subject| text(args, subject)).collect();
    let text = texts.join(if args.to == Format::Markdown { "\n" } else { "" });
    match &args.output {
        Some(path) => write(path, &text)?,
        None => {
            let shown = if terminal::shows_result() { printable(&text) } else { text };
            stdout::write_result(&shown).map_err(|error| {
                Failure::not_sent(
                    format!("the export could not be written to stdout: {error}"),
                    None,
                )
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the file that the person named, whether it is there or not.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    match path.metadata() {
        Ok(found) if found.is_file() => durable::rewrite(path, text.as_bytes())?,
        Ok(_) => {
            let message = format!("{} is not a regular file", path.display());
            let hint = "name a file, or leave out `-o` and redirect stdout";
            return Err(Failure::config(message, Some(hint.to_owned())));
        }
        Err(_) => durable::write_new_shared(path, text.as_bytes(), false)?,
    }
    Ok(())
}

/// A run in its form.
fn text(args: &ExportArgs, subject: &Subject) -> String {
    let around = || {
        let around = subject.surroundings();
        if !around.known {
            let run = &subject.origin().run_id;
            stdout::complain(&format!(
                "warning: the last request of run {run} cannot be read; without it the export has no system messages and no tools"
            ));
        }
        around
    };
    match args.to {
        Format::Otlp => {
            let batches = otlp::batches(subject, &options(args));
            batches.into_iter().map(|batch| batch.line).collect()
        }
        Format::Atif => atif::line(subject, around()),
        Format::Openai => openai::line(subject, around()),
        Format::Markdown => markdown::document(subject),
    }
}

fn options(args: &ExportArgs) -> otlp::Options {
    let service = drive::variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "delta".to_owned());
    otlp::Options { content: args.content, service }
}

fn send(args: &ExportArgs, subjects: &[Subject]) -> Result<ExitCode, Failure> {
    // The environment alone: a `.env` in the workspace is the agent's to write.
    let env = |name: &str| {
        let setting = |value| Setting { name: name.to_owned(), value, origin: Origin::Process };
        drive::variable(name).map(setting).into_iter().collect()
    };
    let unusable = |error: SendError| match error {
        SendError::Cancelled => Failure::interrupted("interrupted; not every span was sent"),
        SendError::Unusable(message) => Failure::config(message, None),
        SendError::Refused(message) => {
            let hint = "`--endpoint URL` names the endpoint, OTEL_EXPORTER_OTLP_HEADERS=name=value its headers";
            Failure::not_sent(message, Some(hint.to_owned()))
        }
    };
    let collector = Collector::new(args.endpoint.as_deref(), &env).map_err(unusable)?;
    let options = options(args);
    let batches: Vec<_> =
        subjects.iter().flat_map(|subject| otlp::batches(subject, &options)).collect();
    let cancel = drive::cancel()?;
    let accepted = collector.send(&batches, &cancel, &mut |line| {
        stdout::complain(&format!("warning: {line}"));
    });
    Ok(told(&accepted.map_err(unusable)?))
}

/// Says what became of the spans; gives the exit code.
fn told(accepted: &Accepted) -> ExitCode {
    let Accepted { address, spans, rejected, words } = accepted;
    words.iter().for_each(|words| stdout::complain(&format!("the endpoint says: {words}")));
    if *rejected == 0 {
        stdout::complain(&format!("{spans} spans sent to {address}"));
        return ExitCode::SUCCESS;
    }
    stdout::complain(&format!(
        "Error: {address} took {spans} spans and refused {rejected}; nothing is gained by sending them again"
    ));
    ExitCode::FAILURE
}
