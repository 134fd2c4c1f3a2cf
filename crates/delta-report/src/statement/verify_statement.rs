//! Verifies a statement: its signature, its subjects, and with the run what the run says.

use super::checkout::{ChangedFiles, check_changes, check_subjects};
use super::document::{PAYLOAD_TYPE, Statement};
use super::envelope::SignedEnvelope;
use super::run_comparison::{check_journal, check_trees};
use crate::verify::{KeyOwner, RunCheck, VerifyReport, push_check_lines};
use delta_base::id::RunId;
use delta_run::event::Event;
use delta_run::journal::seal::SealKeys;
use serde::Serialize;
use std::path::Path;

/// The verification of a statement.
#[derive(Debug, Serialize)]
pub struct StatementReport {
    /// The file.
    pub file: String,
    /// Whether nothing was found that does not agree, here and in the run.
    pub holds: bool,
    /// Whose signature it has; absent without a valid one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed: Option<KeyOwner>,
    /// The checks: `signature`, `statement`, `subjects`, with a commit `changes`, with a run `journal` and `trees`.
    pub checks: Vec<RunCheck>,
    /// The verification of the run, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<VerifyReport>,
}

/// The run that a statement is compared with.
#[derive(Debug)]
pub struct StatementRun<'a> {
    /// The id of the run.
    pub id: &'a RunId,
    /// Its directory.
    pub dir: &'a Path,
    /// The journal.
    pub journal: &'a [u8],
    /// The events in it.
    pub events: Vec<Event>,
    /// The verification of it.
    pub report: VerifyReport,
}

/// Verifies the statement in the `bytes` of `file` with the keys, the files in `checkout`, which may be all that have `changed`,
/// and the run, if one is named.
///
/// # Errors
/// The file has neither an envelope nor a statement; the message completes "it ...".
pub fn verify_statement(
    file: &str,
    bytes: &[u8],
    checkout: &Path,
    changed: Option<&ChangedFiles>,
    keys: &SealKeys,
    run: Option<StatementRun<'_>>,
) -> Result<StatementReport, String> {
    let envelope = match (SignedEnvelope::parse(bytes), Statement::parse(bytes)) {
        (Err(_), Ok(_)) => None,
        (envelope, _) => Some(envelope?),
    };
    let payload = envelope.as_ref().map_or(bytes, |envelope| &envelope.payload);
    let signer = envelope.as_ref().and_then(|envelope| envelope.find_signer(keys));
    let signed = signer.map(|(signer, key)| KeyOwner::new(signer.as_ref(), Some(&key)));
    let mut checks = vec![check_signature(envelope.as_ref(), signed.as_ref())];
    match Statement::parse(payload) {
        Err(reason) => {
            let detail = "not read".to_owned();
            checks.push(RunCheck::new("statement", detail, vec![reason]));
        }
        Ok(statement) => {
            let id = &statement.predicate.run_details.metadata.invocation_id;
            let other = run.as_ref().filter(|run| run.id.as_str() != id);
            let finding = other.map(|run| format!("it is of run {id}, not of {}", run.id));
            let detail = format!("of run {id}");
            checks.push(RunCheck::new("statement", detail, finding.into_iter().collect()));
            checks.push(check_subjects(&statement, checkout));
            checks.extend(changed.map(|changed| check_changes(&statement, checkout, changed)));
            if let Some(StatementRun { dir, journal, events, .. }) = &run {
                checks.push(check_journal(&statement, journal));
                checks.push(check_trees(&statement, dir, events, journal));
            }
        }
    }
    let run = run.map(|run| run.report);
    let holds = checks.iter().all(RunCheck::is_intact) && run.as_ref().is_none_or(|run| run.holds);
    Ok(StatementReport { file: file.to_owned(), holds, signed, checks, run })
}

fn check_signature(envelope: Option<&SignedEnvelope>, signed: Option<&KeyOwner>) -> RunCheck {
    let mut findings = Vec::new();
    match (envelope, signed) {
        (None, _) => findings.push("the statement has no signature".to_owned()),
        (Some(_), None) => findings.push("no signature is valid".to_owned()),
        (Some(_), Some(signed)) if !signed.is_known() => findings.push(format!(
            "it has a signature of {}, which is not yours, accepted or given",
            signed.describe()
        )),
        _ => {}
    }
    let other_type = envelope.map(|envelope| &envelope.payload_type);
    findings.extend(
        other_type
            .filter(|payload_type| *payload_type != PAYLOAD_TYPE)
            .map(|payload_type| format!("it is of the type {payload_type}, not {PAYLOAD_TYPE}")),
    );
    let detail = signed.map_or_else(
        || "by no key that it names".to_owned(),
        |signed| format!("by {}", signed.describe()),
    );
    RunCheck::new("signature", detail, findings)
}

impl StatementReport {
    /// The report as text.
    pub fn render_text(&self) -> String {
        let holds = self.checks.iter().all(RunCheck::is_intact);
        let verdict = if holds { "is intact" } else { "is not intact" };
        let mut lines = vec![format!("statement {} {verdict}", self.file)];
        push_check_lines(&self.checks, "", &mut lines);
        lines.push(String::new());
        let run = self.run.as_ref().map(VerifyReport::render_text);
        lines.join("\n") + &run.unwrap_or_default()
    }
}
