//! Walks through the journal and checks each event against the state before it.

use super::ReplayReport;
use super::call_checks::ExpectedOutcome;
use super::io_files::IoFiles;
use delta_agent::agent::Agent;
use delta_agent::context::SYSTEM_PROMPT_FILE;
use delta_agent::hook::HookPoint;
use delta_base::engine_variables::EngineVars;
use delta_base::error_text;
use delta_base::redact::REDACTED;
use delta_llm::llm::ModelChoice;
use delta_plan::hook_observation::SHOWN_STDERR_BYTES;
use delta_process::ProcessResult;
use delta_run::event::{AgentCopy, EngineStart, Event, Payload, RunStatus, UsageSummary};
use delta_run::record::{HookExecutionRecord, RecordedRequests};
use delta_run::run_files::JOURNAL_FILE;
use delta_run::state::RunState;
use delta_run::state::run_metadata::RunMetadata;
use delta_words::WireForm;
use serde_json::Value as Json;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const METADATA_FILE: &str = "metadata.json";

/// The configuration of a process, from the copy of the agent.
pub(super) struct RecordedConfig {
    pub(super) agent: Agent,
    pub(super) vars: EngineVars,
    /// Whether the files of the copy have their recorded checksums.
    pub(super) is_intact: bool,
}

/// The verification of a run up to an event.
pub(super) struct RunVerifier<'a> {
    pub(super) run_dir: &'a Path,
    pub(super) run_id: String,
    pub(super) io_files: IoFiles<'a>,
    pub(super) report: &'a mut ReplayReport,
    pub(super) state: RunState,
    pub(super) config: Option<Rc<RecordedConfig>>,
    /// The hooks since the last event that was neither a hook nor an ACTION_REQUEST: their names and records.
    pub(super) recent_hooks: Vec<(String, String)>,
    /// The files of agent copies that were checked.
    checked_files: BTreeSet<String>,
    /// The expected outcomes of the calls without a result.
    pub(super) expected_outcomes: HashMap<String, ExpectedOutcome>,
    pub(super) requests: RecordedRequests,
    /// What metadata.json held when the last process started.
    metadata_at_start: Option<RunMetadata>,
}

/// Whether `text` is the metadata of a process that was replaced by the one of `metadata`.
fn is_of_earlier_epoch(text: &str, metadata: &RunMetadata) -> bool {
    let recorded = serde_json::from_str::<RunMetadata>(text).ok();
    recorded.and_then(|recorded| recorded.epoch).is_some_and(|epoch| Some(epoch) < metadata.epoch)
}

/// Whether `text` is the metadata of a running process after one of the events: it was killed before it wrote the next one.
fn is_of_earlier_event(text: &str, events: &[Event]) -> bool {
    let Ok(recorded) = serde_json::from_str::<RunMetadata>(text) else { return false };
    let mut state = RunState::default();
    recorded.status == RunStatus::Running
        && events.iter().any(|event| {
            state.apply(event);
            event.timestamp == recorded.updated_at
                && RunMetadata::from_state(&state).is_some_and(|then| then.to_text() == text)
        })
}

/// Checks all events, then metadata.json and the records that no event names.
pub(super) fn check_events(run_dir: &Path, events: &[Event], report: &mut ReplayReport) {
    let mut verifier = RunVerifier {
        run_dir,
        run_id: String::new(),
        io_files: IoFiles::new(run_dir),
        report,
        state: RunState::default(),
        config: None,
        recent_hooks: Vec::new(),
        checked_files: BTreeSet::new(),
        expected_outcomes: HashMap::new(),
        requests: RecordedRequests::new(run_dir),
        metadata_at_start: None,
    };
    for event in events {
        verifier.check_event(event);
        verifier.state.apply(event);
    }
    verifier.check_metadata(events);
    verifier.io_files.check_unnamed_records(verifier.report);
}

