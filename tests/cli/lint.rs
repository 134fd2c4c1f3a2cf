//! `delta tool lint`: what loads and is probably wrong. Each agent in tests/corpus has exactly the findings in its
//! expected.txt; `UPDATE_CORPUS=1` writes what is found now.

mod proposals;

use super::DELTA;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use test_support::alone::is_alone;
use test_support::cpu_time::children_cpu_time;
use test_support::sandbox::{Ran, Sandbox};

/// The programs that the corpus finds in its PATH, so that its findings are the same on every machine.
const PROGRAMS: [&str; 43] = [
    "awk",
    "bash",
    "cat",
    "cp",
    "curl",
    "cut",
    "delta",
    "diff",
    "env",
    "find",
    "git",
    "grep",
    "head",
    "jq",
    "ls",
    "mkdir",
    "node",
    "perl",
    "python3",
    "rm",
    "sed",
    "sh",
    "sort",
    "sqlite3",
    "ssh",
    "stat",
    "tail",
    "tar",
    "tee",
    "timeout",
    "touch",
    "true",
    "uniq",
    "wc",
    "xargs",
    "tr",
    "printf",
    "echo",
    "test",
    "sleep",
    "date",
    "delta-sessions",
    "delta-sessions-pty",
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// A sandbox whose PATH holds [`PROGRAMS`] alone.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    for program in PROGRAMS {
        sandbox.write(&format!("bin/{program}"), "#!/bin/sh\n");
        let path = sandbox.path("bin").join(program);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    sandbox
}

fn lint(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let bin = sandbox.path("bin");
    let arguments = ["tool", "lint"].iter().chain(more).copied();
    sandbox.delta(arguments).env("PATH", bin.to_str().unwrap()).output()
}

