//! `delta tell`: sends a message to a run, whether a process works on it or not.

use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::hex::encode_hex;
use delta_base::random::random_bytes;
use delta_base::redact::is_redaction_of;
use delta_base::terminal_text::truncate_to_line;
use delta_base::time::format_duration;
use delta_operator::arguments::budget::TreeLimitOptions;
use delta_operator::arguments::options::parse_max_iterations;
use delta_operator::arguments::{completion_candidates, message};
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::{agent_hint, own_run, run_list};
use delta_program::default_format::TextOrJson;
use delta_program::stdio;
use delta_run::event::{MessageSource, MessageTime, Payload, RunStatus};
use delta_run::limits::Limits;
use delta_run::mailbox::{
    self, MAX_MESSAGE_BYTES, MAX_WAITING, Mailbox, MailboxMessage, MessageSeal, Sent,
    count_waiting, new_message_source,
};
use delta_run::ownership::Ownership;
use delta_run::run_result::open_request_hint;
use delta_run::state::RunState;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a run without a mailbox is waited for: its process has just started, or ends.
const MAILBOX_PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The most bytes of a text that a hint repeats.
const MAX_REPEATED_BYTES: usize = 200;
/// The characters of a message's id that are shown.
const SHOWN_ID_CHARS: usize = 8;

/// Send a message to a run, also while it works
///
/// The run receives the message once, before its next LLM call. To answer what a run waits for, or to continue a run that has
/// ended, use `delta continue`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = "delta tell [OPTIONS] [RUN] <TEXT>\n       delta tell [RUN] <LIMITS> [--reason <TEXT>]")]
pub struct TellArgs {
    /// Run: id, unique prefix or suffix, directory or `last` [default: last]
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(run_list::run_candidates))]
    run_or_text: Option<String>,
    /// Message; `-` reads it from stdin
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<String>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Interrupt the current request or calls, and start no other call of the answer
    #[arg(long, conflicts_with = "at_end")]
    now: bool,
    /// Deliver the message when the run would be COMPLETED
    #[arg(long)]
    at_end: bool,
    #[command(flatten, next_help_heading = "Limits from the next LLM call on, instead of TEXT")]
    limits: TreeLimitOptions,
    /// Stop after N LLM calls of the process that works on the run
    #[arg(long, value_name = "N", value_parser = parse_max_iterations, allow_hyphen_values = true)]
    max_iterations: Option<u32>,
    /// Why the limits change, for the journal
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Id of the message: two with the same id are one message [default: generated]
    #[arg(long, value_name = "ID", value_parser = parse_message_id)]
    id: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

const EXAMPLES: &str = "\
Examples:
  delta tell \"look at parser.c first\"
  delta tell RUN -w ./work --now \"stop, that is the wrong branch\"
  delta tell RUN -w ./work --at-end \"then run the tests\"
  delta tell RUN - < more.md
  delta tell RUN --max-cost 40 --reason \"approved\"

Exit codes: 0 the message is durable, 1 it was refused or may be lost, 2 usage error, 126 the run is not yours, or the caller is one of its calls";

/// Parses the id of a message, which is a part of the name of its file.
fn parse_message_id(text: &str) -> Result<String, String> {
    let is_id = (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if is_id {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 64 letters, digits, `_` or `-`".to_owned())
    }
}

/// What is known of a message when the command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageFate {
    /// It waits in the mailbox.
    Waits,
    /// The journal has it.
    Received,
}

/// Sends a message.
pub fn tell_command(args: &TellArgs) -> Result<(), CommandFailure> {
    let (run, text) = args.run_and_text()?;
    if let Some(copy) = run.copy_packed(&args.work_dir)? {
        let state = own_run::fold_journal(&copy.id, &copy.dir)?;
        let message = format!("run {} is packed", copy.id);
        let hint = continue_hint(&copy, &state, text.as_deref());
        return Err(CommandFailure::message_refused(message, hint));
    }
    let run = run.find(&args.work_dir)?;
    own_run::check_caller(&run.id, &run.dir)?;
    let when = match (args.now, args.at_end) {
        (true, _) => MessageTime::Now,
        (_, true) => MessageTime::End,
        _ => MessageTime::Next,
    };
    let id = args.id.clone().unwrap_or_else(|| encode_hex(&random_bytes::<16>()));
    let source = new_message_source(id, mailbox::COMMAND, when);
    let limits = Some(args.limits.limits()).filter(|limits| !limits.are_none());
    let message = MailboxMessage {
        limits,
        max_iterations: args.max_iterations,
        reason: args.reason.clone(),
        ..MailboxMessage::new(source, run.id.clone(), text)
    };
    let (state, fate) = send(&run, &message)?;
    report(args, &run, &state, &message.source, fate);
    Ok(())
}

