//! Tools: `exec:`, `shell:` and `command:` read from YAML, checked, and brought into one form.
//!
//! A [`Tool`] holds values only: `invocation` builds the command line of a call, `definition`
//! describes the tool to the LLM, `expand` prints it as YAML. delta-process runs it.

use delta_base::engine_variables::{EngineVariable, StringPart, is_identifier, parse_plain_string};
use delta_base::json::ExactJson;
use delta_base::suggest;
use delta_process::{Background, ProcessEnd};
use delta_sandbox::{DeclaredProfile, SandboxSetting};
use delta_shell::{
    Placeholder, ShellScript, TemplateError, TemplatePart, parse_argument_template,
    split_exec_template,
};
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::{MappingFields, YamlDocument, YamlNode};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::Arc;

pub mod approval;
mod coercion;
pub mod definition;
pub mod expand;
pub mod invocation;
mod lasting_calls;
mod media_type;
pub mod migrate;
pub mod observation;
mod parameter;
mod tool_mapping;
pub mod value_schema;
mod wrong_values;
pub mod yaml_edit;

pub use approval::{ApprovalPolicy, ToolPreview};
pub use coercion::CoercedArguments;
use lasting_calls::{check_survive, read_is_staged};
use observation::Observation;
pub use parameter::{InjectAs, ParameterType, ToolParameter};
pub use tool_mapping::TOOL_MAPPING;
pub use value_schema::{ValueSchema, schema_parameters};

/// Environment variables that the engine sets for every child; `env:` of a tool must not name them.
pub const RUN_VARIABLES: [&str; 9] = [
    "RUN_DIR",
    "JOURNAL_PATH",
    "ITERATION_COUNT",
    "DELTA_RUN_ID",
    "DELTA_AGENT_HOME",
    "AGENT_HOME",
    "DELTA_CWD",
    "CWD",
    "DELTA_CALL_ID",
];

/// A command that the LLM can call.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The name: `[A-Za-z0-9_-]{1,64}`.
    pub name: String,
    /// The description for the LLM.
    pub description: Option<String>,
    /// The key that defined it.
    pub syntax: ToolSyntax,
    /// The template of `exec:` or `shell:`; the elements of `command:` joined by blanks.
    pub template: String,
    /// The words of the command line, without the appended parameters.
    pub words: Vec<CommandWord>,
    /// The parameters in file order.
    pub parameters: Vec<ToolParameter>,
    /// The timeout in milliseconds.
    pub timeout_ms: u64,
    /// The number of bytes of each stream that the LLM sees.
    pub max_output_bytes: usize,
    /// Additional environment variables; engine variables are not yet replaced.
    pub env: Vec<(String, String)>,
    /// The key variables that it receives nevertheless.
    pub pass_env: Vec<String>,
    /// Whether a call that the engine did not survive may simply run again.
    pub idempotent: bool,
    /// Whether the commands of its calls outlive the engine.
    pub survives: bool,
    /// Whether its calls may run at the same time as other calls of such tools.
    pub parallel: bool,
    /// What becomes of processes that a call leaves running.
    pub background: Background,
    /// What its standard output is.
    pub output: ToolOutput,
    /// Which of its calls end the run.
    pub ends_run: EndsRun,
    /// Which calls need an approval; `None` for the policy in `defaults` of agent.yaml.
    pub approve: Option<ApprovalPolicy>,
    /// Whether arguments of another JSON type are refused even where their meaning is beyond doubt. Loading an agent sets it.
    pub strict_arguments: bool,
    /// The parameters that must be equal in the later calls that a person allows; `None` for all.
    pub remember: Option<Vec<String>>,
    /// The parameters that say what a call does to a file.
    pub preview: Option<ToolPreview>,
    /// Whether what a call changes in the workspace is applied only after a person has agreed.
    pub is_staged: bool,
    /// `sandbox`, as written.
    pub sandbox: Option<SandboxSetting>,
    /// What its processes may do; `None` for everything. Loading an agent sets it.
    pub profile: Option<DeclaredProfile>,
    /// Whether its program `delta` is the one that runs the agent, wherever that is.
    pub runs_delta: bool,
    /// The schema of all arguments, of a tool that takes them as one JSON object.
    pub schema: Option<Arc<ValueSchema>>,
    /// The tool of an MCP server that it calls.
    pub mcp: Option<Arc<McpTool>>,
    /// The file that defines it, as messages name it.
    pub file: String,
    /// The first line of its definition in that file.
    pub line: usize,
}

