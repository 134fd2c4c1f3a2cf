//! The rules for the definition of a tool: descriptions, names, placeholders, the API key and timeouts.

use super::approval_rules::check_approval;
use super::command_view::{LintWord, WordPart};
use super::{LintLevel, Linter, ToolSubject};
use delta_agent::tool::{InjectAs, ParameterType, RUN_VARIABLES, Tool, ToolParameter, ToolSyntax};
use delta_base::engine_variables::EngineVariable;
use delta_base::quantity::parse_time_ms;
use delta_process::Background;
use delta_run::state::{ASK_HUMAN_TOOL, FINISH_TOOL};
use delta_shell::parse_placeholder;
use delta_yaml::yaml::{YamlDocument, YamlNode};

/// The author probably meant seconds if the timeout is shorter.
const MIN_PLAUSIBLE_TIMEOUT_MS: u64 = 1_000;
/// A tool that does not end blocks a run for too long if the timeout is longer.
const MAX_PLAUSIBLE_TIMEOUT_MS: u64 = 3_600_000;

pub(super) fn check_definition(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    check_descriptions(subject, linter);
    check_builtin_names(subject, linter);
    check_placeholders(subject, linter);
    check_unfilled_arguments(subject, linter);
    check_key_access(subject, linter);
    check_session_start(subject, linter);
    if let Some(node) = subject.item.get("timeout_ms") {
        check_timeout(subject.doc, node, linter);
    }
    if let Some(node) = subject.item.get("approve") {
        let for_shell = subject.tool.syntax == ToolSyntax::Shell;
        check_approval(subject.doc, node, for_shell, linter);
    }
}

fn is_undescribed(description: Option<&String>) -> bool {
    description.is_none_or(|text| text.trim().is_empty())
}

fn check_descriptions(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let tool = subject.tool;
    if is_undescribed(tool.description.as_ref()) {
        let message = format!("the LLM sees only the command line of `{}`", tool.name);
        let help = "write `description:`: what it does, when to use it, what it returns";
        linter.warn("undescribed-tool", subject.diagnostic_at_key("name", message, help));
    }
    for parameter in &tool.parameters {
        let explains_itself =
            !parameter.allowed_values.is_empty() || parameter.kind == ParameterType::Boolean;
        if is_undescribed(parameter.description.as_ref())
            && !explains_itself
            && !is_described_in_schema(tool, &parameter.name)
            && !is_mistaken_parameter(subject, &parameter.name)
        {
            report_undescribed_parameter(subject, parameter, linter);
        }
    }
}

/// Whether the schema of all arguments describes a parameter.
fn is_described_in_schema(tool: &Tool, parameter: &str) -> bool {
    let properties = tool.schema.as_ref().map(|schema| &schema.json["properties"]);
    properties.is_some_and(|properties| properties[parameter]["description"].is_string())
}

fn report_undescribed_parameter(
    subject: &ToolSubject<'_>,
    parameter: &ToolParameter,
    linter: &mut Linter<'_>,
) {
    let name = &parameter.name;
    let message = format!("the LLM sees only the name of the parameter `{name}`");
    let help = match subject.tool.schema {
        None => format!("write `parameters: [{{name: {name}, description: ...}}]`"),
        Some(_) => format!("write `description` of `{name}` in `schema`"),
    };
    let entry = subject
        .parameter_items()
        .iter()
        .find_map(|item| item.get("name").filter(|node| node.scalar() == Some(name.as_str())));
    let diagnostic = match entry {
        Some(entry) => subject.doc.diagnostic_at(entry, message, help),
        None if parameter.inject_as == InjectAs::Stdin => {
            subject.diagnostic_at_key("stdin", message, help)
        }
        None => subject.diagnostic_at(&format!("${{{name}}}"), message, help),
    };
    linter.report("undescribed-parameter", LintLevel::Info, diagnostic);
}

