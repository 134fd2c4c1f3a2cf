//! The command lines that findings propose. A reader pastes such a line, so it is read again before it is shown: it has the
//! words that it should have, or there is none.

use super::ToolSubject;
use super::command_view::{self, LintWord};
use delta_agent::tool::Tool;
use delta_shell::{ShellOutline, split_exec_template};
use delta_yaml::yaml::{YamlDocument, quote_yaml};

/// A command line of `words`, quoted as in the tool where that is possible. `None` if a text cannot write it: a part is
/// only known in a run, or the line would have an end.
pub(super) fn propose_line(subject: &ToolSubject<'_>, words: &[LintWord]) -> Option<String> {
    let template = &subject.tool.template;
    let join =
        |quote: &dyn Fn(&LintWord) -> String| words.iter().map(quote).collect::<Vec<_>>().join(" ");
    let similar = join(&|word| word.quote_as_in(template));
    let careful = join(&LintWord::quote_each_part);
    [similar, careful].into_iter().find(|line| {
        !line.contains('\n') && reads_as(line, words, subject.tool, subject.has_shell())
    })
}

/// The line `exec: TEMPLATE` of agent.yaml, for a script that is one command of `words`. `None` if `exec:` reads it
/// otherwise.
pub(super) fn propose_exec_key(subject: &ToolSubject<'_>, words: &[LintWord]) -> Option<String> {
    let template = subject.tool.template.trim();
    if !reads_as(template, words, subject.tool, false) {
        return None;
    }
    let plain = format!("exec: {template}");
    let is_plain = YamlDocument::parse("", plain.as_str()).is_ok_and(|doc| {
        doc.root.entries().len() == 1
            && doc.root.get("exec").and_then(|node| node.scalar()) == Some(template)
    });
    Some(if is_plain { plain } else { format!("exec: {}", quote_yaml(template)) })
}

/// Whether `line` is one command of `words`, as a script or as a template of `exec:`.
fn reads_as(line: &str, words: &[LintWord], tool: &Tool, is_script: bool) -> bool {
    let read = if is_script {
        let commands = ShellOutline::from_template(line)
            .map(|outline| command_view::outline_commands(&outline, tool))
            .unwrap_or_default();
        commands.into_iter().map(|command| command.words).collect()
    } else {
        let command = split_exec_template(line)
            .map(|words| command_view::exec_words(&words, tool))
            .unwrap_or_default();
        vec![command]
    };
    match read.as_slice() {
        [command] => {
            command.len() == words.len()
                && command.iter().zip(words).all(|(proposed, word)| proposed.is_same(word))
        }
        _ => false,
    }
}
