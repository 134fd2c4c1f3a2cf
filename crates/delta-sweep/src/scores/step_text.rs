//! The curve of a search for a step, and the step, as text and as JSON.

use crate::scores::score_text::{cost_text, tie_up};
use delta_base::text::text_width::{clip_to_width, display_width};
use delta_statistics::step::{PointScores, Step, simultaneous_intervals};
use serde_json::{Value as Json, json};

/// How a search ends that the budget stops.
pub const OVER_BUDGET: &str = "stopped: the budget of the sweep is used up";

/// A line for each point with runs: its label, its rate with the interval, how many of its runs passed, and its note. `marked`
/// is the first point after the step.
pub fn curve_text(
    points: &[PointScores],
    labels: &[String],
    notes: &[&str],
    unit: &str,
    marked: Option<usize>,
    width: usize,
) -> String {
    let most = points.iter().map(|point| point.runs).max().unwrap_or(0);
    let digits = most.to_string().len();
    let with_runs = labels.iter().zip(points).filter(|(_, point)| point.runs > 0);
    let label_width = with_runs.map(|(label, _)| display_width(label)).max().unwrap_or(0);
    let mut text = String::new();
    for (index, interval) in simultaneous_intervals(points).into_iter().enumerate() {
        let Some(interval) = interval else { continue };
        let mark = if marked == Some(index) { '>' } else { ' ' };
        let [rate, low, high] =
            [points[index].rate(), interval.low, interval.high].map(|value| tie_up(value, 2));
        let PointScores { runs, passed, .. } = points[index];
        let label = &labels[index];
        let gap = " ".repeat(label_width - display_width(label));
        let mut line = format!(
            "{mark} {label}{gap}  {rate:.2} [{low:.2}, {high:.2}]  {passed:>digits$} of {runs:>digits$}"
        );
        if text.is_empty() {
            line.push_str(&format!(" {unit} passed"));
        }
        if !notes[index].is_empty() {
            let room = width.saturating_sub(display_width(&line) + 3);
            line.push_str(&format!("   {}", clip_to_width(notes[index], room)));
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The rate of a point as it is printed.
pub fn rate_text(points: &[PointScores], index: usize) -> String {
    format!("{:.2}", tie_up(points[index].rate(), 2))
}

/// `0.88 -> 0.00, -0.88 [-0.98, -0.40], 97 % if there is one step`.
pub fn step_text(points: &[PointScores], step: &Step) -> String {
    let ends = [step.difference, step.interval.low, step.interval.high];
    let [difference, low, high] = ends.map(|end| tie_up(end, 2));
    format!(
        "{} -> {}, {difference:+.2} [{low:+.2}, {high:+.2}], {:.0} % if there is one step",
        rate_text(points, step.after_point),
        rate_text(points, step.after_point + 1),
        // Never 100: a chance is not certain.
        (step.confidence * 100.0).floor().min(99.0)
    )
}

/// `, $0.71`, unless nothing was paid or that is not known.
pub fn paid_text(cost_usd: Option<f64>) -> String {
    let usd = cost_usd.filter(|usd| *usd > 0.0);
    usd.map_or_else(String::new, |usd| format!(", ${}", cost_text(usd)))
}

/// The points with runs: the members that `first` has of a point, then `score`, `low`, `high`, the number of runs as `unit`, and
/// `passed`.
pub fn curve_json(points: &[PointScores], unit: &str, first: impl Fn(usize) -> Json) -> Vec<Json> {
    let intervals = simultaneous_intervals(points).into_iter().enumerate();
    let with_runs = intervals.filter_map(|(index, interval)| {
        let interval = interval?;
        let mut json = first(index);
        json["score"] = points[index].rate().into();
        json["low"] = interval.low.into();
        json["high"] = interval.high.into();
        json[unit] = points[index].runs.into();
        json["passed"] = points[index].passed.into();
        Some(json)
    });
    with_runs.collect()
}

/// The members that `json` has of a step, then its figures.
pub fn step_json(points: &[PointScores], step: &Step, mut json: Json) -> Json {
    let figures = json!({
        "before": points[step.after_point].rate(),
        "after": points[step.after_point + 1].rate(),
        "difference": step.difference,
        "low": step.interval.low,
        "high": step.interval.high,
        "confidence": step.confidence,
    });
    if let (Json::Object(json), Json::Object(figures)) = (&mut json, figures) {
        json.extend(figures);
    }
    json
}