/// An agent with one tool, described as it should be.
fn with_tool(tool: &str) -> Sandbox {
    let sandbox = sandbox();
    sandbox.agent("provider: script\n  model: script.yaml", tool);
    sandbox
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_name() != "expected.txt" {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[test]
fn c_11_8_each_agent_of_the_corpus_has_exactly_its_findings() {
    let sandbox = sandbox();
    let mut names: Vec<_> =
        fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert!(names.len() >= 40, "where is the corpus?");
    let mut wrong = Vec::new();
    for name in names {
        let name = name.to_str().unwrap();
        copy(&corpus().join(name), &sandbox.path("corpus").join(name));
        let ran = lint(&sandbox, &[&format!("corpus/{name}"), "--level", "info"]);
        let home = sandbox.path("corpus").join(name);
        let found = ran.stdout.replace(home.to_str().unwrap(), "AGENT");
        assert_eq!(ran.stderr, "", "{name}");
        assert_eq!(ran.code, i32::from(!found.is_empty()), "{name}");
        let expected = corpus().join(name).join("expected.txt");
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            fs::write(&expected, &found).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != found {
            wrong.push(format!("{name} has other findings than its expected.txt:\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The script of a hook was seen only as the first or second word, and only if the agent directory has one of its name.
#[test]
fn c_11_8_a_hook_whose_script_is_in_the_workspace_is_reported() {
    let sandbox = with_tool("  - {name: list, description: Lists, exec: ls}\n");
    sandbox.write("agent/script.yaml", "turns: []\n");
    sandbox.write_program("agent/tools/gate.py", "#!/bin/sh\n");
    let found = |command: &str, more: &str| {
        let hook = format!("pre_tool_execution:\n  command: {command}\n{more}");
        sandbox.write("agent/hooks.yaml", hook);
        let ran = lint(&sandbox, &["agent", "--level", "info"]);
        let lines = ran.stdout.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("warning[relative-program]: `"));
        let words: Vec<String> =
            lines.map(|line| line.split_once('`').unwrap().0.to_owned()).collect();
        (words, ran.stdout)
    };
    for (command, word) in [
        ("[python3, tools/gate.py]", "tools/gate.py"),
        ("[python3, gate.py]", "gate.py"),
        ("[python3, -u, ./gate.py, --strict]", "./gate.py"),
        ("[python3, -X, dev, gate.py]", "gate.py"),
        ("[sh, -e, check.sh]", "check.sh"),
        ("[bash, -o, pipefail, check.sh]", "check.sh"),
        ("[bash, --norc, check.sh]", "check.sh"),
        ("[sh, +e, check.sh]", "check.sh"),
        ("[node, check.js]", "check.js"),
        ("[deno, run, --allow-read, check.ts]", "check.ts"),
        ("[perl, '${CWD}/check.pl']", "${CWD}/check.pl"),
        ("[awk, -f, check.awk]", "check.awk"),
        ("[./check.sh]", "./check.sh"),
        ("[env, MODE=strict, ./check.sh]", "./check.sh"),
        ("[env, -i, '${CWD}/check.sh']", "${CWD}/check.sh"),
        ("[timeout, '5', ./check.sh]", "./check.sh"),
        ("[timeout, '5', env, python3, gate.py]", "gate.py"),
        ("[timeout, '5', sh, -c, './check.sh; true']", "./check.sh"),
        ("[sh, -c, ./check.sh]", "./check.sh"),
        ("[sh, -c, 'set -e; . ./check.sh']", "./check.sh"),
        ("[sh, -ec, 'grep -q x y && exec ${CWD}/check.sh']", "${CWD}/check.sh"),
        ("[bash, -c, 'python3 gate.py \"$1\"', --]", "gate.py"),
        ("[sh, -c, 'cd ${CWD} && cd sub && ./check.sh']", "./check.sh"),
        ("[delta-sessions, tools/gate.py]", "tools/gate.py"),
    ] {
        let (words, all) = found(command, "");
        assert_eq!(words, [word], "{command}: {all}");
        assert_eq!(found(command, "  x-lint-allow: relative-program\n").0.len(), 0, "{command}");
    }
    for command in [
        "[python3, '${AGENT_HOME}/tools/gate.py', src/main.py]",
        "[python3, -c, 'print(1/2)']",
        "[python3, -m, json.tool]",
        "[sh, -c, 'grep -q x src/main.rs && cp a/b c/d']",
        "[sh, -c, 'cd \"$1\" && git diff', --, src/main.rs]",
        "[sh, -c, '${AGENT_HOME}/tools/gate.py a/b']",
        "[sh, -c, '\"$0\"', /bin/true]",
        "[sh, -c, 'cd ${AGENT_HOME} && ./tools/gate.py']",
        "[sh, -c, 'cat > seen', tools/gate.py]",
        "[deno, fmt]",
        "[delta-sessions, --repo, owner/name]",
        "[git, diff, --stat, --, src/main.rs]",
        "[curl, -s, 'http://127.0.0.1:9/x']",
        "[delta-sessions, 'http://127.0.0.1:9/x', 'a b/c', /bin/true, '--x=a/b']",
        "[perl, -ne, 'print if m/a/', src/main.rs]",
        "[sed, -n, 's/a/b/p', src/main.rs]",
        "[awk, '{print $1}', src/main.rs]",
        "[env, PATH=bin/x, sh, -s]",
    ] {
        let (words, all) = found(command, "");
        assert!(words.is_empty(), "{command}: {all}");
    }
}

#[test]
fn c_11_8_findings_are_the_result_and_the_level_decides_the_exit_code() {
    let tool = "  - name: read\n    description: Reads\n    exec: cat ${path}\n";
    let sandbox = with_tool(tool);
    let home = sandbox.path("agent");
    let file = home.join("agent.yaml").display().to_string();
    let warning = format!(
        "warning[option-injection]: a value that begins with `-` is an option to `cat` here\n  \
         --> {file}:8:15\n   |\n 8 |     exec: cat ${{path}}\n   |               ^^^^^^^\n  \
         = help: write `cat -- ${{path}}`\n\n"
    );
    let info = format!(
        "info[undescribed-parameter]: the LLM sees only the name of the parameter `path`\n  \
         --> {file}:8:15\n   |\n 8 |     exec: cat ${{path}}\n   |               ^^^^^^^\n  \
         = help: write `parameters: [{{name: path, description: ...}}]`\n\n"
    );
    sandbox.write("agent/script.yaml", "turns: []\n");
    lint(&sandbox, &["agent"]).expect(1, &format!("{warning}1 warning\n"), "");
    let all = format!("{info}{warning}1 warning, 1 info\n");
    lint(&sandbox, &["agent", "--level", "info"]).expect(1, &all, "");
    lint(&sandbox, &["agent", "--level", "error"]).expect(0, "", "");
    lint(&sandbox, &["agent/agent.yaml", "--level", "error"]).expect(0, "", "");
    // The directory is the current one when none is named.
    let bin = sandbox.path("bin");
    let here = sandbox.delta(["tool:lint"]).cwd(&home).env("PATH", bin.to_str().unwrap());
    here.output().expect(1, &format!("{warning}1 warning\n"), "");
    let json = lint(&sandbox, &["agent", "--format", "json"]).expect_code(1).json();
    let expected = serde_json::json!([{
        "rule": "option-injection",
        "level": "warning",
        "file": file,
        "line": 8,
        "column": 15,
        "message": "a value that begins with `-` is an option to `cat` here",
        "help": "write `cat -- ${path}`"
    }]);
    assert_eq!(json, expected);
    let none = lint(&sandbox, &["agent", "--format", "json", "--level", "error"]);
    none.expect(0, "[]\n", "");
}

/// An agent and its sub-agent may name each other by symlinks.
#[test]
fn c_11_8_the_agents_of_an_agent_are_checked_once() {
    let sandbox = with_tool("  - name: read\n    description: Reads\n    exec: ls\n");
    sandbox.write("agent/script.yaml", "turns: []\n");
    sandbox.write("agent/agents/helper/agent.yaml", "nmae: helper\n");
    let link = |to: &str, from: &str| {
        fs::create_dir_all(sandbox.path(from).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(sandbox.path(to), sandbox.path(from)).unwrap();
    };
    link("agent", "agent/agents/helper/agents/parent");
    link("agent/agents/helper", "agent/agents/same");
    let found = lint(&sandbox, &["agent", "--format", "json"]).expect_code(1).json();
    let file = sandbox.path("agent/agents/helper/agent.yaml").display().to_string();
    let messages: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["message"].as_str().unwrap().contains("`nmae`"))
        .map(|finding| finding["file"].as_str().unwrap())
        .collect();
    assert_eq!(messages, [file], "{found}");
}

#[test]
fn c_11_8_what_is_no_agent_directory_is_refused() {
    let sandbox = sandbox();
    let message = "error: there is no agent `work`\nhelp: it has no agent.yaml; name an agent directory: `delta tool lint DIR`\n";
    let missing = message.replace("it has no agent.yaml; ", "");
    lint(&sandbox, &["work"]).expect(126, "", &missing);
    std::fs::create_dir(sandbox.path("work")).unwrap();
    lint(&sandbox, &["work"]).expect(126, "", message);
    let migrated = sandbox.delta(["tool", "migrate", "work"]).output();
    migrated.expect(126, "", &message.replace("lint", "migrate"));
    assert_eq!(lint(&sandbox, &["agent", "--level", "everything"]).code, 2);
    assert_eq!(lint(&sandbox, &["agent", "--format", "xml"]).code, 2);
}

#[test]
fn c_11_8_nothing_is_executed_and_nothing_is_written() {
    let sandbox = sandbox();
    let touch = "#!/bin/sh\ntouch \"$0.ran\"\n";
    for program in ["sh", "cat", "ls"] {
        sandbox.write(&format!("bin/{program}"), touch);
    }
    let tools = "  - name: a\n    shell: cat x | ls\n  - name: b\n    exec: ls\n";
    sandbox.agent("provider: command\n  model: m\n  command: [cat]", tools);
    sandbox.write("agent/context.yaml", "sources:\n  - {type: computed_file, generator: {command: [ls]}, output_path: '${RUN_DIR}/x'}\n  - type: journal\n");
    sandbox.write("agent/hooks.yaml", "on_run_end: {command: [ls]}\n");
    let before = sandbox.files("");
    lint(&sandbox, &["agent", "--level", "info"]).expect_code(1);
    assert_eq!(sandbox.files(""), before);
}

#[test]
fn c_15_1_a_rule_is_silenced_where_it_stands_and_nowhere_else() {
    let tool = |allow: &str| {
        format!("  - name: read\n    description: Reads\n    {allow}exec: cat ${{path}}\n")
    };
    let rules = |sandbox: &Sandbox| -> Vec<String> {
        let found = lint(sandbox, &["agent", "--format", "json"]).json();
        let name = |finding: &Value| finding["rule"].as_str().unwrap().to_owned();
        found.as_array().unwrap().iter().map(name).collect()
    };
    for (allow, expected) in [
        ("", vec!["option-injection"]),
        ("x-lint-allow: [option-injection]\n    ", vec![]),
        ("x-lint-allow: option-injection\n    ", vec![]),
        ("x-lint-allow: [raw]\n    ", vec!["option-injection"]),
        ("x-lint-allow: [raww]\n    ", vec!["unknown-rule", "option-injection"]),
        ("x-lint-allow: [load]\n    ", vec!["unknown-rule", "option-injection"]),
    ] {
        let sandbox = with_tool(&tool(allow));
        sandbox.write("agent/script.yaml", "turns: []\n");
        assert_eq!(rules(&sandbox), expected, "{allow}");
    }
    let sandbox = with_tool(&format!("{}x-lint-allow: [option-injection]\n", tool("")));
    sandbox.write("agent/script.yaml", "turns: []\n");
    assert_eq!(rules(&sandbox), Vec::<String>::new());
    let program = "  - name: run\n    description: Runs\n    exec: python3 -c \"print(${text})\"\n";
    assert!(rules(&with_tool(program)).contains(&"program-text".to_owned()));
}

#[test]
fn c_25_10_a_variable_of_the_shell_that_nothing_sets_is_named() {
    let shell = "x=1; echo \"$x $HOME\" \"$pattern\" \"${pattern}\" \"$nothing\"";
    let sandbox = with_tool(&format!("  - name: search\n    shell: {shell}\n"));
    sandbox.write("agent/script.yaml", "turns: []\n");
    let findings = lint(&sandbox, &["agent"]).stdout;
    let named = findings.lines().filter_map(|line| line.strip_prefix("warning[unset-variable]: "));
    assert_eq!(
        named.collect::<Vec<_>>(),
        [
            "`$pattern` is a variable of the shell that nothing sets, not the parameter",
            "nothing sets the shell variable `$nothing`",
        ]
    );
}

/// The directories of agents below `dir`, without what is left of runs that somebody has made.
fn agents_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_of_runs = |path: &PathBuf| path.ends_with(".delta") || path.ends_with("workspaces");
    let dirs = entries.filter(|path| path.is_dir() && !is_of_runs(path));
    let mut found: Vec<_> = dirs.flat_map(|path| agents_below(&path)).collect();
    found.extend(dir.join("agent.yaml").is_file().then(|| dir.to_owned()));
    found
}

#[test]
fn c_11_8_the_examples_are_clean() {
    let sandbox = Sandbox::new(DELTA);
    let agents = agents_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"));
    assert!(agents.len() >= 5, "where are the examples?");
    // Where delta is installed, its other programs are too.
    let own = Path::new(DELTA).parent().unwrap().display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap());
    for agent in agents {
        let lint = sandbox.delta(["tool", "lint", agent.to_str().unwrap()]).env("PATH", &path);
        lint.output().expect(0, "", "");
    }
}

#[test]
fn c_11_4_what_init_writes_is_clean() {
    let sandbox = Sandbox::new(DELTA);
    for template in ["minimal", "hello-world", "file-ops", "api-tester", "coding"] {
        sandbox.delta(["init", "-t", template, template]).output().expect_code(0);
        sandbox.delta(["tool", "lint", template]).output().expect(0, "", "");
    }
}

/// Five ways to write many tools; each of them has findings.
#[test]
fn c_11_8_the_cost_of_a_lint_grows_with_the_tools() {
    if !is_alone() {
        return;
    }
    let tools = [
        "exec: cat ${path}",
        "shell: cat ${path} | sed \"s/a/${b}/\"",
        "exe: cat ${path}",
        "exec: missing-program ${path}",
        "shell: v=${x}; timeout 1 env sh -c \"ls $v\"; eval \"$v\"",
    ];
    for tool in tools {
        let cost = |count: usize| {
            let list = (0..count).map(|index| format!("  - name: t{index}\n    {tool}\n"));
            let sandbox = with_tool(&list.collect::<String>());
            let before = children_cpu_time();
            lint(&sandbox, &["agent", "--level", "info"]).expect_code(1);
            children_cpu_time() - before
        };
        let (few, many) = (cost(300), cost(2_400));
        // Eight times the tools: with the square it was sixty times the cost.
        assert!(many < 20 * few.max(10), "{tool}: {few} and {many} hundredths of a second");
    }
}