/// What a tool of an MCP server has besides its command line.
#[derive(Debug)]
pub struct McpTool {
    /// The name of the server in agent.yaml.
    pub server: String,
    /// The hash of what is locked of the server.
    pub server_sha256: String,
    /// The definition of the server in agent.yaml, on one line.
    pub settings: String,
}

/// What the standard output of a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutput {
    /// Text, in the observation.
    Text,
    /// A JSON value, without the blanks between its parts.
    Json,
    /// The bytes of an image, which the observation shows as one.
    Image,
    /// Text of a tool of an MCP server, and the images in the files that the text names.
    TextAndImages,
    /// Data, of which the observation names the file.
    File,
}

impl ToolOutput {
    fn read(fields: MappingFields<'_>) -> Self {
        match fields.text("output") {
            Some("json") => Self::Json,
            Some("image") => Self::Image,
            Some("file") => Self::File,
            _ => Self::Text,
        }
    }

    /// Whether it is text as it is printed.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::TextAndImages | Self::Json)
    }
}

/// Which calls of a tool end the run, with their observation as its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndsRun {
    /// None.
    Never,
    /// Every call that exits by itself.
    Always,
    /// A call that exits with this code.
    ExitCode(i32),
}

impl EndsRun {
    fn read(doc: &YamlDocument, fields: MappingFields<'_>) -> Self {
        let Some(node) = fields.non_null("ends_run") else { return Self::Never };
        if node.scalar().is_some() {
            return match doc.expect_boolean(node, "`ends_run`") {
                Some(true) => Self::Always,
                _ => Self::Never,
            };
        }
        let code = doc.fields(node, &tool_mapping::ENDS_RUN_MAPPING).and_then(|fields| {
            fields.require("exit_code", "0")?;
            i32::try_from(fields.integer("exit_code")?).ok()
        });
        code.map_or(Self::Never, Self::ExitCode)
    }
}

/// The key that defines a tool's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSyntax {
    /// A program and its arguments in one text, without a shell.
    Exec,
    /// A script for `sh`.
    Shell,
    /// A list of words.
    Command,
}

impl ToolSyntax {
    /// The key in YAML.
    pub fn key(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Shell => "shell",
            Self::Command => "command",
        }
    }
}

/// One word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandWord {
    /// Its parts, which are concatenated.
    pub parts: Vec<CommandPart>,
    /// Whether the word is omitted when it is a single parameter without a value.
    pub droppable: bool,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandPart {
    /// Literal text.
    Text(String),
    /// The value of an engine variable.
    Variable(EngineVariable),
    /// The value of the parameter with this index.
    Parameter(usize),
}

impl CommandWord {
    /// A word without placeholders.
    pub(crate) fn literal(text: impl Into<String>) -> Self {
        Self { parts: vec![CommandPart::Text(text.into())], droppable: false }
    }

    /// The index of the parameter, if the word is nothing else.
    pub fn only_parameter(&self) -> Option<usize> {
        match self.parts.as_slice() {
            [CommandPart::Parameter(index)] => Some(*index),
            _ => None,
        }
    }

    fn has_parameter(&self) -> bool {
        self.parts.iter().any(|piece| matches!(piece, CommandPart::Parameter(_)))
    }
}

