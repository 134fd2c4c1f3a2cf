//! `--mode tools`: a new run of the agent in another workspace, with the recorded answers of the LLM and of the user.

use super::workspace_files::{FilesComparison, ReplayFiles};
use super::{OriginalRun, ReplayArgs, ReplayOutcome};
use crate::drive::drive_agent::Impersonators;
use crate::drive::run::{self, NewRun};
use crate::drive::sealer;
use crate::prepare::observer;
use crate::prepare::prepared_agent::PreparedAgent;
use delta_agent::agent::Agent;
use delta_agent::approval_prompt::{ApprovalAnswer, ApprovalPrompt};
use delta_agent::ask_human::HumanPrompt;
use delta_agent::tool::has_staged_tool;
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_llm::llm::{LlmConfig, Provider};
use delta_operator::arguments::agent_choice;
use delta_operator::arguments::budget::{OuterLimits, OwnedRun, PastUse, open_budget};
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::stage;
use delta_operator::{cancel, command_line};
use delta_words::{RecordedCall, WireForm};

use delta_llm::llm::recorded_provider::{RecordedProvider, RequestComparison};
use delta_program::stdio;
use delta_report::replay::{self, ReplayDifference, TurnComparison};
use delta_report::request_breakdown::RequestBreakdown;
use delta_report::run_names::RunNames;
use delta_run::budget::ledger::Budget;
use delta_run::event::approval::{ApprovalDecision, ApprovalSource, OperatorApproval};
use delta_run::event::image_file::{self, ImageFile};
use delta_run::event::{
    EngineStart, Event, HumanQuestion, ModelChange, Payload, ReplayOf, RunStatus,
};
use delta_run::journal;
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{self, ContextBlock, RecordedRequests};
use delta_run::run::Run;
use delta_run::state::RunState;
use delta_run::workspace::Workspace;
use serde_json::json;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The part of the recording that one ENGINE_START repeats: the answers with the same settings up to the next message.
struct ReplayPart {
    /// The messages before the first answer. Several if a process exited before it had an answer; none if the part
    /// begins only because the settings changed.
    messages: Vec<ReplayMessage>,
    settings: ReplayedSettings,
    answer_count: u32,
    /// Whether its last answer was the last that its process could request.
    reaches_limit: bool,
}

struct ReplayMessage {
    content: String,
    images: Vec<ImageFile>,
}

/// The settings of a process that change the requests to its LLM, or its calls.
#[derive(Clone, Default, PartialEq)]
struct ReplayedSettings {
    model: Option<String>,
    request_form: Option<WireForm>,
    /// How often the model was changed.
    model_changes: usize,
    /// `None` for all calls.
    calls_per_answer: Option<u32>,
    repeats: Option<u32>,
    rules: Option<u32>,
    may_ask_human: bool,
    /// The tools for which the operator asked: other calls were denied than the agent's rules deny.
    asks_for: Vec<String>,
}

impl ReplayedSettings {
    fn from_start(start: &EngineStart) -> Self {
        let config = &start.config;
        let model = config.model().map(str::to_owned);
        let asks_for = config.approve.as_ref().map_or(Vec::new(), |approve| approve.ask.clone());
        Self {
            model,
            request_form: config.request_form(),
            model_changes: 0,
            calls_per_answer: start.calls_per_answer,
            repeats: start.repeats,
            rules: config.rules,
            may_ask_human: config.may_ask_human(),
            asks_for,
        }
    }

    /// The settings after a change of the model.
    fn after(&self, change: Option<&ModelChange>) -> Self {
        let Some(change) = change else { return self.clone() };
        Self {
            model: Some(change.model.clone()),
            request_form: WireForm::parse(&change.provider),
            model_changes: change.number,
            ..self.clone()
        }
    }

    /// Makes `agent` build its requests with these settings; agent.yaml has `llm` and `asks_human`.
    fn apply_to(&self, agent: &mut Agent, llm: &LlmConfig, asks_human: bool) {
        agent.ask_human = asks_human && self.may_ask_human;
        agent.llm.clone_from(llm.after_changes(self.model_changes));
        if let Some(model) = &self.model {
            agent.llm.model.clone_from(model);
        }
        agent.llm.stream &= self.request_form.is_some();
        agent.llm.set_request_form(self.request_form);
    }
}

/// What users answered in the recorded run, by call id.
#[derive(Default)]
struct RecordedHuman {
    answers: HashMap<String, String>,
    approvals: HashMap<String, ApprovalAnswer>,
    /// Whether the changes of a call were applied.
    stage_approvals: HashMap<String, ApprovalAnswer>,
}

