//! From the arguments of a call to a command line and its standard input.
//!
//! Arguments are checked before any process exists; errors become an observation. Values are
//! inserted into words and never parsed again.

use super::coercion::CoercedArguments;
use super::{CommandPart, CommandWord, InjectAs, ParameterType, Tool, ToolParameter, ValueSchema};
use delta_base::engine_variables::EngineVars;
use delta_base::json::{ExactJson, without_repeated_names};
use delta_base::suggest;
use delta_base::terminal_text;
use delta_words::CallArguments;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The command line of a checked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolInvocation {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The standard input, byte for byte.
    pub stdin: String,
}

/// The arguments of a call that fit its tool, in each form that a call needs.
///
/// Only [`Tool::check_arguments`] makes one. What builds a command line, matches rules of `approve`, asks a hook or a
/// person, or records the call takes this proof in place of the text, so that no text is parsed or checked twice.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedArguments {
    /// One for each parameter of the tool; `None` where a value is absent.
    values: Vec<Option<ExactJson>>,
    json: Json,
    object_text: String,
    /// The names of the arguments that were taken as another JSON type than they came in.
    coerced: Vec<String>,
}

impl CheckedArguments {
    /// The value of a parameter as the command gets it; `None` if it is absent. `parameters` are the ones of the tool.
    pub fn text(&self, parameters: &[ToolParameter], name: &str) -> Option<String> {
        let mut values = parameters.iter().zip(&self.values);
        let (_, value) = values.find(|(parameter, _)| parameter.name == name)?;
        value.as_ref().map(ExactJson::text)
    }

    /// The names of the arguments that came as text, and were taken as what the text is.
    pub fn coerced(&self) -> &[String] {
        &self.coerced
    }

    /// The arguments as events contain them, which is what [`CallArguments::to_value`] returns, as they were taken.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// The arguments as a JSON object, which is what [`canonical_arguments`] returns.
    pub fn object_text(&self) -> &str {
        &self.object_text
    }
}

impl Tool {
    /// Checks the arguments of a call.
    ///
    /// # Errors
    /// The observation that names every problem for the LLM.
    pub fn check_arguments(&self, arguments: &CallArguments) -> Result<CheckedArguments, String> {
        let problem = match self.check_exact(arguments) {
            Ok(checked) => return Ok(checked),
            Err(problem) => problem,
        };
        let coerced = if self.strict_arguments { None } else { self.coerce(arguments) };
        coerced
            .and_then(|CoercedArguments { arguments, names }| {
                let checked = self.check_exact(&arguments).ok()?;
                Some(CheckedArguments { coerced: names, ..checked })
            })
            .ok_or(problem)
    }

    /// The observation for refused arguments without the ones that would be taken as what their text says; `None` if there are
    /// none.
    pub fn describe_wrong_arguments(&self, arguments: &CallArguments) -> Option<String> {
        if self.strict_arguments {
            return None;
        }
        self.check_exact(&self.coerce(arguments)?.arguments).err()
    }

    /// Checks the arguments as they came.
    fn check_exact(&self, arguments: &CallArguments) -> Result<CheckedArguments, String> {
        let object = ArgumentObject::parse(arguments)
            .map_err(|error| format!("Invalid arguments for tool `{}`: {error}.", self.name))?;
        let json = arguments.to_value();
        let values = match &self.schema {
            Some(schema) => self.check_object(&object, &json, schema)?,
            None => self.check_parameters(&object, &json)?,
        };
        Ok(CheckedArguments { values, json, object_text: object.to_text(), coerced: Vec::new() })
    }

    /// Checks arguments against the parameters of the tool.
    fn check_parameters(
        &self,
        object: &ArgumentObject<'_>,
        json: &Json,
    ) -> Result<Vec<Option<ExactJson>>, String> {
        let mut errors = Vec::new();
        let names = self.parameters.iter().map(|parameter| parameter.name.as_str());
        for (name, _) in &object.entries {
            if !names.clone().any(|parameter| parameter == name) {
                let hint = if self.parameters.is_empty() {
                    "this tool takes none".to_owned()
                } else {
                    suggest::did_you_mean(name, names.clone())
                };
                let name = terminal_text::truncate_to_line(
                    &terminal_text::strip_terminal_controls(name),
                    60,
                );
                errors.push(format!("unknown parameter `{name}`; {hint}"));
            }
        }
        let entries: HashMap<&str, &RawValue> =
            object.entries.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let mut values = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            let name = parameter.name.as_str();
            let argument = entries.get(name).map(|raw| WrittenValue { raw, json: json.get(name) });
            match parameter.checked_value(argument) {
                Ok(value) => values.push(value),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(values) } else { Err(self.describe_argument_errors(&errors)) }
    }

