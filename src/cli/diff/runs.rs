//! `delta diff RUN_A RUN_B`: where two runs part, and what each did from there on.

use super::{DiffArgs, Format, TROUBLE};
use crate::cli::failure::Failure;
use crate::cli::named::{Found, Named};
use crate::cli::{resume, stdout};
use crate::comparison::{Comparison, Parting, Step, What, compare as compare_events, worked};
use crate::event::Event;
use crate::outcome::{RunResult, UsageTotal};
use crate::state::RunState;
use crate::terminal;
use crate::text::{argument, hide_answers, one_line, printable};
use crate::time::human_duration;
use crate::tool::value_text;
use serde_json::{Value as Json, json};
use similar::TextDiff;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Columns of a terminal on which the runs stand beside each other; on a narrower one below each other.
const NARROWEST: usize = 80;
/// Characters of a line where there are no columns.
const LINE: usize = 160;
/// Characters of an argument.
const VALUE: usize = 60;

/// What stands before the status of a run.
const STATUS: &str = "= ";

/// Shows where a run and another one part; gives the exit code.
pub fn diff(args: &DiffArgs, other: &Named) -> ExitCode {
    match compare(args, other) {
        Ok((text, equal)) => {
            stdout::write(&text);
            ExitCode::from(u8::from(!equal))
        }
        Err(failure) => {
            failure.complain();
            ExitCode::from(TROUBLE)
        }
    }
}

/// The text of the comparison, and whether they are the same.
fn compare(args: &DiffArgs, other: &Named) -> Result<(String, bool), Failure> {
    let (a, b) = (Side::read(&args.run, &args.work_dir)?, Side::read(other, &args.work_dir)?);
    let found = compare_events(&a.events, &b.events);
    let equal = found.parts.is_none();
    Ok((
        match args.format.unwrap_or(Format::Text) {
            Format::Text => text(&a, &b, &found),
            Format::Json => format!("{}\n", account(&a, &b, &found)),
        },
        equal,
    ))
}

/// One of the two.
struct Side {
    found: Found,
    events: Vec<Event>,
    state: RunState,
    result: RunResult,
}

impl Side {
    fn read(named: &Named, work_dir: &Path) -> Result<Self, Failure> {
        let found = named.find(work_dir)?;
        let events = resume::read_journal(&found.id, &found.dir)?.events;
        let state = RunState::of(&events);
        let result = RunResult::of(&state).ok_or_else(|| {
            Failure::damaged(format!("run {} has no ENGINE_START", found.id), None)
        })?;
        Ok(Self { found, events, state, result })
    }

    fn usage(&self) -> &UsageTotal {
        &self.result.metrics.usage
    }

    /// A line about the whole of it.
    fn heading(&self, letter: &str) -> String {
        let (id, count) = (&self.found.id, self.state.iterations);
        let status = self.state.status.map_or_else(String::new, |status| status.to_string());
        let iterations = if count == 1 { "iteration" } else { "iterations" };
        let mut line = format!("{letter} {id}: {status} after {count} {iterations}");
        let usage = self.usage();
        if usage.input_tokens + usage.output_tokens > 0 {
            let (input, output) = (usage.input_tokens, usage.output_tokens);
            let _ = write!(line, ", {input} tokens in, {output} out");
        }
        if let Some(cost) = usage.total_cost_usd {
            let _ = write!(line, ", {cost:.4} USD");
        }
        let _ = write!(line, ", {}", human_duration(worked(&self.events)));
        if let Some(origin) = &self.state.origin {
            let (from, at) = (printable(&origin.run_id), origin.iteration);
            let _ = write!(line, "; forked from {from} at iteration {at}");
        }
        line
    }

    /// A text as a person may see it.
    fn shown(&self, text: &str) -> String {
        hide_answers(&self.state.sensitive, printable(text))
    }

    /// The lines for some steps, each with its iteration; one for each step.
    fn lines(&self, steps: &[Step]) -> Vec<(u32, String)> {
        let is_said = |step: &&Step| step.what != What::Answer || !step.text.trim().is_empty();
        steps.iter().filter(is_said).map(|step| (step.iteration, self.line(step))).collect()
    }

