//! Where a run was lost, as text and as JSON.

use crate::scores::fork_search::{ForkKey, MOST_FORKS};
use crate::scores::score_text::cost_text;
use crate::scores::step_text::{
    OVER_BUDGET, curve_json, curve_text, paid_text, rate_text, step_json, step_text,
};
use delta_base::id::RunId;
use delta_operator::command_line::pluralize;
use delta_statistics::step::{NoStep, SearchStatus, SearchedPoints};
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
    pub search: &'a SearchedPoints<ForkKey>,
    /// The first call of each iteration, from the first one on.
    pub calls: &'a [String],
    /// What the forks cost; None if that is not known.
    pub cost_usd: Option<f64>,
}

impl LostRun<'_> {
    /// The iteration in which the run was lost, from 1, if one is named.
    fn iteration(&self) -> Option<usize> {
        match &self.search.status {
            SearchStatus::Named(step) => Some(step.after_point + 1),
            _ => None,
        }
    }

    /// The curve, a line for each point with forks, and the end.
    pub fn to_text(&self, width: usize) -> String {
        let points = &self.search.points;
        let digits = points.len().to_string().len().max(2);
        let labels: Vec<String> =
            (0..points.len()).map(|index| format!("after {index:digits$}")).collect();
        let lost = self.iteration();
        let mut notes = vec![""; points.len()];
        if let Some((lost, call)) = lost.and_then(|lost| Some((lost, self.calls.get(lost - 1)?))) {
            notes[lost] = call;
        }
        let text = curve_text(points, &labels, &notes, "forks", lost, width);
        let forks = pluralize(self.search.runs(), "fork");
        text + &format!("{}; {forks}{}\n", self.end_text(), paid_text(self.cost_usd))
    }

    fn end_text(&self) -> String {
        let points = &self.search.points;
        let rate = |point: usize| rate_text(points, point);
        match &self.search.status {
            SearchStatus::Named(step) => {
                format!("lost in iteration {}: {}", step.after_point + 1, step_text(points, step))
            }
            SearchStatus::NotNamed(NoStep::AfterLast) => {
                format!("the last step decides: its forks pass {}", rate(points.len() - 1))
            }
            SearchStatus::NotNamed(NoStep::NoChance) => {
                format!("no chance from the start: {} after 0", rate(0))
            }
            SearchStatus::NotNamed(NoStep::Between { before, after }) => {
                let [first, last] = [rate(*before), rate(*after)];
                format!("no single step: {first} after {before}, {last} after {after}")
            }
            // A run can always be forked again.
            SearchStatus::Asks(_) | SearchStatus::UsedUp(_) => OVER_BUDGET.to_owned(),
        }
    }

    /// `{"run", "grader", "iterations", "points", "forks", "cost_usd", "end", "lost"}`.
    pub fn to_json(&self) -> Json {
        let points = &self.search.points;
        let (end, lost) = match &self.search.status {
            SearchStatus::Named(step) => {
                let lost = json!({
                    "iteration": step.after_point + 1,
                    "call": self.calls.get(step.after_point),
                });
                ("named", step_json(points, step, lost))
            }
            SearchStatus::NotNamed(NoStep::AfterLast) => ("last_step", Json::Null),
            SearchStatus::NotNamed(NoStep::NoChance) => ("no_chance", Json::Null),
            SearchStatus::NotNamed(NoStep::Between { .. }) => ("no_single_step", Json::Null),
            SearchStatus::Asks(_) | SearchStatus::UsedUp(_) => ("budget", Json::Null),
        };
        json!({
            "run": self.run,
            "grader": self.grader,
            "iterations": points.len(),
            "points": curve_json(points, "forks", |index| json!({"after": index})),
            "forks": self.search.runs(),
            "cost_usd": self.cost_usd,
            "end": end,
            "lost": lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_statistics::estimate::Interval;
    use delta_statistics::step::{PointScores, Step};

    /// The text and the JSON of a run of 12 iterations with forks after some of them.
    fn lost(forks: &[(usize, usize, usize)], status: SearchStatus<ForkKey>) -> (String, Json) {
        let mut points = vec![PointScores::default(); 12];
        for &(after, passed, runs) in forks {
            points[after] = PointScores { runs, sum: passed as f64, passed };
        }
        let calls: Vec<String> =
            (1..=12).map(|n| format!("edit file-{n}.c {}", "x".repeat(60))).collect();
        let lost = LostRun {
            run: &RunId::parse("web.3f9a2c1b7d4e5a60").unwrap(),
            grader: Some("right"),
            search: &SearchedPoints { points, status },
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