/// Reads a list of tools; duplicate names are an error.
pub fn read_tool_list(doc: &YamlDocument, node: &YamlNode) -> Vec<Tool> {
    let items = doc.expect_list(node, "`tools`").unwrap_or_default();
    let mut lines: HashMap<&str, usize> = HashMap::new();
    for (item, at) in items.iter().filter_map(|item| Some((item, item.get("name")?))) {
        let Some(name) = at.scalar().filter(|name| is_tool_name(name)) else { continue };
        if let Some(line) = lines.insert(name, item.line) {
            let help = format!("rename one of them; the other one is on line {line}");
            doc.report(at, format!("two tools are named `{name}`"), help);
        }
    }
    items.iter().filter_map(|item| Tool::read(doc, item)).collect()
}

/// Reads the tools of a file with a `tools:` list; every problem is added to `report`.
pub fn read_tool_file(doc: &YamlDocument, report: &mut DiagnosticReport) -> Vec<Tool> {
    let tools = match doc.root.get("tools") {
        Some(node) if !node.is_null() => read_tool_list(doc, node),
        Some(_) => Vec::new(),
        None if doc.root.get("imports").is_some() => Vec::new(),
        None => {
            doc.report(&doc.root, "the file has no `tools:` list", None);
            Vec::new()
        }
    };
    doc.drain_diagnostics(report);
    tools
}

impl Tool {
    /// The result of the run, if a call that ended in this way ends it.
    pub fn run_result(&self, end: &ProcessEnd, observation: &Observation) -> Option<ExactJson> {
        let ends = match (self.ends_run, end) {
            (EndsRun::Always, ProcessEnd::Exited(_)) => true,
            (EndsRun::ExitCode(code), ProcessEnd::Exited(actual)) => code == *actual,
            _ => false,
        };
        if !ends || observation.is_withheld {
            return None;
        }
        match serde_json::from_str(&observation.text) {
            Ok(object @ Json::Object(_)) if self.output == ToolOutput::Json => {
                Some(ExactJson::new(object, &observation.text))
            }
            _ => Some(Json::from(&*observation.described_text()).into()),
        }
    }

    /// Reads one tool; problems are added to the report of `doc`.
    pub fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        doc.expect_mapping_or(node, "a tool", || wrong_values::tool_help(node))?;
        let fields = doc.fields(node, &TOOL_MAPPING)?;
        let name = read_tool_name(doc, fields);
        let description = fields.text("description");
        let syntax = read_tool_syntax(doc, fields);
        let stdin =
            fields.non_null("stdin").and_then(|node| Some((read_parameter_name(doc, node)?, node)));
        let timeout_ms = fields.integer("timeout_ms");
        let max_output_bytes = fields.integer("max_output_bytes");
        let env = fields.non_null("env").map(|node| read_tool_env(doc, node)).unwrap_or_default();
        let pass_env = fields.texts("pass_env");
        let idempotent = fields.boolean("idempotent");
        let parallel = fields.boolean("parallel");
        let background = read_background(fields);
        let output = ToolOutput::read(fields);

        let (syntax, template) = syntax?;
        let mut layout = TemplateLayout::parse(doc, syntax, template)?;
        layout.add_stdin(doc, stdin, syntax);
        let schema = match fields.non_null("schema") {
            Some(node) => Some(ValueSchema::read(doc, node)?),
            None => None,
        };
        let parameters = match &schema {
            Some(schema) => parameter::place_properties(doc, fields, syntax, &layout, &schema.json),
            None => parameter::merge_parameters(doc, fields, syntax, &layout),
        };
        let approve = fields.non_null("approve").and_then(|node| {
            ApprovalPolicy::read(doc, node, &mut |name| match name {
                None if parameters.len() == 1 => Ok(()),
                name => names_parameter(&parameters, name.unwrap_or(approval::COMMAND_PARAMETER)),
            })
        });
        let remember = read_remember(doc, fields, &parameters);
        let preview =
            fields.non_null("preview").and_then(|node| ToolPreview::read(doc, node, &parameters));
        let is_staged = read_is_staged(doc, node, fields, background);
        check_survive(doc, node, fields, background);
        let sandbox = fields.non_null("sandbox").and_then(|node| SandboxSetting::read(doc, node));
        Some(Self {
            name: name?.to_owned(),
            description: description.map(str::to_owned),
            syntax,
            template: layout.template.clone(),
            words: layout.words_for(&parameters),
            parameters,
            timeout_ms: timeout_ms?,
            max_output_bytes: usize::try_from(max_output_bytes?).unwrap_or(usize::MAX),
            env,
            pass_env,
            idempotent,
            survives: fields.boolean("survive"),
            parallel,
            background,
            output,
            ends_run: EndsRun::read(doc, fields),
            approve,
            strict_arguments: false,
            remember,
            preview,
            is_staged,
            sandbox,
            profile: None,
            runs_delta: false,
            schema: schema.map(Arc::new),
            mcp: None,
            file: doc.name.clone(),
            line: node.line,
        })
    }
}