    fn line(&self, step: &Step) -> String {
        let text = one_line(&self.shown(&step.text), LINE);
        let tool = one_line(&printable(step.tool.as_deref().unwrap_or_default()), 64);
        match step.what {
            What::Message => format!("> {text}"),
            What::Answer => format!("• {text}"),
            What::Call => format!("→ {tool}{}", self.arguments(&step.text)),
            What::Observation => {
                let code = step.exit_code.filter(|code| *code != 0);
                let failed = code.map_or_else(String::new, |code| format!("[exit code {code}] "));
                format!("  {failed}{text}")
            }
            What::Status => format!("{STATUS}{text}"),
        }
    }

    fn arguments(&self, text: &str) -> String {
        match serde_json::from_str::<Json>(text) {
            Ok(Json::Object(arguments)) => {
                let pair = |(name, value): (&String, &Json)| {
                    let text = self.shown(&value_text(value));
                    let value = match value {
                        Json::String(_) => argument(&text, VALUE),
                        _ => one_line(&text, VALUE),
                    };
                    format!(" {}={value}", one_line(&printable(name), VALUE))
                };
                arguments.iter().map(pair).collect()
            }
            _ => format!(" {}", one_line(&self.shown(text), VALUE)),
        }
    }
}

fn text(a: &Side, b: &Side, found: &Comparison) -> String {
    let mut text = format!("{}\n{}\n\n", a.heading("a"), b.heading("b"));
    let Some(parts) = &found.parts else {
        text.push_str("they are the same\n");
        return text;
    };
    let same = match found.same_iterations {
        0 => String::new(),
        1 => "the first iteration is the same; ".to_owned(),
        count => format!("the first {count} iterations are the same; "),
    };
    let _ = writeln!(text, "{same}they part in iteration {}: {}", parts.iteration, reason(parts));
    text.push_str(&both(a, b, parts));
    text.push('\n');
    let (left, right) = (a.lines(&found.a), b.lines(&found.b));
    let names = [a, b].map(|side| side.found.id.to_string());
    let width = terminal::shows_result().then(terminal::width).flatten();
    match width.filter(|width| *width >= NARROWEST) {
        Some(width) => text.push_str(&columns(&names, &left, &right, width)),
        None => text.push_str(&below(&names, &left, &right)),
    }
    text
}

/// In what they part.
fn reason(parts: &Parting) -> String {
    let (Some(a), Some(b)) = (&parts.a, &parts.b) else { return "one of them ends".to_owned() };
    let goes_on = |step: &Step| match step.what {
        What::Message => "has a message".to_owned(),
        What::Answer | What::Call | What::Observation => "goes on".to_owned(),
        What::Status => format!("is {}", step.text),
    };
    if a.what != b.what {
        return format!("a {}, b {}", goes_on(a), goes_on(b));
    }
    let tool = printable(a.tool.as_deref().unwrap_or_default());
    match a.what {
        What::Message => "another message".to_owned(),
        What::Answer => "another answer of the LLM".to_owned(),
        What::Call if a.tool == b.tool => format!("other arguments of {tool}"),
        What::Call => "another tool is called".to_owned(),
        What::Observation => format!("something else came of {tool}"),
        What::Status => format!("a is {}, b is {}", a.text, b.text),
    }
}

/// Both texts where the runs part, as a diff of lines.
fn both(a: &Side, b: &Side, parts: &Parting) -> String {
    let (Some(one), Some(other)) = (&parts.a, &parts.b) else { return String::new() };
    if one.what != other.what || one.what == What::Status {
        return String::new();
    }
    let whole = |side: &Side, step: &Step| {
        let mut text = side.shown(&step.text);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match (step.what, &step.tool, step.exit_code) {
            (What::Call, Some(tool), _) => format!("{}\n{text}", printable(tool)),
            (What::Observation, _, Some(code)) if code != 0 => {
                format!("{text}[exit code {code}]\n")
            }
            _ => text,
        }
    };
    let (left, right) = (whole(a, one), whole(b, other));
    let diff = TextDiff::from_lines(&left, &right);
    let names = [("a", a), ("b", b)].map(|(letter, side)| format!("{letter} {}", side.found.id));
    let mut unified = diff.unified_diff();
    format!("\n{}", unified.context_radius(2).header(&names[0], &names[1]))
}

