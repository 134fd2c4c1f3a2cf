//! Which run was begun inside which: a `delta run` that a tool starts is a child of the run whose tool it is.
//!
//! Only for people who look at runs: nothing that a run does depends on it, and a failure here fails none.

use crate::durable::{self, FileError};
use crate::event::{Event, Parent, Payload};
use crate::id::RunId;
use crate::journal;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The file in a run directory that has a line for each run that was begun inside it.
pub const FILE_NAME: &str = "children.jsonl";

/// A first event is never as long.
const LONGEST_LINE: u64 = 1024 * 1024;

/// A run that was begun inside another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its id.
    pub run_id: String,
    /// Its run directory, absolute.
    pub run_dir: String,
    /// The call of the other whose tool it was, when it was one.
    #[serde(default)]
    pub call_id: Option<String>,
}

/// The run `run_id` as the parent of another, when `run_dir` is really its directory: the environment may say anything.
pub fn parent(run_id: &str, run_dir: &Path, call_id: Option<String>) -> Option<Parent> {
    RunId::parse(run_id).ok()?;
    let run_dir = run_dir.canonicalize().ok()?;
    let control = run_dir.parent()?.file_name()?;
    let is_run = control == ".delta"
        && run_dir.file_name()? == run_id
        && run_dir.join(journal::FILE_NAME).is_file();
    let run_dir = run_dir.to_str().filter(|_| is_run)?.to_owned();
    Some(Parent { run_id: run_id.to_owned(), call_id, run_dir })
}

/// Tells the run `parent` of the run `run_id` that was begun inside it.
///
/// # Errors
/// The line could not be written; nothing depends on it.
pub fn announce(parent: &Parent, run_id: &str, run_dir: &Path) -> Result<(), FileError> {
    let child = Child {
        run_id: run_id.to_owned(),
        run_dir: run_dir.to_string_lossy().into_owned(),
        call_id: parent.call_id.clone(),
    };
    let line = serde_json::to_string(&child).unwrap_or_default();
    durable::append_line(&Path::new(&parent.run_dir).join(FILE_NAME), &line)
}

/// The runs that were begun inside the run in `run_dir`, each once, in their order. Lines that are not understood are
/// passed over.
pub fn children(run_dir: &Path) -> Vec<Child> {
    let text = durable::read_regular(&run_dir.join(FILE_NAME)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut found: Vec<Child> = Vec::new();
    for child in text.lines().filter_map(|line| serde_json::from_str::<Child>(line).ok()) {
        let is_new = !found.iter().any(|known| known.run_dir == child.run_dir);
        if is_new && RunId::parse(&child.run_id).is_ok() {
            found.push(child);
        }
    }
    found
}

/// Where the child of the run in `run_dir` lies: where it was begun, or beside its parent when both were moved
/// together; `None` when it is in neither place.
///
/// Only a run that says itself that it was begun there counts: an agent can write any line, and would else put any run
/// of its user on a page that is shown around.
pub fn find(run_dir: &Path, child: &Child) -> Option<PathBuf> {
    let beside = run_dir.with_file_name(&child.run_id);
    let own = run_dir.file_name()?.to_str()?;
    let places = [PathBuf::from(&child.run_dir), beside];
    places.into_iter().find(|dir| {
        let names = dir.file_name().is_some_and(|name| name == child.run_id.as_str());
        names && begun_inside(dir).is_some_and(|parent| parent.run_id == own)
    })
}

/// What the first event of a run says of the run around it.
fn begun_inside(run_dir: &Path) -> Option<Parent> {
    let file = durable::open_regular(&run_dir.join(journal::FILE_NAME)).ok()?;
    let mut line = String::new();
    BufReader::new(file.take(LONGEST_LINE)).read_line(&mut line).ok()?;
    match Event::of_line(&line).ok()?.payload {
        Payload::EngineStart(start) => start.parent,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_18_5_only_a_run_directory_is_a_parent() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join(".delta/r");
        std::fs::create_dir_all(&run).unwrap();
        assert_eq!(parent("r", &run, None), None, "it has no journal");
        std::fs::write(run.join(journal::FILE_NAME), "").unwrap();
        let found = parent("r", &run, Some("c".to_owned())).unwrap();
        assert_eq!(parent("other", &run, None), None);
        assert_eq!(parent("r", &dir.path().join("r"), None), None);
        announce(&found, "child", &dir.path().join(".delta/child")).unwrap();
        announce(&found, "child", &dir.path().join(".delta/child")).unwrap();
        durable::append_line(&run.join(FILE_NAME), "torn {").unwrap();
        let [child] = &children(&run)[..] else { panic!("one child") };
        assert_eq!((child.run_id.as_str(), child.call_id.as_deref()), ("child", Some("c")));
        assert_eq!(find(&run, child), None);
    }
}
