//! The walk through a run: the state before each event says what the event must be.

use super::calls::Expected;
use super::evidence::{Evidence, Ran};
use super::{Difference, Report};
use crate::agent::Agent;
use crate::context::SYSTEM_PROMPT;
use crate::crc;
use crate::durable;
use crate::event::{EngineStart, Event, Payload, RunStatus};
use crate::hook::Hook;
use crate::kept::Kept;
use crate::llm::cassette::was_streamed;
use crate::llm::config::ModelChoice;
use crate::record::Requests;
use crate::run::RunMetadata;
use crate::state::RunState;
use crate::text::REDACTED;
use crate::vars::Vars;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The configuration that a process worked with.
pub(super) struct Config {
    pub(super) agent: Agent,
    pub(super) vars: Vars,
    /// Whether its files are as they were kept.
    pub(super) intact: bool,
}

/// A walk that has come so far.
pub(super) struct Walk<'a> {
    pub(super) run_dir: &'a Path,
    pub(super) run_id: String,
    pub(super) evidence: Evidence<'a>,
    pub(super) report: &'a mut Report,
    pub(super) state: RunState,
    pub(super) config: Option<Config>,
    /// The hooks that have run since the last event of another kind: their names and records.
    pub(super) hooks: Vec<(String, String)>,
    /// The kept files that were looked at.
    kept: BTreeSet<String>,
    /// What the calls of the present answer come to.
    pub(super) expected: HashMap<String, Expected>,
    /// The requests, as their records give them.
    pub(super) requests: Requests,
    /// What metadata.json was when the last process began.
    before: Option<RunMetadata>,
}

/// Walks through `events`, and looks at what is left then.
pub(super) fn check(run_dir: &Path, events: &[Event], report: &mut Report) {
    let mut walk = Walk {
        run_dir,
        run_id: String::new(),
        evidence: Evidence::new(run_dir),
        report,
        state: RunState::default(),
        config: None,
        hooks: Vec::new(),
        kept: BTreeSet::new(),
        expected: HashMap::new(),
        requests: Requests::new(run_dir),
        before: None,
    };
    for event in events {
        walk.event(event);
        walk.state.apply(event);
    }
    walk.metadata();
    walk.evidence.rest(walk.report);
}