impl TellArgs {
    /// The run, and the text of a message that does not change limits.
    fn run_and_text(&self) -> Result<(RunArgument, Option<String>), CommandFailure> {
        let first = self.run_or_text.as_deref();
        let text = self.text.as_deref();
        let has_limits = !self.limits.limits().are_none() || self.max_iterations.is_some();
        if has_limits {
            if text.is_some() || self.now || self.at_end {
                let message =
                    "a message has a text or limits, and limits apply to the next LLM call";
                let hint = "send two messages";
                return Err(CommandFailure::usage(message, hint));
            }
            let run = first.map_or(Ok(RunArgument::Last), RunArgument::parse);
            return Ok((run.map_err(|error| CommandFailure::usage(error, None))?, None));
        }
        if self.reason.is_some() {
            let hint = "name a limit, such as `--max-cost 40`";
            return Err(CommandFailure::usage("`--reason` says why limits change", hint));
        }
        let (run, text) = RunArgument::split_text(first, text, &self.work_dir, "tell", "message")?;
        let text = message::read_message(&text)?;
        check_message_text(&text)?;
        Ok((run, Some(text)))
    }
}

fn check_message_text(text: &str) -> Result<(), CommandFailure> {
    if text.trim().is_empty() {
        let hint = "write the message as the last argument, or pipe it into `delta tell RUN -`";
        return Err(CommandFailure::usage("the message is empty", hint));
    }
    if text.len() > MAX_MESSAGE_BYTES {
        let message = format!(
            "the message has {} bytes, and a message has at most {MAX_MESSAGE_BYTES}",
            text.len()
        );
        let hint = "put it in a file of the workspace, and name the file in the message";
        return Err(CommandFailure::message_refused(message, hint));
    }
    Ok(())
}

/// Sends the message unless the run has it; returns the state of the run, and what is known of the message.
fn send(
    run: &LocatedRun,
    message: &MailboxMessage,
) -> Result<(RunState, MessageFate), CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let started = Instant::now();
    loop {
        let (state, key) = own_run::fold_with_its_key(&run.id, &run.dir)?;
        let id = &message.source.id;
        if state.has_received(id) {
            check_received(run, message)?;
            return Ok((state, MessageFate::Received));
        }
        own_run::check_is_here(&run.id, &run.dir, &state)?;
        let mailbox = Mailbox::new(&run.dir, Some(MessageSeal::new(key, &state)));
        let sent = if let Some(waiting) = mailbox.find(id)? {
            if waiting.source.when != message.source.when || !is_same_content(&waiting, message) {
                let fate = describe_fate(MessageFate::Waits, waiting.source.when);
                return Err(other_content_failure(run, &waiting, fate));
            }
            mailbox.sync()
        } else {
            check_open(run, &state, message.content.as_deref())?;
            mailbox.send(message)?
        };
        match sent {
            Sent::Durable => return Ok((state, MessageFate::Waits)),
            Sent::Uncertain(error) => {
                let path = error.path.display();
                let text = format!("could not make the message durable: {path}: {}", error.source);
                let hint =
                    format!("run {} may receive it; repeat the command with `--id {id}`", run.id);
                return Err(CommandFailure::message_refused(text, hint));
            }
            Sent::Closed => {
                let is_running = state.status == Some(RunStatus::Running);
                if !is_running || started.elapsed() >= MAILBOX_PATIENCE {
                    let text = format!("run {} takes no message now", run.id);
                    let hint = continue_hint(run, &state, message.content.as_deref());
                    return Err(CommandFailure::message_refused(text, hint));
                }
                if cancel.wait(LOOK_INTERVAL) {
                    return Err(CommandFailure::interrupted("interrupted"));
                }
            }
        }
    }
}

/// Refuses a message if the run has received another one with its id.
fn check_received(run: &LocatedRun, message: &MailboxMessage) -> Result<(), CommandFailure> {
    let id = &message.source.id;
    for event in own_run::read_journal(&run.id, &run.dir)?.events {
        let received = match event.payload {
            Payload::UserMessage { content, source: Some(source), .. } if source.id == *id => {
                MailboxMessage::new(*source, run.id.clone(), Some(content))
            }
            Payload::LimitsChanged(change) if change.source.id == *id => {
                // A run without a price leaves out a limit of the cost.
                let max_cost = message.limits.and_then(|limits| limits.max_cost);
                let limits = change.limits.or(Limits { max_cost, ..Limits::default() });
                MailboxMessage {
                    limits: Some(limits).filter(|limits| !limits.are_none()),
                    max_iterations: change.max_iterations,
                    reason: change.reason,
                    ..MailboxMessage::new(change.source, run.id.clone(), None)
                }
            }
            _ => continue,
        };
        if !is_same_content(&received, message) {
            let fate = describe_fate(MessageFate::Received, received.source.when);
            return Err(other_content_failure(run, &received, fate));
        }
    }
    Ok(())
}

