//! Where a run was lost, as text and as JSON.

use crate::scores::fork_search::{ForkSearch, MOST_FORKS, SearchStatus};
use crate::scores::score_text::{cost_text, tie_up};
use delta_base::id::RunId;
use delta_base::text::text_width::{clip_to_width, display_width};
use delta_operator::command_line::pluralize;
use delta_statistics::step::{NoStep, PointScores, simultaneous_intervals};
use serde_json::{Value as Json, json};

/// How many forks most searches of a step need: simulated rates from 0.95 -> 0 to 0.8 -> 0.3 in 10 to 100 iterations.
const USUAL_FORKS: [usize; 2] = [15, 75];

/// What a search costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchEstimate {
    /// The iterations of the run, at least 1.
    pub iterations: u32,
    /// What the run cost; None if that is not known.
    pub run_usd: Option<f64>,
}

impl SearchEstimate {
    /// The most that a search is expected to cost: forks repeat only what follows their point, about half of the run.
    fn most_usd(self) -> Option<f64> {
        let iterations = f64::from(self.iterations);
        Some(self.run_usd? * MOST_FORKS as f64 * (iterations + 1.0) / (2.0 * iterations))
    }

    /// `12 iterations; usually 15 to 75 forks, at most 120 (about $2.40)`.
    pub fn to_text(self) -> String {
        let [fewest, many] = USUAL_FORKS;
        let usd = self.most_usd().filter(|usd| *usd > 0.0);
        let usd = usd.map_or_else(String::new, |usd| format!(" (about ${})", cost_text(usd)));
        let iterations = pluralize(self.iterations as usize, "iteration");
        format!("{iterations}; usually {fewest} to {many} forks, at most {MOST_FORKS}{usd}\n")
    }

    /// `{"usual_forks", "most_forks", "most_usd"}`.
    pub fn to_json(self) -> Json {
        json!({"usual_forks": USUAL_FORKS, "most_forks": MOST_FORKS, "most_usd": self.most_usd()})
    }
}

/// What is known of where a run was lost.
#[derive(Debug, Clone, Copy)]
pub struct LostRun<'a> {
    /// The id of the run.
    pub run: &'a RunId,
    /// The grader whose scores are searched; None if the sweep has none.
    pub grader: Option<&'a str>,
    /// The search.
    pub search: &'a ForkSearch,
    /// The first call of each iteration, from the first one on.
    pub calls: &'a [String],
    /// What the forks cost; None if that is not known.
    pub cost_usd: Option<f64>,
}

