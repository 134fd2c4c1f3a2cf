//! The tables of `delta sweep collect` and `compare` as text.

use crate::scores::pair_table::PairedRow;
use crate::scores::score_table::{NumberWithInterval, ScoreRow};
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::text::text_width::display_width;
use delta_base::time::format_duration;
use delta_statistics::comparison::Comparison;

/// The widest that a name is printed, in columns.
const MAX_NAME_WIDTH: usize = 30;

/// The name of the score of a sweep without graders.
const UNGRADED_NAME: &str = "completed";

/// A line or two for each row, with a header, in which the score has the name of its grader. Columns without values are left
/// out.
pub fn rows_text(rows: &[ScoreRow], grader: Option<&str>) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut header: Vec<String> = first.key.iter().map(|(key, _)| key_name(key)).collect();
    let key_columns = header.len();
    let pass_count = common_pass_count(rows);
    let pass_name = pass_count.map_or_else(String::new, |k| format!("pass@{k}, ^{k}"));
    header.extend([grader.unwrap_or(UNGRADED_NAME), "runs", &pass_name].map(str::to_owned));
    header.extend(["USD a run", "tokens", "time p50, p90"].map(str::to_owned));
    let mut table = vec![header];
    for row in rows {
        let mut cells: Vec<String> = row.key.iter().map(|(_, value)| clip(value)).collect();
        cells.extend([
            row.score.map_or_else(|| "-".to_owned(), number_text),
            coverage(row, grader.is_some()),
            row.pass
                .iter()
                .find(|chance| Some(chance.k) == pass_count)
                .map_or_else(String::new, |chance| {
                    format!("{:.2}, {:.2}", tie_up(chance.any, 2), tie_up(chance.all, 2))
                }),
            row.cost_usd.map_or_else(String::new, |cost| cost_text(cost.mean.value)),
            row.tokens
                .filter(|tokens| tokens.sum > 0.0)
                .map_or_else(String::new, |tokens| format!("{:.0}", tie_up(tokens.mean.value, 0))),
            row.seconds.map_or_else(String::new, |seconds| {
                format!("{}, {}", duration_text(seconds.p50), duration_text(seconds.p90))
            }),
        ]);
        table.push(cells);
    }
    let mut lines = align(&table).into_iter();
    let mut text = lines.next().unwrap_or_default() + "\n";
    let indent: usize = (0..key_columns).map(|column| column_width(&table, column) + 2).sum();
    for (line, row) in lines.zip(rows) {
        text.push_str(&line);
        text.push('\n');
        let mut add_note = |note: String| {
            text.push_str(&format!("{}{note}\n", " ".repeat(indent)));
        };
        if row.missing.len() > 1 {
            add_note(format!("missing: {}", missing_text(row)));
        }
        if let Some([low, high]) = row.bounds {
            let [low, high] = [low, high].map(|score| tie_up(score, 2));
            add_note(format!("incomplete: {low:.2} if all missing runs score 0, {high:.2} if 1"));
        }
    }
    text
}

/// The largest k for which every row has pass@k.
fn common_pass_count(rows: &[ScoreRow]) -> Option<u64> {
    let (first, others) = rows.split_first()?;
    let counts = first.pass.iter().map(|chance| chance.k);
    counts.filter(|k| others.iter().all(|row| row.pass.iter().any(|chance| chance.k == *k))).max()
}

/// The name of a key in a table.
fn key_name(key: &str) -> String {
    clip(key.strip_prefix("param.").unwrap_or(key))
}

fn duration_text(seconds: f64) -> String {
    format_duration((seconds * 1000.0).round() as u64)
}

fn clip(text: &str) -> String {
    let text = strip_terminal_controls(text).replace(['\n', '\t'], " ");
    delta_base::text::text_width::clip_to_width(&text, MAX_NAME_WIDTH).to_owned()
}

