//! `delta tool migrate`: an agent directory of an older form, brought into the present one.

use super::DELTA;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use test_support::sandbox::Sandbox;

const OLD: &str = "\
# My agent.
name: old   # since long
llm: {provider: script, model: script.yaml}

# Looks at every call.
lifecycle_hooks:
  pre_tool_exec:   # the gate
    command: ['${AGENT_HOME}/gate.sh']

tools:
  # Looks for something.
  - name: search
    description: Find
    command: [sh, -c, 'grep \"$1\" \"$2\" | wc -l', --]   # why
    parameters:
      - {name: pattern, inject_as: argument, position: 0}
      - {name: file, inject_as: argument, position: 1}
  - name: save
    description: Save
    command: [tee, --, out.txt]
    parameters: [{name: content, inject_as: stdin}]
  - name: images
    description: Build
    command: [docker, build]
    parameters: [{name: tag, inject_as: option, option_name: -t}]
";

const NEW: &str = "\
# My agent.
name: old   # since long
llm: {provider: script, model: script.yaml}


tools:
  # Looks for something.
  - name: search
    description: Find
    shell: grep ${pattern} ${file} | wc -l   # why
    parameters:
      - {name: pattern, inject_as: argument, position: 0}
      - {name: file, inject_as: argument, position: 1}
  - name: save
    description: Save
    exec: tee -- out.txt
    stdin: \"content\"
    parameters: [{name: content, inject_as: stdin}]
  - name: images
    description: Build
    command: [docker, build]
    parameters: [{name: tag, inject_as: option, option_name: -t}]
";

const HOOKS: &str = "\
# Looks at every call.
lifecycle_hooks:
  pre_tool_execution:   # the gate
    command: ['${AGENT_HOME}/gate.sh']
";

const CONTEXT: &str = "\
sources:
  - type: file
    id: system_prompt
    path: '${AGENT_HOME}/system_prompt.md'
  - type: file
    id: workspace_guide
    path: '${CWD}/DELTA.md'
    on_missing: skip
  - type: journal
    id: conversation_history
";

const DIFF: &str = "\
--- /dev/null
+++ hooks.yaml
@@ -0,0 +1,4 @@
+# Looks at every call.
+lifecycle_hooks:
+  pre_tool_execution:   # the gate
+    command: ['${AGENT_HOME}/gate.sh']
--- /dev/null
+++ context.yaml
@@ -0,0 +1,10 @@
+sources:
+  - type: file
+    id: system_prompt
+    path: '${AGENT_HOME}/system_prompt.md'
+  - type: file
+    id: workspace_guide
+    path: '${CWD}/DELTA.md'
+    on_missing: skip
+  - type: journal
+    id: conversation_history
--- config.yaml
+++ agent.yaml
@@ -2,22 +2,19 @@
 name: old   # since long
 llm: {provider: script, model: script.yaml}
 
-# Looks at every call.
-lifecycle_hooks:
-  pre_tool_exec:   # the gate
-    command: ['${AGENT_HOME}/gate.sh']
 
 tools:
   # Looks for something.
   - name: search
     description: Find
-    command: [sh, -c, 'grep \"$1\" \"$2\" | wc -l', --]   # why
+    shell: grep ${pattern} ${file} | wc -l   # why
     parameters:
       - {name: pattern, inject_as: argument, position: 0}
       - {name: file, inject_as: argument, position: 1}
   - name: save
     description: Save
-    command: [tee, --, out.txt]
+    exec: tee -- out.txt
+    stdin: \"content\"
     parameters: [{name: content, inject_as: stdin}]
   - name: images
     description: Build
";

const NOTE: &str = "note: the tool `images` keeps `command:`: a parameter is an option with a value, which only \
                    `command:` omits together\n";

/// An agent directory with the given files and a system prompt.
fn directory(files: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    fs::remove_file(sandbox.path("agent/context.yaml")).unwrap();
    fs::rename(sandbox.path("agent/system_prompt.md"), sandbox.path("agent/system_prompt.txt"))
        .unwrap();
    for (name, text) in files {
        sandbox.write(&format!("agent/{name}"), text);
    }
    sandbox
}

#[test]
fn c_11_9_what_would_change_is_shown_and_nothing_is_written() {
    let sandbox = directory(&[("config.yaml", OLD)]);
    let said = format!("{NOTE}Nothing was written; add `--write` to apply the changes.\n");
    for command in [&["tool", "migrate"] as &[&str], &["tool:migrate"]] {
        let ran = sandbox.delta(command.iter().copied().chain(["agent"])).output();
        ran.expect(1, DIFF, &said);
    }
    assert_eq!(sandbox.files("agent"), ["config.yaml", "system_prompt.txt"]);
    assert_eq!(sandbox.read("agent/config.yaml"), OLD);
}

