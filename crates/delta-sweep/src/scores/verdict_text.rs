//! The verdicts of `delta sweep compare --max-drop` and `delta sweep gate` in every format.

use crate::scores::score_text::{UNGRADED_NAME, cost_text, tie_up};
use crate::scores::verdict::JudgedPair;
use delta_base::id::RunId;
use delta_base::json::to_json;
use delta_base::terminal_text::strip_terminal_controls;
use delta_statistics::sequential::{Remedy, Verdict};
use serde_json::{Value as Json, json};
use std::collections::HashSet;

/// So many flaky inputs are named in the text.
const MAX_NAMED_INPUTS: usize = 5;

/// What all verdicts of a comparison have in common.
#[derive(Debug, Clone, Copy)]
pub struct VerdictContext<'a> {
    /// The name of the grader; none if the sweep has none.
    pub grader: Option<&'a str>,
    /// The drop that PASS excludes.
    pub max_drop: f64,
    /// The command that works on runs without a score.
    pub retry: &'a str,
    /// What only a gate has.
    pub gate: Option<&'a GateFacts<'a>>,
}

/// What the verdict of a gate says besides.
#[derive(Debug)]
pub struct GateFacts<'a> {
    /// The runs that this process has worked on.
    pub new_runs: &'a HashSet<RunId>,
    /// The budget of the sweep in USD.
    pub budget_usd: Option<f64>,
    /// Runs of the base that were not used again.
    pub notes: Vec<String>,
    /// The inputs that are left out, each with its reason.
    pub ignored: &'a [(String, String)],
}

/// How verdicts are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum VerdictFormat {
    /// Readable text
    #[default]
    Text,
    /// JSON
    Json,
    /// JUnit XML, for CI: FAIL is a failure, INCONCLUSIVE an error
    Junit,
    /// Markdown, for a comment
    Markdown,
}

/// Verdicts in a format; in JSON, an object a line.
pub fn verdicts_in(
    format: VerdictFormat,
    judged: &[JudgedPair],
    context: VerdictContext<'_>,
) -> String {
    let cases = judged.iter().map(|pair| VerdictCase {
        verdict: pair.decision.verdict,
        name: case_name(pair, context),
        text: strip_terminal_controls(&(verdict_lines(pair, context).join("\n") + "\n")),
        json: verdict_json(pair, context),
    });
    cases_in(format, &cases.collect::<Vec<_>>())
}

/// Verdicts for the page of the sweep: `{"at", "verdicts"}`, each with its text.
pub fn verdicts_record(judged: &[JudgedPair], context: VerdictContext<'_>, at: &str) -> Json {
    let verdicts = judged.iter().map(|pair| {
        let mut verdict = verdict_json(pair, context);
        verdict["text"] = verdict_lines(pair, context).join("\n").into();
        verdict
    });
    json!({"at": at, "verdicts": verdicts.collect::<Vec<Json>>()})
}

/// The verdict on sides that are the same, which needs no run.
pub fn equal_sides_in(
    format: VerdictFormat,
    grader: Option<&str>,
    max_drop: f64,
    [base, here]: [&str; 2],
) -> String {
    let grader_name = grader.unwrap_or(UNGRADED_NAME).to_owned();
    let json = json!({
        "verdict": verdict_name(Verdict::Pass),
        "grader": grader,
        "max_drop": max_drop,
        "base": base,
        "here": here,
        "difference": 0.0,
        "pairs": {"used": 0, "planned": 0, "missing": 0},
        "runs": {"new": 0, "reused": 0},
        "cost_usd": 0.0,
    });
    let text = "PASS  agent, model and inputs are the same; 0 runs\n".to_owned();
    cases_in(format, &[VerdictCase { verdict: Verdict::Pass, name: grader_name, text, json }])
}

/// A verdict in every format.
struct VerdictCase {
    verdict: Verdict,
    name: String,
    text: String,
    json: Json,
}

fn cases_in(format: VerdictFormat, cases: &[VerdictCase]) -> String {
    let texts = cases.iter().map(|case| match format {
        VerdictFormat::Text => case.text.clone(),
        VerdictFormat::Json => to_json(&case.json) + "\n",
        VerdictFormat::Junit => case.to_junit(),
        VerdictFormat::Markdown => {
            format!(
                "### {}: {}\n\n```text\n{}```\n",
                case.name,
                verdict_name(case.verdict),
                case.text
            )
        }
    });
    let texts: Vec<String> = texts.collect();
    match format {
        VerdictFormat::Json => texts.concat(),
        VerdictFormat::Text | VerdictFormat::Markdown => texts.join("\n"),
        VerdictFormat::Junit => {
            let count = |verdict| cases.iter().filter(|case| case.verdict == verdict).count();
            format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"delta sweep\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n{}</testsuite>\n</testsuites>\n",
                cases.len(),
                count(Verdict::Fail),
                count(Verdict::Inconclusive),
                texts.concat()
            )
        }
    }
}

