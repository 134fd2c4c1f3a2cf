//! The command line: parses the arguments, prints the result to stdout, and exits with a code. Only these modules read the
//! environment, print to stdout and decide how the process ends.

mod demo;
mod groups;
mod help;
mod man;
mod mcp;
mod programs;
mod suggestions;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use delta_author::{doctor, init, lint, migrate, sandbox, schema, skill, test, tool, tool_holder};
use delta_base::signal;
use delta_launch::drive::{
    apply, approve, continue_run, discard, export, fork, models, pack, replay, rm, rollback, run,
    stop, tell, trust,
};
use delta_launch::install::add;
use delta_launch::prepare::endpoint::encode_first_request;
use delta_launch::transfer::{receive, send};
use delta_operator::failure::CommandFailure;
use delta_operator::global_options::GlobalOptions;
use delta_operator::{build_info, config, environment};
use delta_process::{RELAY_COMMAND, run_relay};
use delta_program::completions::{self, CliProgram};
use delta_program::default_format::parse_with_default_format;
use delta_program::man::ManArgs;
use delta_program::{install_panic_hook, refuse_small_stack, stdio};
use delta_read::{context, diff, inbox, list_runs, show, verify, view};
use delta_sandbox::{HELPER_COMMAND, run_helper};
use delta_serve::acp;
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::process::{ExitCode, Termination};

/// Run AI agents the Unix way: an agent is a directory of plain files, its tools are ordinary commands, and its state is
/// one append-only journal.
#[derive(Debug, Parser)]
#[command(name = "delta", version, disable_version_flag = true, propagate_version = false, after_help = top_level_after_help())]
struct DeltaCli {
    #[command(flatten)]
    options: GlobalOptions,
    /// Print version; with --json, also how it was built
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    command: DeltaCommand,
}

const EXIT_CODES: &str = "\
Exit codes: 0 COMPLETED, 1 FAILED, 2 usage error, 70 bug in delta, 101 WAITING_FOR_INPUT, 126 configuration error, 130 INTERRUPTED";

/// The description of the options of all commands, which their own lists leave out.
const SHARED_OPTIONS_HELP: &str = "\
Options of every command:
  --runs-dir DIR            Keep all runs below DIR, nothing in the workspaces
  --lease auto|flock|turns  Keep a run to one process by a file lock, or by
                            leases across hosts [default: by the file system]
  --lease-ttl TIME          Let another process take over after this long
                            without a heartbeat [default: 70s]";

/// The end of the help: examples and exit codes.
fn top_level_after_help() -> String {
    format!("{EXAMPLES}\n\n{SHARED_OPTIONS_HELP}\n\n{EXIT_CODES}")
}