#[test]
fn c_11_9_everything_else_stays_byte_for_byte_and_a_second_time_changes_nothing() {
    let sandbox = directory(&[("config.yaml", OLD)]);
    sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect(
        0,
        DIFF,
        &format!("{NOTE}written: hooks.yaml, context.yaml, agent.yaml\n"),
    );
    let files = ["agent.yaml", "context.yaml", "hooks.yaml", "system_prompt.txt"];
    assert_eq!(sandbox.files("agent"), files);
    assert_eq!(sandbox.read("agent/agent.yaml"), NEW);
    assert_eq!(sandbox.read("agent/hooks.yaml"), HOOKS);
    assert_eq!(sandbox.read("agent/context.yaml"), CONTEXT);
    for more in [&[] as &[&str], &["--write"]] {
        let again = ["tool", "migrate", "agent"].iter().chain(more).copied();
        sandbox.delta(again).output().expect(0, "", NOTE);
        assert_eq!(sandbox.read("agent/agent.yaml"), NEW);
    }
}

#[test]
fn c_11_9_a_file_keeps_its_rights_and_a_link_its_target() {
    let tools = "tools:\n  - {name: a, command: [ls]}\n";
    let text = format!("name: n\nllm: {{provider: script, model: s}}\n{tools}");
    let sandbox = directory(&[("real.yaml", &text), ("context.yaml", CONTEXT)]);
    let real = sandbox.path("agent/real.yaml");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.yaml", sandbox.path("agent/agent.yaml")).unwrap();
    sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect_code(0);
    assert_eq!(sandbox.read("agent/real.yaml"), text.replace("command: [ls]", "exec: \"ls\""));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(sandbox.path("agent/agent.yaml").is_symlink());
}

#[test]
fn c_11_9_what_is_there_is_never_written_over() {
    let main = "name: n\nllm: {provider: script, model: s}\n";
    let sandbox = directory(&[("config.yaml", OLD), ("agent.yaml", main)]);
    let ran = sandbox.delta(["tool", "migrate", "agent", "--write"]).output();
    let said = "error: error: both agent.yaml and config.yaml exist\n  --> agent\n  = help: delta reads agent.yaml; \
                remove config.yaml, or move its contents into agent.yaml\n";
    ran.expect(126, "", said.strip_prefix("error: ").unwrap());
    assert_eq!(sandbox.read("agent/agent.yaml"), main);

    let other = "pre_llm_request: {command: [other]}\n";
    let with_hooks = format!("{main}lifecycle_hooks:\n  on_error: {{command: [a]}}\n");
    let files =
        [("agent.yaml", with_hooks.as_str()), ("hooks.yaml", other), ("context.yaml", CONTEXT)];
    let sandbox = directory(&files);
    let note = "note: `lifecycle_hooks` is not migrated: hooks.yaml already exists and has other contents\n";
    sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect(0, "", note);
    assert_eq!(sandbox.read("agent/agent.yaml"), with_hooks);
    assert_eq!(sandbox.read("agent/hooks.yaml"), other);
    // What a migration that was killed has written already is its own.
    sandbox.write("agent/hooks.yaml", "lifecycle_hooks:\n  on_error: {command: [a]}\n");
    sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect_code(0);
    assert_eq!(sandbox.read("agent/agent.yaml"), main);
}

#[test]
fn c_11_9_a_migration_that_was_interrupted_is_taken_up() {
    for files in [
        &[("config.yaml", OLD), ("hooks.yaml", HOOKS)] as &[(&str, &str)],
        &[("config.yaml", OLD), ("hooks.yaml", HOOKS), ("context.yaml", CONTEXT)],
        &[
            ("config.yaml", OLD),
            ("hooks.yaml", HOOKS),
            ("context.yaml", CONTEXT),
            ("agent.yaml", NEW),
        ],
    ] {
        let sandbox = directory(files);
        sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect_code(0);
        let names = ["agent.yaml", "context.yaml", "hooks.yaml", "system_prompt.txt"];
        assert_eq!(sandbox.files("agent"), names);
        assert_eq!(sandbox.read("agent/agent.yaml"), NEW);
    }
}

