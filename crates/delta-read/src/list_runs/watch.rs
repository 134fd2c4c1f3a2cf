//! `delta list-runs --watch`: the list, repainted at a terminal; elsewhere each new or changed run.

use super::{ListRunsArgs, RunListFormat};
use delta_base::terminal;
use delta_base::time::Timestamp;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_list::{
    RunListEntry, RunListStatus, read_below_again, read_workspace_runs, render_plain_lines,
    render_terminal_table, render_totals, serialize_usage,
};
use delta_operator::{cancel, environment};
use delta_program::stdio;
use delta_run::event::{UsageSummary, WaitsFor};
use delta_run::state::RunActivity;
use delta_run::workspace::Workspace;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The exit code after an interruption.
const INTERRUPTED: u8 = 130;

/// What a line of JSON has of a run: nothing that a person, the LLM or a tool wrote.
#[derive(Serialize)]
struct RunChange<'a> {
    run_id: &'a str,
    /// The run whose tool started it.
    parent_run_id: Option<&'a str>,
    workspace: &'a Path,
    status: RunListStatus,
    active: bool,
    /// What the process does: `llm`, `call` or `person`.
    activity: Option<&'static str>,
    /// The tool that it runs.
    tool: Option<&'a str>,
    waits_for: Option<WaitsFor>,
    waiting_messages: usize,
    error_type: Option<&'a str>,
    created_at: Timestamp,
    last_updated: Timestamp,
    iterations: u32,
    #[serde(flatten, serialize_with = "serialize_usage")]
    usage: UsageSummary,
}

impl<'a> RunChange<'a> {
    fn new(run: &'a RunListEntry) -> Self {
        Self {
            run_id: &run.run_id,
            parent_run_id: run.parent.as_ref().map(|parent| parent.run_id.as_str()),
            workspace: &run.workspace,
            status: run.status,
            active: run.active,
            activity: run.activity.as_ref().map(|activity| match activity {
                RunActivity::Llm => "llm",
                RunActivity::Call { .. } => "call",
                RunActivity::Person => "person",
            }),
            tool: match &run.activity {
                Some(RunActivity::Call { tool }) => tool.as_deref(),
                _ => None,
            },
            waits_for: run.waits_for,
            waiting_messages: run.waiting_messages,
            error_type: run.error_type.as_deref(),
            created_at: run.created_at,
            last_updated: run.last_updated,
            iterations: run.iterations,
            usage: run.usage,
        }
    }
}

/// Shows `runs`, and then what becomes of them, until an interruption or until the reader of stdout goes away; returns the exit code.
pub fn watch_runs(
    args: &ListRunsArgs,
    mut runs: Vec<RunListEntry>,
) -> Result<ExitCode, CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let is_repainted = args.format == RunListFormat::Text && environment::can_move_stdout_cursor();
    let mut painted = String::new();
    let mut known = BTreeMap::new();
    loop {
        args.select(&mut runs);
        let is_printed = if is_repainted {
            let (columns, rows) = terminal::stdout_size().unwrap_or((80, 24));
            let text = args.screen_text(&runs, columns.into(), rows.into());
            let is_printed = stdio::print_replacing(&painted, &text, columns.into());
            painted = text;
            is_printed
        } else {
            args.print_changes(runs, &mut known)
        };
        if !is_printed || stdio::is_stdout_abandoned() {
            return Ok(ExitCode::SUCCESS);
        }
        if cancel.wait(Duration::from_millis(args.interval)) {
            // Over the `^C` of the terminal.
            let columns = terminal::stdout_size().map_or(80, |(columns, _)| columns);
            stdio::print_replacing(&painted, &painted, columns.into());
            return Ok(ExitCode::from(INTERRUPTED));
        }
        runs = match &args.recursive {
            Some(dirs) => read_below_again(dirs)?,
            None => read_workspace_runs(&Workspace::open_existing(&args.work_dir)?)?,
        };
    }
}

impl ListRunsArgs {
    /// The list, for a terminal that shows all of it: no line may scroll out, because it could not be replaced.
    fn screen_text(&self, runs: &[RunListEntry], columns: usize, rows: usize) -> String {
        if runs.is_empty() {
            return "no runs\n".to_owned();
        }
        let current = self.current_dir();
        let totals = if self.cost { render_totals(runs) } else { String::new() };
        // The cursor has the last row, the header the first one.
        let free = rows.saturating_sub(2 + usize::from(self.cost)).max(1);
        let (visible, rest) =
            if runs.len() > free { runs.split_at(free.saturating_sub(1)) } else { (runs, &[][..]) };
        let more =
            if rest.is_empty() { String::new() } else { format!("and {} more\n", rest.len()) };
        let table = render_terminal_table(visible, self.columns(current.as_deref()), Some(columns));
        format!("{table}{more}{totals}")
    }

    /// Prints the runs that `known`, the lines of the last look, does not have as they are now, the last updated one last.
    /// Returns false when they could not be written.
    fn print_changes(
        &self,
        mut runs: Vec<RunListEntry>,
        known: &mut BTreeMap<PathBuf, String>,
    ) -> bool {
        let mut lines = String::new();
        runs.reverse();
        runs.retain(|run| {
            let line = serde_json::to_string(&RunChange::new(run)).unwrap_or_default();
            let is_new = known.get(&run.dir()) != Some(&line);
            if is_new {
                lines.push_str(&line);
                lines.push('\n');
                known.insert(run.dir(), line);
            }
            is_new
        });
        if self.format == RunListFormat::Json {
            return lines.is_empty() || stdio::print_json(&lines);
        }
        let current = self.current_dir();
        runs.is_empty()
            || stdio::print_text(&render_plain_lines(&runs, self.columns(current.as_deref())))
    }
}
