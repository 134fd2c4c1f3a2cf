//! The nineteen verification tests of the tool specification v1.7, section 10, run with real processes: 3.3 as
//! corrected by C-2.7, 5.1 as corrected by C-4.1.
#![allow(
    clippy::disallowed_methods,
    reason = "tests start the tools themselves, not through the engine"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use delta_agent::tool::{Tool, read_tool_file};
use delta_base::engine_variables::EngineVars;
use delta_words::CallArguments;
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::YamlDocument;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn read(definition: &str) -> Result<Tool, Vec<String>> {
    let indented: String =
        definition.trim_start_matches('\n').lines().map(|line| format!("{line}\n")).collect();
    let doc = YamlDocument::parse("config.yaml", format!("tools:\n{indented}"))
        .map_err(|d| vec![d.message])?;
    let mut report = DiagnosticReport::default();
    let mut tools = read_tool_file(&doc, &mut report);
    match report.is_empty() {
        true => Ok(tools.remove(0)),
        false => Err(report.diagnostics.into_iter().map(|diagnostic| diagnostic.message).collect()),
    }
}

fn check_refused(definition: &str, message: &str) {
    assert_eq!(read(definition).map(|tool| tool.name), Err(vec![message.to_owned()]));
}

struct Ran {
    stdout: String,
    code: Option<i32>,
}

/// Runs the tool in `directory`, as the engine does: the argv directly, the standard input byte for byte.
fn run(definition: &str, arguments: Value, directory: &Path) -> Ran {
    let tool = read(definition).unwrap();
    let vars = EngineVars {
        agent_home: directory.into(),
        cwd: directory.into(),
        run_dir: directory.into(),
    };
    let invocation = tool.invocation(
        &tool.check_arguments(&CallArguments::new(arguments.to_string())).unwrap(),
        &vars,
    );
    let mut child = Command::new(&invocation.argv[0])
        .args(&invocation.argv[1..])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A tool that does not read its input has closed the pipe by now.
    let _ = child.stdin.take().unwrap().write_all(invocation.stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran { stdout: String::from_utf8(output.stdout).unwrap(), code: output.status.code() }
}

/// Runs the tool in a directory that holds `marker`, which must survive.
fn run_beside_marker(definition: &str, arguments: Value) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("marker"), "").unwrap();
    let ran = run(definition, arguments, directory.path());
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["marker"]);
    ran
}

#[test]
fn verification_1_1_reject_shell_metacharacters() {
    check_refused(
        "- name: test_exec_reject_pipe\n  exec: \"cat ${file} | wc -l\"",
        "Shell metacharacter '|' not allowed in exec: mode. Use shell: mode or remove pipe.",
    );
}

#[test]
fn verification_1_2_reject_redirection() {
    let found =
        read("- name: test_exec_reject_redirect\n  exec: \"echo ${msg} > ${file}\"").unwrap_err();
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("Shell metacharacter '>' not allowed in exec: mode."),
        "{}",
        found[0]
    );
}

#[test]
fn verification_1_3_accept_safe_commands() {
    let ran = run_beside_marker(
        "- name: test_exec_safe\n  exec: \"echo ${message}\"",
        json!({"message": "; rm -rf marker"}),
    );
    assert_eq!((ran.stdout.as_str(), ran.code), ("; rm -rf marker\n", Some(0)));
}

#[test]
fn verification_2_1_semicolon_injection() {
    let ran = run_beside_marker(
        "- name: test_shell_semicolon\n  shell: \"echo ${input}\"",
        json!({"input": "; rm -rf marker; echo done"}),
    );
    assert_eq!((ran.stdout.as_str(), ran.code), ("; rm -rf marker; echo done\n", Some(0)));
}

#[test]
fn verification_2_2_nested_quotes() {
    let definition = "- name: test_shell_quotes\n  shell: \"grep ${pattern} ${file}\"";
    let arguments = json!({"pattern": "\"test\"", "file": "sample.txt"});
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("sample.txt"), "a \"test\" b\ntest\n").unwrap();
    let ran = run(definition, arguments.clone(), directory.path());
    assert_eq!((ran.stdout.as_str(), ran.code), ("a \"test\" b\n", Some(0)));
    std::fs::write(directory.path().join("sample.txt"), "a test b\n").unwrap();
    let ran = run(definition, arguments, directory.path());
    assert_eq!((ran.stdout.as_str(), ran.code), ("", Some(1)));
}

#[test]
fn verification_2_3_command_substitution() {
    let definition = "- name: test_shell_command_sub\n  shell: \"echo ${input}\"";
    let ran = run_beside_marker(definition, json!({"input": "$(whoami)"}));
    assert_eq!(ran.stdout, "$(whoami)\n");
    let ran = run_beside_marker(definition, json!({"input": "`touch other; rm marker`"}));
    assert_eq!(ran.stdout, "`touch other; rm marker`\n");
}

#[test]
fn verification_2_4_pipe_character_in_parameter() {
    let ran = run_beside_marker(
        "- name: test_shell_pipe_in_param\n  shell: \"echo ${input}\"",
        json!({"input": "test | tee other"}),
    );
    assert_eq!(ran.stdout, "test | tee other\n");
}