/// Whether a tool has `stage`.
pub fn has_staged_tool(tools: &[Tool]) -> bool {
    tools.iter().any(|tool| tool.is_staged)
}

fn read_background(fields: MappingFields<'_>) -> Background {
    match fields.text("background") {
        Some("run") => Background::Run,
        Some("keep") => Background::Keep,
        _ => Background::End,
    }
}

fn read_tool_name<'a>(doc: &YamlDocument, fields: MappingFields<'a>) -> Option<&'a str> {
    let node = fields.require("name", "list_files")?;
    let name = doc.expect_text(node, "`name`")?;
    if !is_tool_name(name) {
        doc.report(
            node,
            format!("`{name}` is not a tool name"),
            "use 1 to 64 letters, digits, `_` or `-`",
        );
        return None;
    }
    Some(name)
}

/// Whether `name` is a valid tool name.
pub fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// Reads `remember`.
fn read_remember(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    parameters: &[ToolParameter],
) -> Option<Vec<String>> {
    let node = fields.non_null("remember")?;
    let names = fields.texts("remember");
    if names.is_empty() && node.scalar().is_none() && node.entries().is_empty() {
        let help = "leave it out, so that all must be equal";
        doc.report(node, "`remember` names no parameter", help);
    }
    for item in node.items() {
        let name = item.scalar().unwrap_or_default();
        if let Err(help) = names_parameter(parameters, name) {
            doc.report(item, format!("unknown parameter `{name}` in `remember`"), help);
        }
    }
    Some(names)
}

/// Whether one of the parameters has this name; the help of a diagnostic otherwise.
fn names_parameter(parameters: &[ToolParameter], name: &str) -> Result<(), String> {
    let mut names = parameters.iter().map(|parameter| parameter.name.as_str());
    if names.clone().any(|parameter| parameter == name) {
        return Ok(());
    }
    Err(match names.next() {
        None => "this tool has no parameters".to_owned(),
        Some(_) => suggest::did_you_mean(name, parameters.iter().map(|one| one.name.as_str())),
    })
}

fn read_parameter_name(doc: &YamlDocument, node: &YamlNode) -> Option<String> {
    let name = doc.expect_text(node, "a parameter's name")?;
    if EngineVariable::from_name(name).is_some() {
        let help = "choose another name; the engine sets this one";
        doc.report(node, format!("`{name}` is an engine variable, not a parameter"), help);
        return None;
    }
    if !is_identifier(name) {
        let help = "use letters, digits and `_`, and no digit at the start";
        doc.report(node, format!("`{name}` is not a parameter name"), help);
        return None;
    }
    Some(name.to_owned())
}

fn read_tool_syntax<'a>(
    doc: &YamlDocument,
    fields: MappingFields<'a>,
) -> Option<(ToolSyntax, &'a YamlNode)> {
    let commands: Vec<_> = [ToolSyntax::Exec, ToolSyntax::Shell, ToolSyntax::Command]
        .into_iter()
        .filter_map(|syntax| Some((syntax, fields.node.entry(syntax.key())?)))
        .collect();
    match commands.as_slice() {
        [(syntax, (_, node))] => Some((*syntax, node)),
        [] => {
            let help =
                "write `exec: \"PROGRAM ARG ${param}\"`, or `shell:` for pipes and redirections";
            let at = fields.node.entries().first().map_or(fields.node, |(key, _)| key);
            doc.report(at, "a tool needs one of `exec:`, `shell:` and `command:`", help);
            None
        }
        [_, (_, (key, _)), ..] => {
            doc.report(key, "exec:, shell:, and command: are mutually exclusive", "keep one");
            None
        }
    }
}

