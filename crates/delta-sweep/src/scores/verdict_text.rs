//! The verdicts of `delta sweep compare --max-drop` as text and as JSON.

use crate::scores::score_text::{UNGRADED_NAME, cost_text, tie_up};
use crate::scores::verdict::JudgedPair;
use delta_base::terminal_text::strip_terminal_controls;
use delta_statistics::sequential::{Remedy, Verdict};
use serde_json::{Value as Json, json};

/// So many flaky inputs are named in the text.
const MAX_NAMED_INPUTS: usize = 5;

/// What all verdicts of a comparison have in common.
#[derive(Debug, Clone, Copy)]
pub struct VerdictContext<'a> {
    /// The name of the grader; none if the sweep has none.
    pub grader: Option<&'a str>,
    /// The drop that PASS excludes.
    pub max_drop: f64,
    /// The directory of the sweep, for a shell.
    pub dir: &'a str,
}

/// The verdict as a word.
pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Inconclusive => "INCONCLUSIVE",
        Verdict::Fail => "FAIL",
    }
}

/// A paragraph for each verdict.
pub fn verdicts_text(judged: &[JudgedPair], context: VerdictContext<'_>) -> String {
    let paragraphs = judged.iter().map(|pair| verdict_lines(pair, context).join("\n") + "\n");
    strip_terminal_controls(&paragraphs.collect::<Vec<_>>().join("\n"))
}

fn verdict_lines(judged: &JudgedPair, context: VerdictContext<'_>) -> Vec<String> {
    let decision = &judged.decision;
    let score = context.grader.unwrap_or(UNGRADED_NAME);
    let mut head = vec![format!("{score} may drop by {:.2}", context.max_drop)];
    head.extend(judged.setting.iter().map(|(key, value)| format!("{key} {value}")));
    head.extend([format!("base {}", judged.base), format!("here {}", judged.change)]);
    head.push(counted(judged.inputs, "input"));
    let mut lines = vec![head.join("   ")];
    let pairs = format!("{} of {} pairs", decision.used, decision.planned);
    let cost = judged.cost_usd.map_or_else(String::new, |usd| format!(", ${}", cost_text(usd)));
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
            let dir = context.dir;
            format!(
                "help: the missing pairs can decide: `delta sweep run {dir}`, then `delta sweep grade {dir}`"
            )
        }
    })
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
    json!({
        "verdict": verdict_name(decision.verdict),
        "grader": context.grader,
        "max_drop": context.max_drop,
        "setting": setting,
        "base": judged.base,
        "here": judged.change,
        "scores": figures.map(|figures| [figures.base, figures.change]),
        "difference": figures.map(|figures| figures.difference),
        "low": figures.map(|figures| figures.low),
        "high": figures.map(|figures| figures.high),
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
    })
}
