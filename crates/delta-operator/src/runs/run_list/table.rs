//! The text of a list of runs: aligned columns under a header that fit the terminal, or plain lines for a pipe.

use super::entry::{RunListEntry, RunListStatus};
use crate::command_line;
use anstyle::{AnsiColor, Style};
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_base::text::text_width::{clip_start_to_width, clip_to_width, display_width};
use delta_base::time::{self, format_duration};
use delta_run::event::UsageSummary;
use std::fmt::Write;
use std::path::Path;

/// The widest text of what a process does.
const MAX_ACTIVITY_WIDTH: usize = 20;
/// The spaces between two columns.
const GAP: usize = 2;
/// The texts that are cut, and the widths to which they are cut, one after the other until the table fits.
const CUTS: [(NarrowRank, usize); 6] = [
    (NarrowRank::CutError, 48),
    (NarrowRank::CutEnd, 24),
    (NarrowRank::CutError, 24),
    (NarrowRank::CutStart, 20),
    (NarrowRank::CutEnd, 8),
    (NarrowRank::CutStart, 12),
];

const HEADER_STYLE: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WAITING: Style = AnsiColor::Yellow.on_default();

/// The optional columns of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListColumns<'a> {
    /// Shows the workspace of each run, relative to this directory.
    pub workspaces_from: Option<&'a Path>,
    /// Shows the tokens by kind, and the cost.
    pub costs: bool,
    /// Shows what the processes do that work on the runs.
    pub activities: bool,
}

impl ListColumns<'_> {
    fn workspace_cell(&self, run: &RunListEntry) -> Option<String> {
        let base = self.workspaces_from?;
        let path = match run.workspace.strip_prefix(base) {
            Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
            Ok(rest) => rest,
            Err(_) => &run.workspace,
        };
        Some(strip_terminal_controls(&path.to_string_lossy()))
    }
}

/// One line for each run, with all of its text: for a pipe.
pub fn render_plain_lines(runs: &[RunListEntry], columns: ListColumns<'_>) -> String {
    let width =
        |column: &dyn Fn(&RunListEntry) -> usize| runs.iter().map(column).max().unwrap_or(0);
    let id_width = width(&|run| run.run_id.len());
    let status_width = width(&|run| run.status_text().len());
    let task_width = width(&|run| task_cell(run).chars().count());
    let mut lines = String::new();
    for run in runs {
        let status = run.status_text();
        let task = task_cell(run);
        let age = format_age(age_millis(run));
        let _ = write!(
            lines,
            "{:id_width$}  {status:status_width$}  {task:task_width$}  {age} ago",
            run.run_id
        );
        if columns.costs {
            let UsageSummary { input_tokens, cached_input_tokens, output_tokens, cost_usd, .. } =
                run.usage;
            let cost = cost_usd.map_or_else(|| "unknown".to_owned(), format_usd);
            let _ = write!(
                lines,
                "  {input_tokens} in  {cached_input_tokens} cached  {output_tokens} out  {cost} USD"
            );
        }
        if let Some(error) = failure_of(run) {
            let _ = write!(lines, "  error: {error}");
        }
        if let Some(workspace) = columns.workspace_cell(run) {
            let _ = write!(lines, "  {workspace}");
        }
        if let Some(origin) = &run.origin {
            let _ = write!(lines, "  forked from {} at {}", origin.run_id, origin.iteration);
        }
        lines.push('\n');
    }
    lines
}

/// Columns under a header, for a terminal with `width` columns. One run takes one line, whatever its length.
pub fn render_terminal_table(
    runs: &[RunListEntry],
    columns: ListColumns<'_>,
    width: Option<usize>,
) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(runs, columns);
    if let Some(width) = width {
        table.fit(width);
    }
    table.render(runs, width)
}

/// The same as lines without styles.
pub fn render_terminal_list(
    runs: &[RunListEntry],
    columns: ListColumns<'_>,
    width: Option<usize>,
) -> String {
    strip_terminal_controls(&render_terminal_table(runs, columns, width))
}

/// The line with the totals of a list with costs.
pub fn render_totals(runs: &[RunListEntry]) -> String {
    let sum = |part: fn(&UsageSummary) -> u64| runs.iter().map(|run| part(&run.usage)).sum::<u64>();
    let input = sum(|usage| usage.input_tokens);
    let cached = sum(|usage| usage.cached_input_tokens);
    let output = sum(|usage| usage.output_tokens);
    let known: Vec<f64> = runs.iter().filter_map(|run| run.usage.cost_usd).collect();
    let unknown = runs.iter().filter(|run| has_unknown_cost(run)).count();
    let count = command_line::pluralize(runs.len(), "run");
    let mut line = format!("Total of {count}: {input} tokens in ({cached} cached), {output} out");
    if !known.is_empty() || unknown == 0 {
        let _ = write!(line, ", {} USD", format_usd(known.iter().sum()));
    }
    if unknown > 0 {
        let _ =
            write!(line, "; the cost of {} is unknown", command_line::pluralize(unknown, "run"));
    }
    line.push('\n');
    line
}

