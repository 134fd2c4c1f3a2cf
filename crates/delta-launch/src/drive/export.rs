//! `delta export`: exports runs in the formats of other tools.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use collector::{CollectorError, CollectorSummary, OtlpCollector};
use delta_base::durable;
use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};
use delta_operator::command_line::print_usage_error;
use delta_operator::failure::{CommandFailure, quote_workspace_of};
use delta_operator::runs::own_run;
use delta_operator::runs::run_arguments::RunArguments;
use delta_operator::{cancel, environment, state};
use delta_program::stdio;
use delta_report::export::{ExportedRun, SystemContext, atif, in_toto, markdown, openai, otlp};
use delta_report::statement::document::PAYLOAD_TYPE;
use delta_report::statement::envelope::SignedEnvelope;
use delta_run::journal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod collector;
mod follow;

/// Export runs as traces, trajectories, chat transcripts, Markdown or statements
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ExportArgs {
    #[command(flatten)]
    runs: RunArguments,
    /// Export format
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: ExportFormat,
    /// Write to FILE, replacing it, instead of stdout
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["endpoint", "send"])]
    output: Option<PathBuf>,
    /// Send the spans over HTTP to the OTLP endpoint URL, with /v1/traces appended
    #[arg(long, value_name = "URL", conflicts_with = "send")]
    endpoint: Option<String>,
    /// Send the spans to $OTEL_EXPORTER_OTLP_ENDPOINT [default: http://localhost:4318]
    #[arg(long)]
    send: bool,
    /// Include the texts of users, the LLM and tools in the spans: `all`, or only those `new` since the previous request
    /// [default without a value: new]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "new", hide_default_value = true)]
    content: Option<otlp::SpanContent>,
    /// Export each span when it is complete, until no process works on the runs; with `-r`, also of runs that start meanwhile
    #[arg(short, long, conflicts_with = "output")]
    follow: bool,
    /// Print the statement alone, without a signature
    #[arg(long)]
    unsigned: bool,
    /// Include the texts of messages in the statement, in place of their hashes
    #[arg(long)]
    with_task: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta export RUN --to markdown -o run.md
  delta export RUN --to atif > trajectory.json
  delta export RUN1 RUN2 --to openai >> training.jsonl
  delta export RUN --to otlp --endpoint http://localhost:4318
  delta export -r ~/agents --to otlp --send --follow
  delta export RUN --to in-toto -o change.intoto.json    # signed
  delta export RUN --to in-toto --unsigned > statement.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// OpenTelemetry spans, as lines of OTLP/JSON or sent to an endpoint
    Otlp,
    /// Trajectory in the Agent Trajectory Interchange Format, on one line
    Atif,
    /// Conversation in the form of Chat Completions, on one line
    Openai,
    /// Readable document
    Markdown,
    /// Statement of which agent made the changes, signed with your key, on one line
    InToto,
}

