//! The rules for what a tool declares about its calls: that they can run at the same time, that they print JSON, which
//! members an object must have.

use super::command_options::git_subcommand_index;
use super::command_view::{CommandView, LintWord};
use super::{LintLevel, Linter, ToolSubject};
use delta_agent::tool::{EndsRun, ToolOutput};
use delta_base::suggest;
use delta_yaml::yaml::{YamlDocument, YamlNode};

/// Subcommands of git that take the lock of the index, so that of two at the same time one fails.
const INDEX_COMMANDS: [&str; 16] = [
    "add",
    "am",
    "cherry-pick",
    "checkout",
    "commit",
    "merge",
    "mv",
    "pull",
    "rebase",
    "reset",
    "restore",
    "revert",
    "rm",
    "stash",
    "switch",
    "update-index",
];
/// Programs with one lock for the whole machine, and the subcommands that take it.
const PACKAGE_PROGRAMS: [&str; 2] = ["apt", "apt-get"];
const PACKAGE_COMMANDS: [&str; 6] =
    ["install", "remove", "purge", "update", "upgrade", "autoremove"];
/// Programs that print text, and the option with which each prints JSON.
const TEXT_PROGRAMS: [(&str, Option<&str>); 9] = [
    ("ls", None),
    ("find", Some("-printf")),
    ("grep", None),
    ("rg", Some("--json")),
    ("diff", None),
    ("ps", None),
    ("df", Some("--output")),
    ("du", None),
    ("stat", Some("--printf")),
];
/// Options with which jq prints texts without their quotes, which is not JSON.
const RAW_JQ_OPTIONS: [&str; 4] = ["-r", "--raw-output", "-j", "--join-output"];

pub(super) fn check_declared_calls(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    check_parallel(subject, linter);
    check_json_output(subject, linter);
    for item in subject.parameter_items() {
        check_required_arguments(subject.doc, item, linter);
    }
    if let Some(schema) = subject.item.get("schema") {
        check_required_arguments(subject.doc, schema, linter);
    }
}

/// Reports calls that meet each other, or end the run while others are under way.
fn check_parallel(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    if !subject.tool.parallel {
        return;
    }
    let (message, help) = if let Some(command) = subject.commands.iter().find_map(locking_command) {
        let message =
            format!("of two calls at the same time one fails: `{command}` needs a lock for itself");
        (message, "leave out `parallel`")
    } else if subject.tool.ends_run != EndsRun::Never {
        let message = "a call that ends the run does so while the calls after it are under way";
        (message.to_owned(), "leave out `parallel`, or `ends_run`")
    } else {
        return;
    };
    linter.warn("parallel", subject.diagnostic_at_key("parallel", message, help));
}

/// The program and its subcommand, if two of this command cannot run at the same time.
fn locking_command(command: &CommandView) -> Option<String> {
    let words = &command.words;
    let program = words.first()?.program_name();
    let (index, subcommands) = match program {
        "git" => (git_subcommand_index(words), &INDEX_COMMANDS[..]),
        _ if PACKAGE_PROGRAMS.contains(&program) => {
            let arguments = &words[1..];
            let index = arguments.iter().position(|word| !word.fixed_prefix().starts_with('-'))?;
            (1 + index, &PACKAGE_COMMANDS[..])
        }
        _ => return None,
    };
    let subcommand = words.get(index)?.fixed_text()?;
    subcommands.contains(&subcommand).then(|| format!("{program} {subcommand}"))
}

/// Reports `output: json` of a command that prints text. In a script, only its one pipeline is known to print the output.
fn check_json_output(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    if subject.tool.output != ToolOutput::Json {
        return;
    }
    let Some((last, before)) = subject.commands.split_last() else { return };
    if before.iter().any(|command| !command.is_piped) {
        return;
    }
    if let Some((message, help)) = non_json_output(last) {
        linter.warn("json-output", subject.diagnostic_at_key("output", message, help));
    }
}

/// What a command prints that is not JSON, and what to change.
fn non_json_output(command: &CommandView) -> Option<(String, &'static str)> {
    let words = &command.words;
    let program = words.first()?.program_name();
    if program == "jq" {
        let mut texts = words.iter().filter_map(LintWord::fixed_text);
        let is_raw = texts.any(|text| RAW_JQ_OPTIONS.contains(&text));
        let message = "`jq` prints texts without quotes here, which is not JSON".to_owned();
        return is_raw.then_some((message, "leave out `-r`, or `output`"));
    }
    let (_, json) = TEXT_PROGRAMS.iter().find(|(name, _)| *name == program)?;
    if let Some(option) = json
        && words.iter().any(|word| word.fixed_prefix().starts_with(option))
    {
        return None;
    }
    let help = match json {
        Some("--json") => "add `--json`, or leave out `output`",
        _ => "leave out `output`",
    };
    Some((format!("`{program}` prints text, not JSON"), help))
}

/// Checks the schema of `finish`: where it accepts no object, and only `finish` ends the run, nothing does.
pub(super) fn check_finish_schema(doc: &YamlDocument, linter: &mut Linter<'_>) {
    let Some(finish) = doc.root.get("finish") else { return };
    let Some((key, schema)) = finish.entry("schema") else { return };
    check_required_arguments(doc, schema, linter);
    if finish.get("required").and_then(YamlNode::scalar).is_none() {
        let message = "an answer without a call ends the run with its text, whatever the schema is";
        let help = "add `required: true`, or `required: false` if a text is a result too";
        let diagnostic = doc.diagnostic_at(key, message, help);
        linter.report("optional-finish", LintLevel::Info, diagnostic);
    }
}

/// Reports a required member that an object cannot have, at any depth of a schema.
fn check_required_arguments(doc: &YamlDocument, schema: &YamlNode, linter: &mut Linter<'_>) {
    let properties = schema.get("properties").map(YamlNode::entries).unwrap_or_default();
    let names: Vec<&str> = properties.iter().filter_map(|(name, _)| name.scalar()).collect();
    let is_closed = schema.get("additionalProperties").and_then(YamlNode::scalar) == Some("false");
    let open_names = ["patternProperties", "allOf", "anyOf", "oneOf", "$ref"];
    if is_closed && !open_names.iter().any(|key| schema.get(key).is_some()) {
        for node in schema.get("required").map(YamlNode::items).unwrap_or_default() {
            let Some(name) = node.scalar().filter(|name| !names.contains(name)) else { continue };
            let message =
                format!("no object is valid: `{name}` is required and not in `properties`");
            let help = match suggest::nearest_names(name, names.iter().copied()).first() {
                Some(near) => format!("write `{near}`, or add `{name}` to `properties`"),
                None => format!("add `{name}` to `properties`"),
            };
            linter.warn("impossible-object", doc.diagnostic_at(node, message, help));
        }
    }
    for (_, property) in properties {
        check_required_arguments(doc, property, linter);
    }
    if let Some(items) = schema.get("items") {
        check_required_arguments(doc, items, linter);
    }
}
