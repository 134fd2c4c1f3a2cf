//! The definition of a tool: names, descriptions, parameters, times, the key.

use super::view::{Bit, Word};
use super::{Level, Sink, Subject};
use crate::state::{ASK_HUMAN, FINISH};
use crate::tool::{Inject, Kind, Parameter, RUN_VARIABLES, Syntax, placeholder};
use crate::vars::Variable;
use crate::yaml::{Document, Node};

/// A shorter time was probably meant in seconds.
const SHORTEST_MS: u64 = 1_000;
/// A longer one leaves a run hanging on a tool that does not end.
const LONGEST_MS: u64 = 3_600_000;

pub(super) fn check(subject: &Subject<'_>, sink: &mut Sink) {
    described(subject, sink);
    shadows(subject, sink);
    placeholders(subject, sink);
    not_filled(subject, sink);
    no_key(subject, sink);
    if let Some(node) = subject.item.get("timeout_ms") {
        timeout(subject.doc, node, sink);
    }
}

fn described(subject: &Subject<'_>, sink: &mut Sink) {
    let tool = subject.tool;
    let blank = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
    if blank(&tool.description) {
        let message = format!("the LLM is told nothing of `{}` but its command line", tool.name);
        let help = "write `description:`: what it does, when to use it, what it gives back";
        sink.add("undescribed-tool", Level::Warning, subject.at_key("name", message, help));
    }
    let without: Vec<_> = tool.parameters.iter().filter(|p| blank(&p.description)).collect();
    let obscure = |p: &&&Parameter| {
        p.values.is_empty() && p.kind != Kind::Boolean && !is_mistaken(subject, &p.name)
    };
    for parameter in without.iter().filter(obscure) {
        let message = format!("the LLM knows only the name of the parameter `{}`", parameter.name);
        let help = format!("write `parameters: [{{name: {}, description: ...}}]`", parameter.name);
        let fragment = format!("${{{}}}", parameter.name);
        let listed = subject.item.get("parameters").map(Node::items).unwrap_or_default();
        let entry = listed.iter().find_map(|item| {
            item.get("name").filter(|name| name.scalar() == Some(&parameter.name))
        });
        let diagnostic = match entry {
            Some(entry) => subject.doc.at(entry, message, help),
            None if parameter.inject == Inject::Stdin => subject.at_key("stdin", message, help),
            None => subject.at(&fragment, message, help),
        };
        sink.add("undescribed-parameter", Level::Info, diagnostic);
    }
}

fn shadows(subject: &Subject<'_>, sink: &mut Sink) {
    let name = subject.tool.name.as_str();
    let loses = match name {
        FINISH => "the LLM can no longer end the run with a result",
        ASK_HUMAN => "the LLM can no longer ask a person",
        _ => return,
    };
    let message = format!("this takes the place of the built-in tool `{name}`: {loses}");
    let help = format!(
        "choose another name; if it is meant, write `x-lint-allow: [shadows-builtin]`{}",
        if name == FINISH { ", and `finish: false` to say so" } else { "" }
    );
    sink.add("shadows-builtin", Level::Warning, subject.at_key("name", message, help));
}

/// Placeholders that were meant for something else.
fn placeholders(subject: &Subject<'_>, sink: &mut Sink) {
    for parameter in subject.tool.parameters.iter().filter(|parameter| parameter.in_template) {
        let name = parameter.name.as_str();
        if !is_mistaken(subject, name) {
            continue;
        }
        let fragment = format!("${{{name}");
        let shell = subject.tool.syntax == Syntax::Shell;
        if let Some(variable) = Variable::near(name) {
            let message = format!(
                "`${{{name}}}` is a parameter that the LLM must give, not the engine's variable"
            );
            let help = format!("write `${{{}}}`", variable.name());
            sink.add("engine-variable", Level::Warning, subject.at(&fragment, message, help));
        } else {
            let message = format!(
                "`${{{name}}}` is a parameter that the LLM must give, not the environment variable `{name}`"
            );
            let help = match (shell, RUN_VARIABLES.contains(&name)) {
                (true, _) => format!(
                    "write `${name}` or `\\${{{name}}}` for the variable; if it is a parameter, describe it in `parameters:`"
                ),
                (false, true) => format!(
                    "the program finds `{name}` in its environment; for the text use `shell:` and `${name}`"
                ),
                (false, false) => format!(
                    "use `shell:` and `${name}`; if it is a parameter, describe it in `parameters:`"
                ),
            };
            sink.add(
                "environment-placeholder",
                Level::Warning,
                subject.at(&fragment, message, help),
            );
        }
    }
}

