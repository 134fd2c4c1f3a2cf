//! Messages that reach a run while it is driven: when it looks into its mailbox, what it takes, and when it closes it.
//!
//! A message is removed after the event that has it is durable and counts, so that it is received once whatever dies.

use super::budget::usage_amount;
use super::message_watch::MessageWatch;
use super::{Engine, EngineError};
use delta_base::durable::FileError;
use delta_base::signal::PassingRequest;
use delta_run::event::{LimitsBefore, LimitsChange, Payload, RunStatus};
use delta_run::limits::{BudgetAmount, Limits};
use delta_run::mailbox::{FileFate, MailboxMessage, Selection, WaitingFile, decide_fates};
use delta_run::run::{Run, RunNotice};
use delta_run::state::{RunEnding, RunStep};
use std::io;
use std::time::Duration;

/// How often a mailbox is looked at that cannot be removed and shows no file, and the time between two looks: a server's list
/// may be a minute old.
const MAX_EMPTY_LOOKS: u32 = 120;
const EMPTY_LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What follows a look into the mailbox.
pub(super) enum AfterLook {
    /// The run has received something: the next step may be another.
    Received,
    /// The step.
    Step(RunStep),
}

/// What a look has found.
struct Look {
    /// Whether the run has received a message.
    has_received: bool,
    /// Whether the run leaves a message where it is.
    has_more: bool,
}

