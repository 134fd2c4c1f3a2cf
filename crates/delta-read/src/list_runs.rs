//! `delta list-runs`: lists the runs of a workspace, or of all workspaces below directories.

use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::quantity::parse_time_ms;
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal;
use delta_base::time::{self, Timestamp};
use delta_operator::arguments::completion_candidates;
use delta_operator::command_line;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_list::{
    self, ListColumns, RunListEntry, RunListStatus, find_below, read_runs_of, read_workspace_runs,
    render_plain_lines, render_terminal_table, render_totals, sort_newest_first, suggest_work_dirs,
};
use delta_program::number_argument::{parse_number_in, parse_time_in};
use delta_program::stdio;
use delta_run::sweep::packed;
use delta_run::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod watch;

/// List the runs of a workspace, most recently updated first
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ListRunsArgs {
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Select in all workspaces in these directories, at any depth [default without DIR: the current directory]
    #[arg(short, long, value_name = "DIR", num_args = 0.., conflicts_with = "work_dir", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    recursive: Option<Vec<PathBuf>>,
    /// List only runs that can be continued: not DAMAGED ones, and no run that a process works on
    #[arg(long)]
    resumable: bool,
    /// List only runs with one of these statuses, separated by commas: RUNNING, WAITING_FOR_INPUT, COMPLETED, FAILED,
    /// INTERRUPTED, DAMAGED
    ///
    /// RUNNING includes runs whose process died, WAITING_FOR_INPUT runs that were interrupted, FAILED or killed at the question.
    #[arg(
        long,
        value_enum,
        hide_possible_values = true,
        ignore_case = true,
        value_delimiter = ','
    )]
    status: Vec<RunListStatus>,
    /// List only runs updated since TIME: an age (12h, 2d), a day in UTC (2026-11-23) or a moment in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Timestamp>,
    /// List only runs of the agent with this name
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(run_list::agent_name_candidates))]
    agent: Option<String>,
    /// List only the N most recently updated runs
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_number_in(1..=usize::MAX))]
    limit: Option<usize>,
    /// List only the most recently updated run; as text, only its id, or with -r its directory
    #[arg(long, conflicts_with = "limit")]
    first: bool,
    /// Show the list again whenever it changes; with `--format json`, an object per line for each new or changed run
    ///
    /// As text, with what each process does; as JSON, without texts of users, the LLM or tools.
    #[arg(long, conflicts_with = "first")]
    watch: bool,
    /// With `--watch`: the time between two looks
    #[arg(long, value_name = "TIME", requires = "watch", default_value = "2s", value_parser = parse_time_in(100..=86_400_000), hide_short_help = true)]
    interval: u64,
    /// Show the tokens and the cost of each run, and the totals
    #[arg(long)]
    cost: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = RunListFormat::Text)]
    format: RunListFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta list-runs -w ./work
  delta list-runs -r ~/agents --since 2d --status FAILED,WAITING_FOR_INPUT
  delta list-runs -r --cost --since 30d
  delta list-runs -r ~/agents --watch
  delta continue --run-id \"$(delta list-runs --resumable --first)\"
  delta list-runs --format json | jq -r '.[] | [.run_id, .status] | @tsv'";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RunListFormat {
    /// One line per run
    Text,
    /// One JSON array; with --watch, one object a line
    Json,
}

/// Parses a time before now, a moment, or a day, which begins at midnight UTC: the zone of all times that delta prints.
fn parse_since(text: &str) -> Result<Timestamp, String> {
    let before_now = parse_time_ms(text).and_then(|millis| i64::try_from(millis).ok());
    let moment = before_now
        .map(|millis| Timestamp::from_millis(time::current_time().as_millis() - millis))
        .or_else(|| Timestamp::parse(text))
        .or_else(|| {
            let is_day = text.len() == "2026-11-21".len();
            is_day.then(|| Timestamp::parse(&format!("{text}T00:00:00Z")))?
        });
    moment.ok_or_else(|| {
        "expected a time with a unit, such as 90s, 12h or 2d, a moment such as 2026-11-21T12:30:00Z, or a day such as 2026-11-21, in UTC"
            .to_owned()
    })
}