    /// Checks the arguments of a tool that takes them as one object.
    fn check_object(
        &self,
        object: &ArgumentObject<'_>,
        json: &Json,
        schema: &ValueSchema,
    ) -> Result<Vec<Option<ExactJson>>, String> {
        // Blank text is `{}`, and blanks that JSON does not know may be around an object. Otherwise this only makes the error.
        let parsed = match json {
            Json::Object(_) => Cow::Borrowed(json),
            _ => serde_json::from_str(&object.to_text())
                .map(Cow::Owned)
                .map_err(|error| format!("Invalid arguments for tool `{}`: {error}.", self.name))?,
        };
        let violations = schema.validator.find_violations(&parsed);
        if !violations.is_empty() {
            let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return Err(self.describe_argument_errors(&violations));
        }
        let mut values = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            let entry = object.entries.iter().find(|(name, _)| *name == parameter.name);
            let raw = entry.map(|(_, raw)| *raw).filter(|raw| raw.get() != "null");
            let Some((value, raw)) = parsed.get(&parameter.name).zip(raw) else {
                values.push(parameter.default.clone().map(ExactJson::from));
                continue;
            };
            if parameter.in_template && value_contains_nul(value) {
                return Err(self.describe_argument_errors(&[describe_nul(parameter)]));
            }
            values.push(Some(parameter.written_value(value.clone(), raw)));
        }
        Ok(values)
    }

    fn describe_argument_errors(&self, errors: &[String]) -> String {
        let errors = errors.join("\n- ");
        let observation =
            format!("Invalid arguments for tool `{}`; it was not run:\n- {errors}", self.name);
        add_parameter_line(observation, &self.parameters)
    }

    /// Builds the command line and the standard input from checked arguments.
    pub fn invocation(&self, arguments: &CheckedArguments, vars: &EngineVars) -> ToolInvocation {
        self.fill_command(&arguments.values, &arguments.object_text, vars)
    }

    /// Builds the command line and the standard input; `object_text` has all arguments, for a tool that takes them as one
    /// object.
    pub(super) fn fill_command(
        &self,
        values: &[Option<ExactJson>],
        object_text: &str,
        vars: &EngineVars,
    ) -> ToolInvocation {
        let mut argv: Vec<String> =
            self.words.iter().filter_map(|word| fill_word(word, values, vars)).collect();
        let mut appended: Vec<usize> = (0..self.parameters.len())
            .filter(|index| !self.parameters[*index].in_template)
            .collect();
        appended.sort_by_key(|index| self.parameters[*index].position.unwrap_or(u64::MAX));
        // The template names the parameter of `stdin:`; other properties of a schema only go into the object.
        let on_stdin = self.parameters.iter().position(|parameter| {
            parameter.inject_as == InjectAs::Stdin
                && (parameter.in_template || self.schema.is_none())
        });
        let stdin = match on_stdin {
            Some(index) => values[index].as_ref().map(ExactJson::text).unwrap_or_default(),
            None if self.schema.is_some() => object_text.to_owned(),
            None => String::new(),
        };
        for index in appended {
            let Some(value) = &values[index] else { continue };
            let option = match &self.parameters[index].inject_as {
                InjectAs::Stdin => continue,
                InjectAs::Argument => None,
                InjectAs::Option(name) => Some(name),
            };
            for word in value.words() {
                argv.extend(option.cloned());
                argv.push(word);
            }
        }
        ToolInvocation { argv, stdin }
    }
}

/// The arguments of a call as a JSON object without duplicate names, each value otherwise as the LLM wrote it.
///
/// # Errors
/// The arguments are not a JSON object.
pub fn canonical_arguments(arguments: &CallArguments) -> Result<String, String> {
    ArgumentObject::parse(arguments).map(|object| object.to_text())
}

fn fill_word(
    word: &CommandWord,
    values: &[Option<ExactJson>],
    vars: &EngineVars,
) -> Option<String> {
    if word.droppable && word.only_parameter().is_some_and(|index| values[index].is_none()) {
        return None;
    }
    let mut out = String::new();
    for part in &word.parts {
        match part {
            CommandPart::Text(text) => out.push_str(text),
            CommandPart::Variable(variable) => out.push_str(&vars.get(*variable).to_string_lossy()),
            CommandPart::Parameter(index) => {
                out.push_str(&values[*index].as_ref().map(ExactJson::text).unwrap_or_default())
            }
        }
    }
    Some(out)
}