/// Whether the placeholder of that name was meant for a variable.
pub(super) fn is_mistaken(subject: &Subject<'_>, name: &str) -> bool {
    let listed = subject.item.get("parameters").map(Node::items).unwrap_or_default();
    // Who describes a parameter means one.
    let described = listed.iter().any(|item| item.get("name").and_then(Node::scalar) == Some(name));
    !described && (Variable::near(name).is_some() || is_variable_name(name))
}

/// Whether `name` looks like the name of an environment variable.
fn is_variable_name(name: &str) -> bool {
    name.len() > 1
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// `${name}` in a plain string of `command:`, where only the engine's variables are filled in.
fn not_filled(subject: &Subject<'_>, sink: &mut Sink) {
    if subject.tool.syntax != Syntax::Command {
        return;
    }
    let items = subject.template.items();
    for (at, item) in items.iter().enumerate() {
        // A script has its own `${...}`.
        let script = at > 0
            && items[at - 1]
                .scalar()
                .is_some_and(|before| before.starts_with('-') && before.ends_with(['c', 'e']));
        if !script {
            plain_text(
                subject.doc,
                item,
                "write `{template: \"...\"}` in the place of the plain text",
                sink,
            );
        }
    }
}

/// Looks for `${name}` in a text in which it is no placeholder. Says whether there is one.
fn plain_text(doc: &Document, node: &Node, help: &str, sink: &mut Sink) -> bool {
    let Some(text) = node.scalar() else { return false };
    let found = text.match_indices("${").find_map(|(at, _)| {
        let escaped = text[..at].ends_with('\\');
        let (hole, length) = placeholder::read(&text[at..]).filter(|_| !escaped)?;
        hole.is_parameter().then(|| &text[at..at + length])
    });
    let Some(fragment) = found else { return false };
    let name = fragment.trim_start_matches("${").trim_end_matches('}');
    let (rule, help) = match Variable::near(name) {
        Some(variable) => ("engine-variable", format!("write `${{{}}}`", variable.name())),
        None => ("not-filled", help.to_owned()),
    };
    let message = format!("`{fragment}` stays as it is here: nothing fills it in");
    sink.add(rule, Level::Warning, doc.at_fragment(node, fragment, message, help));
    true
}

/// A tool that runs delta without the key.
fn no_key(subject: &Subject<'_>, sink: &mut Sink) {
    if !subject.tool.pass_env.is_empty() {
        return;
    }
    let runs = |words: &[Word]| {
        words.windows(2).any(|pair| {
            matches!(pair[0].bits.as_slice(), [Bit::Text(_)] | [_, Bit::Text(_)])
                && pair[0].program() == "delta"
                && matches!(pair[1].fixed(), Some("run" | "continue"))
        })
    };
    if subject.commands.iter().any(|command| runs(&command.words)) {
        let message = "this tool runs delta, and the LLM's key is not in its environment";
        let help =
            "write `pass_env: [DELTA_API_KEY]`, or the variable that the other agent's key is in";
        sink.add("no-key", Level::Warning, subject.at("delta", message, help));
    }
}

/// Looks at a time that may have been meant in seconds.
pub(super) fn timeout(doc: &Document, node: &Node, sink: &mut Sink) {
    let Some(millis) = node.scalar().and_then(|text| text.parse::<u64>().ok()) else { return };
    if millis < SHORTEST_MS {
        let message =
            format!("`timeout_ms` is in milliseconds, and {millis} are less than a second");
        let help = format!("write `timeout_ms: {}` for {millis} seconds", millis * 1000);
        sink.add("timeout", Level::Warning, doc.at(node, message, help));
    } else if millis > LONGEST_MS {
        let message =
            format!("a program that hangs holds the run for {} hours", millis / LONGEST_MS);
        let help = "write the longest time that it may really take".to_owned();
        sink.add("timeout", Level::Info, doc.at(node, message, help));
    }
}