/// What each did, one below the other.
fn below(names: &[String; 2], left: &[(u32, String)], right: &[(u32, String)]) -> String {
    let side = |(letter, name, lines): (&str, &String, &[(u32, String)])| {
        format!(
            "{letter} {name}\n{}",
            numbered(lines).iter().map(|it| format!("{it}\n")).collect::<String>()
        )
    };
    [("a", &names[0], left), ("b", &names[1], right)].map(side).join("\n")
}

/// The lines with the number of their iteration before the first of each.
fn numbered(lines: &[(u32, String)]) -> Vec<String> {
    let mut last = None;
    let number = |(iteration, line): &(u32, String)| {
        // How a run stands belongs to no iteration.
        let is_new = last.replace(*iteration) != Some(*iteration) && !line.starts_with(STATUS);
        let number = if is_new { iteration.to_string() } else { String::new() };
        format!("{number:>4} {line}")
    };
    lines.iter().map(number).collect()
}

/// A line in at most `width` characters.
fn clip(line: &str, width: usize) -> String {
    match line.chars().count() <= width {
        true => line.to_owned(),
        false => line.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// What each did, beside each other, iteration by iteration.
fn columns(
    names: &[String; 2],
    left: &[(u32, String)],
    right: &[(u32, String)],
    width: usize,
) -> String {
    let column = (width - 3) / 2;
    let row = |one: &str, other: &str| {
        let (one, other) = (clip(one, column), clip(other, column));
        let filler = " ".repeat(column.saturating_sub(one.chars().count()));
        format!("{one}{filler} │ {other}").trim_end().to_owned() + "\n"
    };
    let mut text = row(&format!("a {}", names[0]), &format!("b {}", names[1]));
    let last = left.iter().chain(right).map(|(iteration, _)| *iteration).max().unwrap_or(0);
    let of = |lines: &[(u32, String)], iteration: u32| {
        let lines = lines.iter().filter(|(it, _)| *it == iteration).cloned();
        numbered(&lines.collect::<Vec<_>>())
    };
    for iteration in 1..=last {
        let (one, other) = (of(left, iteration), of(right, iteration));
        for index in 0..one.len().max(other.len()) {
            let line = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
            text.push_str(&row(&line(&one), &line(&other)));
        }
    }
    text
}

fn account(a: &Side, b: &Side, found: &Comparison) -> Json {
    let side = |side: &Side, steps: &[Step]| {
        json!({
            "run_id": side.found.id.to_string(),
            "run_dir": side.found.dir,
            "status": side.state.status,
            "origin": side.state.origin,
            "iterations": side.state.iterations,
            "usage": side.usage(),
            "worked_ms": worked(&side.events),
            "result": side.result.result,
            "error": side.result.error,
            "steps": steps,
        })
    };
    json!({
        "equal": found.parts.is_none(),
        "same_iterations": found.same_iterations,
        "parts": found.parts,
        "a": side(a, &found.a),
        "b": side(b, &found.b),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_8_on_a_wide_terminal_iterations_stand_beside_each_other() {
        let names = ["one".to_owned(), "other".to_owned()];
        let line = |iteration, text: &str| (iteration, text.to_owned());
        let left = [line(2, "• looks"), line(3, "• is done now"), line(4, "= COMPLETED")];
        let right = [line(2, "• reads"), line(2, "→ read a=1"), line(3, "= FAILED")];
        let expected = "\
a one           │ b other
   2 • looks    │    2 • reads
                │      → read a=1
   3 • is done… │      = FAILED
     = COMPLET… │
";
        assert_eq!(columns(&names, &left, &right, 33), expected);
    }
}
