//! How a person names what a workspace was: the end of an iteration, a tree of the journal, or now.

use super::drive;
use super::failure::Failure;
use crate::agent::Agent;
use crate::durable::FileError;
use crate::environment::key_names;
use crate::snapshot::{Change, Entry, Exclude, Id, Kind, Store};
use crate::state::RunState;
use crate::text::{Secrets, printable};
use std::fmt;
use std::path::Path;

/// How many digits of a tree are enough to name it.
pub const DIGITS: usize = 12;

/// So many paths that a snapshot has left out are named.
const SHOWN: usize = 5;

/// A state of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Point {
    /// The end of an iteration; 0 is the beginning of the run.
    Iteration(u32),
    /// The beginning of the id of a tree.
    Tree(String),
    /// What is there now.
    Now,
}

impl Point {
    /// Reads `3`, `now` or the first digits of a tree.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_tree = (DIGITS..=64).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match text.parse() {
            _ if text == "now" => Ok(Self::Now),
            _ if is_tree => Ok(Self::Tree(text.to_owned())),
            Ok(number) => Ok(Self::Iteration(number)),
            Err(_) => Err(format!(
                "write the number of an iteration, 0 for the beginning, or the first {DIGITS} digits of a tree"
            )),
        }
    }

    /// The tree that it names in a run; `None` for what is there now.
    pub fn resolve(&self, state: &RunState, id: &impl fmt::Display) -> Result<Option<Id>, Failure> {
        let timeline = &state.timeline;
        let Some(first) = timeline.first() else {
            let hint = "snapshots are kept with `--snapshots`, or `snapshots: true` in agent.yaml";
            return Err(Failure::no_run(format!("run {id} has no snapshots"), hint));
        };
        let point = match self {
            Self::Now => return Ok(None),
            Self::Iteration(number) => {
                let open = *number == state.iterations && !state.is_between_iterations();
                if *number > state.iterations || open {
                    let message = format!("there is no end of iteration {number}");
                    let last = state.iterations - u32::from(!state.is_between_iterations());
                    let hint = format!("the last one that run {id} has finished is {last}");
                    return Err(Failure::no_run(message, hint));
                }
                timeline.at(*number).ok_or_else(|| {
                    let message =
                        format!("there is no snapshot from before the end of iteration {number}");
                    let hint =
                        format!("the first one of run {id} is of iteration {}", first.iteration);
                    Failure::no_run(message, hint)
                })?
            }
            Self::Tree(digits) => match timeline.beginning_with(digits).as_slice() {
                [one] => one,
                [] => {
                    let message = format!("run {id} has no tree that begins with {digits}");
                    let hint = "the events SNAPSHOT and ROLLBACK of its journal name them";
                    return Err(Failure::no_run(message, hint));
                }
                _ => {
                    let message = format!("several trees begin with {digits}");
                    return Err(Failure::no_run(message, "write more of its digits"));
                }
            },
        };
        let damaged = || Failure::damaged(format!("`{}` is no tree", point.tree), None);
        Id::parse(&point.tree).map(Some).ok_or_else(damaged)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iteration(0) => f.write_str("at the beginning of the run"),
            Self::Iteration(number) => write!(f, "at the end of iteration {number}"),
            Self::Tree(digits) => write!(f, "in {digits}"),
            Self::Now => f.write_str("now"),
        }
    }
}

/// The snapshots of a run, as its last process kept them.
pub fn store(dir: &Path, state: &RunState) -> Result<Store, Failure> {
    let patterns = state.timeline.last().map(|last| last.exclude.as_slice()).unwrap_or_default();
    let exclude = Exclude::parse(patterns.iter().map(String::as_str));
    Ok(open(dir, state, exclude.map_err(|why| Failure::damaged(why, None))?)?)
}

/// The same, leaving out what is to be left out from now on; and what the run's last look at its workspace has left out
/// for a key, whatever key this process knows.
pub fn open(dir: &Path, state: &RunState, exclude: Exclude) -> Result<Store, FileError> {
    let mut store = Store::open(dir, exclude)?;
    if let Some(last) = state.timeline.last() {
        // What a rollback leaves in place is in what it has saved, and not in what it has put there.
        for tree in [Some(&last.tree), last.saved.as_ref()].into_iter().flatten() {
            if let Some(tree) = Id::parse(tree) {
                store.withhold(tree);
            }
        }
    }
    Ok(store)
}

/// What must not be kept of the workspace of a run: its agent says which variable holds the key, as it is now, or else as
/// it was when the run was taken up.
pub fn secrets(dir: &Path, state: &RunState, workspace: &Path) -> Result<Secrets, Failure> {
    let home = state.start.as_ref().map_or_else(|| dir.to_owned(), |it| (&it.agent_home).into());
    let load = |home: &Path| Agent::load(home, None, &drive::import_path()).ok();
    let agent = load(&home).or_else(|| load(&dir.join("agent")));
    let named = agent.as_ref().and_then(|agent| agent.llm.api_key_env.as_deref());
    let names = key_names(&std::env::vars_os().collect(), named);
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(Secrets::new(drive::layers(Some(workspace), &home)?.keys(&keys)))
}

/// Whether a directory only comes or goes with what is in it; `next` is the change behind it.
pub fn is_implied(change: &Change, next: Option<&Change>) -> bool {
    let is_directory =
        |entry: &Option<Entry>| entry.as_ref().is_none_or(|entry| entry.kind == Kind::Directory);
    let comes_or_goes = change.before.is_none() || change.after.is_none();
    let below = [&change.path, &b"/"[..]].concat();
    comes_or_goes
        && is_directory(&change.before)
        && is_directory(&change.after)
        && next.is_some_and(|next| next.path.starts_with(&below))
}

/// The first of these paths, for people, and how many more they are.
pub fn some_of(paths: &[Vec<u8>]) -> String {
    let path = |path: &Vec<u8>| printable(&String::from_utf8_lossy(path)).replace('\n', "?");
    let shown: Vec<String> = paths.iter().take(SHOWN).map(path).collect();
    let more = match paths.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

/// What changed, counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// What was there before and after.
    pub changed: usize,
    /// What was not there before.
    pub created: usize,
    /// What is there no more.
    pub deleted: usize,
}

impl Count {
    /// Of these changes.
    pub fn of(changes: &[Change]) -> Self {
        let mut count = Self::default();
        for change in changes {
            match (&change.before, &change.after) {
                (None, _) => count.created += 1,
                (_, None) => count.deleted += 1,
                _ => count.changed += 1,
            }
        }
        count
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changed, created, deleted } = self;
        write!(f, "{changed} changed, {created} created, {deleted} deleted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_3_a_point_is_a_number_a_tree_or_now() {
        let tree = "0123456789ab".to_owned();
        assert_eq!(Point::parse("0"), Ok(Point::Iteration(0)));
        assert_eq!(Point::parse("123456789"), Ok(Point::Iteration(123_456_789)));
        assert_eq!(Point::parse("now"), Ok(Point::Now));
        assert_eq!(Point::parse(&tree), Ok(Point::Tree(tree)));
        for wrong in ["", "-1", "12345678901", "0123456789AB", "then"] {
            assert!(Point::parse(wrong).is_err(), "{wrong}");
        }
    }
}
