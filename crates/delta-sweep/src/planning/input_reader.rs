//! Reads the inputs of a sweep, from the copies that its plans made.

use crate::formats::input::{InputSet, SweepInput};
use crate::formats::plan::PlannedRun;
use crate::formats::plan_file::SweepPlan;
use crate::planning::plan_reader::unreadable_file;
use delta_base::durable;
use delta_operator::failure::CommandFailure;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::HashMap;
use std::path::Path;

/// The inputs that were read, by the hash of their lines.
pub struct InputReader {
    dir: SweepDir,
    sets: HashMap<String, IndexedInputs>,
}

struct IndexedInputs {
    set: InputSet,
    indexes: HashMap<String, usize>,
}

impl InputReader {
    /// Reads nothing yet.
    pub fn new(dir: &SweepDir) -> Self {
        Self { dir: dir.clone(), sets: HashMap::new() }
    }

    /// The input of a run, as its plan has it.
    pub fn input_of(
        &mut self,
        plan: &SweepPlan,
        run: &PlannedRun,
    ) -> Result<SweepInput, CommandFailure> {
        let hash = plan.header_of(run).map_or("", |header| header.inputs.as_str());
        let input = self.input_in(hash, &run.input)?;
        input.ok_or_else(|| {
            let reason = format!("there is no input `{}`", run.input);
            changed_lines_failure(&self.dir.input_lines(hash), &reason)
        })
    }

    /// The input `id` among the inputs with this hash; `None` if they do not have it.
    pub fn input_in(&mut self, hash: &str, id: &str) -> Result<Option<SweepInput>, CommandFailure> {
        let path = self.dir.input_lines(hash);
        if !self.sets.contains_key(hash) {
            let set = read_planned_inputs(&self.dir, hash)?;
            let indexes =
                set.index_by_id().map_err(|reason| changed_lines_failure(&path, &reason))?;
            self.sets.insert(hash.to_owned(), IndexedInputs { set, indexes });
        }
        let inputs = self.sets.get(hash);
        let input = inputs.and_then(|inputs| Some(inputs.set.get(*inputs.indexes.get(id)?)));
        input.transpose().map_err(|reason| changed_lines_failure(&path, &reason))
    }
}

/// The inputs of a plan, by the hash of their lines.
pub fn read_planned_inputs(dir: &SweepDir, hash: &str) -> Result<InputSet, CommandFailure> {
    let path = dir.input_lines(hash);
    let text = durable::read_large_text(&path).map_err(|source| unreadable_file(path, source))?;
    Ok(InputSet::from_lines(text))
}

pub fn changed_lines_failure(path: &Path, reason: &str) -> CommandFailure {
    let message = format!("{} is not as it was planned: {reason}", path.display());
    CommandFailure::config(message, "the files of a plan never change; restore it")
}