impl RunVerifier<'_> {
    fn check_event(&mut self, event: &Event) {
        if let (Some(name), Some(hash)) =
            (event.payload.record_file(), event.payload.record_sha256())
        {
            self.io_files.expect_hash(name, hash, event.seq);
        }
        for image in event.payload.images() {
            self.io_files.check_image(image, event.seq, self.report);
        }
        match &event.payload {
            Payload::EngineStart(start) => self.check_engine_start(start),
            Payload::Thought(thought) => self.check_thought(thought),
            Payload::ActionRequest(request) => self.check_action_request(request),
            Payload::ActionResult(result) => self.check_action_result(result),
            Payload::HookExecution { iteration, hook, exit_code, record, changed, .. } => {
                self.check_hook(*iteration, hook, *exit_code, record, *changed);
                return;
            }
            Payload::Error { error_details, .. } => {
                if let Some(name) = &error_details.invocation {
                    self.check_request(self.state.iterations.saturating_add(1), name);
                }
            }
            Payload::EngineEnd { status, final_iteration, agent_name, usage, .. } => {
                self.check_engine_end(event.seq, *status, *final_iteration);
                self.check_end_summary(event.seq, agent_name.as_deref(), usage.as_ref());
            }
            Payload::HumanInputReceived { call_id, response, .. } => {
                self.expected_outcomes
                    .insert(call_id.clone(), ExpectedOutcome::Observation(response.clone()));
            }
            Payload::ApprovalRequest(request) => self.check_approval_request(request),
            Payload::ApprovalDecision(decision) => self.check_approval_decision(decision),
            Payload::UserMessage { .. }
            | Payload::LimitsChanged(_)
            | Payload::HumanInputRequest(_)
            | Payload::Snapshot(_)
            | Payload::Rollback { .. }
            | Payload::Apply(_)
            | Payload::ApplyEnd { .. }
            | Payload::Discard { .. }
            | Payload::Fork(_)
            | Payload::Turn { .. }
            | Payload::Sent(_)
            | Payload::RunTrusted { .. } => {}
        }
        // Calls that start at the same time have all their gates before their requests.
        if !matches!(event.payload, Payload::ActionRequest(_)) {
            self.recent_hooks.clear();
        }
    }

    /// The record of the last gate of a call. A record that does not name its call is the one of the call.
    pub(super) fn last_gate_record(&mut self, call_id: &str) -> Option<String> {
        let gate = HookPoint::PreToolExecution.name();
        let recent = self.recent_hooks.iter().rev().filter(|(name, _)| name == gate);
        let records: Vec<String> = recent.map(|(_, record)| record.clone()).collect();
        records.into_iter().find(|record| self.hook_call_id(record).is_none_or(|id| id == call_id))
    }

    /// The call in the input of a hook. What is wrong with its record is reported elsewhere.
    fn hook_call_id(&mut self, record: &str) -> Option<String> {
        let mut report = ReplayReport::default();
        let hook: HookExecutionRecord<'_> =
            self.io_files.check_record(record, None, &mut report)?;
        let input = self.io_files.check_capture(record, hook.stdin.as_ref(), 0, &mut report)?;
        let input: Json = serde_json::from_slice(&input.whole?).ok()?;
        Some(input["call_id"].as_str()?.to_owned())
    }

    /// The record of the last run of `hook` among the recent ones.
    pub(super) fn last_hook_record(&self, hook: HookPoint) -> Option<String> {
        let (_, record) = self.recent_hooks.iter().rev().find(|(name, _)| name == hook.name())?;
        Some(record.clone())
    }

    /// The result of the hook process in the record `record`.
    pub(super) fn hook_result(&mut self, record: &str, iteration: u32) -> Option<ProcessResult> {
        let hook: HookExecutionRecord<'_> =
            self.io_files.check_record(record, Some(iteration), self.report)?;
        let keep = SHOWN_STDERR_BYTES;
        let mut result = self.io_files.read_finished(record, &hook.outcome, keep, self.report)?;
        result.left.held_stdout = hook.held_stdout;
        Some(result)
    }

    fn check_engine_start(&mut self, start: &EngineStart) {
        self.run_id = start.run_id.to_string();
        self.metadata_at_start = RunMetadata::from_state(&self.state);
        self.config = None;
        // The next process gives a result to the calls that the last one left open.
        self.expected_outcomes.values_mut().for_each(ExpectedOutcome::interrupt);
        let subject = format!("the requests and calls of process {}", start.epoch);
        let Some(copy) = start.config.kept.as_ref().filter(|copy| copy.is_plausible()) else {
            self.report.add_not_checked(format!("{subject}: it recorded no copy of its agent"));
            return;
        };
        let Some(is_intact) = self.check_agent_copy(copy) else { return };
        let cwd = PathBuf::from(&start.work_dir);
        let vars = EngineVars {
            agent_home: PathBuf::from(&start.agent_home),
            run_dir: match &start.config.run_dir {
                Some(dir) => PathBuf::from(dir),
                None => cwd.join(".delta").join(start.run_id.as_str()),
            },
            cwd,
        };
        let form = start.config.request_form();
        let model = start.config.model().unwrap_or_default();
        let model = ModelChoice::of_form(form.unwrap_or(WireForm::OpenAi), model);
        match Agent::load_copy(&self.run_dir.join(&copy.dir), &model) {
            Ok(agent) if has_redacted_settings(&agent) => self
                .report
                .add_not_checked(format!("{subject}: a key in the copy of its agent is redacted")),
            Ok(mut agent) => {
                agent.llm.stream &= form.is_some();
                agent.ask_human &= start.config.may_ask_human();
                agent.use_recorded_prices(&start.config);
                self.config = Some(Rc::new(RecordedConfig { agent, vars, is_intact }));
            }
            Err(errors) => self.report.add_not_checked(format!(
                "{subject}: could not load the copy of its agent in {}:\n{errors}",
                copy.dir
            )),
        }
    }

    /// Whether the files of an agent copy have their recorded checksums; `None` when one is missing.
    fn check_agent_copy(&mut self, copy: &AgentCopy) -> Option<bool> {
        let mut is_intact = true;
        for name in copy.file_names() {
            let file = format!("{}/{name}", copy.dir);
            let bytes = match copy.read(self.run_dir, name) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let reason = if error.kind() == io::ErrorKind::NotFound {
                        "missing"
                    } else {
                        self.report.add_mismatch(None, &*file, error.to_string(), "a file");
                        "not readable"
                    };
                    let subject = format!("the requests and calls made with {file}: {reason}");
                    self.report.add_not_checked(subject);
                    return None;
                }
            };
            self.report.checked.files += usize::from(self.checked_files.insert(file.clone()));
            if let Some((actual, written)) = copy.find_mismatch(name, &bytes) {
                is_intact = false;
                self.report.add_checksum_mismatch(None, file, &actual, written);
            }
        }
        Some(is_intact)
    }

    fn check_hook(
        &mut self,
        iteration: u32,
        hook: &str,
        exit_code: Option<i32>,
        name: &str,
        changed: bool,
    ) {
        let at = (iteration > 0).then_some(iteration);
        self.recent_hooks.push((hook.to_owned(), name.to_owned()));
        let record: Option<HookExecutionRecord<'_>> =
            self.io_files.check_record(name, at, self.report);
        let Some(record) = record else { return };
        for stream in [&record.outcome.stdout, &record.outcome.stderr] {
            let _ = self.io_files.check_capture(name, stream.as_ref(), 0, self.report);
        }
        self.hook_input(name, &record);
        let recorded = format!("{hook}, exit code {exit_code:?}, changed {changed}");
        let expected = format!(
            "{}, exit code {:?}, changed {}",
            record.hook,
            record.outcome.exit_code,
            record.changed.is_some()
        );
        self.report.compare(at, format!("the hook {hook}"), &recorded, &expected);
    }

    /// The standard input of a hook, from the record file `name`.
    pub(super) fn hook_input(
        &mut self,
        name: &str,
        record: &HookExecutionRecord<'_>,
    ) -> Option<String> {
        let capture = self.io_files.check_capture(name, record.stdin.as_ref(), 0, self.report)?;
        String::from_utf8(capture.whole?).ok()
    }

    fn check_engine_end(&mut self, seq: u64, status: RunStatus, final_iteration: u32) {
        let iteration = (self.state.iterations > 0).then_some(self.state.iterations);
        let subject = format!("the ENGINE_END in event {seq}");
        let is_possible = match status {
            RunStatus::Completed => self.state.result.is_some(),
            RunStatus::WaitingForInput => self.state.human_request().is_some(),
            RunStatus::Failed => self.state.error.is_some(),
            RunStatus::Interrupted => true,
            RunStatus::Running => false,
        };
        if !is_possible {
            let expected = "the status that follows from the events before it";
            self.report.add_mismatch(iteration, &*subject, status.to_string(), expected);
        }
        let subject = format!("{subject}, final_iteration");
        self.report.compare_json(iteration, subject, final_iteration, self.state.iterations);
    }

    /// Checks what an ENGINE_END repeats from the events before it, for readers that read only the end of a journal.
    fn check_end_summary(
        &mut self,
        seq: u64,
        agent_name: Option<&str>,
        usage: Option<&UsageSummary>,
    ) {
        let subject = format!("the ENGINE_END in event {seq}");
        // A key of the process may be a part of the name, which ENGINE_START keeps.
        let recorded = agent_name.filter(|name| !name.contains(REDACTED));
        if let Some((recorded, start)) = recorded.zip(self.state.start.as_ref()) {
            let expected = &start.agent_name;
            self.report.compare(None, format!("{subject}, agent_name"), recorded, expected);
        }
        let expected = self.state.usage_summary();
        if let Some(recorded) = usage.filter(|usage| !usage.is_same(&expected)) {
            self.report.compare_json(None, format!("{subject}, usage"), recorded, expected);
        }
    }

    fn check_metadata(&mut self, events: &[Event]) {
        let text = RunMetadata::read_bytes(self.run_dir)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let Some(metadata) = RunMetadata::from_state(&self.state) else {
            return self.report_lost_beginning(text);
        };
        let text = match text {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_running = metadata.status == RunStatus::Running;
                let reason = if is_running { "the run has no end" } else { "missing" };
                return self.report.add_not_checked(format!("{METADATA_FILE}: {reason}"));
            }
            Err(error) => {
                return self.report.add_mismatch(None, METADATA_FILE, error.to_string(), "a file");
            }
            Ok(text) => text,
        };
        if metadata.status == RunStatus::Running {
            return self.check_metadata_without_end(&text);
        }
        match text {
            // A process that was replaced could write last.
            text if is_of_earlier_epoch(&text, &metadata) => {
                self.report.add_not_checked(format!("{METADATA_FILE}: of an earlier process"));
            }
            text if is_of_earlier_event(&text, events) => {
                self.report.add_not_checked(format!("{METADATA_FILE}: of an earlier event"));
            }
            text => {
                self.report.checked.files += 1;
                self.report.compare(None, METADATA_FILE, &text, &metadata.to_text());
            }
        }
    }

    /// The journal has no ENGINE_START. Everything else is written after the first event is durable, so if there is
    /// anything else, the journal lost its beginning.
    fn report_lost_beginning(&mut self, metadata: io::Result<String>) {
        let expected = match metadata {
            Ok(text) => match serde_json::from_str::<RunMetadata>(&text) {
                Ok(metadata) => format!("a run that is {}, see {METADATA_FILE}", metadata.status),
                Err(_) => format!("a run, see {METADATA_FILE}"),
            },
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                format!("a run, see {METADATA_FILE}")
            }
            Err(_) if self.io_files.has_records() => "a run, see its records in io/".to_owned(),
            Err(_) => return,
        };
        self.report.add_mismatch(None, JOURNAL_FILE, "no ENGINE_START", expected);
    }

    /// Checks metadata.json when the journal has no ENGINE_END: a process that was killed leaves it as it was or as
    /// RUNNING. Another status means that the journal lost lines.
    fn check_metadata_without_end(&mut self, text: &str) {
        let status = serde_json::from_str::<RunMetadata>(text).map(|metadata| metadata.status);
        let start = self.metadata_at_start.as_ref();
        let is_untouched = start.is_some_and(|metadata| metadata.to_text() == text);
        match status {
            Ok(status) if status != RunStatus::Running && !is_untouched => {
                let expected = "RUNNING, because the journal has no ENGINE_END";
                let subject = format!("{METADATA_FILE}, status");
                self.report.add_mismatch(None, subject, status.to_string(), expected);
            }
            Err(error) => {
                let reason = error_text::describe_json_error(&error);
                self.report.add_mismatch(None, METADATA_FILE, reason, "the metadata of a run");
            }
            Ok(_) => self.report.add_not_checked(format!("{METADATA_FILE}: the run has no end")),
        }
    }
}

/// Whether a file of the agent copy holds a redacted key, and so differs from the original.
fn has_redacted_settings(agent: &Agent) -> bool {
    agent
        .source_files
        .iter()
        .any(|(name, text)| *name != SYSTEM_PROMPT_FILE && text.contains(REDACTED))
}
