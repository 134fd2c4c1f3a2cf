//! Grades one run: by a command, an expectation, or an agent that judges.

use crate::formats::canonical_json::content_hash;
use crate::formats::grade::{Grade, GradeKey, parse_grade_text};
use crate::formats::grader::{GraderKind, PlannedGrader};
use crate::formats::input::SweepInput;
use crate::formats::placeholder::{PlaceholderValues, substitute, substitute_json};
use crate::formats::plan::{PlannedModel, PlannedRun};
use crate::formats::result_line::ResultLine;
use crate::grading::graded_inputs::GradeTarget;
use delta_base::signal::CancelToken;
use delta_lint::agent_test::expectation::{Expectation, TestOutcome};
use delta_operator::{build_info, environment};
use delta_process::{
    self as process, Background, Containment, LaunchContext, OutputCapture, ProcessCommand,
    ProcessEnd, RunProcesses,
};
use delta_run::event::RunStatus;
use delta_run::journal;
use delta_run::record::describe_process_end;
use delta_run::run_files::JOURNAL_FILE;
use delta_run::run_result::RunResult;
use delta_run::state::RunState;
use delta_run::sweep::packed::run_archive::is_workspace_removed;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::Workspace;
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::YamlDocument;
use serde_json::{Value as Json, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much of the output of a grader is read.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// How long an agent that judges may take if its own limits do not end it.
pub const JUDGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A grader of the runs of a sweep.
pub struct RunGrader<'a> {
    /// The sweep; absolute.
    pub dir: &'a SweepDir,
    pub grader: &'a PlannedGrader,
    /// The program delta.
    pub program: &'a Path,
    /// Files of variables for agents that judge.
    pub env_files: &'a [PathBuf],
    /// The variables that hold keys, which no command gets.
    pub key_names: &'a [String],
    /// The variables with which agents that judge find the budget and the rate of the sweep.
    pub shared_variables: &'a [(OsString, OsString)],
}

/// A run to grade.
#[derive(Clone, Copy)]
pub struct GradedRun<'a> {
    pub run: &'a PlannedRun,
    pub line: &'a ResultLine,
    /// As the graders get it.
    pub input: &'a SweepInput,
    pub target: &'a GradeTarget,
    /// How often a person has asked for the grade again.
    pub regrade: u32,
}

