//! What a person is shown who approves a call, and what the person can answer.

use crate::tool::value_text;
use delta_base::redact::redact_answers;
use delta_base::terminal_text::{
    escape_terminal_controls, format_argument_value, truncate_to_line,
};
use delta_run::event::approval::{ApprovalDecision, ApprovalRequest, ApprovalSource};
use delta_run::interaction_request::{changed_line, short_command_line};
use serde_json::Value as Json;

/// The number of characters of a command line in the short form.
const MAX_COMMAND_CHARS: usize = 1000;
/// The number of lines of a command line in the short form.
const MAX_COMMAND_LINES: usize = 12;

/// A call to approve.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalPrompt<'a> {
    /// The call.
    pub request: &'a ApprovalRequest,
    /// What the call would do to a file, for a tool with `preview`.
    pub preview: Option<&'a str>,
    /// Sensitive answers, which are not shown.
    pub hidden: &'a [String],
    /// The agent directory, which the short form replaces by its name; empty to keep it.
    pub agent_home: &'a str,
    /// The parameters whose values may differ in the calls that can be allowed in later runs of the directory; `None` if none can.
    pub remember: Option<&'a [String]>,
}

/// The answer of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalAnswer {
    /// Whether the call may start.
    pub approved: bool,
    /// Who decided.
    pub by: ApprovalSource,
    /// The reason of a denial.
    pub reason: Option<String>,
    /// Whether later calls of the tool are approved, too, while the process works on the run.
    pub for_tool: bool,
    /// Whether the same call is approved in later runs of the directory, too.
    pub for_project: bool,
}

impl ApprovalAnswer {
    /// A yes, or a no with its reason.
    pub fn new(approved: bool, by: ApprovalSource, reason: Option<String>) -> Self {
        Self { approved, by, reason, for_tool: false, for_project: false }
    }

    /// The decision on `request` that the journal records.
    pub fn decision_on(self, request: &ApprovalRequest) -> ApprovalDecision {
        ApprovalDecision {
            iteration: request.iteration,
            call_id: request.call_id.clone(),
            approved: self.approved,
            by: self.by,
            reason: self.reason,
            for_tool: self.for_tool,
            for_project: self.for_project,
            seal: None,
        }
    }

    /// Parses `yes`, `no` and `no: REASON`; `None` for any other text.
    pub fn parse(text: &str, by: ApprovalSource) -> Option<Self> {
        let text = text.trim();
        let (word, reason) = match text.split_once(':') {
            Some((word, reason)) => (word.trim_end(), Some(reason.trim())),
            None => (text, None),
        };
        let is_word =
            |long: &str| word.eq_ignore_ascii_case(long) || word.eq_ignore_ascii_case(&long[..1]);
        if is_word("yes") && reason.is_none() {
            return Some(Self::new(true, by, None));
        }
        let reason = reason.filter(|reason| !reason.is_empty()).map(str::to_owned);
        is_word("no").then(|| Self::new(false, by, reason))
    }
}

/// What a person does who agrees, before the name of the tool.
pub fn approval_verb(request: &ApprovalRequest) -> &'static str {
    if request.stage.is_some() { "apply the changes of" } else { "approve" }
}

/// An argument of the call, safe for a terminal.
struct VisibleArgument {
    name: String,
    text: String,
    is_string: bool,
}