/// `0.62 [0.51, 0.72]`.
fn number_text(number: NumberWithInterval) -> String {
    let value = tie_up(number.value, 2);
    match number.interval.map(|ends| ends.map(|end| tie_up(end, 2))) {
        Some([low, high]) => format!("{value:.2} [{low:.2}, {high:.2}]"),
        None => format!("{value:.2}"),
    }
}

/// `47 of 50 graded, 3 llm`, or `47 of 50 counted` without a grader; several reasons have a line of their own.
fn coverage(row: &ScoreRow, has_grader: bool) -> String {
    let word = if has_grader { "graded" } else { "counted" };
    let text = format!("{} of {} {word}", row.graded, row.planned);
    if row.missing.len() == 1 { format!("{text}, {}", missing_text(row)) } else { text }
}

/// `3 llm, 2 not run`.
fn missing_text(row: &ScoreRow) -> String {
    let reasons = row.missing.iter();
    let reasons = reasons.map(|(why, count)| format!("{count} {}", strip_terminal_controls(why)));
    reasons.collect::<Vec<_>>().join(", ")
}

/// A number that rounds half away from zero when it is printed with `digits` decimals, as the page of a sweep rounds. Printing
/// alone would round half to even: 0.62 for 5/8.
fn tie_up(value: f64, digits: i32) -> f64 {
    // Only a fraction with this power of two as its denominator is halfway between two decimals.
    let halves = value * 2_f64.powi(digits + 1);
    if halves % 2.0 == 0.0 || halves.fract() != 0.0 {
        return value;
    }
    value + 10_f64.powi(-digits - 1).copysign(value)
}

fn cost_text(usd: f64) -> String {
    if usd == 0.0 || usd >= 0.1 {
        format!("{:.2}", tie_up(usd, 2))
    } else {
        format!("{:.4}", tie_up(usd, 4))
    }
}

/// A line or two for each comparison.
pub fn pairs_text(rows: &[PairedRow]) -> String {
    let mut table: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let names = format!("{} - {}", clip(&row.first), clip(&row.second));
        let [difference, pairs, p] = match &row.comparison {
            Some(comparison) => [
                difference_text(comparison),
                pair_count_text(comparison.pairs, row.planned),
                row.adjusted_p.map_or_else(String::new, |p| {
                    format!("{} ({})", p_text(p), comparison.test.name())
                }),
            ],
            None => ["-".to_owned(), "no pair has both scores".to_owned(), String::new()],
        };
        let verdict = match &row.comparison {
            Some(_) if row.shows_difference() => "",
            Some(_) => "no difference shown",
            None => "",
        };
        table.push(vec![names, difference, pairs, p, verdict.to_owned()]);
    }
    let indent = column_width(&table, 0) + 2;
    let mut text = String::new();
    for (line, row) in align(&table).into_iter().zip(rows) {
        text.push_str(&line);
        text.push('\n');
        if let Some([low, high]) = row.bounds {
            let [low, high] = [low, high].map(|difference| tie_up(difference, 2));
            let note =
                format!("incomplete: {low:+.2} to {high:+.2} with any scores of missing runs");
            text.push_str(&format!("{}{note}\n", " ".repeat(indent)));
        }
        let detectable = row.comparison.as_ref().and_then(|comparison| comparison.detectable);
        if let Some(detectable) = detectable.filter(|size| !row.shows_difference() && *size > 0.0) {
            let note = if detectable > 1.0 {
                "so few inputs show no difference".to_owned()
            } else {
                format!("this sweep shows differences from {:.2} on", tie_up(detectable, 2))
            };
            text.push_str(&format!("{}{note}\n", " ".repeat(indent)));
        }
    }
    text
}

/// `+0.45 [+0.31, +0.59]`.
fn difference_text(comparison: &Comparison) -> String {
    let difference = tie_up(comparison.difference, 2);
    match comparison.interval {
        Some(interval) => {
            // A difference of two scores is between -1 and 1, whatever Student's t says.
            let ends = [interval.low, interval.high];
            let [low, high] = ends.map(|end| tie_up(end.clamp(-1.0, 1.0), 2));
            format!("{difference:+.2} [{low:+.2}, {high:+.2}]")
        }
        None => format!("{difference:+.2}"),
    }
}

