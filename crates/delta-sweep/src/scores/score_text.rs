//! The tables of `delta sweep collect` and `compare` as text.

use crate::scores::pair_table::PairedRow;
use crate::scores::score_table::{CostMeasure, NumberWithInterval, ScoreRow};
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::text::text_width::{clip_to_width, display_width, wrap_words};
use delta_base::time::format_duration;
use delta_statistics::comparison::Comparison;
use std::collections::BTreeMap;

/// How old each form of an agent that changed is, by the agent's name with its tree.
pub type AgentAges = BTreeMap<String, String>;

/// The widest that a name is printed, in columns.
const MAX_NAME_WIDTH: usize = 30;

/// The name of the score of a sweep without graders.
pub(super) const UNGRADED_NAME: &str = "completed";

/// A line for each row under a header, in which the score has the name of its grader, and lines about runs that are missing.
/// Columns without values are left out. Columns that do not fit into `width` follow in further blocks, which repeat the keys.
pub fn rows_text(
    rows: &[ScoreRow],
    grader: Option<&str>,
    ages: &AgentAges,
    width: usize,
) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut header: Vec<String> = first.key.iter().map(|(key, _)| key_name(key)).collect();
    let key_columns = header.len();
    let pass_count = common_pass_count(rows);
    let pass_name = pass_count.map_or_else(String::new, |k| format!("pass@{k}, ^{k}"));
    let coverage = if grader.is_some() { "graded" } else { "counted" };
    header
        .extend([&clip(grader.unwrap_or(UNGRADED_NAME)), coverage, &pass_name].map(str::to_owned));
    header.extend(["USD a run", "tokens", "time p50, p90"].map(str::to_owned));
    let mut table = vec![header];
    for row in rows {
        let mut cells = setting_names(&row.key, ages);
        cells.extend([
            row.score.map_or_else(|| "-".to_owned(), number_text),
            format!("{} of {}", row.graded, row.planned),
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
    let (table, lead) = lead_columns(table, key_columns, width);
    let score_column = table[0].len() - FIGURES;
    let blocks = column_blocks(&table, lead, width);
    let texts = blocks.iter().map(|columns| {
        // Line 0 is the header.
        lines_text(&align(&table, columns), width, |line| match line.checked_sub(1) {
            Some(index) if columns.contains(&score_column) => {
                let row = &rows[index];
                let notes = [missing_note(row), stop_note(row), domination_note(row, ages)];
                notes.into_iter().flatten().collect()
            }
            _ => Vec::new(),
        })
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// How many columns of a row are figures: all but its keys.
const FIGURES: usize = 6;

/// The table with the number of columns that each of its blocks begins with: the keys. Keys that leave no room for a figure are
/// columns like the others, and the number of its row names a row in every block.
fn lead_columns(
    mut table: Vec<Vec<String>>,
    key_columns: usize,
    width: usize,
) -> (Vec<Vec<String>>, usize) {
    let widths = |columns: std::ops::Range<usize>| {
        columns.map(|column| column_width(&table, column) + 2).collect::<Vec<_>>()
    };
    let keys: usize = widths(0..key_columns).iter().sum();
    let widest = widths(key_columns..table[0].len()).into_iter().max().unwrap_or(0);
    if keys + widest <= width + 2 {
        return (table, key_columns);
    }
    for (index, cells) in table.iter_mut().enumerate() {
        cells.insert(0, if index == 0 { String::new() } else { index.to_string() });
    }
    (table, 1)
}

/// The columns of each block: the first `lead` ones, and as many of the others as fit.
fn column_blocks(table: &[Vec<String>], lead: usize, width: usize) -> Vec<Vec<usize>> {
    let columns = table.first().map_or(0, Vec::len);
    let room = |column: usize| column_width(table, column) + 2;
    let lead_width: usize = (0..lead).map(room).sum();
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for column in (lead..columns).filter(|column| has_values(table, *column)) {
        match blocks.last_mut() {
            Some(block) if used + room(column) <= width + 2 => {
                block.push(column);
                used += room(column);
            }
            _ => {
                blocks.push((0..lead).chain([column]).collect());
                used = lead_width + room(column);
            }
        }
    }
    blocks
}

/// The lines, each followed by its notes, which are indented and wrapped.
fn lines_text(lines: &[String], width: usize, notes: impl Fn(usize) -> Vec<String>) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        text.push_str(&format!("{line}\n"));
        for note in notes(index) {
            for part in wrap_words(&note, width.saturating_sub(2)) {
                text.push_str(&format!("  {part}\n"));
            }
        }
    }
    text
}

/// The values of the keys of a row.
fn setting_names(key: &[(String, String)], ages: &AgentAges) -> Vec<String> {
    let names = key.iter().map(|(key, value)| match key.as_str() {
        "agent" => clip_with_age(value, ages),
        _ => clip(value),
    });
    names.collect()
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
    clip_to_width(&text, MAX_NAME_WIDTH)
}

/// The name of an agent; of one that changed with its age, `agent@3f2a91c0 2d`.
fn clip_with_age(name: &str, ages: &AgentAges) -> String {
    match ages.get(name) {
        Some(age) => format!("{} {age}", clip(name)),
        None => clip(name),
    }
}

/// `0.62 [0.51, 0.72]`.
fn number_text(number: NumberWithInterval) -> String {
    let value = tie_up(number.value, 2);
    match number.interval.map(|ends| ends.map(|end| tie_up(end, 2))) {
        Some([low, high]) => format!("{value:.2} [{low:.2}, {high:.2}]"),
        None => format!("{value:.2}"),
    }
}

/// `missing: 3 llm, 2 not run; 0.58 if all score 0, 0.64 if all score 1`.
fn missing_note(row: &ScoreRow) -> Option<String> {
    let [low, high] = row.bounds?.map(|score| tie_up(score, 2));
    let reasons = row.missing.iter();
    let reasons = reasons.map(|(why, count)| format!("{count} {}", strip_terminal_controls(why)));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    Some(format!("missing: {reasons}; {low:.2} if all score 0, {high:.2} if all score 1"))
}

/// `stopped at look 3 of 10: worse than good`.
fn stop_note(row: &ScoreRow) -> Option<String> {
    let stop = row.stopped.as_ref()?;
    let [look, looks] = stop.look;
    Some(format!("stopped at look {look} of {looks}: worse than {}", clip(&stop.leader)))
}

/// `dominated by good: it costs less, and a drop of 0.10 is excluded`.
fn domination_note(row: &ScoreRow, ages: &AgentAges) -> Option<String> {
    let domination = row.dominated.as_ref()?;
    let by = setting_names(&domination.by, ages).join(", ");
    let less = match domination.less {
        CostMeasure::Usd => "it costs less",
        CostMeasure::Tokens => "it uses fewer tokens",
    };
    Some(format!("dominated by {by}: {less}, and a drop of {:.2} is excluded", domination.max_drop))
}

/// A number that rounds half away from zero when it is printed with `digits` decimals, as the page of a sweep rounds. Printing
/// alone would round half to even: 0.62 for 5/8.
pub(super) fn tie_up(value: f64, digits: i32) -> f64 {
    // Only a fraction with this power of two as its denominator is halfway between two decimals.
    let halves = value * 2_f64.powi(digits + 1);
    if halves % 2.0 == 0.0 || halves.fract() != 0.0 {
        return value;
    }
    value + 10_f64.powi(-digits - 1).copysign(value)
}

/// USD without their sign: two digits, or four of less than ten cents.
pub fn cost_text(usd: f64) -> String {
    if usd == 0.0 || usd >= 0.1 {
        format!("{:.2}", tie_up(usd, 2))
    } else {
        format!("{:.4}", tie_up(usd, 4))
    }
}

/// A line for each comparison, and lines about what it does not show. Names that leave no room for figures have a line of their
/// own.
pub fn pairs_text(rows: &[PairedRow], ages: &AgentAges, width: usize) -> String {
    let mut table: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let [first, second] = [&row.first, &row.second].map(|name| clip_with_age(name, ages));
        let names = format!("{first} - {second}");
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
        table.push(vec![names, difference, pairs, p]);
    }
    let lines = align(&table, &[0, 1, 2, 3]);
    if lines.iter().all(|line| display_width(line) <= width) {
        return lines_text(&lines, width, |index| pair_notes(&rows[index]));
    }
    let names = table.iter().map(|cells| wrap_words(&cells[0], width).join("\n"));
    let names: Vec<String> = names.collect();
    let figures = align(&table, &[1, 2, 3]);
    lines_text(&names, width, |index| {
        let mut notes = pair_notes(&rows[index]);
        notes.insert(0, figures[index].clone());
        notes
    })
}

/// What a comparison does not show, and why.
fn pair_notes(row: &PairedRow) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some([low, high]) = row.bounds {
        let [low, high] = [low, high].map(|difference| tie_up(difference, 2));
        notes.push(format!("incomplete: {low:+.2} to {high:+.2} with any scores of missing runs"));
    }
    if let Some(comparison) = row.comparison.as_ref().filter(|_| !row.shows_difference()) {
        let reach = match comparison.detectable.filter(|size| *size > 0.0) {
            Some(detectable) if detectable > 1.0 => "; so few inputs show none".to_owned(),
            Some(detectable) => {
                format!("; this sweep shows differences from {:.2} on", tie_up(detectable, 2))
            }
            None => String::new(),
        };
        notes.push(format!("no difference shown{reach}"));
    }
    notes
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

/// The cells of these columns, two spaces apart.
fn align(table: &[Vec<String>], columns: &[usize]) -> Vec<String> {
    let widths: Vec<usize> = columns.iter().map(|column| column_width(table, *column)).collect();
    let mut lines = Vec::new();
    for cells in table {
        let mut line = String::new();
        for (column, width) in columns.iter().zip(&widths) {
            let padding = width - display_width(&cells[*column]);
            line.push_str(&format!("{}{}", cells[*column], " ".repeat(padding + 2)));
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
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
    use crate::scores::score_table::{AmountSummary, Domination, PassChance};
    use crate::scores::setting_race::StoppedValue;
    use delta_statistics::comparison::compare;
    use proptest::prelude::*;

    fn row(model: &str, graded: u64, missing: &[(&str, u64)]) -> ScoreRow {
        ScoreRow {
            key: vec![("model".to_owned(), model.to_owned())],
            planned: 50,
            graded,
            missing: missing.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect(),
            score: Some(NumberWithInterval { value: 0.62, interval: Some([0.51, 0.72]) }),
            dominated: None,
            stopped: None,
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
        let rows = [row("good", 50, &[]), row("poor\u{1b}[2J", 44, &[("llm", 3), ("not run", 3)])];
        let expected = "\
model  score              graded
good   0.62 [0.51, 0.72]  50 of 50
poor   0.62 [0.51, 0.72]  44 of 50
  missing: 3 llm, 3 not run; 0.58 if all score 0, 0.64 if all score 1
";
        assert_eq!(rows_text(&rows, Some("score"), &AgentAges::new(), 80), expected);
        let by = vec![("model".to_owned(), "good".to_owned())];
        let domination = Domination { by, less: CostMeasure::Usd, max_drop: 0.1 };
        let leader = "good".to_owned();
        let stopped = StoppedValue { value: "m".to_owned(), look: [3, 10], leader };
        let marked =
            ScoreRow { dominated: Some(domination), stopped: Some(stopped), ..row("m", 50, &[]) };
        assert_eq!(
            rows_text(&[marked], Some("score"), &AgentAges::new(), 80),
            "model  score              graded\nm      0.62 [0.51, 0.72]  50 of 50\n  stopped at look 3 of 10: worse than good\n  dominated by good: it costs less, and a drop of 0.10 is excluded\n"
        );
        let none = ScoreRow { score: None, missing: BTreeMap::new(), ..row("m", 0, &[]) };
        assert_eq!(
            rows_text(&[none], None, &AgentAges::new(), 80),
            "model  completed  counted\nm      -          0 of 50\n"
        );
        assert_eq!(rows_text(&[], None, &AgentAges::new(), 80), "");
    }

    fn amount(value: f64) -> AmountSummary {
        let mean = NumberWithInterval { value, interval: None };
        AmountSummary { runs: 50, sum: value * 50.0, mean, p50: value, p90: value }
    }

    #[test]
    fn what_does_not_fit_follows_in_blocks_with_the_same_keys() {
        let mut row = row("m", 50, &[]);
        row.pass = vec![PassChance { k: 3, inputs: 9, any: 0.9, all: 0.5 }];
        row.cost_usd = Some(amount(0.5));
        row.tokens = Some(amount(12_000.0));
        let expected = "\
model  score              graded    pass@3, ^3
m      0.62 [0.51, 0.72]  50 of 50  0.90, 0.50

model  USD a run  tokens
m      0.50       12000
";
        assert_eq!(rows_text(&[row.clone()], Some("score"), &AgentAges::new(), 50), expected);
        let names = ["a", "b"].map(|name| (name.to_owned(), name.repeat(30)));
        row.key = names.to_vec();
        let text = rows_text(&[row], Some("score"), &AgentAges::new(), 50);
        assert!(text.starts_with("   a\n1  aaaaaa"), "{text}");
        assert!(text.contains("1  0.62 [0.51, 0.72]"), "{text}");
    }

    proptest! {
        #[test]
        fn c_34_28_tables_fit_80_columns(
            names in prop::collection::vec("[a-z@]{0,60}", 1..9),
            missing in prop::collection::btree_map("[a-z]{1,12}", 1..1000_u64, 0..9),
            usd in prop::option::of(0.0..1e6),
            grader in prop::option::of("[a-z]{1,60}"),
        ) {
            let mut row = row("m", 50, &[]);
            row.key = names.iter().map(|name| (format!("param.{name}"), name.clone())).collect();
            row.bounds = (!missing.is_empty()).then_some([0.0, 1.0]);
            row.missing = missing;
            row.dominated = usd.map(|_| Domination {
                by: row.key.clone(),
                less: CostMeasure::Tokens,
                max_drop: 0.1,
            });
            row.pass = vec![PassChance { k: 10, inputs: 9, any: 0.9, all: 0.5 }];
            row.cost_usd = usd.map(amount);
            row.tokens = usd.map(amount);
            row.seconds = usd.map(amount);
            let mut text = rows_text(&[row], grader.as_deref(), &AgentAges::new(), 80);
            let pair = PairedRow {
                first: names[0].clone(),
                second: names[0].clone(),
                planned: 1_000_000,
                comparison: compare(&[(vec![0.25], vec![0.5]), (vec![0.5], vec![0.25]), (vec![1.0], vec![0.0])], 1),
                bounds: Some([-1.0, 1.0]),
                adjusted_p: Some(0.5),
            };
            text.push_str(&pairs_text(&[pair], &AgentAges::new(), 80));
            let widest = text.lines().map(display_width).max();
            prop_assert!(widest <= Some(80), "{text}");
        }
    }
}
