//! Output of tools that is not text, and `output: json` and `file`.

use super::DELTA;
use serde_json::json;
use std::fs;
use test_support::sandbox::Sandbox;

/// What one call of a tool with this script and `output` leads to, with the run directory as `RUN`.
fn observe(script: &str, more: &str) -> (Sandbox, String) {
    let tools = format!("  - name: t\n    shell: |\n      {script}\n{more}");
    let sandbox = Sandbox::scripted(DELTA, &tools, "- call: [{tool: t}]\n- say: done\n");
    sandbox.run("go", &[]).expect_code(0);
    let text = sandbox.observations()[0].clone();
    (sandbox, text)
}

/// The bytes of the file that an observation names.
fn named_file(sandbox: &Sandbox, observation: &str) -> Vec<u8> {
    let file = observation.split(" in .delta/").nth(1).unwrap().split([']', '\n']).next().unwrap();
    fs::read(sandbox.path("work/.delta").join(file)).unwrap()
}

#[test]
fn c_28_5_binary_output_is_named_and_kept() {
    let (sandbox, text) = observe(r"printf 'a\000b'", "");
    assert!(text.starts_with("[binary output: 3 bytes, application/octet-stream, in .delta/r/io/"));
    assert!(text.ends_with(".stdout]"), "{text}");
    assert_eq!(named_file(&sandbox, &text), b"a\0b");
    let (sandbox, text) = observe(r"printf '\037\213\010\377%090000d' 0; echo no >&2; exit 2", "");
    assert!(text.contains("[binary output: 90004 bytes, application/gzip, in .delta/r/"), "{text}");
    assert!(text.ends_with("]\n[stderr]\nno\n[exit code: 2]"), "{text}");
    assert_eq!(named_file(&sandbox, &text).len(), 90_004);
    let (_sandbox, text) = observe(r"printf 'x\000' >&2", "");
    assert!(text.starts_with("[stderr]\n[binary output: 2 bytes, "), "{text}");
    let (_sandbox, text) = observe(r"printf 'caf\351\n'", "");
    assert_eq!(text, "caf\u{fffd}\n");
}

#[test]
fn c_28_5_json_is_shown_without_blanks_and_can_be_the_result() {
    let (_sandbox, text) = observe("printf '{ \"a\" : [1.50, 2]\\n}\\n'", "    output: json\n");
    assert_eq!(text, r#"{"a":[1.50,2]}"#);
    let (_sandbox, text) = observe("echo oops", "    output: json\n");
    assert!(text.starts_with("oops\n[not JSON: expected value"), "{text}");
    let (_sandbox, text) = observe("exit 4", "    output: json\n");
    assert_eq!(text, "[exit code: 4]");
    let small = "    output: json\n    max_output_bytes: 20\n";
    let (_sandbox, text) = observe("printf '[%40d, 7]' 1", small);
    assert_eq!(text, "[1,7]");
    let (_sandbox, text) = observe("printf '[\"%040d\"]' 1", small);
    assert!(text.contains("24 bytes left out"), "{text}");
    let (sandbox, _) = observe("printf '{ \"a\" : 1 }'", "    output: json\n    ends_run: true\n");
    assert_eq!(sandbox.events("ACTION_RESULT")[0]["result"], json!({"a": 1}));
}

/// Programs of Windows, such as PowerShell, print a byte order mark.
#[test]
fn c_28_5_json_may_begin_with_a_byte_order_mark() {
    let (_sandbox, text) = observe(r#"printf '\357\273\277{ "a":1}'"#, "    output: json\n");
    assert_eq!(text, r#"{"a":1}"#);
    let utf16 = r"printf '\377\376{\000}\000'";
    let (sandbox, text) = observe(utf16, "    output: json\n    ends_run: true\n");
    assert_eq!(text, "{}");
    assert_eq!(sandbox.events("ACTION_RESULT")[0]["result"], json!({}));
    let (_sandbox, text) = observe(r"printf '\376\377\000a'", "    output: json\n");
    assert!(text.starts_with("a\n[not JSON: expected value"), "{text}");
}

#[test]
fn c_28_5_output_for_a_file_is_only_named() {
    let (sandbox, text) = observe("echo text; echo err >&2", "    output: file\n");
    assert!(text.starts_with("[output: 5 bytes, text/plain, in .delta/r/io/tool_executions/"));
    assert!(text.ends_with(".stdout]\n[stderr]\nerr\n"), "{text}");
    assert_eq!(named_file(&sandbox, &text), b"text\n");
    let (_sandbox, text) = observe("true", "    output: file\n");
    assert_eq!(text, "[no output]");
}
