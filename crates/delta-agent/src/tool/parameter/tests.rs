use crate::tool::{InjectAs, Tool, read_tool_file};
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::YamlDocument;

fn read(fields: &str) -> Result<Tool, Vec<String>> {
    let doc = YamlDocument::parse("agent.yaml", format!("tools: [{{name: t, {fields}}}]")).unwrap();
    let mut report = DiagnosticReport::default();
    let mut tools = read_tool_file(&doc, &mut report);
    match report.is_empty() {
        true => Ok(tools.remove(0)),
        false => Err(report.diagnostics.into_iter().map(|diagnostic| diagnostic.message).collect()),
    }
}

fn check_refused(fields: &str, messages: &[&str]) {
    let messages = messages.iter().map(|message| message.to_string()).collect();
    assert_eq!(read(fields).map(|tool| tool.parameters), Err(messages), "{fields}");
}

fn shown(fields: &str) -> Vec<String> {
    let tool = read(fields).unwrap_or_else(|why| panic!("{fields}: {why:?}"));
    let one = |p: &super::ToolParameter| {
        let position = p.position.map_or("-".to_owned(), |position| position.to_string());
        format!("{} {} {} {position}", p.name, p.kind.name(), p.inject_as.name())
    };
    tool.parameters.iter().map(one).collect()
}

#[test]
fn c_2_4_the_template_says_how_and_the_parameters_say_what() {
    assert_eq!(
        shown(
            "exec: 'grep ${pattern} ${file} ${pattern}', stdin: text, parameters: [{name: file, type: integer}]"
        ),
        ["file integer argument 1", "pattern string argument 0", "text string stdin -"],
    );
    let same = "parameters: [{name: x, inject_as: argument, position: 0}]";
    assert_eq!(shown(&format!("shell: 'a ${{x}}', {same}")), ["x string argument 0"]);
    assert_eq!(
        shown("exec: a, stdin: s, parameters: [{name: s, inject_as: stdin}]"),
        ["s string stdin -"]
    );
}

#[test]
fn c_2_4_conflicts_are_refused_word_for_word() {
    check_refused(
        "exec: 'a ${p}', parameters: [{name: p, inject_as: stdin}]",
        &["Cannot override inject_as for parameter 'p' (inferred: argument, explicit: stdin)"],
    );
    check_refused(
        "exec: a, stdin: p, parameters: [{name: p, inject_as: argument}]",
        &["Cannot override inject_as for parameter 'p' (inferred: stdin, explicit: argument)"],
    );
    check_refused(
        "command: [a, {template: '${p}'}], parameters: [{name: p, inject_as: option, option_name: -p}]",
        &[
            "Cannot override inject_as for parameter 'p' (inferred: argument, explicit: option)",
            "`option_name` goes with `inject_as: option`",
        ],
    );
    check_refused(
        "exec: 'a ${x}', parameters: [{name: p}]",
        &["Parameter 'p' not found in template"],
    );
    check_refused(
        "shell: 'a ${flags} ${x}', parameters: [{name: flags, raw: true}]",
        &[":raw modifier must be specified in template syntax (${flags:raw})"],
    );
    check_refused(
        "exec: 'a ${x}', parameters: [{name: x, position: 3}]",
        &["Cannot override position for parameter 'x' (inferred: 0, explicit: 3)"],
    );
    check_refused("exec: 'a ${x:raw}'", &[":raw modifier is only allowed in shell: mode"]);
    check_refused(
        "command: [a, {template: '${x:raw}'}]",
        &[":raw modifier is only allowed in shell: mode"],
    );
}

#[test]
fn c_2_3_what_a_parameter_may_say() {
    check_refused(
        "command: [a], parameters: [{name: x, type: text}]",
        &["`type` must be `string`, `integer`, `number`, `boolean`, `array` or `object`"],
    );
    check_refused(
        "command: [a], parameters: [{name: x, inject_as: env}]",
        &["`inject_as` must be `argument`, `stdin` or `option`"],
    );
    check_refused(
        "command: [a], parameters: [{name: x, inject_as: option}]",
        &["`inject_as: option` needs an `option_name`"],
    );
    check_refused(
        "command: [a], parameters: [{name: x, option_name: -x}]",
        &["`option_name` goes with `inject_as: option`"],
    );
    check_refused(
        "command: [a], parameters: [{name: x, inject_as: stdin}, {name: y, inject_as: stdin}]",
        &["only one parameter can go to stdin; `y` is a second one"],
    );
    check_refused(
        "command: [a], parameters: [{name: x}, {name: x}]",
        &["two parameters are named `x`"],
    );
    check_refused(
        "command: [a], parameters: [{name: CWD}]",
        &["`CWD` is an engine variable, not a parameter"],
    );
    check_refused("command: [a], parameters: [{name: my-x}]", &["`my-x` is not a parameter name"]);
    check_refused(
        "command: [a], parameters: [{name: x, type: integer, default: a}]",
        &["`default` must be of type integer, not a string"],
    );
    check_refused(
        "command: [a], parameters: [{name: x, enum: [a, b], default: c}]",
        &["`default` is not among the values of `enum`"],
    );
    check_refused(
        "command: [a], parameters: [{name: x, required: true, default: c}]",
        &["a parameter with a `default` is never required"],
    );
    let option =
        read("command: [a], parameters: [{name: x, inject_as: option, option_name: --x}]").unwrap();
    assert_eq!(option.parameters[0].inject_as, InjectAs::Option("--x".to_owned()));
}

#[test]
fn c_2_1_a_tool_is_one_command_with_a_name() {
    check_refused("exec: a, shell: b", &["exec:, shell:, and command: are mutually exclusive"]);
    check_refused("description: d", &["a tool needs one of `exec:`, `shell:` and `command:`"]);
    check_refused("exec: ''", &["the command of exec: is empty"]);
    check_refused("exec: \"''\"", &["the command of exec: is empty"]);
    check_refused("shell: ' '", &["the script of shell: is empty"]);
    check_refused("command: []", &["`command` names no program"]);
    check_refused("command: [{template: '${x}'}]", &["the program may not come from a parameter"]);
    check_refused("exec: \"a\\0b\"", &["a string contains a NUL character"]);
    check_refused("exec: a, env: {CWD: x}", &["`CWD` is set by the engine"]);
}

#[test]
fn c_2_10_the_schema_says_what_the_parameters_are() {
    let tool = read(
        "exec: 'a ${z} ${y} ${x}', parameters: [{name: y, type: array, description: d, required: false}, \
         {name: x, enum: [p, q], default: q}]",
    )
    .unwrap();
    assert_eq!(
        tool.definition(None).to_string(),
        r#"{"type":"function","function":{"name":"t","description":"a ${z} ${y} ${x}","parameters":{"type":"object","properties":{"y":{"type":"array","items":{"type":"string"},"description":"d"},"x":{"type":"string","enum":["p","q"],"default":"q"},"z":{"type":"string"}},"required":["z"],"additionalProperties":false}}}"#,
    );
    let described =
        |fields: &str| read(fields).unwrap().definition(None)["function"]["description"].clone();
    assert_eq!(described("exec: a, description: d"), "d");
    assert_eq!(described("command: [ls, -l, {template: '--f=${x}'}]"), "ls -l --f=${x}");
}