impl ApprovalPrompt<'_> {
    /// The call in a few lines of about `width` characters: its arguments, and its command line. `all` is what shows all of
    /// it.
    pub fn summary_lines(&self, width: usize, all: &str) -> Vec<String> {
        let arguments = self.arguments();
        let name_width = arguments.iter().map(|one| one.name.chars().count()).max();
        let name_width = name_width.unwrap_or_default().min(24);
        let room = width.saturating_sub(name_width + 4).max(20);
        let mut lines = Vec::new();
        let mut is_cut = false;
        for VisibleArgument { name, text, is_string } in &arguments {
            // Two characters are quotes.
            let limit = room - 3;
            is_cut |= text.chars().count() > limit;
            let value = if *is_string {
                format_argument_value(text, limit)
            } else {
                truncate_to_line(text, limit)
            };
            lines.push(format!("{name:name_width$}  {value}"));
        }
        let command = self.visible_text(&short_command_line(self.request, self.agent_home));
        let (command, is_command_cut) = cut_command(&command);
        is_cut |= is_command_cut;
        for (index, line) in command.lines().enumerate() {
            lines.push(format!("{} {line}", if index == 0 { "$" } else { " " }));
        }
        lines.extend(changed_line(self.request));
        if is_cut {
            lines.push(format!("… cut; {all} shows all of it"));
        }
        lines
    }

    /// The whole call in lines.
    pub fn all_lines(&self) -> Vec<String> {
        let texts = self.argument_texts().into_iter().chain([self.command_text()]);
        let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.chain(changed_line(self.request)).collect()
    }

    /// The arguments in full, each with its name in a line before it.
    pub fn argument_texts(&self) -> Vec<String> {
        let arguments = self.arguments().into_iter();
        arguments
            .map(|one| format!("{}:\n  {}", one.name, one.text.replace('\n', "\n  ")))
            .collect()
    }

    /// The whole command line.
    pub fn command_text(&self) -> String {
        format!("$ {}", self.visible_text(&short_command_line(self.request, "")))
    }

    /// The change of the file, safe for a terminal.
    pub fn preview_text(&self) -> Option<String> {
        self.preview.map(|preview| self.visible_text(preview))
    }

    fn arguments(&self) -> Vec<VisibleArgument> {
        match &self.request.tool_args {
            Json::Object(arguments) => {
                arguments.iter().map(|(name, value)| self.visible_argument(name, value)).collect()
            }
            other => vec![self.visible_argument("arguments", other)],
        }
    }

    fn visible_argument(&self, name: &str, value: &Json) -> VisibleArgument {
        VisibleArgument {
            name: self.visible_text(name),
            text: self.visible_text(&value_text(value)),
            is_string: value.is_string(),
        }
    }

    /// A text about the call, safe for a terminal and without sensitive answers.
    pub fn visible_text(&self, text: &str) -> String {
        redact_answers(self.hidden, escape_terminal_controls(text))
    }
}

/// The beginning of a command line, and whether that is not all.
fn cut_command(command: &str) -> (String, bool) {
    let mut text: String = command.chars().take(MAX_COMMAND_CHARS).collect();
    let mut is_cut = text.len() < command.len();
    if let Some((end, _)) = text.match_indices('\n').nth(MAX_COMMAND_LINES - 1) {
        text.truncate(end);
        is_cut = true;
    }
    (text, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_21_2_what_counts_as_yes_and_no() {
        let parse = |text: &str| {
            let answer = ApprovalAnswer::parse(text, ApprovalSource::Operator)?;
            Some((answer.approved, answer.reason))
        };
        for yes in ["yes", "y", " YES\n", "Y"] {
            assert_eq!(parse(yes), Some((true, None)), "{yes}");
        }
        for no in ["no", "n", "No", "no:", "n : "] {
            assert_eq!(parse(no), Some((false, None)), "{no}");
        }
        let reason = Some("too risky: think again".to_owned());
        assert_eq!(parse("no: too risky: think again"), Some((false, reason)));
        for other in ["", "ye", "yes please", "yes: do", "ok", "nope", "no way", ":", "y n"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn c_21_2_nothing_in_a_call_controls_the_terminal_or_is_cut_in_silence() {
        let long = "x".repeat(500);
        let request = ApprovalRequest {
            iteration: 1,
            call_id: "c".to_owned(),
            tool_name: "t".to_owned(),
            tool_args: json!({"a": "one\u{1b}[2Jtwo\u{202e}", "long": long}),
            argv: vec!["p".into(), "it's".into(), "\u{1b}[2K\r".into(), "two\nlines".into()],
            command_sha256: String::new(),
            files: None,
            environment: None,
            workspace: None,
            changed: Vec::new(),
            rule: None,
            stage: None,
            named_by: None,
        };
        let prompt = ApprovalPrompt {
            request: &request,
            preview: None,
            hidden: &[],
            agent_home: "",
            remember: None,
        };
        let lines = prompt.summary_lines(60, "v");
        assert_eq!(lines[0], r"a     one\u{1b}[2Jtwo\u{202e}");
        assert!(lines[1].ends_with('…') && lines[1].chars().count() <= 60, "{}", lines[1]);
        assert_eq!(lines[2], r#"$ p "it's" $'\x1b[2K\r' 'two"#);
        assert_eq!(lines[3], "  lines'");
        assert_eq!(lines[4], "… cut; v shows all of it");
        let argv =
            ["/state/coding/tools/run", "/state/coding-2/x", "go"].map(str::to_owned).to_vec();
        let request = ApprovalRequest { argv, ..request.clone() };
        let prompt = ApprovalPrompt { request: &request, agent_home: "/state/coding", ..prompt };
        assert_eq!(prompt.summary_lines(60, "v")[2], "$ coding/tools/run /state/coding-2/x go");
        assert_eq!(prompt.command_text(), "$ /state/coding/tools/run /state/coding-2/x go");
        assert_eq!(prompt.argument_texts()[1], format!("long:\n  {long}"));
    }
}