impl HumanPrompt for RecordedHuman {
    /// The question that the run waits for has no recorded answer.
    fn ask(&mut self, question: &HumanQuestion) -> io::Result<Option<String>> {
        Ok(self.answers.get(&question.call_id).cloned())
    }

    /// A call that started in the recorded run is approved.
    fn approve(&mut self, prompt: &ApprovalPrompt<'_>) -> io::Result<Option<ApprovalAnswer>> {
        let is_staged = prompt.request.stage.is_some();
        let answers = if is_staged { &self.stage_approvals } else { &self.approvals };
        Ok(answers.get(&prompt.request.call_id).cloned())
    }
}

/// Creates a run in the workspace of the replay. Nothing is left of it if the sandboxes of the agent cannot be enforced. They
/// are prepared again when the files are restored that they have to protect.
fn create_replay_run(
    args: &ReplayArgs,
    agent: &PreparedAgent,
) -> Result<(Workspace, NewRun), CommandFailure> {
    let is_new = !args.into.as_deref().is_some_and(Path::exists);
    let workspace = match &args.into {
        Some(dir) => Workspace::open(dir)?,
        None => Workspace::create_next(&agent_choice::workspaces_home(&agent.agent.home))?,
    };
    let new_run = run::create_run_dir(None, &workspace)?;
    if let Err(failure) = agent.prepare_sandbox(&new_run.dir, &workspace) {
        workspace.remove_unbegun_run(&new_run.dir, is_new);
        return Err(failure);
    }
    Ok((workspace, new_run))
}

/// Replays `original` with its tools, up to the first rollback.
pub(super) fn replay_tools(
    args: &ReplayArgs,
    mut original: OriginalRun,
) -> Result<ReplayOutcome, CommandFailure> {
    let not_repeated = cut_at_rollback(&mut original.events);
    let original = &original;
    let recordings = record::read_recordings(&original.dir, &original.events)
        .map_err(|error| CommandFailure::damaged(error.to_string(), None))?;
    let mut options = RunOptions::new(None, None);
    options.silent = !args.verbose;
    options.env_files = args.env_files.clone();
    options.sandbox = args.sandbox.clone();
    let agent = load_agent_with_recorded_prices(args, original, &options)?;
    let llm = agent.llm.clone();
    let asks_human = agent.ask_human;
    let cancel = cancel::install_cancel()?;
    let mut agent = PreparedAgent::without_llm(agent, args.into.as_deref(), &options)?;
    if has_staged_tool(&agent.agent.tools) {
        stage::check_can_stage(args.into.as_deref())?;
    }
    let (workspace, NewRun { id, dir, ownership, .. }) = create_replay_run(args, &agent)?;
    let files = ReplayFiles::prepare(original, &dir, &workspace, &agent.secrets)?;
    files.beginning_notes.iter().for_each(|note| stdio::print_error_line(note));
    let agent_copy = agent.copy_agent_files(&dir, ownership.epoch(), None)?;
    let observer = observer::open_run_observer(&options, &dir, &RunState::default(), &cancel)?;
    let secrets = agent.secrets.clone();
    let clock = time::current_time;
    let sealer = sealer::new_sealer(&id, &options)?;
    let mut run = Run::create(id.clone(), &dir, ownership, secrets, clock, observer, sealer)?;
    let sandbox = agent.prepare_sandbox(&dir, &workspace)?;
    let different_requests = Rc::new(RefCell::new(Vec::new()));
    for (index, part) in split_into_parts(&original.events).into_iter().enumerate() {
        options.max_iterations = Some(part.answer_count.max(1));
        let calls_per_answer = part.settings.calls_per_answer.unwrap_or(u32::MAX);
        options.limits.set_calls_per_answer(calls_per_answer);
        part.settings.apply_to(&mut agent.agent, &llm, asks_human);
        let mut start =
            agent.engine_start(&run, &workspace, &options, agent_copy.clone(), sandbox.as_deref());
        start.epoch = u32::try_from(index + 1).unwrap_or(u32::MAX);
        start.repeats = part.settings.repeats;
        start.config.rules = part.settings.rules;
        let ask = part.settings.asks_for;
        start.config.approve = OperatorApproval { ask, ..OperatorApproval::default() }.recorded();
        let work_dir = original.start.work_dir.clone();
        let run_id = original.id.to_string();
        let ends_early = !part.reaches_limit;
        start.config.replay = Some(ReplayOf { run_id, work_dir, ends_early });
        run.record(Payload::EngineStart(Box::new(start)));
        for ReplayMessage { content, images } in part.messages {
            image_file::copy_images(&original.dir, &dir, &images)?;
            run.record(Payload::user_message(content, images));
        }
        run.commit()?;
        let owned = OwnedRun { id: &id, dir: &dir, ownership: run.ownership() };
        let budget = open_recorded_budget(&owned, &agent, &options, &cancel)?;
        let provider = recorded_provider(recordings.clone(), &different_requests);
        let human = recorded_human(&original.events);
        let sandbox = sandbox.clone();
        let impersonators = Impersonators { provider, human };
        agent.drive_with(&mut run, &workspace, impersonators, sandbox, budget, cancel.clone())?;
        if cancel.is_requested() {
            return Err(CommandFailure::interrupted("interrupted").with_run_id(&id));
        }
    }
    drop(run);
    let replayed = ReplayedRun::read(id, dir)?;
    let names = [&original.events, &replayed.events].map(|events| RunNames::from_events(events));
    let files = files.compare(&workspace, &agent.secrets, &names)?;
    let mut outcome =
        compare_replay(original, &replayed, &names, &different_requests.borrow(), files);
    outcome.not_checked.extend(not_repeated);
    Ok(outcome)
}