/// Lists runs; returns the exit code.
pub fn list_runs_command(args: &ListRunsArgs) -> Result<ExitCode, CommandFailure> {
    let mut runs = read_listed_runs(args)?;
    if args.watch {
        return watch::watch_runs(args, runs);
    }
    let count = runs.len();
    args.select(&mut runs);
    match (args.format, args.first) {
        (RunListFormat::Json, _) => {
            let json = serde_json::to_string(&runs).map(|text| text + "\n").unwrap_or_default();
            stdio::print_text(&json);
        }
        (RunListFormat::Text, true) => {
            let lines: String =
                runs.iter().map(|run| format!("{}\n", args.first_line(run))).collect();
            stdio::print_text(&lines);
        }
        (RunListFormat::Text, false) => args.print_table(&runs, count),
    }
    Ok(ExitCode::SUCCESS)
}

fn read_listed_runs(args: &ListRunsArgs) -> Result<Vec<RunListEntry>, CommandFailure> {
    if let Some(dirs) = &args.recursive {
        return Ok(read_runs_of(&find_below(dirs)?));
    }
    let workspace = Workspace::open_existing(&args.work_dir)?;
    let runs = read_workspace_runs(&workspace)?;
    if runs.is_empty() && args.format == RunListFormat::Text {
        // An agent directory has no runs of its own, and the runs of a sweep are in as many workspaces.
        let is_sweep = packed::is_sweep(&workspace.root);
        let dir = shell_quote_path(&args.work_dir);
        let note = match suggest_work_dirs(&workspace.root).filter(|_| !is_sweep) {
            None if is_sweep => format!(
                "this is a sweep: `delta sweep status {dir}` shows how far it is, `delta sweep list {dir}` prints the ids of its runs"
            ),
            Some(options) => {
                format!("these workspaces have runs:\n  {}", options.replace('\n', "\n  "))
            }
            None => {
                "`delta list-runs -r DIR` lists the runs of all workspaces below DIR".to_owned()
            }
        };
        stdio::print_error_line(&format!("Note: no runs here; {note}"));
    }
    Ok(runs)
}

fn has_status(run: &RunListEntry, status: RunListStatus) -> bool {
    run.status == status || status == RunListStatus::WaitingForInput && run.waits()
}

impl ListRunsArgs {
    /// Sorts the runs and drops the ones that are not listed.
    fn select(&self, runs: &mut Vec<RunListEntry>) {
        runs.retain(|run| {
            (run.is_resumable() || !self.resumable)
                && (self.status.is_empty()
                    || self.status.iter().any(|status| has_status(run, *status)))
                && self.since.is_none_or(|since| run.last_updated >= since)
                && self.agent.as_ref().is_none_or(|name| run.agent_name == *name)
        });
        sort_newest_first(runs);
        let limit = if self.first { Some(1) } else { self.limit };
        runs.truncate(limit.unwrap_or(usize::MAX));
    }

    /// What names the run for other commands.
    fn first_line(&self, run: &RunListEntry) -> String {
        match &self.recursive {
            None => run.run_id.clone(),
            Some(_) => run.dir().display().to_string(),
        }
    }

    fn columns<'a>(&self, current: Option<&'a Path>) -> ListColumns<'a> {
        ListColumns { workspaces_from: current, costs: self.cost, activities: self.watch }
    }

    /// The directory from which the workspaces are shown.
    fn current_dir(&self) -> Option<PathBuf> {
        self.recursive.as_ref().and_then(|_| PathBuf::from(".").canonicalize().ok())
    }

    /// Prints the runs as text; `count` is the number before the selection.
    fn print_table(&self, runs: &[RunListEntry], count: usize) {
        let current = self.current_dir();
        let columns = self.columns(current.as_deref());
        let totals = if self.cost { render_totals(runs) } else { String::new() };
        if terminal::is_stdout_terminal() {
            let width = terminal::stdout_size().map(|(columns, _)| usize::from(columns));
            let lines = render_terminal_table(runs, columns, width);
            stdio::print_styled(&format!("{lines}{totals}"));
            if runs.is_empty() && count > 0 {
                let count = command_line::pluralize(count, "run");
                stdio::print_error_line(&format!("Note: none of {count} matches"));
            }
        } else {
            stdio::print_text(&(render_plain_lines(runs, columns) + &totals));
        }
    }
}