impl RunGrader<'_> {
    /// Grades a run; `None` if that was cancelled. The error is the reason why the run is ungraded.
    pub fn grade(
        &self,
        graded: GradedRun<'_>,
        cancel: &CancelToken,
    ) -> Option<Result<Grade, String>> {
        if is_workspace_removed(&self.workspace(graded)) {
            return Some(Err("its workspace was removed by `delta sweep pack --keep`".to_owned()));
        }
        match &self.grader.kind {
            GraderKind::Expect(expect) => Some(self.check(graded, expect)),
            GraderKind::Command { argv, timeout_ms, file, .. } => {
                match self.command_argv(graded, argv, file.as_deref()) {
                    Ok(argv) => self.run_command(graded, &argv, *timeout_ms, cancel),
                    Err(reason) => Some(Err(reason)),
                }
            }
            GraderKind::Agent { agent, model } => {
                self.judge(graded, agent, model.as_deref(), cancel)
            }
        }
    }

    fn workspace(&self, graded: GradedRun<'_>) -> PathBuf {
        self.dir.workspace(&graded.run.id)
    }

    fn run_dir(&self, graded: GradedRun<'_>) -> PathBuf {
        Workspace { root: self.workspace(graded) }.run_dir(&graded.run.id)
    }

    /// The run as graders get it on stdin.
    fn description(graded: GradedRun<'_>) -> Json {
        json!({"input": graded.input.members, "run": graded.line})
    }

    fn command_argv(
        &self,
        graded: GradedRun<'_>,
        argv: &[String],
        file: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let values = placeholder_values(graded);
        let mut words = Vec::with_capacity(argv.len());
        for (index, word) in argv.iter().enumerate() {
            words.push(match (index, file) {
                (0, Some(hash)) => self.dir.input_copy(hash).to_string_lossy().into_owned(),
                (0, None) => word.clone(),
                _ => substitute(word, values).map_err(|error| error.message)?,
            });
        }
        Ok(words)
    }

    fn run_command(
        &self,
        graded: GradedRun<'_>,
        argv: &[String],
        timeout_ms: u64,
        cancel: &CancelToken,
    ) -> Option<Result<Grade, String>> {
        let mut env = environment::variables_without_keys(self.key_names);
        let run_dir = self.run_dir(graded);
        let journal = run_dir.join(JOURNAL_FILE);
        let mut set = |name: &str, value: OsString| drop(env.insert(OsString::from(name), value));
        set("RUN_DIR", run_dir.into());
        set("JOURNAL_PATH", journal.into());
        let stdin = delta_base::json::to_json(&Self::description(graded)) + "\n";
        let mut launch = LaunchContext::new(self.workspace(graded), env);
        // A name of its own: what the run left running is not of this command, nor the other way around.
        let processes = RunProcesses::new(
            &format!("{}.{}", graded.run.id, self.grader.name),
            &self.run_dir(graded),
        );
        launch.containment =
            Some(Containment { processes, background: Background::End, is_limited: false });
        let timeout = Duration::from_millis(timeout_ms);
        let output = run_grader_process(argv, &launch, stdin.as_bytes(), timeout, cancel)?;
        Some(output.and_then(|output| {
            Grade::from_command(output.exit_code, &output.stdout, &output.stderr)
        }))
    }

    fn check(&self, graded: GradedRun<'_>, expect: &Json) -> Result<Grade, String> {
        let expect =
            substitute_json(expect, placeholder_values(graded)).map_err(|error| error.message)?;
        let expectation = read_expectation(&self.grader.name, &expect)
            .map_err(|report| report.to_string().trim().to_owned())?;
        let run_dir = self.run_dir(graded);
        let events = journal::read_run_journal(&run_dir).map_err(|error| error.to_string())?.events;
        let result = RunResult::from_state(&RunState::from_events(&events));
        let exit_code = match graded.line.status {
            RunStatus::Completed => 0,
            _ => 1,
        };
        let outcome = TestOutcome {
            exit_code,
            result: &serde_json::to_value(result).unwrap_or_default(),
            events: &events,
            stderr: "",
            workspace: &self.workspace(graded),
        };
        let failures = expectation.check(&outcome);
        let why =
            failures.first().map(|failure| format!("{} {}", failure.subject, failure.message));
        Ok(Grade::passed(failures.is_empty(), why))
    }

    /// The judge is a run in the workspace of the run that it judges, found again when it is asked again.
    fn judge(
        &self,
        graded: GradedRun<'_>,
        agent: &str,
        model: Option<&str>,
        cancel: &CancelToken,
    ) -> Option<Result<Grade, String>> {
        let id = judge_id(graded);
        let agent = self.dir.agent(agent);
        let mut argv = vec![self.program.to_string_lossy().into_owned()];
        argv.extend(
            ["run", "--ensure", "-q", "--no-interactive", "--format", "json"].map(str::to_owned),
        );
        let mut add = |name: &str, value: String| argv.extend([name.to_owned(), value]);
        add("--run-id", id);
        add("-w", self.workspace(graded).to_string_lossy().into_owned());
        add("--agent", agent.to_string_lossy().into_owned());
        add("--retry", "llm,io,context".to_owned());
        let model = PlannedModel { model: model.map(str::to_owned), ..PlannedModel::default() };
        if let Some(model) = model.option(|hash| self.dir.input_copy(hash), &agent) {
            add("--model", model);
        }
        for file in self.env_files {
            add("--env-file", file.to_string_lossy().into_owned());
        }
        add("-m", "-".to_owned());
        let message = delta_base::json::to_json(&Self::description(graded));
        let mut env = environment::variables().clone();
        env.extend(self.shared_variables.iter().cloned());
        env.extend([build_info::starter_variable()]);
        let launch = LaunchContext::new(&self.dir.root, env);
        let output = run_grader_process(&argv, &launch, message.as_bytes(), JUDGE_TIMEOUT, cancel)?;
        Some(output.and_then(|output| judgement(&output)))
    }
}

