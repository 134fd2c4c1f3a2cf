//! What a grade is made from besides the run and the grader: a corrected answer of an input makes another grade.

use crate::formats::canonical_json::{content_hash, to_canonical_json};
use crate::formats::grader::GraderKind;
use crate::formats::input::SweepInput;
use crate::formats::placeholder::{PlaceholderValues, substitute, substitute_json};
use crate::formats::plan::{PlanHeader, PlannedRun, RunChoice};
use delta_run::sweep::sweep_dir::HASH_DIGITS;
use serde_json::{Value as Json, json};

/// The hash of what a grader gets of the run's input: the expectation with its values, or the arguments and the members that
/// are on its standard input.
pub fn grade_source(kind: &GraderKind, run: &PlannedRun, input: &SweepInput) -> String {
    let values =
        PlaceholderValues { input: &input.members, params: &run.params, repeat: run.repeat };
    let source = match kind {
        GraderKind::Expect(expect) => json!({"expect": substitute_json(expect, values).ok()}),
        GraderKind::Command { argv, .. } => {
            let arguments: Vec<Json> = argv
                .iter()
                .skip(1)
                .map(|text| substitute(text, values).map_or(Json::Null, Json::from))
                .collect();
            json!({"arguments": arguments, "input": input.members})
        }
        GraderKind::Agent { .. } => json!({"input": input.members}),
    };
    let mut hash = content_hash(to_canonical_json(&source).as_bytes());
    hash.truncate(HASH_DIGITS);
    hash
}

/// Whether the run, which the plan of `header` has, is the same on `input`: only what graders get may differ.
pub fn is_same_run(header: &PlanHeader, run: &PlannedRun, input: &SweepInput) -> bool {
    let choice =
        RunChoice { agent: &run.agent, model: &run.model, params: &run.params, repeat: run.repeat };
    let hash = header
        .define_run(choice, input)
        .map(|definition| definition.hash(&run.params, &run.limits, run.repeat));
    hash.is_ok_and(|hash| run.id.as_str().ends_with(&format!(".{hash}")))
}