fn check_builtin_names(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let name = subject.tool.name.as_str();
    let loss = match name {
        FINISH_TOOL => "the LLM can no longer end the run with a result",
        ASK_HUMAN_TOOL => "the LLM can no longer ask the user",
        _ => return,
    };
    let message = format!("this replaces the built-in tool `{name}`: {loss}");
    let finish_setting = if name == FINISH_TOOL { " and `finish: false`" } else { "" };
    let help = format!(
        "choose another name; if it is intended, write `x-lint-allow: [shadows-builtin]`{finish_setting}"
    );
    linter.warn("shadows-builtin", subject.diagnostic_at_key("name", message, help));
}

/// Reports placeholders that were meant as variables of the engine or of the environment.
fn check_placeholders(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    for parameter in subject.tool.parameters.iter().filter(|parameter| parameter.in_template) {
        let name = parameter.name.as_str();
        if !is_mistaken_parameter(subject, name) {
            continue;
        }
        let (rule, message, help) = if let Some(variable) = EngineVariable::from_similar_name(name)
        {
            let message = format!(
                "`${{{name}}}` is a parameter that the LLM must give, not a variable of the engine"
            );
            ("engine-variable", message, format!("write `${{{}}}`", variable.name()))
        } else {
            let message = format!(
                "`${{{name}}}` is a parameter that the LLM must give, not the environment variable `{name}`"
            );
            ("environment-placeholder", message, environment_help(name, subject.has_shell()))
        };
        linter.warn(rule, subject.diagnostic_at(&format!("${{{name}"), message, help));
    }
}

fn environment_help(name: &str, has_shell: bool) -> String {
    if has_shell {
        format!(
            "write `${name}` or `\\${{{name}}}` for the variable; if it is a parameter, describe it in `parameters:`"
        )
    } else if RUN_VARIABLES.contains(&name) {
        format!(
            "the program has `{name}` in its environment; for its value in the command line, use `shell:` and `${name}`"
        )
    } else {
        format!("use `shell:` and `${name}`; if it is a parameter, describe it in `parameters:`")
    }
}

/// Whether the placeholder `name` was probably meant as a variable: it looks like one, and `parameters:` does not
/// describe it.
pub(super) fn is_mistaken_parameter(subject: &ToolSubject<'_>, name: &str) -> bool {
    let is_described = subject
        .parameter_items()
        .iter()
        .any(|item| item.get("name").and_then(YamlNode::scalar) == Some(name));
    !is_described
        && (EngineVariable::from_similar_name(name).is_some() || looks_like_env_variable(name))
}

