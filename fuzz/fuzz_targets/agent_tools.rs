//! Files with tools: reading never panics or hangs, whatever is wrong has a place, and what `expand` prints does the
//! same.
#![no_main]

use delta::diag::Report;
use delta::tool::argv::Invocation;
use delta::tool::{Kind, Tool, expand::expand, read_file};
use delta::vars::Vars;
use delta::yaml::Document;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

fn arguments(tool: &Tool, optional: bool) -> String {
    let value = |kind: Kind, name: &str| match kind {
        Kind::String => Value::from(name),
        Kind::Integer | Kind::Number => json!(7),
        Kind::Boolean => json!(true),
        Kind::Array => json!([name, ""]),
    };
    let given = tool.parameters.iter().filter(|parameter| optional || parameter.required);
    let given: Map<String, Value> = given
        .map(|p| {
            (p.name.clone(), p.values.first().cloned().unwrap_or_else(|| value(p.kind, &p.name)))
        })
        .collect();
    Value::Object(given).to_string()
}

fn invocation(tool: &Tool, arguments: &str) -> Result<Invocation, String> {
    let vars = Vars { agent_home: "/home".into(), cwd: "/cwd".into(), run_dir: "/run".into() };
    tool.check(arguments).map(|checked| tool.invocation(&checked, &vars))
}

fuzz_target!(|text: &str| {
    let doc = match Document::parse("agent.yaml", text) {
        Ok(doc) => doc,
        Err(diagnostic) => {
            let _ = diagnostic.to_string();
            return;
        }
    };
    let mut report = Report::default();
    let tools = read_file(&doc, &mut report);
    let _ = report.to_string();
    if !report.is_empty() {
        return;
    }
    for tool in &tools {
        let _ = tool.definition().to_string();
        let found = invocation(tool, &arguments(tool, true))
            .expect("arguments of the right types were refused");
        assert!(!found.argv.iter().any(|word| word.contains('\0')));
    }
    let Ok(expanded) = expand(&doc) else { return };
    let doc =
        Document::parse("agent.yaml", expanded.as_str()).expect("the expanded file is no YAML");
    let again = read_file(&doc, &mut report);
    assert!(report.is_empty(), "{report}\n{expanded}");
    assert_eq!(tools.len(), again.len());
    for (a, b) in tools.iter().zip(&again) {
        for optional in [true, false] {
            let arguments = arguments(a, optional);
            assert_eq!(invocation(a, &arguments), invocation(b, &arguments), "{expanded}");
        }
    }
});