#[test]
fn verification_3_1_raw_allows_unquoted_expansion() {
    let definition = "- name: test_raw_flags\n  shell: \"printf '[%s]' ${flags:raw}\"";
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(definition, json!({"flags": "-n -e"}), directory.path()).stdout, "[-n][-e]");
    // The program, because every shell's own `echo` has options of its own.
    let definition = "- name: test_raw_flags\n  shell: \"/bin/echo ${flags:raw} x\"";
    assert_eq!(run(definition, json!({"flags": "-n -e"}), directory.path()).stdout, "x");
    assert_eq!(
        run(definition, json!({"flags": "-e \\nhello"}), directory.path()).stdout,
        "\nhello x\n"
    );
}

#[test]
fn verification_3_2_raw_rejected_in_exec() {
    check_refused(
        "- name: test_raw_reject_in_exec\n  exec: \"echo ${flags:raw}\"",
        ":raw modifier is only allowed in shell: mode",
    );
}

/// C-2.7: the value is split and globbed, and nothing in it is run. The specification expects otherwise of a shell than
/// any POSIX shell does.
#[test]
fn c_2_7_verification_3_3_raw_with_malicious_input() {
    let definition = "- name: test_raw_vulnerability\n  shell: \"printf '[%s]' ${input:raw}\"";
    let ran = run_beside_marker(definition, json!({"input": "; rm -rf marker"}));
    assert_eq!(ran.stdout, "[;][rm][-rf][marker]");
    let ran = run_beside_marker(
        definition,
        json!({"input": "| rm marker $(rm${IFS}marker) `rm${IFS}marker` >other"}),
    );
    assert_eq!(ran.stdout, "[|][rm][marker][$(rm${IFS}marker)][`rm${IFS}marker`][>other]");
    let ran = run_beside_marker(definition, json!({"input": "mark* m*r"}));
    assert_eq!(ran.stdout, "[marker][marker]");
}

#[test]
fn verification_4_1_quoted_static_arguments() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("test.txt"), "fixed\nfixed pattern with\npattern\n")
        .unwrap();
    let definition = "- name: test_exec_quoted_static\n  exec: 'grep \"fixed pattern\" ${file}'";
    assert_eq!(
        run(definition, json!({"file": "test.txt"}), directory.path()).stdout,
        "fixed pattern with\n"
    );
}

#[test]
fn verification_4_2_multiple_placeholders() {
    let definition = "- name: test_exec_multi_params\n  exec: \"echo ${arg1} ${arg2} ${arg3}\"";
    let ran =
        run_beside_marker(definition, json!({"arg1": "first", "arg2": "second", "arg3": "third"}));
    assert_eq!(ran.stdout, "first second third\n");
}

/// C-4.1: nothing is appended to the input, so `wc -l` counts two line breaks.
#[test]
fn verification_5_1_stdin_in_exec() {
    let definition = "- name: test_stdin_exec\n  exec: \"wc -l\"\n  stdin: content";
    let ran = run_beside_marker(definition, json!({"content": "line1\nline2\nline3"}));
    assert_eq!(ran.stdout.trim(), "2");
}

#[test]
fn verification_5_2_stdin_in_shell() {
    let definition = "- name: test_stdin_shell\n  shell: \"grep ${pattern}\"\n  stdin: content";
    let ran =
        run_beside_marker(definition, json!({"pattern": "test", "content": "test1\nfoo\ntest2"}));
    assert_eq!(ran.stdout, "test1\ntest2\n");
}

#[test]
fn verification_6_1_multiline_script() {
    let definition = "- name: test_multiline\n  shell: |\n    echo \"Start\"\n    echo ${value}\n    echo \"End\"";
    let ran = run_beside_marker(definition, json!({"value": "test ; echo injected"}));
    assert_eq!(ran.stdout, "Start\ntest ; echo injected\nEnd\n");
}

#[test]
fn verification_6_2_multiline_pipes() {
    let definition = "- name: test_multiline_pipes\n  shell: |\n    echo ${text} |\n    tr '[:lower:]' '[:upper:]' |\n    wc -c";
    assert_eq!(run_beside_marker(definition, json!({"text": "hello"})).stdout.trim(), "6");
}

#[test]
fn verification_7_1_valid_parameter_override() {
    let definition = "- name: test_param_merge\n  exec: \"echo ${msg}\"\n  parameters:\n    - name: msg\n      \
         description: \"Message to print\"\n      default: \"hello\"";
    assert_eq!(run_beside_marker(definition, json!({})).stdout, "hello\n");
    assert_eq!(run_beside_marker(definition, json!({"msg": "other"})).stdout, "other\n");
}

#[test]
fn verification_7_2_injection_mode_conflict() {
    check_refused(
        "- name: test_param_conflict\n  shell: \"grep ${pattern} ${file}\"\n  parameters:\n    - name: pattern\n      \
         inject_as: stdin",
        "Cannot override inject_as for parameter 'pattern' (inferred: argument, explicit: stdin)",
    );
}

#[test]
fn verification_7_3_undefined_parameter() {
    check_refused(
        "- name: test_undefined_param\n  exec: \"echo ${msg}\"\n  parameters:\n    - name: undefined_param\n      \
         description: \"This param doesn't exist in template\"",
        "Parameter 'undefined_param' not found in template",
    );
}