fn looks_like_env_variable(name: &str) -> bool {
    name.len() > 1
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Reports `${name}` in a plain string of `command:`, where delta fills in only the engine's variables.
fn check_unfilled_arguments(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    if subject.tool.syntax != ToolSyntax::Command {
        return;
    }
    let mut previous = "";
    for item in subject.template.items() {
        // A script has its own `${...}`.
        let is_script = previous.starts_with('-') && previous.ends_with(['c', 'e']);
        previous = item.scalar().unwrap_or_default();
        if is_script {
            check_plain_script(subject, item, linter);
        } else {
            check_plain_text(subject.doc, item, linter);
        }
    }
}

/// Reports the first `${name}` in a script of `command:` that is a parameter and no variable that the script may set.
fn check_plain_script(subject: &ToolSubject<'_>, node: &YamlNode, linter: &mut Linter<'_>) {
    let Some(script) = node.scalar() else { return };
    let names = subject.parameter_items().iter().filter_map(|item| item.get("name")?.scalar());
    for name in names {
        let fragment = format!("${{{name}}}");
        let rest = script.replace(&fragment, "").replace(&format!("${name}"), "");
        let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let may_be_set = words.any(|word| word == name)
            || subject.tool.env.iter().any(|(variable, _)| variable == name);
        if script.contains(&fragment) && !may_be_set {
            let message = format!("delta does not replace `{fragment}` in a plain string");
            let help = format!(
                "write `shell: SCRIPT` instead of `command:`: there `{fragment}` is the parameter, safe from injection"
            );
            return linter.warn(
                "not-filled",
                subject.doc.diagnostic_at_fragment(node, &fragment, message, help),
            );
        }
    }
}

/// Reports the first `${name}` in a plain string of `command:`.
fn check_plain_text(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let Some(text) = node.scalar() else { return };
    let fragment = text.match_indices("${").find_map(|(start, _)| {
        let is_escaped = text[..start].ends_with('\\');
        let (placeholder, length) = parse_placeholder(&text[start..]).filter(|_| !is_escaped)?;
        placeholder.is_parameter().then(|| &text[start..start + length])
    });
    let Some(fragment) = fragment else { return };
    let name = fragment.trim_start_matches("${").trim_end_matches('}');
    let (rule, help) = match EngineVariable::from_similar_name(name) {
        Some(variable) => ("engine-variable", format!("write `${{{}}}`", variable.name())),
        None => {
            ("not-filled", "write `{template: \"...\"}` instead of the plain string".to_owned())
        }
    };
    let message = format!("delta does not replace `{fragment}` in a plain string");
    linter.warn(rule, doc.diagnostic_at_fragment(node, fragment, message, help));
}

/// Reports a tool that runs delta without a key in its environment.
fn check_key_access(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    if !subject.tool.pass_env.is_empty() {
        return;
    }
    if subject.commands.iter().any(|command| runs_delta(&command.words)) {
        let message = "this tool runs delta, but its environment does not contain the API key";
        let help =
            "write `pass_env: [DELTA_API_KEY]`, or the variable that has the other agent's key";
        linter.warn("no-key", subject.diagnostic_at("delta", message, help));
    }
}

/// Reports a tool that starts a session at a terminal, which ends with the call.
fn check_session_start(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    if subject.tool.background == Background::Keep {
        return;
    }
    if let Some(pty) = subject.commands.iter().find_map(|command| pty_start(&command.words)) {
        let message = "the session that this tool starts ends with the call";
        let help = "write `background: keep`";
        linter.warn("lost-session", subject.diagnostic_at(pty, message, help));
    }
}

/// The command for sessions at a terminal, if the words contain it with `start`, or with a subcommand that is only known
/// in a call.
fn pty_start(words: &[LintWord]) -> Option<&'static str> {
    words.iter().enumerate().find_map(|(index, word)| {
        let (pty, subcommand) = match word.program_name() {
            "delta-sessions-pty" => ("delta-sessions-pty", words.get(index + 1)?),
            "delta-sessions" if words.get(index + 1)?.fixed_text() == Some("pty") => {
                ("delta-sessions pty", words.get(index + 2)?)
            }
            _ => return None,
        };
        matches!(subcommand.fixed_text(), Some("start") | None).then_some(pty)
    })
}

/// Whether `delta run` or `delta continue` is among the words.
fn runs_delta(words: &[LintWord]) -> bool {
    words.windows(2).any(|pair| {
        matches!(pair[0].parts.as_slice(), [WordPart::Text(_)] | [_, WordPart::Text(_)])
            && pair[0].program_name() == "delta"
            && matches!(pair[1].fixed_text(), Some("run" | "continue"))
    })
}

/// Reports a timeout that was probably meant in seconds, or that is very long.
pub(super) fn check_timeout(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let text = node.scalar().unwrap_or_default();
    let bare_number = text.parse::<u64>().ok();
    let Some(millis) = bare_number.or_else(|| parse_time_ms(text)) else { return };
    if bare_number.is_some() && millis < MIN_PLAUSIBLE_TIMEOUT_MS {
        let message =
            format!("`timeout_ms` is in milliseconds, and {millis} is less than a second");
        let help = format!("write `timeout_ms: {}` for {millis} seconds", millis * 1000);
        linter.warn("timeout", doc.diagnostic_at(node, message, help));
    } else if millis > MAX_PLAUSIBLE_TIMEOUT_MS {
        let hours = millis / MAX_PLAUSIBLE_TIMEOUT_MS;
        let message = format!("a program that hangs can block the run for {hours} hours");
        let help = "write the longest time that the program may need";
        linter.report("timeout", LintLevel::Info, doc.diagnostic_at(node, message, help));
    }
}