/// Whether `recorded`, perhaps with its secrets redacted, has the content of `message`.
fn is_same_content(recorded: &MailboxMessage, message: &MailboxMessage) -> bool {
    let is_same_text = |recorded: &Option<String>, text: &Option<String>| match (recorded, text) {
        (Some(recorded), Some(text)) => is_redaction_of(recorded, text),
        (recorded, text) => recorded == text,
    };
    is_same_text(&recorded.content, &message.content)
        && is_same_text(&recorded.reason, &message.reason)
        && recorded.limits == message.limits
        && recorded.max_iterations == message.max_iterations
}

fn other_content_failure(
    run: &LocatedRun,
    recorded: &MailboxMessage,
    fate: &str,
) -> CommandFailure {
    let content = match &recorded.content {
        Some(text) => format!("{:?}", truncate_to_line(text, MAX_REPEATED_BYTES)),
        None => describe_limits(recorded),
    };
    let id = &recorded.source.id;
    let error = format!("message {id} of run {} has other content: {content} {fate}", run.id);
    CommandFailure::message_refused(error, "send this message without `--id`, or with another id")
}

/// The options that change the limits as the message does.
fn describe_limits(message: &MailboxMessage) -> String {
    let limits = message.limits.unwrap_or_default();
    let options = [
        ("max-cost", limits.max_cost.map(|it| it.to_string())),
        ("max-tokens", limits.max_tokens.map(|it| it.to_string())),
        ("max-duration", limits.max_duration_ms.map(format_duration)),
        ("max-iterations", message.max_iterations.map(|it| it.to_string())),
        ("reason", message.reason.as_ref().map(|it| format!("{it:?}"))),
    ];
    let options = options.into_iter().filter_map(|(name, it)| Some(format!("--{name} {}", it?)));
    format!("`{}`", options.collect::<Vec<_>>().join(" "))
}

/// Refuses a run that has ended, or for which too many messages wait.
fn check_open(
    run: &LocatedRun,
    state: &RunState,
    text: Option<&str>,
) -> Result<(), CommandFailure> {
    if let Some(status @ (RunStatus::Completed | RunStatus::Failed)) = state.status {
        let message = format!("run {} is {status}", run.id);
        return Err(CommandFailure::message_refused(message, continue_hint(run, state, text)));
    }
    let waiting = count_waiting(&run.dir);
    if waiting >= MAX_WAITING {
        let message = format!("{waiting} messages wait for run {}", run.id);
        return Err(CommandFailure::message_refused(message, continue_hint(run, state, text)));
    }
    Ok(())
}

/// The command that continues the run with the text.
fn continue_hint(run: &LocatedRun, state: &RunState, text: Option<&str>) -> String {
    let text = text.unwrap_or("TEXT");
    let is_short = text.len() <= MAX_REPEATED_BYTES && !text.contains('\n');
    let next = agent_hint::named_continue_command(run, state);
    next.with_message(if is_short { text } else { "TEXT" }).to_string()
}

fn describe_fate(fate: MessageFate, when: MessageTime) -> &'static str {
    match (fate, when) {
        (MessageFate::Received, _) => "was received",
        (MessageFate::Waits, MessageTime::Next) => "waits for the next LLM call",
        (MessageFate::Waits, MessageTime::Now) => "ends what is at work",
        (MessageFate::Waits, MessageTime::End) => "waits for the result",
    }
}

fn report(
    args: &TellArgs,
    run: &LocatedRun,
    state: &RunState,
    source: &MessageSource,
    fate: MessageFate,
) {
    let is_active = Ownership::probe(&run.id, &run.dir).is_err_and(|error| error.is_owned());
    let status = state.status.map_or_else(String::new, |status| status.to_string());
    let is_received = fate == MessageFate::Received;
    if args.format == TextOrJson::Json {
        let line = json!({
            "run_id": run.id.as_str(),
            "status": state.status,
            "active": is_active,
            "message_id": source.id,
            "received": is_received,
        });
        stdio::print_text(&format!("{line}\n"));
    } else {
        let fate = describe_fate(fate, source.when);
        let short: String = source.id.chars().take(SHOWN_ID_CHARS).collect();
        stdio::print_text(&format!("{}  {status}  message {short} {fate}\n", run.id));
    }
    if is_received {
        return;
    }
    let id = &run.id;
    let next = agent_hint::named_continue_command(run, state);
    if let Some(hint) = open_request_hint(state, &next) {
        stdio::print_error_line(&format!(
            "note: run {id} waits for an answer, and a message is not an answer"
        ));
        if !is_active {
            stdio::print_error_line(&hint);
        }
    } else if !is_active {
        stdio::print_error_line(&format!(
            "note: no process works on run {id}; `{next}` receives the message"
        ));
    }
}