impl VerdictCase {
    fn to_junit(&self) -> String {
        let name = xml_text(&self.name);
        let text = xml_text(&self.text);
        let tag = match self.verdict {
            Verdict::Pass => "system-out",
            Verdict::Fail => "failure",
            Verdict::Inconclusive => "error",
        };
        let message = match self.verdict {
            Verdict::Pass => String::new(),
            verdict => format!(" message=\"{}\"", verdict_name(verdict)),
        };
        format!(
            "<testcase classname=\"delta.sweep\" name=\"{name}\"><{tag}{message}>{text}</{tag}></testcase>\n"
        )
    }
}

/// A text in XML, also in an attribute. Control characters have no form in XML 1.0.
fn xml_text(text: &str) -> String {
    let characters = text.chars().filter(|c| *c == '\n' || !c.is_control());
    let escaped = characters
        .collect::<String>()
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    escaped.replace('"', "&quot;")
}

/// `right`, or `right, model local` where several settings are judged.
fn case_name(judged: &JudgedPair, context: VerdictContext<'_>) -> String {
    let mut parts = vec![context.grader.unwrap_or(UNGRADED_NAME).to_owned()];
    parts.extend(judged.setting.iter().map(|(key, value)| format!("{key} {value}")));
    parts.join(", ")
}

/// The verdict as a word.
pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Inconclusive => "INCONCLUSIVE",
        Verdict::Fail => "FAIL",
    }
}