impl ToolParameter {
    fn checked_value(
        &self,
        argument: Option<WrittenValue<'_>>,
    ) -> Result<Option<ExactJson>, String> {
        let name = &self.name;
        let Some(written) = argument.filter(|argument| argument.raw.get() != "null") else {
            return match (argument, self.required) {
                (Some(_), true) => Err(format!("parameter `{name}` must not be null")),
                (None, true) => Err(format!("missing required parameter `{name}`")),
                (_, false) => Ok(self.default.clone().map(ExactJson::from)),
            };
        };
        let value = self.typed_value(written)?;
        if !self.allowed_values.is_empty()
            && !self.allowed_values.iter().any(|allowed| json_equal(allowed, &value))
        {
            let values: Vec<_> = self.allowed_values.iter().map(Json::to_string).collect();
            return Err(format!(
                "parameter `{name}` must be one of {}, not {}",
                values.join(", "),
                *value
            ));
        }
        if value_contains_nul(&value) {
            return Err(describe_nul(self));
        }
        Ok(Some(value))
    }

    /// The value that the LLM wrote as `raw`; an integer without the `.0` that JSON allows.
    fn written_value(&self, value: Json, raw: &RawValue) -> ExactJson {
        let is_exact = value.is_u64() || value.is_i64();
        match value.as_f64().filter(|number| !is_exact && number.abs() < 9e15) {
            Some(number) if self.kind == ParameterType::Integer => Json::from(number as i64).into(),
            _ => ExactJson::new(value, raw.get()),
        }
    }

    fn typed_value(&self, written: WrittenValue<'_>) -> Result<ExactJson, String> {
        let raw = written.raw;
        let value = match written.json {
            Some(value) => value.clone(),
            // Its place would be the one in this value.
            None => serde_json::from_str(raw.get()).map_err(|error| {
                let error = error.to_string();
                let reason = error.split(" at line ").next().unwrap_or_default();
                format!("parameter `{}`: {reason}; the largest is about 1.8e308", self.name)
            })?,
        };
        if self.accepts(&value) {
            return Ok(self.written_value(value, raw));
        }
        // The text of a number is kept as the LLM wrote it: parsing would round `1.10` or a long
        // id.
        if self.kind == ParameterType::String && (value.is_number() || value.is_boolean()) {
            return Ok(Json::from(raw.get()).into());
        }
        if self.kind == ParameterType::Array
            && let Some(list) = to_string_list(raw).filter(|list| self.accepts(list))
        {
            return Ok(list.into());
        }
        if let Some(schema) = &self.schema {
            let violations = schema.validator.find_violations(&value);
            let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
            return Err(format!("parameter `{}`: {}", self.name, violations.join("; ")));
        }
        let expected = match self.kind {
            ParameterType::Array => "an array of strings".to_owned(),
            ParameterType::Integer => "an integer".to_owned(),
            kind => format!("a {}", kind.name()),
        };
        let actual = match (self.kind, json_kind_name(&value)) {
            (ParameterType::Array, "an array") => "one with other values",
            (_, actual) => actual,
        };
        Err(format!("parameter `{}` must be {expected}, not {actual}", self.name))
    }
}

/// A list of strings, numbers and booleans as a list of strings, each number as the LLM wrote it.
fn to_string_list(raw: &RawValue) -> Option<Json> {
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    let items = items.iter().map(|item| match serde_json::from_str(item.get()).ok()? {
        Json::String(text) => Some(Json::from(text)),
        Json::Number(_) | Json::Bool(_) => Some(Json::from(item.get())),
        _ => None,
    });
    items.collect()
}

/// Whether two JSON values are equal; `1` and `1.0` are.
fn json_equal(a: &Json, b: &Json) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a == b)
}

/// Whether a word of the value would contain NUL; inside of JSON text it is an escape.
fn value_contains_nul(value: &Json) -> bool {
    let contains_nul = |value: &Json| value.as_str().is_some_and(|text| text.contains('\0'));
    match value {
        Json::Array(items) => items.iter().any(contains_nul),
        value => contains_nul(value),
    }
}

fn describe_nul(parameter: &ToolParameter) -> String {
    let name = &parameter.name;
    let limit = match parameter.inject_as {
        InjectAs::Stdin => "which delta does not pass on standard input",
        InjectAs::Argument | InjectAs::Option(_) => "which no command line can have",
    };
    format!("parameter `{name}` contains a NUL character, {limit}")
}

fn json_kind_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

/// What begins the line of the parameters in an observation.
const PARAMETERS_MARK: &str = "\nParameters: ";

