//! Starts the process of a run: its workspace, then `delta run --ensure`.
//!
//! A workspace is made under another name, synced and renamed, so that no run begins or continues with half of its files.

use crate::formats::plan::{PlannedRun, RunChoice, RunDefinition};
use crate::formats::plan_file::SweepPlan;
use crate::formats::retry_policy::RetryPolicy;
use crate::formats::sweep_file::RunLimits;
use crate::planning::input_reader::InputReader;
use crate::planning::plan_reader::unreadable_file;
use crate::planning::plan_sources::llm_options;
use crate::planning::source_copies;
use crate::running::delta_program::find_delta;
use crate::running::recorded_start::{RecordedCopy, has_iterations};
use delta_base::durable;
use delta_base::json::to_json;
use delta_base::signal::CancelToken;
use delta_operator::failure::CommandFailure;
use delta_operator::{build_info, environment};
use delta_process::{WorkerCommand, WorkerErrors, WorkerProcess};
use delta_program::stdio;
use delta_run::fork::copy_workspace;
use delta_run::sweep::answer_scope::{ANSWERS_VARIABLE, AnswerScope};
use delta_run::sweep::sweep_dir::{SweepDir, draft_path};
use delta_run::workspace;
use delta_words::TierChoice;
use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Starts the processes of the runs of a sweep.
pub struct RunStarter {
    dir: SweepDir,
    program: PathBuf,
    /// Options for every run.
    options: Vec<String>,
    /// Variables for every run, by which it finds what the runs share.
    variables: Vec<(OsString, OsString)>,
    inputs: InputReader,
    cancel: CancelToken,
}

impl RunStarter {
    /// Starts runs of the sweep in `dir`, which is absolute, with the variables of `env_files`, in a service tier.
    pub fn new(
        dir: &SweepDir,
        policy: &RetryPolicy,
        env_files: &[PathBuf],
        tier: TierChoice,
        variables: Vec<(OsString, OsString)>,
        cancel: &CancelToken,
    ) -> Result<Self, CommandFailure> {
        let program = find_delta()?;
        let mut options: Vec<String> =
            ["run", "--ensure", "-q", "--no-interactive", "--format", "json"]
                .map(str::to_owned)
                .to_vec();
        if !policy.on.is_empty() {
            options.extend(["--retry".to_owned(), policy.on.join(",")]);
        }
        if !tier.is_direct() {
            options.extend(["--tier", tier.name()].map(str::to_owned));
        }
        for file in env_files {
            let path = std::path::absolute(file)
                .map_err(|source| unreadable_file(file.clone(), source))?;
            options.extend(["--env-file".to_owned(), path.to_string_lossy().into_owned()]);
        }
        if let Some(runs_dir) = workspace::runs_dir_option() {
            options.extend(["--runs-dir".to_owned(), runs_dir.to_string_lossy().into_owned()]);
        }
        let inputs = InputReader::new(dir);
        let cancel = cancel.clone();
        Ok(Self { dir: dir.clone(), program, options, variables, inputs, cancel })
    }

    /// Starts or continues the run in the job `job` of the pool, or waits for the process that works on it, whose standard error
    /// goes to `errors`.
    pub fn start(
        &mut self,
        plan: &SweepPlan,
        run: &PlannedRun,
        job: u32,
        errors: WorkerErrors,
    ) -> Result<WorkerProcess, CommandFailure> {
        let definition = self.define(plan, run)?;
        // The run makes the names in this directory durable, and knows nothing of what is above it.
        durable::ensure_shared_dir_synced(&self.dir.shard(&run.id))?;
        self.prepare(&definition, run)?;
        let mut arguments = self.options.clone();
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        let agent = self.dir.agent(&definition.agent_tree);
        add("--cache-job", job.to_string());
        add("--run-id", run.id.to_string());
        add("-w", self.dir.workspace(&run.id).to_string_lossy().into_owned());
        add("--agent", agent.to_string_lossy().into_owned());
        if let Some(model) = definition.model.option(|hash| self.dir.input_copy(hash), &agent) {
            add("--model", model);
        }
        llm_options(&definition.llm).into_iter().for_each(|setting| add("--llm", setting));
        let RunLimits { max_iterations, max_duration_ms, max_cost, max_tokens, snapshots } =
            *run.limits;
        max_iterations.into_iter().for_each(|limit| add("--max-iterations", limit.to_string()));
        max_duration_ms.into_iter().for_each(|limit| add("--max-duration", format!("{limit}ms")));
        max_cost.into_iter().for_each(|limit| add("--max-cost", limit.to_string()));
        max_tokens.into_iter().for_each(|limit| add("--max-tokens", limit.to_string()));
        // An empty text on stdin is an error.
        let is_blank = definition.task.trim().is_empty();
        add("-m", if is_blank { definition.task.clone() } else { "-".to_owned() });
        if snapshots {
            arguments.push("--snapshots".to_owned());
        }
        let mut env = Cow::Borrowed(environment::variables());
        for (name, value) in &definition.env {
            env.to_mut().insert(OsString::from(name), OsString::from(value));
        }
        env.to_mut().extend(self.variables.iter().cloned());
        env.to_mut().extend(self.answers_variable(plan, run));
        env.to_mut().extend([build_info::starter_variable()]);
        let command = WorkerCommand {
            program: &self.program,
            arguments: &arguments,
            env: &env,
            input: if is_blank { b"" } else { definition.task.as_bytes() },
            files: &[],
            outlives_server: false,
            errors,
        };
        WorkerProcess::start(&command).map_err(|error| {
            CommandFailure::config(
                format!("could not start a process for {}: {error}", run.id),
                None,
            )
        })
    }