fn read_tool_env(doc: &YamlDocument, node: &YamlNode) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (key, value) in doc.expect_mapping(node, "`env`").unwrap_or_default() {
        let name = key.scalar().unwrap_or_default();
        if name.is_empty() || name.contains(['=', '\0']) {
            doc.report(key, "an environment variable needs a name without `=`", None);
        } else if RUN_VARIABLES.contains(&name) {
            doc.report(key, format!("`{name}` is set by the engine"), "choose another name");
        } else if let Some(value) = doc.expect_text(value, &format!("`{name}`")) {
            env.push((name.to_owned(), value.to_owned()));
        }
    }
    env
}

/// A parsed template: words that refer to parameters by name.
struct TemplateLayout {
    template: String,
    words: Vec<TemplateWord>,
    /// In the order of first use.
    names: Vec<String>,
    stdin: Option<String>,
}

struct TemplateWord {
    parts: Vec<TemplatePart>,
    droppable: bool,
}

impl TemplateWord {
    /// A word that is omitted if it is a single placeholder without a value.
    fn droppable(parts: Vec<TemplatePart>) -> Self {
        Self { droppable: matches!(parts.as_slice(), [TemplatePart::Placeholder(_)]), parts }
    }

    fn fixed(parts: Vec<TemplatePart>) -> Self {
        Self { parts, droppable: false }
    }
}

impl TemplateLayout {
    fn parse(doc: &YamlDocument, syntax: ToolSyntax, node: &YamlNode) -> Option<Self> {
        match syntax {
            ToolSyntax::Command => Self::parse_command_list(doc, node),
            ToolSyntax::Exec => {
                let template = doc.expect_text(node, "`exec`")?;
                let words = report_template_error(doc, node, split_exec_template(template))?;
                Some(Self::new(template, words.into_iter().map(TemplateWord::droppable).collect()))
            }
            ToolSyntax::Shell => {
                let template = doc.expect_text(node, "`shell`")?;
                if template.trim().is_empty() {
                    doc.report(node, "the script of shell: is empty", None);
                    return None;
                }
                let script =
                    report_template_error(doc, node, ShellScript::from_template(template))?;
                let fixed = ["sh", "-c", &script.text, "--"]
                    .map(|text| TemplatePart::Text(text.to_owned()));
                let names = script.parameters.into_iter();
                let values = names.map(|name| {
                    TemplatePart::Placeholder(Placeholder::Parameter { name, raw: false })
                });
                // The positional parameters keep their numbers: an absent value becomes an empty
                // one.
                let words = fixed.into_iter().chain(values);
                let words = words.map(|part| TemplateWord::fixed(vec![part])).collect();
                Some(Self::new(template, words))
            }
        }
    }

    fn parse_command_list(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let items = doc.expect_list(node, "`command`")?;
        let words: Vec<_> =
            items.iter().map(|item| read_command_element(doc, item)).collect::<Option<_>>()?;
        let names_no_program = words.first().is_none_or(|word| match word.parts.as_slice() {
            [] => true,
            [TemplatePart::Text(text)] => text.is_empty(),
            _ => false,
        });
        if names_no_program {
            doc.report(node, "`command` names no program", "write `[PROGRAM, ARG, ...]`");
            return None;
        }
        if words[0]
            .parts
            .iter()
            .any(|part| matches!(part, TemplatePart::Placeholder(Placeholder::Parameter { .. })))
        {
            let help = "name the program; which one runs is the author's choice, not the LLM's";
            doc.report(&items[0], "the program may not come from a parameter", help);
            return None;
        }
        let texts: Vec<_> = items
            .iter()
            .filter_map(|item| item.scalar().or_else(|| item.get("template")?.scalar()))
            .collect();
        Some(Self::new(&texts.join(" "), words))
    }