impl LostRun<'_> {
    /// The scores of each point.
    fn scores(&self) -> Vec<PointScores> {
        self.search.points.iter().map(|point| point.scores).collect()
    }

    /// The iteration in which the run was lost, from 1, if one is named.
    fn iteration(&self) -> Option<usize> {
        match &self.search.status {
            SearchStatus::Named(step) => Some(step.after_point + 1),
            SearchStatus::Asks(_) | SearchStatus::NotNamed(_) => None,
        }
    }

    /// The curve, a line for each point with forks, and the end.
    pub fn to_text(&self, width: usize) -> String {
        let scores = self.scores();
        let points = &self.search.points;
        let digits = |most: usize| most.to_string().len();
        let point_digits = digits(points.len()).max(2);
        let run_digits = digits(points.iter().map(|point| point.scores.runs).max().unwrap_or(0));
        let mut text = String::new();
        for (index, interval) in simultaneous_intervals(&scores).into_iter().enumerate() {
            let Some(interval) = interval else { continue };
            let is_loss = self.iteration() == Some(index);
            let mark = if is_loss { '>' } else { ' ' };
            let [rate, low, high] =
                [scores[index].rate(), interval.low, interval.high].map(|value| tie_up(value, 2));
            let passed = points[index].passed;
            let runs = scores[index].runs;
            let mut line = format!(
                "{mark} after {index:point_digits$}  {rate:.2} [{low:.2}, {high:.2}]  {passed:>run_digits$} of {runs:>run_digits$}"
            );
            if text.is_empty() {
                line.push_str(" forks passed");
            }
            if let Some(call) = index.checked_sub(1).and_then(|call| self.calls.get(call))
                && is_loss
                && !call.is_empty()
            {
                let room = width.saturating_sub(display_width(&line) + 3);
                line.push_str(&format!("   {}", clip_to_width(call, room)));
            }
            text.push_str(&line);
            text.push('\n');
        }
        let forks = pluralize(self.search.forks(), "fork");
        let usd = self.cost_usd.filter(|usd| *usd > 0.0);
        let usd = usd.map_or_else(String::new, |usd| format!(", ${}", cost_text(usd)));
        text + &format!("{}; {forks}{usd}\n", self.end_text(&scores))
    }

    fn end_text(&self, scores: &[PointScores]) -> String {
        let rate = |point: usize| format!("{:.2}", tie_up(scores[point].rate(), 2));
        match &self.search.status {
            SearchStatus::Named(step) => {
                let lost = step.after_point + 1;
                let ends = [step.difference, step.interval.low, step.interval.high];
                let [difference, low, high] = ends.map(|end| tie_up(end, 2));
                format!(
                    "lost in iteration {lost}: {} -> {}, {difference:+.2} [{low:+.2}, {high:+.2}], {:.0} % if there is one step",
                    rate(step.after_point),
                    rate(lost),
                    // Never 100: a chance is not certain.
                    (step.confidence * 100.0).floor().min(99.0)
                )
            }
            SearchStatus::NotNamed(NoStep::AfterLast) => {
                format!("the last step decides: its forks pass {}", rate(scores.len() - 1))
            }
            SearchStatus::NotNamed(NoStep::NoChance) => {
                format!("no chance from the start: {} after 0", rate(0))
            }
            SearchStatus::NotNamed(NoStep::Between { before, after }) => {
                let [first, last] = [rate(*before), rate(*after)];
                format!("no single step: {first} after {before}, {last} after {after}")
            }
            SearchStatus::Asks(_) => "stopped: the budget of the sweep is used up".to_owned(),
        }
    }

    /// `{"run", "grader", "iterations", "points", "forks", "cost_usd", "end", "lost"}`.
    pub fn to_json(&self) -> Json {
        let scores = self.scores();
        let intervals = simultaneous_intervals(&scores);
        let points = intervals.into_iter().enumerate().filter_map(|(index, interval)| {
            let interval = interval?;
            Some(json!({
                "after": index,
                "score": scores[index].rate(),
                "low": interval.low,
                "high": interval.high,
                "forks": scores[index].runs,
                "passed": self.search.points[index].passed,
            }))
        });
        let (end, lost) = match &self.search.status {
            SearchStatus::Named(step) => {
                let lost = step.after_point + 1;
                let lost = json!({
                    "iteration": lost,
                    "call": self.calls.get(step.after_point),
                    "before": scores[step.after_point].rate(),
                    "after": scores[lost].rate(),
                    "difference": step.difference,
                    "low": step.interval.low,
                    "high": step.interval.high,
                    "confidence": step.confidence,
                });
                ("named", lost)
            }
            SearchStatus::NotNamed(NoStep::AfterLast) => ("last_step", Json::Null),
            SearchStatus::NotNamed(NoStep::NoChance) => ("no_chance", Json::Null),
            SearchStatus::NotNamed(NoStep::Between { .. }) => ("no_single_step", Json::Null),
            SearchStatus::Asks(_) => ("budget", Json::Null),
        };
        json!({
            "run": self.run,
            "grader": self.grader,
            "iterations": scores.len(),
            "points": points.collect::<Vec<Json>>(),
            "forks": self.search.forks(),
            "cost_usd": self.cost_usd,
            "end": end,
            "lost": lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::fork_search::CurvePoint;
    use delta_statistics::estimate::Interval;
    use delta_statistics::step::Step;

    /// The text and the JSON of a run of 12 iterations with forks after some of them.
    fn lost(forks: &[(usize, usize, usize)], status: SearchStatus) -> (String, Json) {
        let mut points = vec![CurvePoint::default(); 12];
        for &(after, passed, runs) in forks {
            points[after] = CurvePoint { scores: PointScores { runs, sum: passed as f64 }, passed };
        }
        let calls: Vec<String> =
            (1..=12).map(|n| format!("edit file-{n}.c {}", "x".repeat(60))).collect();
        let lost = LostRun {
            run: &RunId::parse("web.3f9a2c1b7d4e5a60").unwrap(),
            grader: Some("right"),
            search: &ForkSearch { points, status },
            calls: &calls,
            cost_usd: Some(0.71),
        };
        (lost.to_text(80), lost.to_json())
    }

    #[test]
    fn the_curve_has_simultaneous_intervals_and_marks_the_loss() {
        let step = Step {
            after_point: 6,
            difference: -0.875,
            interval: Interval { low: -0.977_58, high: -0.400_79 },
            confidence: 0.999,
        };
        let forks = [(0, 10, 12), (6, 7, 8), (7, 0, 8), (9, 0, 4)];
        let (text, json) = lost(&forks, SearchStatus::Named(step));
        let expected = "  after  0  0.83 [0.47, 0.97]  10 of 12 forks passed
  after  6  0.88 [0.44, 0.98]   7 of  8
> after  7  0.00 [0.00, 0.44]   0 of  8   edit file-7.c xxxxxxxxxxxxxxxxxxxxxxx…
  after  9  0.00 [0.00, 0.61]   0 of  4
lost in iteration 7: 0.88 -> 0.00, -0.88 [-0.98, -0.40], 99 % if there is one step; 32 forks, $0.71
";
        assert_eq!(text, expected);
        assert_eq!((&json["end"], &json["lost"]["iteration"]), (&"named".into(), &7.into()));
        assert_eq!(json["points"][1]["after"], 6);
    }

    #[test]
    fn the_other_ends_say_what_is_known() {
        let forks = [(0, 1, 20), (2, 8, 10), (9, 1, 10), (11, 2, 5)];
        let between = NoStep::Between { before: 2, after: 9 };
        for (status, end) in [
            (
                SearchStatus::NotNamed(NoStep::AfterLast),
                "the last step decides: its forks pass 0.40",
            ),
            (SearchStatus::NotNamed(NoStep::NoChance), "no chance from the start: 0.05 after 0"),
            (SearchStatus::NotNamed(between), "no single step: 0.80 after 2, 0.10 after 9"),
            (SearchStatus::Asks(Vec::new()), "stopped: the budget of the sweep is used up"),
        ] {
            let (text, json) = lost(&forks, status);
            assert!(text.ends_with(&format!("\n{end}; 45 forks, $0.71\n")), "{text}");
            assert!(!text.contains('>') && json["lost"].is_null(), "{text}");
        }
    }

    #[test]
    fn an_estimate_has_a_cost_if_the_run_has_one() {
        let text = |run_usd| SearchEstimate { iterations: 12, run_usd }.to_text();
        let plain = "12 iterations; usually 15 to 75 forks, at most 120";
        assert_eq!(text(Some(0.037)), format!("{plain} (about $2.40)\n"));
        assert_eq!((text(None), text(Some(0.0))), (format!("{plain}\n"), format!("{plain}\n")));
    }
}