/// Removes the first rollback or discard and all later events, and returns what is not repeated; `None` if there is none.
/// Only a person knows why the files were changed, and a replay does not change the files that its tools left.
fn cut_at_rollback(events: &mut Vec<Event>) -> Option<String> {
    let (index, action) = events.iter().enumerate().find_map(|(index, event)| {
        let action = match &event.payload {
            Payload::Rollback { to: Some(iteration), .. } => {
                format!("rollback to iteration {iteration}")
            }
            Payload::Rollback { tree, .. } => format!("rollback to snapshot {tree}"),
            Payload::Discard { .. } => "discard of the staged changes".to_owned(),
            _ => return None,
        };
        Some((index, action))
    })?;
    events.truncate(index);
    Some(format!("what follows the {action}: a replay does not repeat it"))
}

/// The agent, with the prices that the run had: a file of prices may have changed.
fn load_agent_with_recorded_prices(
    args: &ReplayArgs,
    original: &OriginalRun,
    options: &RunOptions,
) -> Result<Agent, CommandFailure> {
    let mut agent = agent_choice::load_agent(&original.agent_home(args)?, options)?;
    agent.use_recorded_prices(&original.start.config);
    Ok(agent)
}

/// The budget of a run whose answers are recorded: nothing outside of it limits them.
fn open_recorded_budget(
    run: &OwnedRun<'_>,
    agent: &PreparedAgent,
    options: &RunOptions,
    cancel: &CancelToken,
) -> Result<Budget, CommandFailure> {
    let limits = options.limits.limits();
    let outer = OuterLimits::none();
    let opened = open_budget(run, limits, &agent.agent, outer, PastUse::default(), cancel)?;
    Ok(opened.budget)
}

/// The new run that repeats the original one.
struct ReplayedRun {
    id: RunId,
    dir: PathBuf,
    events: Vec<Event>,
}

impl ReplayedRun {
    fn read(id: RunId, dir: PathBuf) -> Result<Self, CommandFailure> {
        let journal = journal::read_run_journal(&dir)
            .map_err(|error| CommandFailure::damaged(error.to_string(), None))?;
        Ok(Self { id, dir, events: journal.events })
    }
}

/// A provider of the recorded answers, which adds the indices of requests that differ to `different_requests`.
fn recorded_provider(
    recordings: Vec<RecordedCall>,
    different_requests: &Rc<RefCell<Vec<usize>>>,
) -> Box<dyn Provider> {
    let different_requests = Rc::clone(different_requests);
    let check_request = Box::new(move |comparison: &RequestComparison<'_>| {
        if !comparison.is_same() {
            different_requests.borrow_mut().push(comparison.index);
        }
        Ok(())
    });
    Box::new(RecordedProvider::new(recordings, check_request))
}