const EXAMPLES: &str = "\
Examples:
  delta run --agent ./my-agent \"Summarise the logs\"
  git diff | delta run \"Review this\"
  delta init my-agent
  delta tool lint ./my-agent";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum DeltaCommand {
    /// Run an agent on a task
    Run(Box<run::RunArgs>),
    /// Continue a run
    Continue(Box<continue_run::ContinueArgs>),
    /// Send a message to a run, also while it works
    Tell(Box<tell::TellArgs>),
    /// Approve the call that a run waits for, and continue the run
    Approve(Box<approve::ApproveArgs>),
    /// Deny the call that a run waits for, and continue the run
    Deny(Box<approve::DenyArgs>),
    /// Answer what a run waits for, and continue the run
    #[command(hide = true)]
    Answer(Box<approve::AnswerArgs>),
    /// List the runs that wait for an answer or an approval
    Inbox(Box<inbox::InboxArgs>),
    /// List the runs of a workspace, most recently updated first
    ListRuns(Box<list_runs::ListRunsArgs>),
    /// Show a run: its task, its iterations and what it waits for
    Show(Box<show::ShowArgs>),
    /// Restore the workspace of a run as of an earlier iteration
    Rollback(Box<rollback::RollbackArgs>),
    /// Apply the changes of a staged run to the workspace
    Apply(Box<apply::ApplyArgs>),
    /// Discard the changes of staged runs
    Discard(Box<discard::DiscardArgs>),
    /// Create a run from the first iterations of another
    Fork(Box<fork::ForkArgs>),
    /// Send a run to another place, where it continues
    Send(Box<send::SendArgs>),
    /// Receive a run that `delta send` has written
    Receive(Box<receive::ReceiveArgs>),
    /// Stop the processes that work on runs
    Stop(Box<stop::StopArgs>),
    /// Remove runs
    Rm(Box<rm::RemoveArgs>),
    /// Pack the records of runs that have ended into one file per run
    Pack(Box<pack::PackArgs>),
    /// Unpack the records of packed runs
    Unpack(Box<pack::UnpackArgs>),
    /// Compare the workspace of a run at two iterations, or two runs
    Diff(Box<diff::DiffArgs>),
    /// Export runs as traces, trajectories, chat transcripts, Markdown or statements
    Export(Box<export::ExportArgs>),
    /// Render runs as an HTML page
    View(Box<view::ViewArgs>),
    /// Replay a run from its records and report differences
    Replay(Box<replay::ReplayArgs>),
    /// Verify that runs are what delta recorded
    Verify(Box<verify::VerifyArgs>),
    /// Serve an agent to an editor that speaks ACP
    Acp(Box<acp::AcpArgs>),
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Run an agent's tests
    Test(Box<test::TestArgs>),
    /// Print the JSON Schema of a configuration file
    Schema(Box<schema::SchemaArgs>),
    /// Install an agent from a directory, an archive or a repository
    Add(Box<add::AddArgs>),
    /// Create an agent from a template
    Init(Box<init::InitArgs>),
    /// Run an example agent, without an API key
    Demo(Box<demo::DemoArgs>),
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    #[command(subcommand)]
    Skill(skill::SkillCommand),
    #[command(subcommand)]
    Sandbox(sandbox::SandboxCommand),
    /// Trust a .env file, a foreign run, an endpoint, or a key
    Trust(Box<trust::TrustArgs>),
    /// List the models that your endpoints offer, and their prices
    Models(Box<models::ModelsArgs>),
    /// Show the operator's settings and where they come from
    Config(Box<config::ConfigArgs>),
    /// Check what works on this machine, and print what to change
    Doctor(Box<doctor::DoctorArgs>),
    /// Print the completion script for a shell
    #[command(after_help = delta_program::installation!("delta"))]
    Completions(Box<completions::CompletionsArgs>),
    /// Print a manual page
    #[command(after_help = delta_program::pages!("delta", "run"))]
    Man(Box<ManArgs>),
    #[command(name = "tool:expand", hide = true)]
    ToolExpand(Box<tool::ExpandArgs>),
    #[command(name = "tool:lint", hide = true)]
    ToolLint(Box<tool::LintArgs>),
    #[command(name = "tool:migrate", hide = true)]
    ToolMigrate(Box<tool::MigrateArgs>),
}

/// The program, for its completions and its manual pages.
const PROGRAM: CliProgram = CliProgram {
    name: "delta",
    completion_variable: "DELTA_COMPLETE",
    command: || programs::with_programs(DeltaCli::command(), programs::list_programs()),
    exit_codes: Some((EXIT_CODES, &["delta-run", "delta-continue"])),
    has_page: |page| !programs::is_page_of_program(page),
};

fn main() -> ExitCode {
    // Before anything else: this process has no environment, and must stay able to change its namespaces.
    let command = std::env::args_os().nth(1);
    match command.as_ref().and_then(|argument| argument.to_str()) {
        Some(HELPER_COMMAND) => return run_helper(),
        Some(RELAY_COMMAND) => return run_relay(),
        _ => {}
    }
    environment::take_environment();
    install_panic_hook();
    let refusal = refuse_small_stack().or_else(|| build_info::refuse_other_build("delta"));
    if let Some(code) = refusal.or_else(programs::start_for_completion) {
        return code;
    }
    if completions::answer_completion_request(PROGRAM) {
        return ExitCode::SUCCESS;
    }
    signal::ignore_io_signals();
    config::apply_color();
    let code = run_with_arguments(std::env::args_os());
    delta_run::sweep::packed::remove_extracted_runs();
    stdio::finish_output(code)
}