/// Whether the cost of a run is unknown. One that has asked no LLM has cost nothing, also if it has copied iterations.
fn has_unknown_cost(run: &RunListEntry) -> bool {
    let copied = run.origin.as_ref().map_or(0, |origin| origin.iteration);
    let has_answers = run.iterations > copied;
    run.usage.cost_usd.is_none() && (has_answers || run.status == RunListStatus::Damaged)
}

fn task_cell(run: &RunListEntry) -> String {
    match run.status {
        RunListStatus::Damaged => truncate_to_line(&run.task_summary, super::entry::MAX_TASK_CHARS),
        _ => format!("\"{}\"", run.task_summary),
    }
}

/// Why a run FAILED. A DAMAGED one has its reason in the column of the task.
fn failure_of(run: &RunListEntry) -> Option<&str> {
    run.error.as_deref().filter(|_| run.status == RunListStatus::Failed)
}

fn age_millis(run: &RunListEntry) -> u64 {
    let millis = time::current_time().as_millis() - run.last_updated.as_millis();
    u64::try_from(millis).unwrap_or(0)
}

/// Formats an age in its largest unit: `2m`, `3h`, `5d`.
pub fn format_age(millis: u64) -> String {
    match millis / 1000 {
        0..=59 => format_duration(millis / 1000 * 1000).replace(".0s", "s").replace("0ms", "0s"),
        seconds @ 60..=3599 => format!("{}m", seconds / 60),
        seconds @ 3600..=86_399 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Formats USD with as many digits as matter.
fn format_usd(amount: f64) -> String {
    // The sum of no amounts is a negative zero, which has a sign as text.
    let amount = amount + 0.0;
    if amount >= 100.0 { format!("{amount:.2}") } else { format!("{amount:.4}") }
}

/// Formats a number of tokens in at most five characters: `987`, `12.3k`, `456k`, `7.8M`.
fn format_token_count(count: u64) -> String {
    let tenths_of_thousand = (count + 50) / 100;
    let tenths_of_million = (count + 50_000) / 100_000;
    match count {
        0..1_000 => count.to_string(),
        1_000..99_950 => format!("{}.{}k", tenths_of_thousand / 10, tenths_of_thousand % 10),
        99_950..999_500 => format!("{}k", (count + 500) / 1000),
        999_500..99_950_000 => format!("{}.{}M", tenths_of_million / 10, tenths_of_million % 10),
        _ => format!("{}M", (count + 500_000) / 1_000_000),
    }
}

/// What a column gives up when the terminal is too narrow, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NarrowRank {
    /// The end of its texts is cut.
    CutEnd,
    /// The end of its texts is cut, but before the beginning of an error is, numbers are left out.
    CutError,
    /// The beginning of its texts is cut: the last directories of a path say most.
    CutStart,
    /// The whole column is left out. The column with the smallest number goes first.
    Drop(u8),
    /// Nothing.
    Keep,
}

struct TableColumn {
    header: &'static str,
    cells: Vec<String>,
    width: usize,
    is_right_aligned: bool,
    rank: NarrowRank,
}

impl TableColumn {
    fn new(header: &'static str, rank: NarrowRank, cells: Vec<String>) -> Self {
        let widest = cells.iter().map(|cell| display_width(cell)).max().unwrap_or(0);
        let width = widest.max(header.len());
        Self { header, cells, width, is_right_aligned: false, rank }
    }

    fn numbers(header: &'static str, drop_order: u8, cells: Vec<String>) -> Self {
        Self { is_right_aligned: true, ..Self::new(header, NarrowRank::Drop(drop_order), cells) }
    }

    /// The text cut to the width of the column and padded on the side of its alignment.
    fn fit_text(&self, text: &str) -> String {
        let text = match self.rank {
            NarrowRank::CutStart => clip_start_to_width(text, self.width),
            _ => clip_to_width(text, self.width),
        };
        let padding = " ".repeat(self.width.saturating_sub(display_width(&text)));
        if self.is_right_aligned { padding + &text } else { text + &padding }
    }
}

struct Table {
    columns: Vec<TableColumn>,
}

impl Table {
    fn new(runs: &[RunListEntry], columns: ListColumns<'_>) -> Self {
        let cells =
            |cell: &dyn Fn(&RunListEntry) -> String| runs.iter().map(cell).collect::<Vec<_>>();
        let mut all = vec![
            TableColumn::new("RUN", NarrowRank::Keep, cells(&|run| run.run_id.clone())),
            TableColumn::new("STATUS", NarrowRank::Keep, cells(&|run| run.status_text())),
            TableColumn::numbers(
                "AGE",
                if columns.activities { 7 } else { 2 },
                cells(&|run| format_age(age_millis(run))),
            ),
        ];
        if columns.activities {
            let activities = cells(&|run| clip_to_width(&run.activity_text(), MAX_ACTIVITY_WIDTH));
            all.push(TableColumn::new("ACTIVITY", NarrowRank::Drop(6), activities));
        }
        if columns.costs {
            let count =
                |part: fn(&UsageSummary) -> u64| cells(&|run| format_token_count(part(&run.usage)));
            all.push(TableColumn::numbers("IN", 4, count(|usage| usage.input_tokens)));
            all.push(TableColumn::numbers("CACHED", 1, count(|usage| usage.cached_input_tokens)));
            all.push(TableColumn::numbers("OUT", 3, count(|usage| usage.output_tokens)));
        } else {
            let counts =
                cells(&|run| format_token_count(run.usage.input_tokens + run.usage.output_tokens));
            all.push(TableColumn::numbers("TOKENS", 1, counts));
        }
        let costs = cells(&|run| run.usage.cost_usd.map_or_else(|| "-".to_owned(), format_usd));
        all.push(TableColumn::numbers("USD", 5, costs));
        if columns.workspaces_from.is_some() {
            let workspaces = cells(&|run| columns.workspace_cell(run).unwrap_or_default());
            all.push(TableColumn::new("WORKSPACE", NarrowRank::CutStart, workspaces));
        }
        let tasks = cells(&|run| {
            let origin = run.origin.as_ref().map_or_else(String::new, |origin| {
                format!("  forked from {} at {}", origin.run_id, origin.iteration)
            });
            run.task_summary.clone() + &origin
        });
        all.push(TableColumn::new("TASK", NarrowRank::CutEnd, tasks));
        if runs.iter().any(|run| failure_of(run).is_some()) {
            let errors = cells(&|run| failure_of(run).unwrap_or_default().to_owned());
            all.push(TableColumn::new("ERROR", NarrowRank::CutError, errors));
        }
        Self { columns: all }
    }

    fn total_width(&self) -> usize {
        let columns: usize = self.columns.iter().map(|column| column.width + GAP).sum();
        columns.saturating_sub(GAP)
    }

    /// The column that is dropped next, with its number in that order.
    fn next_dropped(&self) -> Option<(u8, usize)> {
        let columns = self.columns.iter().enumerate();
        let droppable = columns.filter_map(|(index, column)| match column.rank {
            NarrowRank::Drop(order) => Some((order, index)),
            _ => None,
        });
        droppable.min()
    }

    /// Narrows the table to `width`, as far as it can give up anything: first texts, then columns.
    fn fit(&mut self, width: usize) {
        for (rank, min_width) in CUTS {
            let excess = self.total_width().saturating_sub(width);
            for column in self.columns.iter_mut().filter(|column| column.rank == rank) {
                let narrow = column.width.saturating_sub(excess).max(min_width);
                column.width = column.width.min(narrow);
            }
        }
        while self.total_width() > width
            && let Some((_, index)) = self.next_dropped()
        {
            self.columns.remove(index);
        }
        // The texts get what dropped columns leave.
        for rank in [NarrowRank::CutError, NarrowRank::CutEnd] {
            let free = width.saturating_sub(self.total_width());
            if let Some(text) = self.columns.iter_mut().find(|column| column.rank == rank) {
                let widest = text.cells.iter().map(|cell| display_width(cell)).max().unwrap_or(0);
                text.width = (text.width + free).min(widest.max(text.header.len()));
            }
        }
    }

    fn render(&self, runs: &[RunListEntry], width: Option<usize>) -> String {
        let headers: Vec<String> =
            self.columns.iter().map(|column| column.fit_text(column.header)).collect();
        let header = join_cells(&headers, width);
        let mut text = format!("{HEADER_STYLE}{header}{HEADER_STYLE:#}\n");
        for (row, run) in runs.iter().enumerate() {
            let cells: Vec<String> =
                self.columns.iter().map(|column| column.fit_text(&column.cells[row])).collect();
            let line = join_cells(&cells, width);
            text.push_str(&style_status(&line, cells[0].len() + GAP, run));
            text.push('\n');
        }
        text
    }
}

fn join_cells(cells: &[String], width: Option<usize>) -> String {
    let line = cells.join(&" ".repeat(GAP));
    let line = line.trim_end();
    width.map_or_else(|| line.to_owned(), |width| clip_to_width(line, width))
}

/// Colours the status that begins at byte `start` of the line, unless it was cut.
fn style_status(line: &str, start: usize, run: &RunListEntry) -> String {
    let style = match run.status {
        RunListStatus::Failed | RunListStatus::Damaged => BAD,
        RunListStatus::WaitingForInput => WAITING,
        RunListStatus::Running if run.is_orphaned() => WAITING,
        RunListStatus::Running | RunListStatus::Completed | RunListStatus::Interrupted => {
            return line.to_owned();
        }
    };
    let name = run.status_text();
    match line.get(start..).and_then(|rest| rest.strip_prefix(&*name)) {
        Some(rest) => format!("{}{style}{name}{style:#}{rest}", &line[..start]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_have_five_characters_at_most() {
        for (count, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0k"),
            (12_345, "12.3k"),
            (99_949, "99.9k"),
            (99_950, "100k"),
            (456_789, "457k"),
            (999_499, "999k"),
            (999_500, "1.0M"),
            (7_800_000, "7.8M"),
            (123_456_789, "123M"),
        ] {
            assert_eq!(format_token_count(count), text);
        }
    }
}
