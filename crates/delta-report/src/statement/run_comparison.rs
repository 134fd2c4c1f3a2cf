//! Compares a statement with the run that it is about.

use super::document::{
    AGENT, DELTA_TREE, JOURNAL, ResourceDescriptor, SHA256, Statement, WORKSPACE,
};
use super::workspace_trees::WorkspaceTrees;
use crate::export::ExportedRun;
use crate::export::in_toto::build_statement;
use crate::verify::RunCheck;
use delta_base::hex::sha256_hex;
use delta_run::event::Event;
use std::path::Path;

/// Checks that the journal `bytes` begins with the one of the statement.
pub fn check_journal(statement: &Statement, bytes: &[u8]) -> RunCheck {
    let descriptor = statement.byproduct(JOURNAL);
    let expected = descriptor.and_then(|journal| journal.digest.get(SHA256));
    let Some((count, expected)) = stated_events(statement).zip(expected) else {
        let finding = "the statement does not name a journal".to_owned();
        return RunCheck::new("journal", "nothing to compare".to_owned(), vec![finding]);
    };
    let length = bytes.split_inclusive(|byte| *byte == b'\n').take(count).map(<[u8]>::len).sum();
    let digits = sha256_hex(bytes.get(..length).unwrap_or_default());
    let finding = (digits != *expected)
        .then(|| format!("lines 1 to {count} have the SHA-256 {digits}, not {expected}"));
    RunCheck::new("journal", format!("lines 1 to {count}"), finding.into_iter().collect())
}

/// Checks that the snapshots of the run have what the statement says.
pub fn check_trees(
    statement: &Statement,
    run_dir: &Path,
    events: &[Event],
    bytes: &[u8],
) -> RunCheck {
    let count = stated_events(statement).unwrap_or_default().min(events.len());
    let run = ExportedRun::read_alone(run_dir, events[..count].to_vec());
    if WorkspaceTrees::from_events(&run.events).is_some() && run.snapshot_store().is_none() {
        return RunCheck::not_checked("trees", "the snapshots of the run are missing");
    }
    let rebuilt = match build_statement(&run, bytes, false) {
        Ok(rebuilt) => rebuilt,
        Err(reason) => return RunCheck::new("trees", "not compared".to_owned(), vec![reason]),
    };
    let mut findings = list_differences("subject", &statement.subject, &rebuilt.subject);
    for name in [AGENT, WORKSPACE] {
        let [stated, of_run] = [statement, &rebuilt].map(|it| {
            let used = it.dependencies(name).chain(it.byproduct(name));
            used.map(|resource| resource.digest.get(DELTA_TREE).cloned()).collect::<Vec<_>>()
        });
        if stated != of_run {
            findings.push(format!("the {name} of the run has other trees"));
        }
    }
    let [stated, of_run] =
        [statement, &rebuilt].map(|it| &it.predicate.build_definition.internal_parameters.removed);
    if stated != of_run {
        findings.push(format!("the run has removed {}, not {}", of_run.len(), stated.len()));
    }
    RunCheck::new("trees", format!("subjects: {}", rebuilt.subject.len()), findings)
}

/// How many events of the run the statement covers.
fn stated_events(statement: &Statement) -> Option<usize> {
    let count = statement.byproduct(JOURNAL)?.annotations.get("seq")?.as_u64()?;
    usize::try_from(count).ok()
}

/// The resources that only one of two lists has, by their names.
fn list_differences(
    noun: &str,
    stated: &[ResourceDescriptor],
    of_run: &[ResourceDescriptor],
) -> Vec<String> {
    let missing = stated.iter().filter(|resource| !of_run.contains(resource));
    let missing =
        missing.map(|resource| format!("the run has not made the {noun} {}", resource.name));
    let unstated = of_run.iter().filter(|resource| !stated.contains(resource));
    let unstated = unstated
        .map(|resource| format!("the statement does not have the {noun} {}", resource.name));
    missing.chain(unstated).collect()
}
