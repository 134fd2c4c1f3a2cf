//! Where between two revisions the score dropped, as text and as JSON.

use crate::formats::chain_change::ChainChange;
use crate::scores::chain_search::SearchedChain;
use crate::scores::step_text::{
    OVER_BUDGET, curve_json, curve_text, paid_text, rate_text, step_json, step_text,
};
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_operator::command_line::pluralize;
use delta_statistics::sequential::Verdict;
use delta_statistics::step::{NoStep, PointScores, SearchStatus};
use serde_json::{Value as Json, json};

/// The most characters of a title that are printed.
const MAX_TITLE_CHARS: usize = 200;

/// A change whose agents can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BisectedPoint {
    /// The change.
    pub change: ChainChange,
    /// The changes between the point before and this one that cannot be run, each with the reason.
    pub skipped: Vec<(ChainChange, String)>,
}

/// What is known of where the score dropped.
#[derive(Debug, Clone, Copy)]
pub struct BisectedDrop<'a> {
    /// `commit` or `hunk`.
    pub unit: &'a str,
    /// The good end, then the changes.
    pub points: &'a [BisectedPoint],
    /// The verdict of the ends.
    pub ends: Verdict,
    /// The search; none if the ends show no drop.
    pub chain: Option<&'a SearchedChain>,
    /// The smallest drop that is searched.
    pub max_drop: f64,
    /// The repeats of the sweep.
    pub repeats: u32,
    /// What the counted runs cost; none if that is not known.
    pub cost_usd: Option<f64>,
}

impl BisectedDrop<'_> {
    /// Whether the search has an answer: a change or a range of them, or ends without a drop.
    pub fn is_answered(&self) -> bool {
        let status = self.chain.map(|chain| &chain.search.status);
        self.ends == Verdict::Pass || matches!(status, Some(SearchStatus::Named(_)))
    }

    /// The curve, a line for each point with runs, and the end.
    pub fn to_text(&self, width: usize) -> String {
        let Some(chain) = self.chain else {
            return match self.ends {
                Verdict::Pass => "nothing to find: the ends PASS\n".to_owned(),
                _ => format!("no {} is named: a drop between the ends is not shown\n", self.unit),
            };
        };
        let points = &chain.search.points;
        let marked = match &chain.search.status {
            SearchStatus::Named(step) => Some(step.after_point + 1),
            _ => None,
        };
        let labels: Vec<String> = self.points.iter().map(|point| clean(&point.change.id)).collect();
        let titles: Vec<String> =
            self.points.iter().map(|point| clean(&point.change.title)).collect();
        let notes: Vec<&str> = titles.iter().map(String::as_str).collect();
        let text = curve_text(points, &labels, &notes, "runs", marked, width);
        let runs = pluralize(chain.search.runs(), "run");
        let end = self.end_text(&chain.search.status, points);
        text + &format!("{end}; {runs}{}\n", paid_text(self.cost_usd)) + &self.range_text(chain)
    }

    fn end_text<K>(&self, status: &SearchStatus<K>, points: &[PointScores]) -> String {
        let unit = self.unit;
        let at = |index: usize| {
            format!("{} at {}", rate_text(points, index), clean(&self.points[index].change.id))
        };
        match status {
            SearchStatus::Named(step) => {
                let point = &self.points[step.after_point + 1];
                let lost = match point.skipped.len() {
                    0 => format!("{unit} {}", change_text(&point.change)),
                    count => format!("one of {} {unit}s", count + 1),
                };
                format!("lost in {lost}: {}", step_text(points, step))
            }
            SearchStatus::NotNamed(NoStep::Between { before, after }) => format!(
                "no single step of {:.2} or more is shown: {}, {}",
                self.max_drop,
                at(*before),
                at(*after)
            ),
            SearchStatus::NotNamed(NoStep::AfterLast | NoStep::NoChance) => {
                format!("no step of {:.2} or more: {}", self.max_drop, at(0))
            }
            SearchStatus::UsedUp(point) => format!(
                "{} has no other run: `repeats: {}` continues the search",
                clean(&self.points[*point].change.id),
                2 * self.repeats
            ),
            SearchStatus::Asks(_) => OVER_BUDGET.to_owned(),
        }
    }

    /// The changes of a range, a line each.
    fn range_text(&self, chain: &SearchedChain) -> String {
        let SearchStatus::Named(step) = &chain.search.status else { return String::new() };
        let BisectedPoint { change, skipped } = &self.points[step.after_point + 1];
        if skipped.is_empty() {
            return String::new();
        }
        let skipped = skipped
            .iter()
            .map(|(change, reason)| format!("  {}: {}\n", change_text(change), clean(reason)));
        skipped.collect::<String>() + &format!("  {}\n", change_text(change))
    }

    /// `{"unit", "max_drop", "points", "runs", "cost_usd", "end", "lost"}`.
    pub fn to_json(&self) -> Json {
        let (end, lost) = match self.chain.map(|chain| (&chain.search.status, chain)) {
            None if self.ends == Verdict::Pass => ("nothing_to_find", Json::Null),
            None => ("no_drop_shown", Json::Null),
            Some((SearchStatus::Named(step), chain)) => {
                let point = &self.points[step.after_point + 1];
                let skipped = point.skipped.iter().map(|(change, reason)| {
                    json!({"id": change.id, "title": change.title, "skipped": reason})
                });
                let change = json!({"id": point.change.id, "title": point.change.title});
                let changes: Vec<Json> = skipped.chain([change]).collect();
                let lost = json!({"changes": changes});
                ("named", step_json(&chain.search.points, step, lost))
            }
            Some((SearchStatus::NotNamed(_), _)) => ("no_single_step", Json::Null),
            Some((SearchStatus::UsedUp(_), _)) => ("repeats", Json::Null),
            Some((SearchStatus::Asks(_), _)) => ("budget", Json::Null),
        };
        let points = self.chain.map_or_else(Vec::new, |chain| {
            curve_json(&chain.search.points, "runs", |index| {
                let change = &self.points[index].change;
                json!({"id": change.id, "title": change.title})
            })
        });
        json!({
            "unit": self.unit,
            "max_drop": self.max_drop,
            "points": points,
            "runs": self.chain.map_or(0, |chain| chain.search.runs()),
            "cost_usd": self.cost_usd,
            "end": end,
            "lost": lost,
        })
    }
}

/// A text of others as a part of a line.
fn clean(text: &str) -> String {
    truncate_to_line(&strip_terminal_controls(text), MAX_TITLE_CHARS)
}

/// `8be01d4 "shorten the prompt"`.
fn change_text(change: &ChainChange) -> String {
    let id = clean(&change.id);
    if change.title.is_empty() { id } else { format!("{id} \"{}\"", clean(&change.title)) }
}
