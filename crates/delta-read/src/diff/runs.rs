//! `delta diff RUN_A RUN_B`: shows where two runs diverge and what each did from there.

use super::diff_painter::DiffPainter;
use super::{DiffArgs, EXIT_TROUBLE};
use delta_agent::tool::value_text;
use delta_base::redact::HiddenAnswers;
use delta_base::terminal;
use delta_base::terminal_text::{
    escape_terminal_controls, format_argument_value, truncate_to_line,
};
use delta_base::text::text_diff::LineDiff;
use delta_base::time::format_duration;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::own_run;
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_program::default_format::TextOrJson;
use delta_program::stdio;
use delta_report::run_diff::{
    DiffStep, DiffStepKind, RunDiff, RunDivergence, active_duration_ms,
    diff_run_events as compare_events,
};
use delta_run::event::Event;
use delta_run::run_result::{RunResult, UsageTotal};
use delta_run::run_tree::sensitive_answers::read_enclosing_answers;
use delta_run::state::RunState;
use serde_json::{Value as Json, json};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// On a terminal with at least this many columns the runs are shown side by side.
const MIN_SIDE_BY_SIDE_WIDTH: usize = 80;
/// The length of a line that is not in a column.
const MAX_LINE_CHARS: usize = 160;
const MAX_ARGUMENT_CHARS: usize = 60;

/// Precedes the status of a run.
const STATUS_PREFIX: &str = "= ";

/// Prints the comparison; returns the exit code.
pub fn diff_runs(args: &DiffArgs, other: &RunArgument) -> ExitCode {
    match render_run_diff(args, other) {
        Ok((text, is_equal)) => {
            let mut painter = DiffPainter::default();
            match args.format {
                Some(TextOrJson::Json) => stdio::print_text(&text),
                _ => stdio::print_painted(&text, |line| painter.paint(line)),
            };
            ExitCode::from(u8::from(!is_equal))
        }
        Err(failure) => {
            failure.report();
            ExitCode::from(EXIT_TROUBLE)
        }
    }
}

/// The text of the comparison, and whether the runs are equal.
fn render_run_diff(args: &DiffArgs, other: &RunArgument) -> Result<(String, bool), CommandFailure> {
    let mut a = ComparedRun::read(&args.run, &args.work_dir)?;
    let mut b = ComparedRun::read(other, &args.work_dir)?;
    let answers = [&a, &b].map(|side| &side.state.sensitive.answers);
    let enclosing = [&a, &b].map(|side| read_enclosing_answers(&side.run.dir));
    let hidden = HiddenAnswers::new(answers.into_iter().chain(&enclosing).flatten());
    a.hidden = hidden.clone();
    b.hidden = hidden;
    let diff = compare_events(&a.events, &b.events);
    let text = match args.format.unwrap_or(TextOrJson::Text) {
        TextOrJson::Text => render_run_diff_text(&a, &b, &diff),
        TextOrJson::Json => format!("{}\n", run_diff_json(&a, &b, &diff)),
    };
    Ok((text, diff.divergence.is_none()))
}

struct ComparedRun {
    run: LocatedRun,
    events: Vec<Event>,
    state: RunState,
    result: RunResult,
    /// The sensitive answers that the texts can contain.
    hidden: HiddenAnswers,
}

/// A line of the comparison, with the iteration that it belongs to.
#[derive(Clone)]
struct StepLine {
    iteration: u32,
    text: String,
}

impl ComparedRun {
    fn read(argument: &RunArgument, work_dir: &Path) -> Result<Self, CommandFailure> {
        let run = argument.find_readable(work_dir)?;
        let events = own_run::read_journal(&run.id, &run.dir)?.events;
        let state = RunState::from_events(&events);
        let result = RunResult::from_state(&state).ok_or_else(|| {
            CommandFailure::damaged(format!("run {} has no ENGINE_START", run.id), None)
        })?;
        Ok(Self { run, events, state, result, hidden: HiddenAnswers::default() })
    }

    fn usage(&self) -> &UsageTotal {
        &self.result.metrics.usage
    }

    /// One line with the status, the tokens, the cost and the time of the run.
    fn heading(&self, letter: &str) -> String {
        let status = self.state.status.map_or_else(String::new, |status| status.to_string());
        let iterations = pluralize(self.state.iterations as usize, "iteration");
        let mut line = format!("{letter} {}: {status} after {iterations}", self.run.id);
        let usage = self.usage();
        if usage.input_tokens + usage.output_tokens > 0 {
            let _ = write!(line, ", {} tokens in, {} out", usage.input_tokens, usage.output_tokens);
        }
        if let Some(cost) = usage.total_cost_usd {
            let _ = write!(line, ", {cost:.4} USD");
        }
        let _ = write!(line, ", {}", format_duration(active_duration_ms(&self.events)));
        if let Some(origin) = &self.state.origin {
            let _ =
                write!(line, "; forked from {} at iteration {}", origin.run_id, origin.iteration);
        }
        line
    }