/// Lint pointed to a migration that changed nothing.
#[test]
fn c_11_9_old_names_in_hooks_yaml_become_the_present_ones() {
    let main = "name: n\nllm: {provider: script, model: s}\n";
    for (old, new, place) in [
        (
            "# Gates.\npre_llm_req: {command: ['true']}   # one\n\"post_tool_exec\":\n  command: ['true']\non_error: {command: ['true']}\n",
            "# Gates.\npre_llm_request: {command: ['true']}   # one\npost_tool_execution:\n  command: ['true']\non_error: {command: ['true']}\n",
            "2:1",
        ),
        (
            "{lifecycle_hooks: {pre_tool_exec: {command: [pre_tool_exec]}}}\n",
            "{lifecycle_hooks: {pre_tool_execution: {command: [pre_tool_exec]}}}\n",
            "1:20",
        ),
    ] {
        let files = [("agent.yaml", main), ("context.yaml", CONTEXT), ("hooks.yaml", old)];
        let sandbox = directory(&files);
        sandbox.write("agent/s", "turns: []\n");
        let linted = sandbox.delta(["tool", "lint", "agent"]).output().expect_code(1).stdout;
        let place = format!("/agent/hooks.yaml:{place}\n");
        let (before, after) = linted.split_once(&place).unwrap_or_else(|| panic!("{linted}"));
        assert!(before.contains("warning[outdated]: the hook `p"), "{linted}");
        assert!(after.contains("delta tool migrate"), "{linted}");
        let ran = sandbox.delta(["tool", "migrate", "agent"]).output().expect_code(1);
        assert!(ran.stdout.starts_with("--- hooks.yaml\n+++ hooks.yaml\n@@ "), "{}", ran.stdout);
        assert_eq!(sandbox.read("agent/hooks.yaml"), old);
        let ran = sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect_code(0);
        assert_eq!(ran.stderr, "written: hooks.yaml\n");
        assert_eq!(sandbox.read("agent/hooks.yaml"), new);
        let again = sandbox.delta(["tool", "migrate", "agent"]).output();
        again.expect(0, "", "");
        let linted = sandbox.delta(["tool", "lint", "agent"]).output().stdout;
        assert!(!linted.contains("outdated"), "{linted}");
    }
    // A file with both names does not load; what it means is the author's decision.
    let both = "pre_llm_req: {command: [a]}\npre_llm_request: {command: [b]}\n";
    let files = [("agent.yaml", main), ("context.yaml", CONTEXT), ("hooks.yaml", both)];
    let sandbox = directory(&files);
    let note =
        "note: the hook `pre_llm_req` keeps its old name: hooks.yaml has `pre_llm_request` too\n";
    sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect(0, "", note);
    assert_eq!(sandbox.read("agent/hooks.yaml"), both);
}

#[test]
fn c_11_9_what_does_not_load_is_not_migrated() {
    let broken =
        "name: n\nllm: {provider: script, model: s}\ntools:\n  - name: a\n    exec: a | b\n";
    let sandbox = directory(&[("config.yaml", broken)]);
    let ran = sandbox.delta(["tool", "migrate", "agent", "--write"]).output();
    assert_eq!((ran.code, ran.stdout.as_str()), (126, ""));
    assert!(ran.stderr.contains("agent/config.yaml:5:13"), "{}", ran.stderr);
    assert_eq!(sandbox.files("agent"), ["config.yaml", "system_prompt.txt"]);
    let nothing = sandbox.delta(["tool", "migrate", "home"]).output();
    assert_eq!((nothing.code, nothing.stdout.as_str()), (126, ""));
}

#[test]
fn c_11_9_what_was_expanded_comes_back() {
    let tools = "name: n\nllm: {provider: script, model: s}\ntools:\n  - name: search\n    shell: grep ${p} ${f} | wc -l\n  - name: list\n    exec: ls -la ${dir}\n";
    let sandbox = directory(&[("agent.yaml", tools), ("context.yaml", CONTEXT)]);
    let expand =
        || sandbox.delta(["tool", "expand", "agent/agent.yaml"]).output().expect_code(0).stdout;
    let expanded = expand();
    sandbox.write("agent/agent.yaml", &expanded);
    sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect_code(0);
    let back = sandbox.read("agent/agent.yaml");
    assert!(back.contains("\n    shell: grep ${p} ${f} | wc -l\n"), "{back}");
    assert!(back.contains("\n    exec: ls -la ${dir}\n"), "{back}");
    assert!(!back.contains("__meta") && !back.contains("command:"), "{back}");
    // The command lines are those that they were.
    let words = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("command:")).map(str::to_owned).collect()
    };
    assert_eq!(words(&expand()), words(&expanded));
}

#[test]
fn c_11_9_a_hook_that_is_looked_for_in_the_workspace_is_told() {
    let hooks = |program: &str| format!("lifecycle_hooks:\n  on_error: {{command: [{program}]}}\n");
    let main = "name: n\nllm: {provider: script, model: s}\n";
    let said = |program: &str| {
        let text = format!("{main}{}", hooks(program));
        let sandbox = directory(&[("agent.yaml", &text), ("context.yaml", CONTEXT)]);
        let ran = sandbox.delta(["tool", "migrate", "agent/agent.yaml", "--write"]).output();
        assert_eq!(sandbox.read("agent/hooks.yaml"), hooks(program));
        ran.expect_code(0).stderr
    };
    let written = "written: hooks.yaml, agent.yaml\n";
    assert_eq!(
        said("./hook.sh"),
        format!(
            "note: the hook `on_error` starts `./hook.sh`, which is resolved in the workspace; \
             for a program in the agent directory, write `${{AGENT_HOME}}/hook.sh`\n{written}"
        )
    );
    for program in ["logger", "/bin/logger", "'${AGENT_HOME}/hook.sh'"] {
        assert_eq!(said(program), written);
    }
}