/// An observation about wrong arguments with a line of the parameters at its end, which it may have already.
pub fn add_parameter_line(observation: String, parameters: &[ToolParameter]) -> String {
    if observation.contains(PARAMETERS_MARK) {
        return observation;
    }
    let parameters = parameters.iter().map(|ToolParameter { name, kind, required, .. }| {
        let required = if *required { "required" } else { "optional" };
        format!("{name} ({}, {required})", kind.name())
    });
    let parameters: Vec<_> = parameters.collect();
    let parameters = if parameters.is_empty() { "none".to_owned() } else { parameters.join(", ") };
    format!("{observation}{PARAMETERS_MARK}{parameters}.")
}

/// The value of a parameter as the LLM wrote it.
#[derive(Clone, Copy)]
struct WrittenValue<'a> {
    raw: &'a RawValue,
    /// The value in the tree of the arguments; `None` if the whole text could not be parsed into a tree.
    json: Option<&'a Json>,
}

/// The arguments of a call as an object: the exact text of each value, without a tree.
pub(super) struct ArgumentObject<'a> {
    pub(super) entries: Vec<(String, &'a RawValue)>,
}

impl<'a> ArgumentObject<'a> {
    /// Splits the text into its entries; blank text and `null`, which some servers send for a tool without parameters, are `{}`.
    pub(super) fn parse(arguments: &'a CallArguments) -> Result<Self, String> {
        let arguments = arguments.as_json().trim();
        if matches!(arguments, "" | "null") {
            return Ok(Self { entries: Vec::new() });
        }
        if !arguments.starts_with('{') {
            return Err(match serde_json::from_str::<Json>(arguments) {
                Ok(value) => format!("they must be a JSON object, not {}", json_kind_name(&value)),
                Err(error) => format!("they are not JSON ({error})"),
            });
        }
        serde_json::from_str::<ArgumentEntries<'_>>(arguments)
            .map(|entries| Self { entries: entries.0 })
            .map_err(|error| format!("they are not JSON ({error})"))
    }

    /// The object without duplicate names at any depth and without blanks between its entries.
    fn to_text(&self) -> String {
        let entries = self.entries.iter().map(|(name, value)| {
            // The check has read the last value of a name, and a program might take the first.
            format!("{}:{}", Json::from(&**name), without_repeated_names(value.get()))
        });
        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
    }
}