    /// The text with escapes for terminal controls, in which the runs may differ, and without sensitive answers.
    fn displayable(&self, text: &str) -> String {
        self.hidden.redact_string(escape_terminal_controls(text))
    }

    /// One line for each step except empty answers.
    fn step_lines(&self, steps: &[DiffStep]) -> Vec<StepLine> {
        steps
            .iter()
            .filter(|step| step.what != DiffStepKind::Answer || !step.text.trim().is_empty())
            .map(|step| StepLine { iteration: step.iteration, text: self.step_line(step) })
            .collect()
    }

    fn step_line(&self, step: &DiffStep) -> String {
        let text = truncate_to_line(&self.displayable(&step.text), MAX_LINE_CHARS);
        let tool =
            truncate_to_line(&self.displayable(step.tool.as_deref().unwrap_or_default()), 64);
        match step.what {
            DiffStepKind::Message => format!("> {text}"),
            DiffStepKind::Answer => format!("• {text}"),
            DiffStepKind::Call => format!("→ {tool}{}", self.argument_list(&step.text)),
            DiffStepKind::Observation => {
                let code = step.exit_code.filter(|code| *code != 0);
                let failed = code.map_or_else(String::new, |code| format!("[exit code {code}] "));
                format!("  {failed}{text}")
            }
            DiffStepKind::Status => format!("{STATUS_PREFIX}{text}"),
        }
    }

    fn argument_list(&self, text: &str) -> String {
        let Ok(Json::Object(arguments)) = serde_json::from_str::<Json>(text) else {
            return format!(" {}", truncate_to_line(&self.displayable(text), MAX_ARGUMENT_CHARS));
        };
        let mut list = String::new();
        for (name, value) in &arguments {
            let name = truncate_to_line(&self.displayable(name), MAX_ARGUMENT_CHARS);
            let text = self.displayable(&value_text(value));
            let value = match value {
                Json::String(_) => format_argument_value(&text, MAX_ARGUMENT_CHARS),
                _ => truncate_to_line(&text, MAX_ARGUMENT_CHARS),
            };
            let _ = write!(list, " {name}={value}");
        }
        list
    }
}

fn render_run_diff_text(a: &ComparedRun, b: &ComparedRun, diff: &RunDiff) -> String {
    let mut text = format!("{}\n{}\n\n", a.heading("a"), b.heading("b"));
    let Some(divergence) = &diff.divergence else {
        text.push_str("no differences\n");
        return text;
    };
    match diff.same_iterations {
        0 => {}
        1 => text.push_str("the first iteration is the same; "),
        count => text.push_str(&format!("the first {count} iterations are the same; ")),
    }
    let iteration = divergence.iteration;
    let reason = describe_parting(a, divergence);
    let _ = writeln!(text, "the runs diverge in iteration {iteration}: {reason}");
    text.push_str(&render_parting_diff(a, b, divergence));
    text.push('\n');
    let left = a.step_lines(&diff.a);
    let right = b.step_lines(&diff.b);
    let names = [format!("a {}", a.run.id), format!("b {}", b.run.id)];
    let width = terminal::is_stdout_terminal().then(terminal::stderr_width).flatten();
    match width.filter(|width| *width >= MIN_SIDE_BY_SIDE_WIDTH) {
        Some(width) => text.push_str(&render_side_by_side(&names, &left, &right, width)),
        None => text.push_str(&render_stacked(&names, &left, &right)),
    }
    text
}

/// Says in what the runs first differ.
fn describe_parting(side: &ComparedRun, divergence: &RunDivergence) -> String {
    let Some((a, b)) = divergence.a.as_ref().zip(divergence.b.as_ref()) else {
        return "one of them ends".to_owned();
    };
    let next_step = |step: &DiffStep| match step.what {
        DiffStepKind::Message => "gets a message".to_owned(),
        DiffStepKind::Answer | DiffStepKind::Call | DiffStepKind::Observation => {
            "continues".to_owned()
        }
        DiffStepKind::Status => format!("is {}", step.text),
    };
    if a.what != b.what {
        return format!("a {}, b {}", next_step(a), next_step(b));
    }
    let tool = side.displayable(a.tool.as_deref().unwrap_or_default());
    match a.what {
        DiffStepKind::Message => "different messages".to_owned(),
        DiffStepKind::Answer => "different answers".to_owned(),
        DiffStepKind::Call if a.tool == b.tool => format!("different arguments of {tool}"),
        DiffStepKind::Call => "different tools".to_owned(),
        DiffStepKind::Observation => format!("different results of {tool}"),
        DiffStepKind::Status => format!("a is {}, b is {}", a.text, b.text),
    }
}

