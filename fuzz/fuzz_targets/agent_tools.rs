//! Files with tools: reading never panics or hangs, whatever is wrong has a place, and what `expand` prints does the
//! same.
#![no_main]

use delta_words::CallArguments;
use delta_yaml::diagnostic::DiagnosticReport;
use delta_agent::tool::invocation::ToolInvocation;
use delta_agent::tool::{Tool, expand::expand_tools, ParameterType, read_tool_file};
use delta_base::engine_variables::EngineVars;
use delta_yaml::yaml::YamlDocument;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fn arguments(tool: &Tool, optional: bool) -> String {
    let value = |kind: ParameterType, name: &str| match kind {
        ParameterType::String => Value::from(name),
        ParameterType::Integer | ParameterType::Number => json!(7),
        ParameterType::Boolean => json!(true),
        ParameterType::Array => json!([name, ""]),
        ParameterType::Object => json!({name: ""}),
    };
    let given = tool.parameters.iter().filter(|parameter| optional || parameter.required);
    let given: Map<String, Value> = given
        .map(|p| {
            (p.name.clone(), p.allowed_values.first().cloned().unwrap_or_else(|| value(p.kind, &p.name)))
        })
        .collect();
    Value::Object(given).to_string()
}

fn invocation(tool: &Tool, arguments: &str) -> Result<ToolInvocation, String> {
    let vars = EngineVars { agent_home: "/home".into(), cwd: "/cwd".into(), run_dir: "/run".into() };
    tool.check_arguments(&CallArguments::new(arguments)).map(|checked| tool.invocation(&checked, &vars))
}

fuzz_target!(|text: &str| {
    let doc = match YamlDocument::parse("agent.yaml", text) {
        Ok(doc) => doc,
        Err(diagnostic) => {
            let _ = diagnostic.to_string();
            return;
        }
    };
    let mut report = DiagnosticReport::default();
    let tools = read_tool_file(&doc, &mut report);
    let _ = report.to_string();
    if !report.is_empty() {
        return;
    }
    for tool in &tools {
        let _ = tool.definition(None).to_string();
        // The schema of a parameter may refuse a value of its type.
        if let Ok(call) = invocation(tool, &arguments(tool, true)) {
            assert!(!call.argv.iter().any(|word| word.contains('\0')));
        }
    }
    let Ok(expanded) = expand_tools(&doc) else { return };
    let doc =
        YamlDocument::parse("agent.yaml", expanded.as_str()).expect("the expanded file is no YAML");
    let again = read_tool_file(&doc, &mut report);
    assert!(report.is_empty(), "{report}\n{expanded}");
    assert_eq!(tools.len(), again.len());
    for (a, b) in tools.iter().zip(&again) {
        for optional in [true, false] {
            let arguments = arguments(a, optional);
            assert_eq!(invocation(a, &arguments), invocation(b, &arguments), "{expanded}");
        }
    }
});
