//! The lines of what a run waits for: a question to the user, and a call or its changes to approve.

use super::diff_lines::diff_line_style;
use super::{BOLD, DIM, ProgressPrinter, Verbosity, WARN};
use delta_agent::approval_prompt::{ApprovalPrompt, approval_verb};
use delta_base::terminal_text::truncate_to_line;
use delta_run::event::HumanQuestion;
use delta_run::event::approval::{ApprovalDecision, ApprovalRequest, ApprovalSource};
use delta_run::state::RunState;

/// The number of changes of a call that are listed before its diff.
const MAX_CHANGE_LINES: usize = 100;
/// The number of lines printed of the diff of a call.
const MAX_DIFF_LINES: usize = 40;

impl ProgressPrinter {
    /// Prints a question, even with `-q`: an invisible question is never answered.
    pub(super) fn show_question(&mut self, question: &HumanQuestion) {
        if self.omits_questions {
            return;
        }
        self.shown_question = Some(question.call_id.clone());
        let prompt = self.sanitize(&question.prompt);
        for (index, line) in prompt.lines().enumerate() {
            let lead = if index == 0 { "?" } else { " " };
            self.write_line(&format!("{WARN}{lead}{WARN:#} {line}"));
        }
    }

    /// Prints a call that waits for approval, even with `-q`.
    pub(super) fn show_approval_request(&mut self, request: &ApprovalRequest) {
        if self.omits_questions {
            return;
        }
        self.shown_question = Some(request.call_id.clone());
        let hidden = self.sensitive.answers.clone();
        // Only in a run at a terminal, where `v` can show the whole command line.
        let is_short = self.is_terminal && !self.to_stdout;
        let agent_home = if is_short { self.agent_home.clone() } else { String::new() };
        let diff_command = self.diff_command.clone();
        let stage = request.stage.as_ref();
        let changes = stage.map(|stage| stage.described_diff(&diff_command));
        let prompt = ApprovalPrompt {
            request,
            preview: changes.as_deref(),
            hidden: &hidden,
            agent_home: &agent_home,
            remember: None,
        };
        let tool = self.short_tool_name(&request.tool_name);
        self.print_line("");
        let verb = approval_verb(request);
        self.write_line(&format!("{WARN}?{WARN:#} {verb} {BOLD}{tool}{BOLD:#}"));
        // The indent takes four columns.
        let width = self.line_width().saturating_sub(4);
        let is_whole = self.verbosity == Verbosity::Verbose;
        let all = match (self.to_stdout, self.asks_here) {
            (true, _) => "-v".to_owned(),
            (false, true) => "v".to_owned(),
            (false, false) => format!("`{}`", self.show_command),
        };
        let lines = if is_whole { prompt.all_lines() } else { prompt.summary_lines(width, &all) };
        let changes = prompt.preview_text().unwrap_or_default();
        for line in lines {
            self.write_line(&format!("    {line}"));
        }
        let change_limit = if is_whole { usize::MAX } else { MAX_CHANGE_LINES };
        let line_limit = if is_whole { usize::MAX } else { MAX_DIFF_LINES };
        let summary = stage.map(|stage| stage.change_lines(change_limit, &diff_command));
        for line in summary.iter().flatten() {
            self.write_line(&format!("    {}", prompt.visible_text(line)));
        }
        for line in changes.lines().take(line_limit) {
            let style = diff_line_style(line);
            self.write_line(&format!("    {style}{line}{style:#}"));
        }
        let left_out = changes.lines().count().saturating_sub(line_limit);
        if left_out > 0 {
            let note = if stage.is_some_and(|stage| stage.has_cut_diff()) {
                format!("… `{diff_command}` prints the whole diff")
            } else {
                format!("… {left_out} more lines; {all} shows all of them")
            };
            self.write_line(&format!("    {note}"));
        }
    }

    /// Prints a decision, except one that was just made at this terminal.
    pub(super) fn show_approval_decision(&mut self, decision: &ApprovalDecision, state: &RunState) {
        if decision.by == ApprovalSource::Terminal && !self.to_stdout {
            return;
        }
        let verb = if decision.approved { "approved" } else { "denied" };
        let by = match decision.by {
            ApprovalSource::Terminal => "at the terminal",
            ApprovalSource::Operator => "by the operator",
            ApprovalSource::Rule => "by a rule",
            ApprovalSource::Flag => "by --approve-all",
            ApprovalSource::Remembered => "as in an earlier run",
            ApprovalSource::Config => "by config.yaml",
        };
        let approval = state.asked_approval(&decision.call_id);
        let staged =
            approval.map(|approval| &approval.request).filter(|request| request.stage.is_some());
        // The line of the call is above the question, which another process may have printed.
        let subject = staged.map_or_else(String::new, |request| {
            format!("the changes of {}: ", self.short_tool_name(&request.tool_name))
        });
        let scope = if decision.for_tool { ", and every later call of the tool" } else { "" };
        self.print_line(&format!("{DIM}  {subject}{verb} {by}{scope}{DIM:#}"));
    }

    fn short_tool_name(&self, name: &str) -> String {
        truncate_to_line(&self.sanitize(name), 64)
    }
}