impl Walk<'_> {
    fn event(&mut self, event: &Event) {
        match &event.payload {
            Payload::EngineStart(start) => self.start(start),
            Payload::Thought(thought) => self.thought(thought),
            Payload::ActionRequest(request) => self.action_request(request),
            Payload::ActionResult(result) => self.action_result(result),
            Payload::HookExecution { iteration, hook, exit_code, record, changed } => {
                self.hook(*iteration, hook, *exit_code, record, *changed);
                return;
            }
            Payload::Error { error_details, .. } => {
                if let Some(name) = &error_details.invocation {
                    self.request(self.state.iterations + 1, name);
                }
            }
            Payload::EngineEnd { status, final_iteration, .. } => {
                self.end(event.seq, *status, *final_iteration);
            }
            Payload::HumanInputReceived { call_id, response, .. } => {
                self.expected.insert(call_id.clone(), Expected::Text(response.clone()));
            }
            Payload::UserMessage { .. }
            | Payload::HumanInputRequest(_)
            | Payload::Snapshot(_)
            | Payload::Rollback { .. }
            | Payload::Fork(_) => {}
        }
        self.hooks.clear();
    }

    /// The record of the last hook of that name since the last event of another kind.
    pub(super) fn fired(&self, hook: Hook) -> Option<String> {
        let found = self.hooks.iter().rev().find(|(name, _)| name == hook.name());
        found.map(|(_, record)| record.clone())
    }

    fn start(&mut self, start: &EngineStart) {
        self.run_id.clone_from(&start.run_id);
        self.before = RunMetadata::of(&self.state);
        self.config = None;
        // A call that a process has begun and not ended, another one settles.
        self.expected.values_mut().for_each(Expected::cut_short);
        let Some(kept) = Kept::of(start).filter(Kept::is_plausible) else {
            self.report.skip(format!(
                "the requests and calls of process {}, which has not said what it kept of its agent",
                start.epoch
            ));
            return;
        };
        let Some(intact) = self.kept_files(&kept) else { return };
        let cwd = PathBuf::from(&start.work_dir);
        let vars = Vars {
            agent_home: PathBuf::from(&start.agent_home),
            run_dir: cwd.join(".delta").join(&start.run_id),
            cwd,
        };
        let llm = &start.config["llm"];
        let model = ModelChoice::endpoint(llm["model"].as_str().unwrap_or_default());
        match Agent::load_kept(&self.run_dir.join(&kept.dir), &model) {
            Ok(agent) if holds_redacted(&agent) => self.report.skip(format!(
                "the requests and calls of process {}: in what is kept of its agent a key stood, and is redacted",
                start.epoch
            )),
            Ok(mut agent) => {
                agent.llm.stream &= was_streamed(llm);
                self.config = Some(Config { agent, vars, intact });
            }
            Err(faults) => self.report.skip(format!(
                "the requests and calls of process {}: what is kept in {} cannot be read:\n{faults}",
                start.epoch, kept.dir
            )),
        }
    }

    /// Whether the files of the configuration are as they were kept; `None` when one is not there.
    fn kept_files(&mut self, kept: &Kept) -> Option<bool> {
        let mut intact = true;
        for (name, written) in &kept.crc {
            let what = format!("{}/{name}", kept.dir);
            let Ok(bytes) = durable::read_regular(&kept.path(self.run_dir, name)) else {
                self.report
                    .skip(format!("the requests and calls made with {what}, which is not there"));
                return None;
            };
            self.report.checked.files += usize::from(self.kept.insert(what.clone()));
            let found = crc::of(&bytes);
            if found != *written {
                intact = false;
                self.report.differ(Difference::of_crc(None, what, &found, written));
            }
        }
        Some(intact)
    }

    fn hook(
        &mut self,
        iteration: u32,
        hook: &str,
        exit_code: Option<i32>,
        record: &str,
        changed: bool,
    ) {
        let at = (iteration > 0).then_some(iteration);
        self.hooks.push((hook.to_owned(), record.to_owned()));
        let Some(ran) = self.evidence.ran(record, at, self.report) else { return };
        for stream in [&ran.stdout, &ran.stderr] {
            let _ = self.evidence.capture(record, stream.as_ref(), 0, self.report);
        }
        self.input(record, &ran);
        let said = format!("{hook}, exit code {exit_code:?}, changed {changed}");
        let expected = format!(
            "{}, exit code {:?}, changed {}",
            ran.hook,
            ran.exit_code,
            ran.changed.is_some()
        );
        self.report.differ(Difference::of(at, format!("the hook {hook}"), &said, &expected));
    }

    /// What a hook was given.
    pub(super) fn input(&mut self, record: &str, ran: &Ran) -> Option<String> {
        let stream = serde_json::from_value(ran.stdin.clone()).ok()?;
        let capture = self.evidence.capture(record, Some(&stream), 0, self.report)?;
        String::from_utf8(capture.whole?).ok()
    }

    fn end(&mut self, seq: u64, status: RunStatus, final_iteration: u32) {
        let iteration = (self.state.iterations > 0).then_some(self.state.iterations);
        let what = format!("the end in event {seq}");
        let fits = match status {
            RunStatus::Completed => self.state.result.is_some(),
            RunStatus::WaitingForInput => self.state.question().is_some(),
            RunStatus::Failed => self.state.error.is_some(),
            RunStatus::Interrupted => true,
            RunStatus::Running => false,
        };
        if !fits {
            let expected = "what the events before it come to";
            self.report.differ(Difference::plain(iteration, &*what, status.to_string(), expected));
        }
        let (said, known) = (final_iteration.to_string(), self.state.iterations.to_string());
        self.report.differ(Difference::of(
            iteration,
            format!("{what}, final_iteration"),
            &said,
            &known,
        ));
    }

    fn metadata(&mut self) {
        let Some(metadata) = RunMetadata::of(&self.state) else { return };
        let found = durable::read_regular_text(&self.run_dir.join("metadata.json"));
        if metadata.status == RunStatus::Running {
            return self.metadata_of_running(found.unwrap_or_default());
        }
        match found {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.report.skip("metadata.json, which is not there".to_owned());
            }
            Err(error) => self.report.differ(Difference::plain(
                None,
                "metadata.json",
                error.to_string(),
                "a file",
            )),
            Ok(found) => {
                self.report.checked.files += 1;
                let expected = metadata.to_text();
                self.report.differ(Difference::of(
                    None,
                    "metadata.json".to_owned(),
                    &found,
                    &expected,
                ));
            }
        }
    }

    /// That of a run whose journal does not end: a process that was killed has left it as it began, or as it found it.
    /// One that says how the run ended tells of lines that the journal has lost.
    fn metadata_of_running(&mut self, found: String) {
        let status = serde_json::from_str::<RunMetadata>(&found).map(|it| it.status);
        let untouched = self.before.as_ref().is_some_and(|before| before.to_text() == found);
        match status {
            Ok(status) if status != RunStatus::Running && !untouched => {
                let expected = "RUNNING, for the journal has no end of its last process";
                let what = "metadata.json, status";
                self.report.differ(Difference::plain(None, what, status.to_string(), expected));
            }
            _ => {
                self.report.skip("metadata.json: no process has left the run as it is".to_owned());
            }
        }
    }
}

/// Whether a file that was kept of an agent is not as it was loaded, because a key stood in it.
fn holds_redacted(agent: &Agent) -> bool {
    let settings = agent.sources.iter().filter(|(name, _)| *name != SYSTEM_PROMPT);
    { settings }.any(|(_, text)| text.contains(REDACTED))
}
