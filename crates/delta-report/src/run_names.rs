//! What differs between runs that do the same: the names of their directories, their generated ids, and the times in the
//! names of their records.
//!
//! A comparison replaces them in the texts of both runs by the same words.

use delta_run::event::{Event, Payload};
use delta_run::workspace::displayed_run_dir;
use std::borrow::Cow;
use std::path::Path;

/// Replaces the directory of a run.
const RUN_DIR: &str = "RUN_DIR";
/// Replaces the path of a workspace.
const WORKSPACE: &str = "WORKSPACE";
/// Replaces the path of an agent directory, which may be inside a workspace.
const AGENT_HOME: &str = "AGENT_HOME";
/// Replaces a generated id.
const RUN_ID: &str = "RUN_ID";
/// Replaces the time in the name of a record.
const TIME: &str = "TIME";

/// The names of a run and of the runs that it was forked from.
#[derive(Debug, Default)]
pub struct RunNames {
    /// Each name with its replacement, the longest name first.
    names: Vec<(String, &'static str)>,
}

impl RunNames {
    /// The names in the events of a run.
    pub fn from_events(events: &[Event]) -> Self {
        let mut names = Self::default();
        for event in events {
            match &event.payload {
                Payload::EngineStart(start) => {
                    let run_dir = start.config.run_dir.as_deref();
                    names.add_run(start.run_id.as_str(), &start.work_dir, run_dir);
                    names.add(&start.agent_home, AGENT_HOME);
                }
                Payload::Fork(fork) => {
                    let from = &fork.from;
                    names.add_run(from.run_id.as_str(), &from.work_dir, Some(&from.run_dir));
                    names.add_run(fork.run_id.as_str(), &fork.work_dir, None);
                }
                _ => {}
            }
        }
        names
            .names
            .sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        names.names.dedup();
        names
    }

    fn add_run(&mut self, id: &str, work_dir: &str, run_dir: Option<&str>) {
        let work_dir = Path::new(work_dir);
        let default_dir = work_dir.join(".delta").join(id);
        let run_dir = run_dir.map_or(default_dir.as_path(), Path::new);
        self.add(&run_dir.to_string_lossy(), RUN_DIR);
        self.add(&displayed_run_dir(run_dir, work_dir), RUN_DIR);
        self.add(&work_dir.to_string_lossy(), WORKSPACE);
        // A word that an operator chose as an id can be in any text.
        if is_generated_id(id) {
            self.add(id, RUN_ID);
        }
    }

    fn add(&mut self, name: &str, placeholder: &'static str) {
        // The root directory is in every path.
        if name.len() > 1 {
            self.names.push((name.to_owned(), placeholder));
        }
    }

    /// The text with the same words in place of the names.
    pub fn replace_in<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (name, placeholder) in &self.names {
            if text.contains(name.as_str()) {
                text = Cow::Owned(replace_name(&text, name, placeholder));
            }
        }
        if text.contains("RUN_DIR/io/") {
            text = Cow::Owned(replace_record_times(&text));
        }
        text
    }
}

/// Whether an id has the form of a generated one, such as `20261123_025655_e886a4`.
fn is_generated_id(id: &str) -> bool {
    let parts: Vec<&str> = id.split('_').collect();
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    matches!(parts[..], [date, time, random] if date.len() == 8 && time.len() == 6 && random.len() == 6
        && is_number(date) && is_number(time))
}

fn replace_name(text: &str, name: &str, placeholder: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let after = &rest[at + name.len()..];
        out.push_str(&rest[..at]);
        out.push_str(if continues_name(after) { name } else { placeholder });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Whether a name before `text` is only the beginning of a longer one.
fn continues_name(text: &str) -> bool {
    let mut chars = text.chars();
    match chars.next() {
        Some('.') => chars.next().is_some_and(char::is_alphanumeric),
        Some(c) => c.is_alphanumeric() || matches!(c, '-' | '_'),
        None => false,
    }
}

/// Replaces the times in paths such as `RUN_DIR/io/tool_executions/20261123T025655465Z_note.stdout`.
fn replace_record_times(text: &str) -> String {
    let mut parts = text.split("RUN_DIR/io/");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("RUN_DIR/io/");
        let (dir, name) = match part.find('/') {
            Some(end) => part.split_at(end + 1),
            None => ("", part),
        };
        out.push_str(dir);
        let end = name.find('_').unwrap_or_default();
        let is_time =
            name[..end].bytes().all(|byte| byte.is_ascii_digit() || b"TZ".contains(&byte));
        if end > 0 && is_time {
            let (stem, rest) = name.split_at(name.find('.').unwrap_or(end).max(end));
            out.push_str(TIME);
            out.push_str(without_number(&stem[end..]));
            out.push_str(rest);
        } else {
            out.push_str(name);
        }
    }
    out
}

/// The stem without the number of a record that was written in the same millisecond as another one, and without the number
/// of its process, such as `-e2`.
fn without_number(stem: &str) -> &str {
    let mut stem = stem;
    while let Some((before, number)) = stem.rsplit_once('-') {
        let digits = number.strip_prefix('e').unwrap_or(number);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        stem = before;
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_8_names_are_replaced_as_a_whole() {
        let mut names = RunNames::default();
        names.add_run("r", "/w", None);
        names.add_run("20261123_025655_e886a4", "/w", Some("/runs/20261123_025655_e886a4"));
        names.names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let check = |text: &str, expected: &str| assert_eq!(names.replace_in(text), expected);
        check("in /w.", "in WORKSPACE.");
        check("\"/w/x\" /w2 /w.d /w-x", "\"WORKSPACE/x\" /w2 /w.d /w-x");
        check("/w/.delta/r/lock .delta/r2 r", "RUN_DIR/lock .delta/r2 r");
        check(
            "in .delta/r/io/hooks/20261123T025655465Z_x.json]",
            "in RUN_DIR/io/hooks/TIME_x.json]",
        );
        check(".delta/r/io/hooks/2026T02Z_x-e2-2.json", "RUN_DIR/io/hooks/TIME_x.json");
        check("RUN_DIR/io/hooks/my_x", "RUN_DIR/io/hooks/my_x");
        check("/runs/20261123_025655_e886a4/io", "RUN_DIR/io");
        check("run 20261123_025655_e886a4", "run RUN_ID");
    }
}