    fn new(template: &str, words: Vec<TemplateWord>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for part in words.iter().flat_map(|word| &word.parts) {
            if let TemplatePart::Placeholder(Placeholder::Parameter { name, .. }) = part
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        Self { template: template.to_owned(), words, names, stdin: None }
    }

    fn add_stdin(
        &mut self,
        doc: &YamlDocument,
        stdin: Option<(String, &YamlNode)>,
        syntax: ToolSyntax,
    ) {
        let Some((name, node)) = stdin else { return };
        if self.names.contains(&name) {
            let message = format!("`{name}` is used for stdin and also in `{}`", syntax.key());
            doc.report(node, message, "use it in only one of them");
        }
        self.stdin = Some(name);
    }

    /// The words with parameters as indices.
    fn words_for(&self, parameters: &[ToolParameter]) -> Vec<CommandWord> {
        let indices: HashMap<&str, usize> = parameters
            .iter()
            .enumerate()
            .map(|(index, parameter)| (parameter.name.as_str(), index))
            .collect();
        let words = self.words.iter().map(|TemplateWord { parts, droppable }| {
            if parts.is_empty() {
                return CommandWord::literal("");
            }
            let parts = parts.iter().map(|part| match part {
                TemplatePart::Text(text) => CommandPart::Text(text.clone()),
                TemplatePart::Placeholder(Placeholder::Variable { variable, .. }) => {
                    CommandPart::Variable(*variable)
                }
                TemplatePart::Placeholder(Placeholder::Parameter { name, .. }) => {
                    CommandPart::Parameter(indices[name.as_str()])
                }
            });
            CommandWord { parts: parts.collect(), droppable: *droppable }
        });
        words.collect()
    }
}

fn report_template_error<T>(
    doc: &YamlDocument,
    node: &YamlNode,
    result: Result<T, TemplateError>,
) -> Option<T> {
    result
        .map_err(|error| {
            let help = (!error.help.is_empty()).then_some(error.help);
            doc.report_in(node, &error.fragment, error.message, help);
        })
        .ok()
}

/// Reads an element of `command:`, a plain string or `{template: "..."}`.
fn read_command_element(doc: &YamlDocument, item: &YamlNode) -> Option<TemplateWord> {
    if let Some(text) = item.scalar() {
        let parts = parse_plain_string(text).into_iter().map(|piece| match piece {
            StringPart::Text(text) => TemplatePart::Text(text),
            StringPart::Variable(variable) => {
                TemplatePart::Placeholder(Placeholder::Variable { variable, raw: false })
            }
        });
        return Some(TemplateWord::fixed(parts.collect()));
    }
    if item.is_null() || !item.items().is_empty() {
        doc.report(
            item,
            format!("an element of `command` must be a string, not {}", item.kind()),
            None,
        );
        return None;
    }
    let fields = doc.fields(item, &tool_mapping::COMMAND_ELEMENT_MAPPING)?;
    let node = fields.require("template", "\"--file=${path}\"")?;
    let template = doc.expect_text(node, "`template`")?;
    match parse_argument_template(template) {
        Err(form) => {
            let help =
                format!("write `\\{form}` for the literal text; a placeholder is `${{name}}`");
            doc.report_in(node, &form, format!("`{form}` is not a placeholder"), help);
            None
        }
        Ok(parts) if parts.iter().any(|part| matches!(part, TemplatePart::Placeholder(placeholder) if placeholder.is_raw())) => {
            doc.report(
                node,
                ":raw modifier is only allowed in shell: mode",
                "drop `:raw`",
            );
            None
        }
        Ok(parts) => Some(TemplateWord::droppable(parts)),
    }
}

/// A JSON value as the text a process receives: strings verbatim, everything else as JSON.
pub fn value_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}