/// An object as a list of entries; of duplicate names the last one counts, as with other JSON
/// readers.
struct ArgumentEntries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for ArgumentEntries<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = ArgumentEntries<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<ArgumentEntries<'de>, A::Error> {
                let mut all: Vec<(String, &'de RawValue)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                let mut later_names = HashSet::new();
                let is_last: Vec<bool> =
                    all.iter().rev().map(|(name, _)| later_names.insert(&**name)).collect();
                let is_last = is_last.into_iter().rev();
                let entries =
                    all.into_iter().zip(is_last).filter_map(|(entry, last)| last.then_some(entry));
                Ok(ArgumentEntries(entries.collect()))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests of the check itself")]
mod tests {
    use super::*;
    use delta_yaml::diagnostic::DiagnosticReport;
    use delta_yaml::yaml::YamlDocument;
    use proptest::prelude::*;

    const TYPED: &str = "name: t, exec: 'p ${s} ${i} ${n} ${b} ${a} ${e}', parameters: [{name: i, type: integer, \
        required: false}, {name: n, type: number, required: false}, {name: b, type: boolean, required: false}, \
        {name: a, type: array, required: false}, {name: e, enum: [x, '7'], required: false}]";

    fn tool(fields: &str) -> Tool {
        let doc = YamlDocument::parse("agent.yaml", format!("tools: [{{{fields}}}]")).unwrap();
        let mut report = DiagnosticReport::default();
        let mut tools = crate::tool::read_tool_file(&doc, &mut report);
        assert!(report.is_empty(), "{report}");
        tools.remove(0)
    }

    fn run(tool: &Tool, arguments: &str) -> Result<ToolInvocation, String> {
        let vars =
            EngineVars { agent_home: "/home".into(), cwd: "/w".into(), run_dir: "/r".into() };
        tool.check_arguments(&CallArguments::new(arguments))
            .map(|checked| tool.invocation(&checked, &vars))
    }

    fn check(tool: &Tool, arguments: &str, expected: &[&str]) {
        assert_eq!(
            run(tool, arguments).map(|run| run.argv),
            Ok(expected.iter().map(|s| s.to_string()).collect()),
            "{arguments}"
        );
    }

    /// Compares the lines between the first and the last of the observation.
    fn check_wrong(tool: &Tool, arguments: &str, expected: &[&str]) {
        let observation = run(tool, arguments).unwrap_err();
        let lines: Vec<&str> = observation.lines().collect();
        assert_eq!(lines[0], "Invalid arguments for tool `t`; it was not run:", "{arguments}");
        assert!(lines[lines.len() - 1].starts_with("Parameters: "), "{observation}");
        assert_eq!(lines[1..lines.len() - 1], *expected, "{arguments}");
    }

    #[test]
    fn c_3_1_what_is_not_an_object_is_refused() {
        let tool = tool(TYPED);
        let check = |arguments: &str, start: &str| {
            let observation = run(&tool, arguments).unwrap_err();
            assert!(observation.starts_with(start), "{observation}");
        };
        let not_json = "Invalid arguments for tool `t`: they are not JSON (";
        for arguments in
            ["{", "{\"s\": \"a\"", "s=a", "{s: 1}", "{\"s\": \"a\"} x", "{\"s\": 01}", "\u{feff}{}"]
        {
            check(arguments, not_json);
        }
        check("[1]", "Invalid arguments for tool `t`: they must be a JSON object, not an array.");
        check("\"s\"", "Invalid arguments for tool `t`: they must be a JSON object, not a string.");
        check("5", "Invalid arguments for tool `t`: they must be a JSON object, not a number.");
        check("true", "Invalid arguments for tool `t`: they must be a JSON object, not a boolean.");
    }

    #[test]
    fn c_3_1_every_mistake_is_named() {
        let tool = tool(TYPED);
        check_wrong(&tool, "{}", &["- missing required parameter `s`"]);
        check_wrong(&tool, "", &["- missing required parameter `s`"]);
        check_wrong(&tool, " \n", &["- missing required parameter `s`"]);
        check_wrong(&tool, r#"{"s": null}"#, &["- parameter `s` must not be null"]);
        check_wrong(
            &tool,
            r#"{"s": {}, "i": "1", "n": "1"}"#,
            &[
                "- parameter `i` must be an integer, not a string",
                "- parameter `n` must be a number, not a string",
                "- parameter `s` must be a string, not an object",
            ],
        );
        check_wrong(
            &tool,
            r#"{"s": [], "i": 1.5, "b": 1, "a": "x"}"#,
            &[
                "- parameter `i` must be an integer, not a number",
                "- parameter `b` must be a boolean, not a number",
                "- parameter `a` must be an array of strings, not a string",
                "- parameter `s` must be a string, not an array",
            ],
        );
        check_wrong(
            &tool,
            r#"{"s": "", "a": ["x", [1]]}"#,
            &["- parameter `a` must be an array of strings, not one with other values"],
        );
        check_wrong(
            &tool,
            r#"{"s": "", "e": "y"}"#,
            &[r#"- parameter `e` must be one of "x", "7", not "y""#],
        );
        let nul = |name: &str| {
            format!("- parameter `{name}` contains a NUL character, which no command line can have")
        };
        check_wrong(&tool, r#"{"s": "a\u0000b"}"#, &[&nul("s")]);
        check_wrong(&tool, r#"{"s": "", "a": ["\u0000"]}"#, &[&nul("a")]);
        check_wrong(
            &tool,
            r#"{"s": "", "ee": 1}"#,
            &["- unknown parameter `ee`; did you mean `e`?"],
        );
        let observation = run(&tool, "{}").unwrap_err();
        assert!(observation.ends_with(
            "\nParameters: i (integer, optional), n (number, optional), b (boolean, optional), a (array, optional), \
             e (string, optional), s (string, required)."
        ), "{observation}");
    }

    #[test]
    fn c_3_1_an_unknown_name_cannot_steer_a_terminal() {
        let found = run(&tool("name: t, exec: p"), r#"{"\u001b[2Jx\ny": 1}"#).unwrap_err();
        let line = "unknown parameter `x…`; this tool takes none";
        assert_eq!(
            found,
            format!("Invalid arguments for tool `t`; it was not run:\n- {line}\nParameters: none.")
        );
    }

    #[test]
    fn c_3_1_numbers_and_booleans_for_a_string_are_their_json_text() {
        let tool = tool(TYPED);
        for text in ["1.10", "12345678901234567890123", "-0", "1E5", "true", "false"] {
            check(&tool, &format!("{{\"s\": {text}}}"), &["p", text]);
        }
        check(&tool, r#"{"s": "", "e": 7}"#, &["p", "", "7"]);
    }

    #[test]
    fn c_3_1_numbers_are_taken_as_json_has_them() {
        let tool = tool(TYPED);
        check(&tool, r#"{"s": "", "i": 5.0, "n": 5}"#, &["p", "", "5", "5"]);
        check(&tool, r#"{"s": "", "i": 1e3, "n": -1.5}"#, &["p", "", "1000", "-1.5"]);
        check(&tool, r#"{"s": "", "i": 18446744073709551615}"#, &["p", "", "18446744073709551615"]);
        let listed = self::tool(
            "name: t, exec: 'p ${n}', parameters: [{name: n, type: number, enum: [1, 2.5]}]",
        );
        check(&listed, r#"{"n": 1.0}"#, &["p", "1.0"]);
    }

    #[test]
    fn c_28_1_numbers_keep_every_digit() {
        let digits = "12345678901234567890123";
        let typed = tool(TYPED);
        for number in [digits, "-0.12345678901234567891", "1.50", "1e30"] {
            check(&typed, &format!("{{\"s\": \"\", \"n\": {number}}}"), &["p", "", number]);
        }
        check(&typed, &format!("{{\"s\": \"\", \"i\": {digits}}}"), &["p", "", digits]);
        check(&typed, r#"{"s": "", "a": [1.50, "b"]}"#, &["p", "", r#"["1.50","b"]"#]);
        let nested = tool(
            "name: t, exec: 'p ${o} ${l}', parameters: [{name: o, type: object}, {name: l, type: array, items: {type: number}}]",
        );
        let written = format!("{{ \"id\": {digits}, \"s\": \"a  b\" }}");
        let kept = format!("{{\"id\":{digits},\"s\":\"a  b\"}}");
        let arguments = format!("{{\"o\": {written}, \"l\": [{digits}, 2]}}");
        check(&nested, &arguments, &["p", &kept, &format!("[{digits},2]")]);
        let appended = tool(
            "name: t, command: [p], parameters: [{name: l, type: array, items: {type: number}}]",
        );
        check(&appended, r#"{"l": [1.50, 2]}"#, &["p", "1.50", "2"]);
    }

    #[test]
    fn checked_arguments_have_every_form_of_the_text() {
        for fields in [
            "exec: 'p ${n}', parameters: [{name: n, type: number}]",
            "exec: p, schema: {type: object, properties: {n: {type: number}}}",
        ] {
            let tool = tool(&format!("name: t, {fields}"));
            let arguments = CallArguments::new(" {\"n\": 1, \"n\": 1.50}\n");
            let checked = tool.check_arguments(&arguments).unwrap();
            assert_eq!(checked.json(), &arguments.to_value());
            assert_eq!(checked.object_text(), "{\"n\":1.50}");
            assert_eq!(checked.object_text(), canonical_arguments(&arguments).unwrap());
        }
    }

    #[test]
    fn arguments_that_are_no_tree_are_checked_value_by_value() {
        let plain = tool("name: t, exec: 'p ${s}', parameters: [{name: s}]");
        // Blanks around the object that JSON does not know.
        let blank = CallArguments::new("\u{a0}{\"s\": \"a\"}");
        let checked = plain.check_arguments(&blank).unwrap();
        assert_eq!(checked.json(), &Json::from(blank.as_str()));
        check(&plain, blank.as_str(), &["p", "a"]);
        let numbers = tool("name: t, exec: 'p ${n}', parameters: [{name: n, type: number}]");
        check_wrong(
            &numbers,
            r#"{"n": 1e999}"#,
            &["- parameter `n`: number out of range; the largest is about 1.8e308"],
        );
        let object =
            tool("name: t, exec: p, schema: {type: object, properties: {s: {type: string}}}");
        assert_eq!(run(&object, blank.as_str()).unwrap().stdin, r#"{"s":"a"}"#);
        for none in ["", " null\n"] {
            assert_eq!(run(&object, none).unwrap().stdin, "{}");
        }
        assert_eq!(
            run(&object, r#"{"s":  1e999}"#).unwrap_err(),
            "Invalid arguments for tool `t`: number out of range at line 1 column 10."
        );
    }

    #[test]
    fn c_28_1_a_rule_of_approve_sees_what_the_command_gets() {
        let tool = tool(
            "name: t, exec: 'p ${n}', parameters: [{name: n, type: number}], approve: [{match: {n: '^12345678901234567890123$'}, do: allow}, {do: deny}]",
        );
        let verdict = |number: &str| {
            let arguments = CallArguments::new(format!("{{\"n\": {number}}}"));
            let checked = tool.check_arguments(&arguments).unwrap();
            tool.approve.as_ref().unwrap().verdict(&tool.parameters, &checked).rule
        };
        assert_eq!(verdict("12345678901234567890123"), Some(1));
        assert_eq!(verdict("12345678901234567890124"), Some(2));
    }

    #[test]
    fn c_3_1_null_for_an_optional_parameter_is_absence() {
        check(&tool(TYPED), r#"{"s": "", "i": null, "a": null, "e": null}"#, &["p", ""]);
        let tool = tool("name: t, exec: 'p ${s}', parameters: [{name: s, default: d}]");
        check(&tool, r#"{"s": null}"#, &["p", "d"]);
    }

    #[test]
    fn c_3_1_lone_surrogates_and_repeated_keys_are_survived() {
        let tool = tool("name: t, exec: 'p ${s}'");
        check(&tool, r#"{"s": "a\ud800b\udc00\ud83d\ude00"}"#, &["p", "a\u{fffd}b\u{fffd}😀"]);
        check(&tool, r#"{"s": 1, "s": "last"}"#, &["p", "last"]);
        check(&tool, r#"{"\u0073": "s"}"#, &["p", "s"]);
    }

    #[test]
    fn c_3_1_arrays_are_one_word_in_a_template_and_several_when_appended() {
        let parameters = "parameters: [{name: a, type: array, required: false}]";
        let template = tool(&format!("name: t, exec: 'p ${{a}} -x=${{a}}', {parameters}"));
        check(
            &template,
            r#"{"a": ["b c", "\""]}"#,
            &["p", r#"["b c","\""]"#, r#"-x=["b c","\""]"#],
        );
        let appended = tool(&format!("name: t, command: [p], {parameters}"));
        check(&appended, r#"{"a": ["b c", ""]}"#, &["p", "b c", ""]);
        check(&appended, r#"{"a": []}"#, &["p"]);
        check(&appended, "{}", &["p"]);
        let option = tool(
            "name: t, command: [p], parameters: [{name: a, type: array, inject_as: option, option_name: -i}]",
        );
        check(&option, r#"{"a": ["b", "c d"]}"#, &["p", "-i", "b", "-i", "c d"]);
    }

    #[test]
    fn c_3_2_nothing_shifts_when_an_optional_argument_is_absent() {
        let x = "parameters: [{name: x, required: false}]";
        let exec = tool(&format!("name: t, exec: 'p ${{x}} --f=${{x}} \"${{x}}\" end', {x}"));
        check(&exec, "{}", &["p", "--f=", "end"]);
        check(&exec, r#"{"x": ""}"#, &["p", "", "--f=", "", "end"]);
        let shell = tool(&format!("name: t, shell: 'p ${{x}} ${{y}}', {x}"));
        check(&shell, r#"{"y": "b"}"#, &["sh", "-c", "p \"$1\" \"$2\"", "--", "", "b"]);
        let option = tool(
            "name: t, command: [p], parameters: [{name: o, required: false, inject_as: option, option_name: --o}, {name: y}]",
        );
        check(&option, r#"{"y": "b"}"#, &["p", "b"]);
        check(&option, r#"{"y": "b", "o": ""}"#, &["p", "--o", "", "b"]);
        let template = tool(&format!(
            "name: t, command: [p, {{template: '${{x}}'}}, {{template: 'a${{x}}'}}, ''], {x}"
        ));
        check(&template, "{}", &["p", "a", ""]);
    }

    #[test]
    fn c_3_2_a_default_stands_in() {
        let tool = tool(
            "name: t, exec: 'p ${x} ${n}', parameters: [{name: x, default: ''}, {name: n, type: integer, default: 3}]",
        );
        check(&tool, "{}", &["p", "", "3"]);
        check(&tool, r#"{"x": "a", "n": 0}"#, &["p", "a", "0"]);
    }

    #[test]
    fn c_2_8_appended_parameters_come_by_position_and_then_in_their_order() {
        let tool = tool(
            "name: t, command: ['${CWD}/p', '${x}', '\\${CWD}'], parameters: [{name: a}, {name: o, inject_as: option, \
             option_name: --o, position: 1}, {name: b}, {name: c, position: 0}, {name: s, inject_as: stdin}]",
        );
        let found = run(&tool, r#"{"a": "1", "o": "2", "b": "3", "c": "4", "s": "in\n"}"#).unwrap();
        assert_eq!(found.argv, ["/w/p", "${x}", "${CWD}", "4", "--o", "2", "1", "3"]);
        assert_eq!(found.stdin, "in\n");
    }

    #[test]
    fn nul_is_refused_for_what_the_value_becomes() {
        let tool = tool("name: t, exec: 'tee ${file}', stdin: text");
        let error = run(&tool, r#"{"file": "a", "text": "a\u0000"}"#).unwrap_err();
        let refused =
            "`text` contains a NUL character, which delta does not pass on standard input";
        assert!(error.contains(refused), "{error}");
    }

    #[test]
    fn c_28_1_nul_is_refused_in_a_word_and_is_an_escape_in_json() {
        let schema = "schema: {type: object, properties: {s: {type: string}, o: {type: string}}}";
        let tool = tool(&format!("name: t, exec: 'p ${{s}}', {schema}"));
        let error = run(&tool, r#"{"s": "a\u0000"}"#).unwrap_err();
        assert!(error.contains("parameter `s` contains a NUL character"), "{error}");
        let stdin = run(&tool, r#"{"o": "a\u0000"}"#).unwrap().stdin;
        assert_eq!(stdin, r#"{"o":"a\u0000"}"#);
    }

    #[test]
    fn c_2_5_engine_variables_are_no_parameters_and_never_split() {
        let tool = tool("name: t, exec: '${AGENT_HOME}/p ${CWD} --r=${RUN_DIR}'");
        assert_eq!(tool.parameters.len(), 0);
        check(&tool, "", &["/home/p", "/w", "--r=/r"]);
    }

    /// JSON that fails where an object repeats a name.
    struct StrictJson;

    impl<'de> serde::Deserialize<'de> for StrictJson {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let raw = <&RawValue>::deserialize(deserializer)?.get();
            let check = |value: &RawValue| {
                serde_json::from_str::<Self>(value.get()).map_err(serde::de::Error::custom)
            };
            if raw.starts_with('[') {
                let items: Vec<&RawValue> = serde_json::from_str(raw).unwrap();
                items.into_iter().try_for_each(|item| check(item).map(drop))?;
            } else if raw.starts_with('{') {
                struct Pairs<'a>(Vec<(String, &'a RawValue)>);
                impl<'de> serde::de::Visitor<'de> for Pairs<'de> {
                    type Value = Self;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        mut self,
                        mut map: A,
                    ) -> Result<Self, A::Error> {
                        while let Some(pair) = map.next_entry()? {
                            self.0.push(pair);
                        }
                        Ok(self)
                    }
                }
                let mut reader = serde_json::Deserializer::from_str(raw);
                let pairs = serde::Deserializer::deserialize_map(&mut reader, Pairs(Vec::new()));
                let pairs = pairs.map_err(serde::de::Error::custom)?.0;
                let names: HashSet<&str> = pairs.iter().map(|(name, _)| &**name).collect();
                if names.len() < pairs.len() {
                    return Err(serde::de::Error::custom("a repeated name"));
                }
                pairs.iter().try_for_each(|(_, value)| check(value).map(drop))?;
            }
            Ok(Self)
        }
    }

    /// The text of any JSON, whose objects may repeat names, also in another spelling.
    fn json_text() -> impl Strategy<Value = String> {
        let name =
            prop_oneof![Just("\"a\""), Just("\"\\u0061\""), Just("\"b,}\""), Just("\"\\\"{\"")];
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("1.50".to_owned()),
            Just("-12345678901234567890123".to_owned()),
            "[a-z{}:,\\[\\]]{0,4}".prop_map(|text| Json::from(text).to_string()),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            let members = prop::collection::vec((name.clone(), inner.clone()), 0..5);
            prop_oneof![
                prop::collection::vec(inner, 0..4)
                    .prop_map(|items| format!("[{}]", items.join(" , "))),
                members.prop_map(|members| {
                    let members = members.iter().map(|(name, value)| format!("{name} : {value}"));
                    format!("{{ {} }}", members.collect::<Vec<_>>().join(" ,\n"))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn c_38_8_what_a_program_gets_is_what_was_checked(
            members in prop::collection::vec(json_text(), 1..4)
        ) {
            let members: Vec<_> = members.iter().map(|value| format!("\"o\": {{\"v\": {value}}}")).collect();
            let arguments = CallArguments::new(format!("{{{}}}", members.join(", ")));
            let vars =
                EngineVars { agent_home: "/home".into(), cwd: "/w".into(), run_dir: "/r".into() };
            let as_word = tool("name: t, exec: 'p ${o}', parameters: [{name: o, type: object}]");
            let checked = as_word.check_arguments(&arguments).unwrap();
            let word = as_word.invocation(&checked, &vars).argv.remove(1);
            prop_assert_eq!(&serde_json::from_str::<Json>(&word).unwrap(), &checked.json()["o"]);
            let whole = tool("name: t, exec: p, schema: {type: object}");
            let checked = whole.check_arguments(&arguments).unwrap();
            let stdin = whole.invocation(&checked, &vars).stdin;
            prop_assert_eq!(&serde_json::from_str::<Json>(&stdin).unwrap(), checked.json());
            for text in [word, stdin, canonical_arguments(&arguments).unwrap()] {
                prop_assert!(serde_json::from_str::<StrictJson>(&text).is_ok(), "{}", text);
            }
        }
    }
}