    /// Makes what the run begins with, unless it exists: its workspace, and the iterations of a recorded run.
    fn prepare(&self, definition: &RunDefinition, run: &PlannedRun) -> Result<(), CommandFailure> {
        let Some(recorded) = &definition.recorded else {
            return make_workspace(&self.dir, definition, run, |_| Ok(()));
        };
        if has_iterations(&self.dir, &run.id)? {
            return Ok(());
        }
        let copy = RecordedCopy::extract(&self.dir, recorded)?;
        let workspace = self.dir.workspace(&run.id);
        make_workspace(&self.dir, definition, run, |draft| {
            let notes = copy.restore_files(recorded, draft, &workspace)?;
            notes
                .iter()
                .for_each(|note| stdio::print_error_line(&format!("run {}: {note}", run.id)));
            Ok(())
        })?;
        copy.begin_run(recorded, &self.dir, run, &self.cancel)
    }

    /// The variable with which the run finds the answers that it shares.
    fn answers_variable(&self, plan: &SweepPlan, run: &PlannedRun) -> Option<(OsString, OsString)> {
        plan.settings().filter(|settings| settings.answers)?;
        let scope = AnswerScope {
            dir: self.dir.answers()?,
            input: run.input.to_string(),
            repeat: run.repeat,
        };
        Some((ANSWERS_VARIABLE.into(), to_json(&scope).into()))
    }

    fn define(
        &mut self,
        plan: &SweepPlan,
        run: &PlannedRun,
    ) -> Result<RunDefinition, CommandFailure> {
        let damaged = |reason: String| {
            let message = format!("run {}: {reason}", run.id);
            CommandFailure::config(message, "the files of a plan never change; restore them")
        };
        let header =
            plan.header_of(run).ok_or_else(|| damaged("its plan has no header".to_owned()))?;
        let input = self.inputs.input_of(plan, run)?;
        let choice = RunChoice {
            agent: &run.agent,
            model: &run.model,
            params: &run.params,
            repeat: run.repeat,
        };
        header.define_run(choice, &input).map_err(|error| damaged(error.message))
    }
}

/// Makes the workspace of a run, unless it exists or begins empty; then the run itself makes it.
fn make_workspace(
    dir: &SweepDir,
    definition: &RunDefinition,
    run: &PlannedRun,
    fill: impl FnOnce(&Path) -> Result<(), CommandFailure>,
) -> Result<(), CommandFailure> {
    let path = dir.workspace(&run.id);
    let is_empty =
        definition.tree.is_none() && definition.files.is_empty() && definition.recorded.is_none();
    if is_empty || path.is_dir() {
        return Ok(());
    }
    let draft = draft_path(&path);
    durable::ensure_shared_dir(&draft)?;
    fill(&draft)?;
    if let Some(tree) = &definition.tree {
        copy_workspace(&dir.input_copy(tree), &draft)?;
    }
    for (name, text) in &definition.files {
        let file = draft.join(name);
        if let Some(parent) = file.parent() {
            durable::ensure_shared_dir(parent)?;
        }
        match durable::remove_file_no_follow(&file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(unreadable_file(file, source));
            }
            _ => durable::create_shared_unsynced(&file, text.as_bytes(), false)?,
        }
    }
    // A run must not be continued without the files that it began with.
    durable::sync_file_system(&draft)?;
    source_copies::rename_draft_synced(&draft, &path)
}
