//! `delta tool expand`: a file with its tools in their complete form, and everything else as it was.

use super::DELTA;
use test_support::sandbox::Sandbox;

const FILE: &str = "\
# An agent of mine.
name: t   # its name
llm: {provider: script, model: script.yaml}

tools:
  # Looks for something.
  - name: search
    description: \"Find, and count\"   # why
    shell: grep ${pattern} ${file} | wc -l
    parameters:
      - name: file
        description: where
  - name: list
    exec: ls -la ${dir}   # all of it
  - name: mixed
    exec: \"tool --file=${file} end\"
  - name: complete
    command: [cat, -n]   # stays

x-mine: kept
";

const EXPANDED: &str = r#"# An agent of mine.
name: t   # its name
llm: {provider: script, model: script.yaml}

tools:
  # Looks for something.
  - name: search
    description: "Find, and count"   # why
    command: ["sh", "-c", "grep \"$1\" \"$2\" | wc -l", "--"]
    __meta: {syntax: shell, original_template: "grep ${pattern} ${file} | wc -l"}
    parameters:
      - name: file
        type: string
        inject_as: argument
        position: 1
        description: where
      - name: pattern
        type: string
        inject_as: argument
        position: 0
  - name: list
    command: ["ls", "-la"]   # all of it
    parameters:
      - name: dir
        type: string
        inject_as: argument
        position: 0
    __meta: {syntax: exec, original_template: "ls -la ${dir}"}
  - name: mixed
    command: ["tool", {template: "--file=${file}"}, "end"]
    parameters:
      - name: file
        type: string
        inject_as: argument
        position: 0
    __meta: {syntax: exec, original_template: "tool --file=${file} end"}
  - name: complete
    command: [cat, -n]   # stays

x-mine: kept
"#;

#[test]
fn c_2_9_both_names_print_the_same() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("agent/agent.yaml", FILE);
    for command in [&["tool", "expand"] as &[&str], &["tool:expand"]] {
        let ran = sandbox.delta(command.iter().copied().chain(["agent/agent.yaml"])).output();
        ran.expect(0, EXPANDED, "");
    }
    assert_eq!(sandbox.read("agent/agent.yaml"), FILE, "the file itself stays");
}

#[test]
fn c_2_9_what_is_printed_loads_and_does_the_same() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("agent/script.yaml", "turns:\n- call: [{tool: search, args: {pattern: 'a b; $(x)', file: f.txt}}]\n- say: '${last}'\n");
    sandbox.write("work/f.txt", "a b; $(x)\nother\na b; $(x)!\n");
    let run = |id: &str| {
        sandbox
            .delta([
                "run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "hi", "--format",
                "raw",
            ])
            .output()
            .expect_code(0)
            .stdout
    };
    let argv = |id: &str| {
        let journal = sandbox.read(&format!("work/.delta/{id}/journal.jsonl"));
        journal
            .lines()
            .find(|line| line.contains("ACTION_REQUEST"))
            .unwrap()
            .split("\"argv\"")
            .nth(1)
            .unwrap()
            .split("\"execution\"")
            .next()
            .unwrap()
            .to_owned()
    };
    sandbox.write("agent/agent.yaml", FILE);
    assert_eq!(run("short").trim(), "2");
    let expanded =
        sandbox.delta(["tool", "expand", "agent/agent.yaml"]).output().expect_code(0).stdout;
    sandbox.write("agent/agent.yaml", &expanded);
    assert_eq!(run("long").trim(), "2");
    assert_eq!(argv("long"), argv("short"));
    // Expanding again changes nothing.
    assert_eq!(
        sandbox.delta(["tool", "expand", "agent/agent.yaml"]).output().expect_code(0).stdout,
        expanded
    );
}

/// A list may begin in the column of its key, with entries in braces or brackets: the list itself is in neither.
#[test]
fn c_2_9_a_list_in_the_column_of_its_key_is_completed() {
    let sandbox = Sandbox::new(DELTA);
    for dash in ["- ", "-   "] {
        let tool = format!(
            "shell: echo '[a]' ${{file}} ${{top}}\n  parameters:\n  {dash}{{name: file}}\n"
        );
        let text = format!("name: t\ntools:\n- name: a\n  {tool}- name: b\n  {tool}");
        sandbox.write("a.yaml", text);
        let ran = sandbox.delta(["tool", "expand", "a.yaml"]).output().expect_code(0);
        let list = format!(
            "  parameters:\n  {dash}{{name: file, type: string, inject_as: argument, position: 0}}\n  - name: top\n"
        );
        assert_eq!(ran.stdout.matches(&list).count(), 2, "{}", ran.stdout);
    }
    sandbox.write("a.yaml", "name: t\ntools:\n- {name: a, shell: 'echo [ ${x} ]'}\n");
    let ran = sandbox.delta(["tool", "expand", "a.yaml"]).output().expect_code(0);
    assert!(ran.stdout.contains("parameters: [{name: x, "), "{}", ran.stdout);
}

#[test]
fn c_2_9_a_file_whose_tools_are_none_is_printed_as_it_is() {
    let sandbox = Sandbox::new(DELTA);
    for text in ["# nothing\nname: t\ntools: []\n", "tools: []"] {
        sandbox.write("a.yaml", text);
        sandbox.delta(["tool", "expand", "a.yaml"]).output().expect(0, text, "");
    }
}

#[test]
fn c_1_3_a_file_that_is_wrong() {
    let sandbox = Sandbox::new(DELTA);
    let expand = || sandbox.delta(["tool", "expand", "a.yaml"]).output();
    expand().expect(
        126,
        "",
        "error: there is no file a.yaml\nhelp: name agent.yaml, its directory, or a file with a `tools:` list: `delta tool expand FILE`\n",
    );
    sandbox.write("a.yaml", b"\xff");
    assert_eq!(expand().code, 126);
    sandbox.write("a.yaml", "tools: [\n");
    let ran = expand();
    assert_eq!((ran.code, ran.stdout.as_str()), (126, ""));
    assert!(ran.stderr.contains("--> a.yaml:1:8"), "{}", ran.stderr);
    sandbox.write("a.yaml", "turns: []\n");
    expand().expect(126, "", "error: the file has no `tools:` list\n  --> a.yaml:1:1\n   |\n 1 | turns: []\n   | ^^^^^^^^^\n");
    // Every mistake of every tool, and nothing printed.
    sandbox.write("a.yaml", "tools:\n  - name: a\n    exec: ls | wc\n  - name: b\n    exec: echo 'x\n  - nmae: c\n    exec: ls\n");
    let ran = expand();
    assert_eq!((ran.code, ran.stdout.as_str()), (126, ""));
    for part in ["--> a.yaml:3:14", "--> a.yaml:5:", "unknown key `nmae`"] {
        assert!(ran.stderr.contains(part), "{part} in {}", ran.stderr);
    }
}

#[test]
fn c_12_6_a_reader_that_has_gone() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("a.yaml", FILE);
    let shell = format!("{{ \"{DELTA}\" tool expand a.yaml; echo \"code $?\" >&2; }} | true");
    let output = std::process::Command::new("sh")
        .args(["-c", &shell])
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "code 0\n");
}

#[test]
fn c_2_9_a_directory_is_its_main_file() {
    let sandbox = Sandbox::new(DELTA);
    for name in ["config.yaml", "agent.yaml"] {
        sandbox
            .write(&format!("agent/{name}"), FILE.replace("name: t ", &format!("name: {name} ")));
        let expanded = EXPANDED.replace("name: t ", &format!("name: {name} "));
        sandbox.delta(["tool", "expand", "agent"]).output().expect(0, &expanded, "");
    }
}