fn recorded_human(events: &[Event]) -> Box<dyn HumanPrompt> {
    let mut human = RecordedHuman::default();
    let mut started = HashSet::new();
    for event in events {
        match &event.payload {
            Payload::HumanInputReceived { call_id, response, .. } => {
                human.answers.insert(call_id.clone(), response.clone());
            }
            Payload::ApprovalDecision(decision) => {
                let ApprovalDecision { approved, by, reason, .. } = (**decision).clone();
                let answer = ApprovalAnswer::new(approved, by, reason);
                // A call is asked about before its request, and its changes after it.
                let is_staged = started.contains(&decision.call_id);
                let answers =
                    if is_staged { &mut human.stage_approvals } else { &mut human.approvals };
                answers.insert(decision.call_id.clone(), answer);
            }
            Payload::ActionRequest(request) if request.argv.is_some() => {
                started.insert(request.call_id.clone());
                let by = request.approval.as_ref().map(|approval| approval.by);
                let by = by.unwrap_or(ApprovalSource::Operator);
                let answer = ApprovalAnswer::new(true, by, None);
                human.approvals.entry(request.call_id.clone()).or_insert(answer);
            }
            _ => {}
        }
    }
    Box::new(human)
}

/// Splits the events of a run at each user message, and where a process called another LLM.
fn split_into_parts(events: &[Event]) -> Vec<ReplayPart> {
    let mut parts: Vec<ReplayPart> = Vec::new();
    let mut started = ReplayedSettings::default();
    let mut settings = started.clone();
    let mut change: Option<&ModelChange> = None;
    let mut limit = 0;
    let mut iterations = 0;
    let mut started_at = 0;
    for event in events {
        let is_answer = match &event.payload {
            Payload::EngineStart(start) => {
                started = ReplayedSettings::from_start(start);
                settings = started.after(change);
                started_at = iterations;
                limit = start.max_iterations.saturating_add(iterations);
                false
            }
            Payload::UserMessage { content, images, .. } => {
                let message = ReplayMessage { content: content.clone(), images: images.clone() };
                change = None;
                settings = started.clone();
                let settings = settings.clone();
                match parts.last_mut().filter(|part| part.answer_count == 0) {
                    Some(part) => {
                        part.messages.push(message);
                        part.settings = settings;
                    }
                    None => {
                        let messages = vec![message];
                        parts.push(ReplayPart {
                            messages,
                            settings,
                            answer_count: 0,
                            reaches_limit: false,
                        });
                    }
                }
                false
            }
            Payload::LimitsChanged(change) => {
                limit = change.max_iterations.map_or(limit, |max| max.saturating_add(started_at));
                false
            }
            Payload::Thought(thought) => {
                iterations = thought.iteration;
                true
            }
            Payload::Error { error_details, .. } => {
                if let Some(next) = &error_details.fallback {
                    change = Some(&**next);
                    settings = started.after(change);
                } else if error_details.is_failure() {
                    // The next process begins with the first model.
                    change = None;
                }
                error_details.invocation.is_some() && error_details.is_failure()
            }
            _ => false,
        };
        if !is_answer {
            continue;
        }
        match parts.last_mut() {
            Some(part) if part.settings == settings => part.answer_count += 1,
            Some(part) if part.answer_count == 0 => {
                part.settings.clone_from(&settings);
                part.answer_count = 1;
            }
            Some(_) => {
                let settings = settings.clone();
                let messages = Vec::new();
                parts.push(ReplayPart {
                    messages,
                    settings,
                    answer_count: 1,
                    reaches_limit: false,
                });
            }
            None => {}
        }
        if let Some(part) = parts.last_mut() {
            part.reaches_limit = iterations >= limit;
        }
    }
    parts
}