fn verdict_lines(judged: &JudgedPair, context: VerdictContext<'_>) -> Vec<String> {
    let decision = &judged.decision;
    let score = context.grader.unwrap_or(UNGRADED_NAME);
    let gate = context.gate.map_or("", |_| "gate  ");
    let mut head = vec![format!("{gate}{score} may drop by {:.2}", context.max_drop)];
    head.extend(judged.setting.iter().map(|(key, value)| format!("{key} {value}")));
    head.extend([format!("base {}", judged.base), format!("here {}", judged.change)]);
    let repeats = match judged.repeats {
        0 | 1 => String::new(),
        repeats => format!(", {repeats} repeats"),
    };
    head.push(counted(judged.inputs, "input") + &repeats);
    let mut lines = vec![head.join("   ")];
    let pairs = format!("{} of {} pairs", decision.used, decision.planned);
    let mut cost = String::new();
    if let Some(gate) = context.gate {
        cost.push_str(&format!(", {}", counted(new_runs(judged, gate), "new run")));
    }
    if let Some(usd) = judged.cost_usd {
        cost.push_str(&format!(", ${}", cost_text(usd)));
        if let Some(budget) = context.gate.and_then(|gate| gate.budget_usd) {
            cost.push_str(&format!(" of ${budget}"));
        }
    }
    let verdict = verdict_name(decision.verdict);
    lines.push(match &decision.figures {
        Some(figures) => {
            let [base, change, difference] =
                [figures.base, figures.change, figures.difference].map(|it| tie_up(it, 2));
            // A difference of two scores is between -1 and 1, whatever Student's t says.
            let [low, high] =
                [figures.low, figures.high].map(|end| tie_up(end.clamp(-1.0, 1.0), 2));
            format!(
                "{verdict}  {score} {base:.2} -> {change:.2}, {difference:+.2} [{low:+.2}, {high:+.2}]; {pairs}{cost}"
            )
        }
        None => format!("{verdict}  {pairs}{cost}"),
    });
    if !judged.has_default_levels {
        let [fail, pass] = [decision.rule.fail_level, decision.rule.pass_level];
        lines.push(format!("levels: FAIL {}, PASS {}", percent_text(fail), percent_text(pass)));
    }
    if let (Verdict::Pass, Some(figures)) = (decision.verdict, &decision.figures) {
        let unseen = 1.0 - 0.05_f64.powf(1.0 / figures.clusters as f64);
        lines.push(format!("inputs like these: at most {:.1} % broken unseen", 100.0 * unseen));
    }
    if !judged.flaky.is_empty() {
        lines.push(flaky_text(judged));
    }
    if let Some(gate) = context.gate {
        let ignored = gate.ignored.iter().map(|(id, reason)| format!("{id} ({reason})"));
        let ignored: Vec<String> = ignored.collect();
        if !ignored.is_empty() {
            lines.push(format!("ignored: {}", ignored.join(", ")));
        }
        lines.extend(gate.notes.iter().cloned());
    }
    if decision.missing > 0 {
        let worst = match (decision.verdict, decision.observed) {
            (Verdict::Inconclusive, Verdict::Inconclusive) => String::new(),
            (Verdict::Inconclusive, observed) => {
                format!("; their worst scores would change {}", verdict_name(observed))
            }
            _ => "; the verdict holds with their worst scores".to_owned(),
        };
        let missing = counted(decision.missing, "pair");
        let are = if decision.missing == 1 { "is" } else { "are" };
        let reasons = judged.missing.iter().map(|(why, count)| format!("{why} {count}"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        lines.push(format!("note: {missing} {are} missing ({reasons}){worst}"));
    }
    lines.extend(help_text(judged, context));
    lines
}

/// What decides an INCONCLUSIVE comparison.
fn help_text(judged: &JudgedPair, context: VerdictContext<'_>) -> Option<String> {
    let decision = &judged.decision;
    if decision.verdict != Verdict::Inconclusive {
        return None;
    }
    let more = more_pairs(judged);
    Some(match decision.remedy {
        Some(Remedy::Pairs(pairs)) if pairs > decision.planned => {
            let cost = more
                .and_then(|more| pair_cost(judged, more))
                .map_or_else(String::new, |usd| format!(" (about ${})", cost_text(usd)));
            let repeats = pairs.div_ceil(judged.inputs);
            let more = pairs - decision.used;
            format!("help: {more} more pairs{cost} decide in 4 of 5 cases: repeats: {repeats}")
        }
        Some(Remedy::Inputs) if decision.missing == 0 => {
            "help: more repeats do not decide, only more inputs can".to_owned()
        }
        _ => {
            format!("help: the missing pairs can decide: `{}`", context.retry)
        }
    })
}

/// How many of the runs this process has worked on.
fn new_runs(judged: &JudgedPair, gate: &GateFacts<'_>) -> usize {
    judged.runs.iter().filter(|id| gate.new_runs.contains(*id)).count()
}

/// How many pairs more decide, the missing ones included.
fn more_pairs(judged: &JudgedPair) -> Option<usize> {
    match judged.decision.remedy? {
        Remedy::Pairs(pairs) => {
            Some(pairs.saturating_sub(judged.decision.used).max(judged.decision.missing))
        }
        Remedy::Inputs => None,
    }
}

/// What so many pairs cost, by the mean of the ones that there are.
fn pair_cost(judged: &JudgedPair, pairs: usize) -> Option<f64> {
    let used = judged.decision.used;
    (used > 0).then_some(judged.cost_usd? / used as f64 * pairs as f64)
}

fn flaky_text(judged: &JudgedPair) -> String {
    let named = judged.flaky.iter().take(MAX_NAMED_INPUTS);
    let mut names: Vec<String> =
        named.map(|input| format!("{} ({} of {})", input.id, input.passed, input.of)).collect();
    let others = judged.flaky.len() - names.len();
    if others > 0 {
        names.push(format!("and {others} more"));
    }
    format!("flaky at the base: {}", names.join(", "))
}

fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// `0.25 %`.
fn percent_text(share: f64) -> String {
    let digits = format!("{:.4}", 100.0 * share);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// The verdict with all of its numbers.
pub fn verdict_json(judged: &JudgedPair, context: VerdictContext<'_>) -> Json {
    let decision = &judged.decision;
    let figures = decision.figures.as_ref();
    let more = (decision.verdict == Verdict::Inconclusive).then(|| {
        let pairs = more_pairs(judged);
        json!({"pairs": pairs, "usd": pairs.and_then(|pairs| pair_cost(judged, pairs))})
    });
    let setting: serde_json::Map<String, Json> =
        judged.setting.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let flaky: Vec<Json> = judged
        .flaky
        .iter()
        .map(|input| json!({"id": input.id, "passed": input.passed, "of": input.of}))
        .collect();
    let mut json = json!({
        "verdict": verdict_name(decision.verdict),
        "grader": context.grader,
        "max_drop": context.max_drop,
        "setting": setting,
        "base": judged.base,
        "here": judged.change,
        "scores": figures.map(|figures| [figures.base, figures.change]),
        "difference": figures.map(|figures| figures.difference),
        "low": figures.map(|figures| figures.low.max(-1.0)),
        "high": figures.map(|figures| figures.high.min(1.0)),
        "levels": [decision.rule.fail_level, decision.rule.pass_level],
        "look": [decision.look, decision.looks],
        "pairs": {
            "used": decision.used,
            "planned": decision.planned,
            "missing": decision.missing,
        },
        "missing": judged.missing,
        "cost_usd": judged.cost_usd,
        "more": more,
        "flaky": flaky,
    });
    if let Some(gate) = context.gate {
        let new = new_runs(judged, gate);
        json["runs"] = json!({"new": new, "reused": judged.runs.len() - new});
        let ignored = gate.ignored.iter().map(|(id, reason)| json!({"id": id, "reason": reason}));
        json["ignored"] = ignored.collect();
    }
    json
}