fn pair_count_text(pairs: usize, planned: usize) -> String {
    match (pairs, planned) {
        (1, 1) => "1 pair".to_owned(),
        (pairs, planned) if pairs == planned => format!("{pairs} pairs"),
        (pairs, planned) => format!("{pairs} of {planned} pairs"),
    }
}

fn p_text(p: f64) -> String {
    if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {:.4}", tie_up(p, 4)) }
}

/// The cells in columns, two spaces apart; a column that has only a header is left out.
fn align(table: &[Vec<String>]) -> Vec<String> {
    let columns = table.iter().map(Vec::len).max().unwrap_or(0);
    let used_columns: Vec<usize> =
        (0..columns).filter(|column| has_values(table, *column)).collect();
    table
        .iter()
        .map(|cells| {
            let mut line = String::new();
            for column in &used_columns {
                line.push_str(&cells[*column]);
                let padding = column_width(table, *column) - display_width(&cells[*column]);
                line.push_str(&" ".repeat(padding + 2));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

/// Whether a column has more than a header.
fn has_values(table: &[Vec<String>], column: usize) -> bool {
    table.len() == 1 || table.iter().skip(1).any(|cells| !cells[column].is_empty())
}

fn column_width(table: &[Vec<String>], column: usize) -> usize {
    table.iter().map(|cells| display_width(&cells[column])).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn row(model: &str, graded: u64, missing: &[(&str, u64)]) -> ScoreRow {
        ScoreRow {
            key: vec![("model".to_owned(), model.to_owned())],
            planned: 50,
            graded,
            missing: missing.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect(),
            score: Some(NumberWithInterval { value: 0.62, interval: Some([0.51, 0.72]) }),
            bounds: (!missing.is_empty()).then_some([0.58, 0.64]),
            pass: Vec::new(),
            cost_usd: None,
            tokens: None,
            seconds: None,
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for (value, digits, text) in [
            (0.625, 2, "0.63"),
            (-0.625, 2, "-0.63"),
            (0.375, 2, "0.38"),
            (0.5, 0, "1"),
            (2.5, 0, "3"),
            (3.5, 0, "4"),
            (0.62, 2, "0.62"),
            (0.75, 2, "0.75"),
            (1.0, 2, "1.00"),
            (0.0, 2, "0.00"),
            (0.1 + 0.2, 2, "0.30"),
            (0.031_25, 4, "0.0313"),
        ] {
            let digits_shown = usize::try_from(digits).unwrap();
            assert_eq!(format!("{:.digits_shown$}", tie_up(value, digits)), text, "{value}");
        }
        let eighths = NumberWithInterval { value: 0.625, interval: Some([0.125, 0.875]) };
        assert_eq!(number_text(eighths), "0.63 [0.13, 0.88]");
    }

    #[test]
    fn c_26_3_every_row_says_how_many_runs_it_rests_on() {
        let text = rows_text(
            &[row("good", 50, &[]), row("poor\u{1b}[2J", 47, &[("llm", 3)])],
            Some("score"),
        );
        let expected = "\
model  score              runs
good   0.62 [0.51, 0.72]  50 of 50 graded
poor   0.62 [0.51, 0.72]  47 of 50 graded, 3 llm
       incomplete: 0.58 if all missing runs score 0, 0.64 if 1
";
        assert_eq!(text, expected);
        let text = rows_text(&[row("m", 44, &[("llm", 3), ("not run", 3)])], Some("score"));
        assert!(text.contains("44 of 50 graded\n       missing: 3 llm, 3 not run\n"), "{text}");
        let none = ScoreRow { score: None, missing: BTreeMap::new(), ..row("m", 0, &[]) };
        assert_eq!(
            rows_text(&[none], Some("score")),
            "model  score  runs\nm      -      0 of 50 graded\n"
        );
        assert_eq!(rows_text(&[], None), "");
    }
}