/// The id of the run of a judge. Another grader, another result and another input are judged by another run, and so is what a
/// person wants to have judged again.
fn judge_id(graded: GradedRun<'_>) -> String {
    let GradeKey { id, grader, hash, epoch, source } = &graded.target.key;
    let hash = match source {
        Some(source) if !graded.target.is_planned_input => {
            content_hash(format!("{hash} {source}").as_bytes())
        }
        _ => hash.clone(),
    };
    let mut end = format!(".{grader}.{}.{epoch}", &hash[..hash.len().min(8)]);
    if graded.regrade > 0 {
        end.push_str(&format!(".{}", graded.regrade));
    }
    let start: String = id.as_str().chars().take(127_usize.saturating_sub(end.len())).collect();
    start + &end
}

fn judgement(output: &GraderOutput) -> Result<Grade, String> {
    let result: Json = serde_json::from_str(&output.stdout).map_err(|_| {
        let last = output.stderr.lines().rfind(|line| !line.trim().is_empty());
        format!("the judge did not run: {}", last.unwrap_or("it printed nothing").trim())
    })?;
    match result.get("result") {
        Some(Json::String(text)) => parse_grade_text(text)
            .map_err(|error| format!("the result of the judge is not a JSON object: {error}"))
            .and_then(|value| Grade::from_json(&value)),
        Some(value) => Grade::from_json(value),
        None => {
            let message = result.pointer("/error/message").and_then(Json::as_str);
            Err(format!("the judge has no result: {}", message.unwrap_or("it waits for a person")))
        }
    }
}

fn placeholder_values(graded: GradedRun<'_>) -> PlaceholderValues<'_> {
    PlaceholderValues {
        input: &graded.input.members,
        params: &graded.run.params,
        repeat: graded.run.repeat,
    }
}

/// Reads an expectation, which is JSON and so YAML.
///
/// # Errors
/// Its mistakes.
pub fn read_expectation(grader: &str, expect: &Json) -> Result<Expectation, DiagnosticReport> {
    let mut report = DiagnosticReport::default();
    let name = format!("`expect` of grader `{grader}`");
    let text = serde_json::to_string_pretty(expect).unwrap_or_default();
    let doc = YamlDocument::parse(name, text)
        .map_err(|diagnostic| DiagnosticReport { diagnostics: vec![diagnostic] })?;
    let expectation = Expectation::read(&doc, &doc.root);
    doc.drain_diagnostics(&mut report);
    expectation.filter(|_| report.is_empty()).ok_or(report)
}

/// What a process has printed, and its exit code unless a signal ended it.
pub struct GraderOutput {
    pub exit_code: Option<i32>,
    stdout: String,
    pub stderr: String,
}

/// Runs a process to its end; `None` if it was cancelled.
pub fn run_grader_process(
    argv: &[String],
    launch: &LaunchContext,
    stdin: &[u8],
    timeout: Duration,
    cancel: &CancelToken,
) -> Option<Result<GraderOutput, String>> {
    let command = ProcessCommand {
        stdin,
        capture_whole: true,
        ..ProcessCommand::new(argv, launch, timeout, MAX_OUTPUT_BYTES)
    };
    let finished = process::run_process(&command, cancel);
    let exit_code = match &finished.end {
        ProcessEnd::Cancelled | ProcessEnd::OutOfTime | ProcessEnd::ForMessage => return None,
        ProcessEnd::Exited(code) => Some(*code),
        ProcessEnd::Killed(_) => None,
        end => {
            let reason = describe_process_end(end);
            return Some(Err(format!("the grader {}", reason.unwrap_or_default())));
        }
    };
    // Of a longer stream, the end has the grade and the last error.
    let text = |stream: OutputCapture| {
        String::from_utf8_lossy(&stream.whole.unwrap_or(stream.tail)).into_owned()
    };
    Some(Ok(GraderOutput {
        exit_code,
        stdout: text(finished.stdout),
        stderr: text(finished.stderr),
    }))
}