/// Compares the turns, the end, the files and the requests of both runs.
fn compare_replay(
    original: &OriginalRun,
    replayed: &ReplayedRun,
    names: &[RunNames; 2],
    different_requests: &[usize],
    files: FilesComparison,
) -> ReplayOutcome {
    let id = original.id.clone();
    let original_turns = replay::collect_turns(&original.events, &names[0]);
    let turns = replay::collect_turns(&replayed.events, &names[1]);
    let original_state = RunState::from_events(&original.events);
    let state = RunState::from_events(&replayed.events);
    let TurnComparison { mut differences, mut not_checked, first_unchecked } =
        replay::compare_turns(&original_turns, &turns);
    not_checked.extend(files.not_checked);
    differences.extend(compare_endings(&original_state, &state));
    differences.extend(files.differences);
    let mut notes =
        vec![format!("the tools ran in {}, as run {}", work_dir_of(&state), replayed.id)];
    let mut records = [&original.dir, &replayed.dir].map(|dir| RecordedRequests::new(dir));
    let requests: Vec<(usize, ReplayDifference)> = different_requests
        .iter()
        .filter_map(|index| {
            let difference = compare_request(original, replayed, &mut records, names, *index)?;
            Some((index + 1, difference))
        })
        .collect();
    let numbers: Vec<usize> = requests.iter().map(|(number, _)| *number).collect();
    // After a different observation every request differs, too.
    let first = differences.iter().find_map(|difference| difference.iteration);
    let first = first.into_iter().chain(first_unchecked).min();
    if let Some((_, request)) = requests.into_iter().next()
        && first.is_none_or(|first| request.iteration.is_some_and(|at| at <= first))
    {
        differences.insert(0, request);
    }
    if !numbers.is_empty() {
        let list: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        notes.push(format!("requests that differ: {}", list.join(", ")));
    }
    let heading = match differences.len() {
        0 => {
            let answers = command_line::pluralize(turns.len(), "answer");
            let calls =
                command_line::pluralize(turns.iter().map(|turn| turn.calls.len()).sum(), "call");
            format!("the tools of run {id} did the same: {answers}, {calls}")
        }
        count => {
            let count = command_line::pluralize(count, "difference");
            format!("the tools of run {id} did not do the same: {count}")
        }
    };
    let replayed_as = json!({"run_id": replayed.id.as_str(), "work_dir": work_dir_of(&state)});
    ReplayOutcome {
        id,
        heading,
        differences,
        not_checked,
        notes,
        other_label: "now",
        extra_json: json!({"replayed_as": replayed_as, "requests_that_differ": numbers}),
    }
}

/// Compares the results and the final statuses.
fn compare_endings(original: &RunState, replayed: &RunState) -> Vec<ReplayDifference> {
    let difference = |subject: &str, before: String, after: String| {
        ReplayDifference::between(None, subject.to_owned(), &before, &after)
    };
    let result =
        |state: &RunState| state.result.as_deref().map_or("none".to_owned(), ToString::to_string);
    let mut differences = Vec::new();
    differences.extend(difference("the result", result(original), result(replayed)));
    // An interrupted run ended before the end of its recording.
    if !matches!(original.status, Some(RunStatus::Interrupted | RunStatus::Running)) {
        let status =
            |state: &RunState| state.status.map_or(String::new(), |status| status.to_string());
        differences.extend(difference("the status", status(original), status(replayed)));
    }
    differences
}

fn work_dir_of(state: &RunState) -> String {
    state.start.as_ref().map_or(String::new(), |start| start.work_dir.clone())
}

/// The first difference between two requests with the same index. `None` if they differ only in the names of the runs.
fn compare_request(
    original: &OriginalRun,
    replayed: &ReplayedRun,
    records: &mut [RecordedRequests; 2],
    names: &[RunNames; 2],
    index: usize,
) -> Option<ReplayDifference> {
    const SUBJECT: &str = "the request";
    let [old, new] = records;
    let before = RequestText::read(&original.dir, old, &original.events, &names[0], index)?;
    let after = RequestText::read(&replayed.dir, new, &replayed.events, &names[1], index)?;
    let old = RequestBreakdown::parse(&before.text, &before.blocks, TokenRatio::default()).ok()?;
    let new = RequestBreakdown::parse(&after.text, &after.blocks, TokenRatio::default()).ok()?;
    replay::request_difference(before.iteration, SUBJECT, &old, &new).or_else(|| {
        let iteration = Some(before.iteration);
        ReplayDifference::between(iteration, SUBJECT.to_owned(), &before.text, &after.text)
    })
}

struct RequestText {
    iteration: u32,
    text: String,
    blocks: Vec<ContextBlock>,
}

impl RequestText {
    /// Reads the request with this index in the order in which the run sent its requests.
    fn read(
        run_dir: &Path,
        records: &mut RecordedRequests,
        events: &[Event],
        names: &RunNames,
        index: usize,
    ) -> Option<Self> {
        let mut sent = events.iter().filter_map(|event| match &event.payload {
            Payload::Thought(thought) => Some((thought.iteration, thought.invocation.as_ref()?)),
            Payload::Error { error_details, .. } if error_details.is_failure() => {
                Some((0, error_details.invocation.as_ref()?))
            }
            _ => None,
        });
        let (iteration, name) = sent.nth(index)?;
        let text = names.replace_in(records.get(name).ok()?.text()).into_owned();
        let blocks = record::read_context_blocks(run_dir, name).ok().flatten().unwrap_or_default();
        Some(Self { iteration, text, blocks })
    }
}