/// Exports runs; returns the exit code.
pub fn export_command(args: &ExportArgs) -> Result<ExitCode, CommandFailure> {
    let sends = args.send || args.endpoint.is_some();
    let format_options = [
        ("--content", "otlp", args.content.is_some()),
        ("--send", "otlp", args.send),
        ("--endpoint", "otlp", args.endpoint.is_some()),
        ("--follow", "otlp", args.follow),
        ("--unsigned", "in-toto", args.unsigned),
        ("--with-task", "in-toto", args.with_task),
    ];
    let format = args.to.to_possible_value();
    let format = format.as_ref().map_or("", PossibleValue::get_name);
    let mut options = format_options.iter();
    if let Some((option, of, _)) = options.find(|(_, of, is_given)| *is_given && *of != format) {
        let message = format!("`{option}` is for `--to {of}`");
        return Ok(print_usage_error::<ExportArgs>("export", &message));
    }
    if args.follow {
        return follow::follow_runs(args);
    }
    let mut subjects = Vec::new();
    for run in args.runs.select(|_| true)? {
        let (run, events) = run.find_and_read(&args.runs.work_dir)?;
        subjects.push(if args.to == ExportFormat::InToto {
            ExportedRun::read_alone(&run.dir, events)
        } else {
            ExportedRun::read(&run.dir, events)
        });
    }
    if sends {
        return send_spans(args, &subjects);
    }
    let texts = subjects.iter().map(|subject| render_export(args, subject));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    let text = texts.join(if args.to == ExportFormat::Markdown { "\n" } else { "" });
    match &args.output {
        Some(path) => write_export_file(path, &text)?,
        None => {
            let written = match args.to {
                ExportFormat::Markdown => stdio::print_result(&text),
                ExportFormat::Otlp
                | ExportFormat::Atif
                | ExportFormat::Openai
                | ExportFormat::InToto => stdio::print_json_result(&text),
            };
            written.map_err(unwritten_failure)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unwritten_failure(error: std::io::Error) -> CommandFailure {
    CommandFailure::not_delivered(format!("could not write the export to stdout: {error}"), None)
}

/// Writes the file of `-o` and replaces an existing regular file.
fn write_export_file(path: &Path, text: &str) -> Result<(), CommandFailure> {
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {
            durable::replace_shared_synced(path, text.as_bytes())?
        }
        Ok(_) => {
            let message = format!("{} is not a regular file", path.display());
            let hint = "name a regular file, or omit `-o` and redirect stdout";
            return Err(CommandFailure::config(message, hint));
        }
        Err(_) => durable::create_shared_unsynced(path, text.as_bytes(), false)?,
    }
    Ok(())
}

fn render_export(args: &ExportArgs, subject: &ExportedRun) -> Result<String, CommandFailure> {
    Ok(match args.to {
        ExportFormat::Otlp => {
            let batches = otlp::build_span_batches(subject, &otlp_options(args));
            batches.into_iter().map(|batch| batch.line).collect()
        }
        ExportFormat::Atif => atif::render_atif_trajectory(subject, read_system_context(subject)),
        ExportFormat::Openai => {
            openai::render_chat_transcript(subject, read_system_context(subject))
        }
        ExportFormat::Markdown => markdown::render_markdown(subject),
        ExportFormat::InToto => render_statement(args, subject)?,
    })
}

/// The statement of a run, signed unless the options say otherwise: only of a run that is the operator's own and has ended, so
/// that no signature is of what others have recorded.
fn render_statement(args: &ExportArgs, subject: &ExportedRun) -> Result<String, CommandFailure> {
    let ExportedRun { dir, events, .. } = subject;
    let id = subject.engine_start().map(|start| &start.run_id);
    let id = id.ok_or_else(|| CommandFailure::damaged("the run has no ENGINE_START", None))?;
    let journal = journal::read_journal_lines(dir, events.len())
        .map_err(|error| own_run::unreadable_journal_failure(id, error))?;
    let statement =
        in_toto::build_statement(subject, &journal, args.with_task).map_err(|reason| {
            CommandFailure::config(format!("run {id} cannot have a statement: {reason}"), None)
        })?;
    let text = statement.to_text();
    if args.unsigned {
        return Ok(format!("{text}\n"));
    }
    let key = state::seal_key().map_err(|missing| {
        let hint = "`--unsigned` prints the statement without a signature";
        CommandFailure::config(format!("there is no key to sign with: {}", missing.reason()), hint)
    })?;
    let seals = own_run::fold_own_journal(id, dir)?.seals;
    if !seals.is_own_and_unchanged() || !seals.is_result_sealed {
        let workspace = quote_workspace_of(dir);
        let message = format!("run {id} is not signed: its end has no seal of yours");
        let hint = format!(
            "`delta verify {id} -w {workspace}` says why; a run that works has one when it exits;\n\
             `--unsigned` prints the statement without a signature"
        );
        return Err(CommandFailure::config(message, hint));
    }
    Ok(SignedEnvelope::sign(PAYLOAD_TYPE, text.as_bytes(), &key))
}

/// The system messages and the tools of the run; warns if they cannot be read.
fn read_system_context(subject: &ExportedRun) -> SystemContext {
    let context = subject.system_context();
    if !context.is_known {
        let run = &subject.identity().run_id;
        stdio::print_error_line(&format!(
            "warning: could not read the last request of run {run}; the export has no system messages and no tools"
        ));
    }
    context
}

fn otlp_options(args: &ExportArgs) -> otlp::OtlpOptions {
    let service = environment::variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "delta".to_owned());
    otlp::OtlpOptions { content: args.content, service }
}

fn delivery_failure(error: CollectorError) -> CommandFailure {
    match error {
        CollectorError::Cancelled => {
            CommandFailure::interrupted("interrupted; not every span was sent")
        }
        CollectorError::InvalidSettings(message) => CommandFailure::config(message, None),
        CollectorError::Undelivered(message) => {
            let hint = "`--endpoint URL` names another collector, and OTEL_EXPORTER_OTLP_HEADERS=name=value sets headers";
            CommandFailure::not_delivered(message, hint)
        }
    }
}

/// The collector of the options. Only the environment counts: the agent can write a `.env` file in the workspace.
fn open_collector(args: &ExportArgs) -> Result<OtlpCollector, CommandFailure> {
    let collector = OtlpCollector::new(args.endpoint.as_deref(), &|name| {
        let value = environment::variable(name);
        let origin = EnvOrigin::Process;
        value.map(|value| EnvSetting { name: name.to_owned(), value, origin }).into_iter().collect()
    });
    collector.map_err(delivery_failure)
}

fn print_warning(line: &str) {
    stdio::print_error_line(&format!("warning: {line}"));
}

fn send_spans(args: &ExportArgs, subjects: &[ExportedRun]) -> Result<ExitCode, CommandFailure> {
    let mut collector = open_collector(args)?;
    let options = otlp_options(args);
    let batches: Vec<_> =
        subjects.iter().flat_map(|subject| otlp::build_span_batches(subject, &options)).collect();
    let cancel = cancel::install_cancel()?;
    let accepted = collector.send(&batches, &cancel, &mut print_warning);
    Ok(report_delivery(&accepted.map_err(delivery_failure)?))
}

/// Prints how many spans were accepted; returns the exit code.
fn report_delivery(accepted: &CollectorSummary) -> ExitCode {
    let CollectorSummary { address, spans, rejected, messages } = accepted;
    for message in messages {
        stdio::print_error_line(&format!("the endpoint reports: {message}"));
    }
    if *rejected == 0 {
        stdio::print_error_line(&format!("sent {spans} spans to {address}"));
        return ExitCode::SUCCESS;
    }
    stdio::print_error_line(&format!(
        "error: {address} accepted {spans} spans and rejected {rejected}; sending them again would not help"
    ));
    ExitCode::FAILURE
}