impl Engine<'_> {
    /// Begins to watch the mailbox of the run, if it is to have one.
    pub(super) fn open_mailbox(&mut self, run: &Run) -> Result<(), EngineError> {
        if !self.has_mailbox {
            return Ok(());
        }
        let mailbox = run.mailbox();
        mailbox.remove_drafts()?;
        let watch = MessageWatch::start(mailbox, self.cancel.clone());
        self.message_watch = Some(watch.map_err(FileError::at("watch", &run.dir))?);
        Ok(())
    }

    /// Looks into the mailbox where a message can change `step`.
    pub(super) fn look_before(
        &mut self,
        run: &mut Run,
        step: RunStep,
    ) -> Result<AfterLook, EngineError> {
        if self.message_watch.is_none() {
            return Ok(AfterLook::Step(step));
        }
        let look = match &step {
            RunStep::Think { .. } => self.receive(run, Selection::Next)?,
            RunStep::Act(_) => self.receive(run, Selection::AllIfUrgent)?,
            RunStep::End(RunEnding::Completed) => return self.close_mailbox(run, step),
            RunStep::End(RunEnding::OutOfIterations) => self.receive(run, Selection::Limits)?,
            _ => return Ok(AfterLook::Step(step)),
        };
        Ok(if look.has_received { AfterLook::Received } else { AfterLook::Step(step) })
    }

    /// Closes the mailbox of a run that would be COMPLETED, unless it receives a message. A message that it cannot ask its LLM
    /// about keeps it from being COMPLETED.
    fn close_mailbox(&mut self, run: &mut Run, step: RunStep) -> Result<AfterLook, EngineError> {
        let selection = if run.state().may_think() { Selection::All } else { Selection::Limits };
        for count in 0..MAX_EMPTY_LOOKS {
            if count > 1 && self.cancel.wait(EMPTY_LOOK_INTERVAL) {
                return Err(EngineError::Cancelled);
            }
            let look = self.receive(run, selection)?;
            if look.has_received {
                return Ok(AfterLook::Received);
            }
            if look.has_more {
                return Ok(AfterLook::Step(RunStep::End(RunEnding::OutOfIterations)));
            }
            // One that cannot be removed does no harm: a run that has ended refuses messages, and what was sent before waits.
            // The result must not be lost for it.
            if run.mailbox().close().unwrap_or(true) {
                return Ok(AfterLook::Step(step));
            }
        }
        let source = io::Error::other("its mailbox, `messages`, does not become empty");
        Err(FileError { action: "end the run in", path: run.dir.clone(), source }.into())
    }

    /// Closes the mailbox of a run that has FAILED, unless a message waits for the process that continues it.
    pub(super) fn leave_mailbox(&mut self, run: &Run, ending: &RunEnding) {
        if self.message_watch.take().is_some() && ending.status() == RunStatus::Failed {
            // What is left does no harm.
            let _ = run.mailbox().close();
        }
    }

    /// Receives all messages that wait.
    pub(super) fn receive_all(&mut self, run: &mut Run) -> Result<(), EngineError> {
        if self.has_mailbox {
            self.receive(run, Selection::All)?;
        }
        Ok(())
    }

    /// A request or calls begin that a message may end.
    pub(super) fn begin_work(&self, run: &Run) {
        if let Some(watch) = &self.message_watch {
            watch.begin_work(run.state().seq);
        }
    }

    /// They have ended, and what follows them is not to end.
    pub(super) fn end_work(&self) {
        let Some(watch) = &self.message_watch else { return };
        watch.end_work();
        if self.cancel.is_requested_only_for(PassingRequest::Message) {
            self.is_told.set(true);
        }
        self.cancel.withdraw(PassingRequest::Message);
    }

    /// The change that a message makes; `changed` are the limits of the messages before it.
    fn plan_limits(
        &self,
        run: &mut Run,
        message: &MailboxMessage,
        changed: Limits,
    ) -> LimitsChange {
        let mut limits = message.limits.unwrap_or_default();
        let unpriced = self.agent.llm.models().find(|llm| !llm.has_known_cost());
        if let (Some(_), Some(llm)) = (limits.max_cost, unpriced) {
            let model = &llm.model;
            let text = format!("the new cost limit is ignored: the price of {model} is unknown");
            run.notify(RunNotice::Warning(&text));
            limits.max_cost = None;
        }
        let now = changed.or(self.budget.own_limits());
        let before = Limits {
            max_cost: now.max_cost.filter(|_| limits.max_cost.is_some()),
            max_tokens: now.max_tokens.filter(|_| limits.max_tokens.is_some()),
            max_duration_ms: now.max_duration_ms.filter(|_| limits.max_duration_ms.is_some()),
        };
        let iterations = run.state().start.as_ref().map(|start| start.max_iterations);
        let max_iterations = iterations.filter(|_| message.max_iterations.is_some());
        LimitsChange {
            limits,
            max_iterations: message.max_iterations,
            before: LimitsBefore { limits: before, max_iterations },
            reason: message.reason.clone(),
            source: message.source.clone(),
            seal: None,
        }
    }

    /// Makes the limits, which the journal has, apply to the next call and to child runs.
    fn change_limits(&mut self, run: &Run, limits: Limits) -> Result<(), EngineError> {
        if limits.are_none() {
            return Ok(());
        }
        let state = run.state();
        // Each answer was priced when it was recorded, by the model that gave it.
        let amounts = state.usage.iter().map(|usage| usage_amount(None, usage));
        let spent = amounts.fold(BudgetAmount::default(), BudgetAmount::saturating_add);
        let started_at = state.started_at.map_or(0, |at| at.as_millis());
        self.budget
            .change_limits(&run.dir, run.ownership(), limits, spent, started_at, &self.cancel)
            .map_err(EngineError::Limit)?;
        if let Some(path) = self.budget.ledger_path() {
            self.environment.set_budget(path);
        }
        if let Some(deadline) =
            self.budget.own_deadline().filter(|_| limits.max_duration_ms.is_some())
        {
            let rest = deadline.saturating_sub((self.clock)().as_millis());
            let rest = Duration::from_millis(u64::try_from(rest).unwrap_or(0));
            let started = self.cancel.expire_after_work(rest);
            started.map_err(FileError::at("limit the time of", &run.dir))?;
        }
        Ok(())
    }

    /// Records the selected messages in their order, and removes from the mailbox what is recorded and what is not a message.
    fn receive(&mut self, run: &mut Run, selection: Selection) -> Result<Look, EngineError> {
        let mailbox = run.mailbox();
        let files = match mailbox.read_waiting()? {
            Some(files) => files,
            None => {
                run.commit_act()?;
                mailbox.create()?;
                Vec::new()
            }
        };
        let fates = decide_fates(&files, selection, |id| run.state().has_received(id));
        let has = |fate| fates.contains(&fate);
        let look = Look { has_received: has(FileFate::Receive), has_more: has(FileFate::Keep) };
        let mut done: Vec<&WaitingFile> = Vec::new();
        let mut limits = Limits::default();
        for (file, fate) in files.iter().zip(&fates) {
            match (fate, &file.message) {
                (FileFate::Keep, _) => continue,
                (FileFate::Receive, Some(message)) => match &message.content {
                    Some(content) => run.record(Payload::UserMessage {
                        content: content.clone(),
                        images: Vec::new(),
                        source: Some(Box::new(message.source.clone())),
                    }),
                    None => {
                        let change = self.plan_limits(run, message, limits);
                        limits = change.limits.or(limits);
                        run.record(Payload::LimitsChanged(Box::new(change)));
                    }
                },
                (FileFate::Foreign, _) => {
                    let text = format!(
                        "messages/{} was removed: it is not a message of this run's operator",
                        file.name()
                    );
                    run.notify(RunNotice::Warning(&text));
                }
                (FileFate::Receive | FileFate::Known, _) => {}
            }
            done.push(file);
        }
        if !done.is_empty() {
            // A process that was replaced must not remove what its successor is to receive.
            run.commit_act()?;
            self.change_limits(run, limits)?;
            done.into_iter().try_for_each(WaitingFile::remove)?;
        }
        Ok(look)
    }
}