fn run_with_arguments(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(code) = answer_without_command(&arguments) {
        return code;
    }
    let cli = match parse_arguments(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(code) = programs::start_named(&error, &arguments) {
                return code;
            }
            let error = suggestions::with_tip_for(error, &arguments);
            // Help and version go to stdout and succeed, everything else is a usage error.
            stdio::print_clap_message(&error);
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if let Err(failure) = cli.options.apply() {
        return failure.report();
    }
    match cli.command {
        DeltaCommand::Run(args) => run::run_command(&args),
        DeltaCommand::Continue(args) => continue_run::continue_command(&args),
        DeltaCommand::Approve(args) => approve::approve_command(&args),
        DeltaCommand::Deny(args) => approve::deny_command(&args),
        DeltaCommand::Inbox(args) => {
            finish(inbox::inbox_command(&args, continue_run::continue_in_inbox))
        }
        DeltaCommand::Answer(args) => approve::answer_command(&args),
        DeltaCommand::Fork(args) => fork::fork_command(&args),
        DeltaCommand::ListRuns(args) => finish(list_runs::list_runs_command(&args)),
        DeltaCommand::Show(args) => finish(show::show_command(&args)),
        DeltaCommand::Rollback(args) => rollback::rollback_command(&args),
        DeltaCommand::Apply(args) => apply::apply_command(&args),
        DeltaCommand::Discard(args) => discard::discard_command(&args),
        DeltaCommand::Send(args) => finish(send::send_command(&args)),
        DeltaCommand::Receive(args) => finish(receive::receive_command(&args)),
        DeltaCommand::Stop(args) => stop::stop_command(&args),
        DeltaCommand::Tell(args) => finish(tell::tell_command(&args)),
        DeltaCommand::Rm(args) => rm::remove_command(&args),
        DeltaCommand::Pack(args) => pack::pack_command(&args),
        DeltaCommand::Unpack(args) => pack::unpack_command(&args),
        DeltaCommand::Diff(args) => diff::diff_command(&args),
        DeltaCommand::Export(args) => finish(export::export_command(&args)),
        DeltaCommand::View(args) => finish(view::view_command(&args)),
        DeltaCommand::Replay(args) => finish(replay::replay_command(&args)),
        DeltaCommand::Verify(args) => finish(verify::verify_command(&args)),
        DeltaCommand::Context(command) => {
            finish(context::context_command(&command, encode_first_request))
        }
        DeltaCommand::Acp(args) => finish(acp::acp_command(&args)),
        DeltaCommand::Mcp(command) => mcp::mcp_command(&command),
        DeltaCommand::Test(args) => test::test_command(&args),
        DeltaCommand::Schema(args) => schema::schema_command(&args),
        DeltaCommand::Models(args) => models::models_command(&args),
        DeltaCommand::Add(args) => finish(add::add_command(&args)),
        DeltaCommand::Init(args) => finish(init::init_command(&args)),
        DeltaCommand::Demo(args) => demo::demo_command(&args),
        DeltaCommand::Completions(args) => {
            completions::print_completions(&args, &PROGRAM, environment::os_variable)
        }
        DeltaCommand::Man(args) => man::man_command(&args, &PROGRAM),
        DeltaCommand::Tool(command) => match &command {
            tool::ToolCommand::Expand(args) => finish(tool::expand_command(args)),
            tool::ToolCommand::Migrate(args) => finish(migrate::migrate_command(args)),
            tool::ToolCommand::Lint(args) => finish(lint::lint_command(args)),
            tool::ToolCommand::Hold(_) => finish(tool_holder::hold_command()),
            tool::ToolCommand::Await(args) => finish(tool_holder::await_command(args)),
        },
        DeltaCommand::Skill(command) => finish(skill::skill_command(&command)),
        DeltaCommand::Sandbox(command) => finish(sandbox::sandbox_command(&command)),
        DeltaCommand::Trust(args) => trust::trust_command(&args),
        DeltaCommand::Config(args) => config::config_command(&args),
        DeltaCommand::Doctor(args) => {
            let check = models::check_requests;
            let ask_for_models = models::ask_for_models;
            doctor::doctor_command(&args, doctor::EndpointAccess { check, ask_for_models })
        }
        DeltaCommand::ToolExpand(args) => finish(tool::expand_command(&args)),
        DeltaCommand::ToolMigrate(args) => finish(migrate::migrate_command(&args)),
        DeltaCommand::ToolLint(args) => finish(lint::lint_command(&args)),
    }
}

/// The exit code of a command whose failure is reported here.
fn finish(done: Result<impl Termination, CommandFailure>) -> ExitCode {
    match done {
        Ok(outcome) => outcome.report(),
        Err(failure) => failure.report(),
    }
}

/// Answers command lines that name no command and that clap does not know.
fn answer_without_command(arguments: &[OsString]) -> Option<ExitCode> {
    build_info::answer_version_request("delta", arguments)
        .or_else(|| help::answer_empty_command_line(arguments.len()))
}

/// Like `try_parse_from` of clap, but does not drop the description of the arguments: dropping it would take as long as
/// building it.
fn parse_arguments(arguments: &[OsString]) -> Result<DeltaCli, clap::Error> {
    let command = groups::grouped_for_help(DeltaCli::command(), arguments);
    let mut command = ManuallyDrop::new(command);
    let mut matches = parse_with_default_format(&mut command, arguments, config::default_format)?;
    DeltaCli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_program::BUG_EXIT_CODE;

    #[test]
    fn c_11_1_every_option_has_help() {
        let mut command = DeltaCli::command();
        command.build();
        let mut queue = vec![command];
        while let Some(command) = queue.pop() {
            for argument in command.get_arguments() {
                let name = format!("{} {}", command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{name} has no help");
            }
            queue.extend(command.get_subcommands().cloned());
        }
        DeltaCli::command().debug_assert();
    }

    /// The list of commands is printed before their arguments are described.
    #[test]
    fn c_11_1_a_command_is_listed_with_the_summary_of_its_own_help() {
        let listed = DeltaCli::command();
        let mut built = listed.clone();
        built.build();
        let mut pairs = vec![(listed, built)];
        while let Some((listed, built)) = pairs.pop() {
            for command in listed.get_subcommands().filter(|command| !command.is_hide_set()) {
                let name = command.get_name();
                let full = built.find_subcommand(name).unwrap();
                assert!(command.get_about().is_some(), "{name} has no summary");
                assert_eq!(
                    command.get_about().map(ToString::to_string),
                    full.get_about().map(ToString::to_string),
                    "{name}"
                );
                pairs.push((command.clone(), full.clone()));
            }
        }
    }

    /// An option that help leaves out is still parsed, and offered by completions and manual pages.
    #[test]
    fn c_11_1_options_of_another_command_are_left_out_of_help_alone() {
        let mut root = DeltaCli::command();
        root.build();
        let line = |name| match name {
            "continue" => "Takes the options of `delta run` too",
            _ => "Takes most options of `delta continue` too",
        };
        for name in ["continue", "approve", "deny", "answer", "fork"] {
            let command = root.find_subcommand_mut(name).unwrap();
            let help = command.render_long_help().to_string();
            let options = help.lines().filter(|line| line.trim_start().starts_with('-'));
            assert!(options.count() <= 10, "{help}");
            assert!(help.contains(line(name)), "{help}");
            let limit = command.get_arguments().find(|arg| arg.get_id() == "max_cost").unwrap();
            assert!(!limit.is_hide_set() && !help.contains("--max-cost"), "{help}");
        }
    }

    #[test]
    fn c_11_1_the_short_help_of_run_fits_a_screen() {
        let arguments = ["delta", "run", "-h"].map(OsString::from);
        let help = parse_arguments(&arguments).unwrap_err().to_string();
        assert!(help.starts_with("Run an agent") && help.lines().count() <= 45, "{help}");
    }

    /// Makes this very test panic in a child of its own, with the hook in place.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may start a process and read its variables"
    )]
    fn c_12_4_a_panic_leaves_with_70() {
        const ROLE: &str = "DELTA_TEST_PANICS";
        if std::env::var_os(ROLE).is_some() {
            install_panic_hook();
            // Of another thread, as the worst case: only the hook can end the process.
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            return;
        }
        let test = "tests::c_12_4_a_panic_leaves_with_70";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", test, "--nocapture"]).env(ROLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(BUG_EXIT_CODE), "{said}");
        assert!(
            said.contains("delta: this is a bug in delta: ") && said.contains("on purpose"),
            "{said}"
        );
        assert!(said.contains("The journal is safe"), "{said}");
    }
}