/// The texts of the first different step, as a diff of lines.
fn render_parting_diff(a: &ComparedRun, b: &ComparedRun, divergence: &RunDivergence) -> String {
    let Some((step_a, step_b)) = divergence.a.as_ref().zip(divergence.b.as_ref()) else {
        return String::new();
    };
    if step_a.what != step_b.what || step_a.what == DiffStepKind::Status {
        return String::new();
    }
    let step_text = |side: &ComparedRun, step: &DiffStep| {
        let mut text = side.displayable(&step.comparable);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match (step.what, &step.tool, step.exit_code) {
            (DiffStepKind::Call, Some(tool), _) => {
                format!("{}\n{text}", side.displayable(tool))
            }
            (DiffStepKind::Observation, _, Some(code)) if code != 0 => {
                format!("{text}[exit code {code}]\n")
            }
            _ => text,
        }
    };
    let left = step_text(a, step_a);
    let right = step_text(b, step_b);
    let diff = LineDiff::new(&left, &right, 2);
    format!("\n{}", diff.with_names(&format!("a {}", a.run.id), &format!("b {}", b.run.id)))
}

/// The lines of one run, then the lines of the other.
fn render_stacked(names: &[String; 2], left: &[StepLine], right: &[StepLine]) -> String {
    let list = |name: &str, lines: &[StepLine]| {
        let lines: String = number_lines(lines).iter().map(|line| format!("{line}\n")).collect();
        format!("{name}\n{lines}")
    };
    format!("{}\n{}", list(&names[0], left), list(&names[1], right))
}

/// The lines, with the number of each iteration before its first line.
fn number_lines(lines: &[StepLine]) -> Vec<String> {
    let mut last = None;
    lines
        .iter()
        .map(|StepLine { iteration, text }| {
            // The status belongs to no iteration.
            let is_new =
                last.replace(*iteration) != Some(*iteration) && !text.starts_with(STATUS_PREFIX);
            let number = if is_new { iteration.to_string() } else { String::new() };
            format!("{number:>4} {text}")
        })
        .collect()
}

/// The line, truncated to `width` characters.
fn clip_column(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width - 1).chain(['…']).collect()
}

/// The lines of both runs in two columns, aligned by iteration.
fn render_side_by_side(
    names: &[String; 2],
    left: &[StepLine],
    right: &[StepLine],
    width: usize,
) -> String {
    let column = (width - 3) / 2;
    let row = |left: &str, right: &str| {
        let left = clip_column(left, column);
        let right = clip_column(right, column);
        let filler = " ".repeat(column.saturating_sub(left.chars().count()));
        format!("{left}{filler} │ {right}").trim_end().to_owned() + "\n"
    };
    let mut text = row(&names[0], &names[1]);
    let last = left.iter().chain(right).map(|line| line.iteration).max().unwrap_or(0);
    let lines_of = |lines: &[StepLine], iteration: u32| {
        let lines = lines.iter().filter(|line| line.iteration == iteration).cloned();
        number_lines(&lines.collect::<Vec<_>>())
    };
    for iteration in 1..=last {
        let left = lines_of(left, iteration);
        let right = lines_of(right, iteration);
        for index in 0..left.len().max(right.len()) {
            let line = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
            text.push_str(&row(&line(&left), &line(&right)));
        }
    }
    text
}

fn run_diff_json(a: &ComparedRun, b: &ComparedRun, diff: &RunDiff) -> Json {
    let side = |side: &ComparedRun, steps: &[DiffStep]| {
        json!({
            "run_id": side.run.id.to_string(),
            "run_dir": side.run.dir,
            "status": side.state.status,
            "origin": side.state.origin,
            "iterations": side.state.iterations,
            "usage": side.usage(),
            "worked_ms": active_duration_ms(&side.events),
            "result": side.result.result,
            "error": side.result.error,
            "steps": steps,
        })
    };
    json!({
        "equal": diff.divergence.is_none(),
        "same_iterations": diff.same_iterations,
        "parts": diff.divergence,
        "a": side(a, &diff.a),
        "b": side(b, &diff.b),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_8_on_a_wide_terminal_runs_are_side_by_side() {
        let names = ["a one".to_owned(), "b other".to_owned()];
        let line = |iteration, text: &str| StepLine { iteration, text: text.to_owned() };
        let left = [line(2, "• looks"), line(3, "• is done now"), line(4, "= COMPLETED")];
        let right = [line(2, "• reads"), line(2, "→ read a=1"), line(3, "= FAILED")];
        let expected = "\
a one           │ b other
   2 • looks    │    2 • reads
                │      → read a=1
   3 • is done… │      = FAILED
     = COMPLET… │
";
        assert_eq!(render_side_by_side(&names, &left, &right, 33), expected);
    }
}
