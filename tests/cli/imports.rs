//! Tools from other files (C-1.6).

use super::DELTA;
use super::agent_loading::{GOOD, agent, refused};
use std::os::unix::fs::symlink;
use test_support::sandbox::Sandbox;

fn tool(name: &str, says: &str) -> String {
    format!("  - name: {name}\n    exec: echo {says}\n")
}

fn file(imports: &str, tools: &[(&str, &str)]) -> String {
    let list: String = tools.iter().map(|(name, says)| tool(name, says)).collect();
    let imports = if imports.is_empty() { String::new() } else { format!("imports: {imports}\n") };
    if list.is_empty() { imports } else { format!("{imports}tools:\n{list}") }
}

/// An agent with the given `imports` and tools, whose LLM calls every tool that it is offered once.
fn importing(imports: &str, tools: &[(&str, &str)]) -> Sandbox {
    agent(format!("{GOOD}{}", file(imports, tools)))
}

/// The tools of the run, in order, as ENGINE_START has them.
fn offered(sandbox: &Sandbox) -> Vec<String> {
    let start = &sandbox.events("ENGINE_START")[0];
    let tools = start["config"]["tools"].as_array().unwrap();
    tools.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// What each of `names` says when the LLM calls it.
fn says(sandbox: &Sandbox, names: &[&str]) -> Vec<String> {
    let calls: Vec<String> = names.iter().map(|name| format!("{{tool: {name}}}")).collect();
    let script = format!("turns:\n- call: [{}]\n- say: done\n", calls.join(", "));
    sandbox.write("agent/script.yaml", script);
    sandbox.run("go", &[]).expect_code(0);
    let first = |text: &String| text.lines().next().unwrap().to_owned();
    sandbox.observations().iter().map(first).collect()
}

#[test]
fn c_1_6_the_later_tool_wins_and_the_first_place_is_kept() {
    let sandbox = importing("[tools/a.yaml, ./tools/b.yaml]", &[("local", "L"), ("two", "local")]);
    sandbox.write("agent/tools/a.yaml", file("[deep/c.yaml]", &[("one", "a"), ("two", "a")]));
    sandbox.write("agent/tools/b.yaml", file("", &[("three", "b"), ("one", "b")]));
    // Relative to the file that imports it.
    sandbox.write(
        "agent/tools/deep/c.yaml",
        "x-note: mine\ntools:\n  - {name: zero, exec: echo c}\n  - {name: one, exec: echo c}\n",
    );
    let said = says(&sandbox, &["zero", "one", "two", "three", "local"]);
    assert_eq!(said, ["c", "b", "local", "b", "L"]);
    assert_eq!(offered(&sandbox), ["zero", "one", "two", "three", "local"]);
}

#[test]
fn c_1_6_a_diamond_is_fine_and_brings_its_tools_once() {
    let sandbox = importing("[left.yaml, right.yaml]", &[]);
    sandbox.write("agent/left.yaml", file("[base.yaml]", &[("shared", "left"), ("left", "left")]));
    sandbox.write("agent/right.yaml", file("[./base.yaml]", &[("right", "right")]));
    sandbox.write("agent/base.yaml", file("", &[("base", "base"), ("shared", "base")]));
    // What right.yaml brings comes after left.yaml, also what it imports.
    assert_eq!(
        says(&sandbox, &["base", "shared", "left", "right"]),
        ["base", "base", "left", "right"]
    );
    assert_eq!(offered(&sandbox), ["base", "shared", "left", "right"]);
}

#[test]
fn c_1_6_a_cycle_is_printed_whole() {
    let sandbox = importing("[tools/b.yaml]", &[]);
    sandbox.write("agent/tools/b.yaml", file("[c.yaml]", &[]));
    sandbox.write("agent/tools/c.yaml", file("['../agent.yaml']", &[]));
    let at = "  --> DIR/agent/tools/c.yaml:1:11\n   |\n 1 | imports: ['../agent.yaml']\n   |           ^^^^^^^^^^^^^^^\n  = help: remove one of these imports\n";
    assert_eq!(
        refused(&sandbox),
        format!(
            "error: circular import: agent.yaml -> tools/b.yaml -> tools/c.yaml -> agent.yaml\n{at}"
        )
    );
    sandbox.write("agent/tools/c.yaml", file("[c.yaml]", &[]));
    let said = refused(&sandbox);
    assert!(said.starts_with("error: circular import: tools/c.yaml -> tools/c.yaml\n"), "{said}");
}

#[test]
fn c_1_6_a_chain_without_end_is_none() {
    let sandbox = importing("[1.yaml]", &[]);
    for number in 1..70 {
        let next = format!("[{}.yaml]", number + 1);
        sandbox.write(&format!("agent/{number}.yaml"), file(&next, &[]));
    }
    let said = refused(&sandbox);
    assert!(
        said.starts_with(
            "error: imports are nested more than 64 deep\n  --> DIR/agent/64.yaml:1:11\n"
        ),
        "{said}"
    );
    sandbox.write("agent/64.yaml", file("", &[("last", "x")]));
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(offered(&sandbox), ["last"]);
}

#[test]
fn c_1_6_mistakes_of_all_files_come_at_once_each_where_it_is() {
    let sandbox = importing(
        "[a.yaml, gone.yaml, 'npm:@x/tools', 'https://x.example/t.yaml', dir, 5, [x]]",
        &[],
    );
    sandbox.write("agent/a.yaml", "tool: []\n");
    std::fs::create_dir(sandbox.path("agent/dir")).unwrap();
    sandbox.write("agent/5", file("", &[("same", "x"), ("other", "x"), ("same", "'")]));
    let said = refused(&sandbox);
    let heads: Vec<&str> =
        said.lines().filter(|line| line.starts_with("error: ") || line.contains("-->")).collect();
    assert_eq!(
        heads,
        [
            "error: DIR/agent/gone.yaml does not exist",
            "  --> DIR/agent/agent.yaml:3:19",
            "error: not supported: remote imports",
            "  --> DIR/agent/agent.yaml:3:30",
            "error: not supported: remote imports",
            "  --> DIR/agent/agent.yaml:3:46",
            "error: DIR/agent/dir is not a file",
            "  --> DIR/agent/agent.yaml:3:74",
            "error: an entry of `imports` must be a string, not a list",
            "  --> DIR/agent/agent.yaml:3:82",
            "error: unknown key `tool` in an imported file",
            "  --> DIR/agent/a.yaml:1:1",
            "error: two tools are named `same`",
            "  --> DIR/agent/5:6:11",
            "error: the quote ' is not closed",
            "  --> DIR/agent/5:7:16",
        ],
        "{said}"
    );
    assert!(said.contains("= help: did you mean `tools`?"), "{said}");
    assert!(said.contains("= help: rename one of them; the other one is on line 2"), "{said}");
}

#[test]
fn c_1_6_what_lies_outside_is_read_only_where_the_operator_allows_it() {
    let sandbox = importing("[../shared/t.yaml]", &[]);
    sandbox.write("shared/t.yaml", file("[more/u.yaml]", &[("t", "shared")]));
    sandbox.write("shared/more/u.yaml", file("", &[("u", "more")]));
    let refusal = |more: &str| {
        format!(
            "error: DIR/shared/t.yaml is outside the agent directory\n  --> DIR/agent/agent.yaml:3:11\n   |\n 3 | imports: [../shared/t.yaml]\n   |           ^^^^^^^^^^^^^^^^\n  = help: if you trust its files: export DELTA_IMPORT_PATH=DIR/shared (separate several directories with `:`)\n{more}"
        )
    };
    assert_eq!(refused(&sandbox), refusal(""));
    let with = |path: &str| {
        let path = path.replace("DIR", sandbox.path("").to_str().unwrap().trim_end_matches('/'));
        sandbox.run_command("hi", &[]).env("DELTA_IMPORT_PATH", path).output().normal(&sandbox)
    };
    // No file allows anything: the agent's own would allow itself.
    sandbox
        .write("agent/.env", format!("DELTA_IMPORT_PATH={}\n", sandbox.path("shared").display()));
    assert_eq!(refused(&sandbox), refusal(""));
    let reasons = "    `shared` in DELTA_IMPORT_PATH is ignored: it must be absolute\n    `DIR/gone` in DELTA_IMPORT_PATH is ignored: No such file or directory (os error 2)\n";
    with("shared:DIR/gone:").expect(126, "", &refusal(reasons));
    // A name that only begins alike is another directory.
    assert!(with("DIR/share").stderr.starts_with("error: DIR/shared/t.yaml is outside"));
    let ran = with("DIR/home:DIR/gone:DIR/shared").expect_code(0);
    assert!(
        ran.stderr.starts_with("Warning: `DIR/gone` in DELTA_IMPORT_PATH is ignored: No such file or directory (os error 2)\n"),
        "{}",
        ran.stderr
    );
    let note = "\nNote: delta ignores DELTA_IMPORT_PATH in DIR/agent/.env: only the environment of the process counts\n";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(offered(&sandbox), ["u", "t"]);
}

#[test]
fn c_1_6_a_symlink_is_where_it_leads() {
    let sandbox = importing("[t.yaml]", &[]);
    sandbox.write("elsewhere/t.yaml", file("", &[("t", "x")]));
    symlink(sandbox.path("elsewhere/t.yaml"), sandbox.path("agent/t.yaml")).unwrap();
    assert!(refused(&sandbox).starts_with("error: DIR/elsewhere/t.yaml is outside"));
    std::fs::remove_file(sandbox.path("agent/t.yaml")).unwrap();
    sandbox.write("agent/real/t.yaml", file("", &[("t", "x")]));
    symlink("real/t.yaml", sandbox.path("agent/t.yaml")).unwrap();
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(offered(&sandbox), ["t"]);
}

#[test]
fn c_5_1_the_kept_configuration_loads_by_itself() {
    let main = format!(
        "# A comment.\n{GOOD}version: 1.10\nx-y: &a [yes, ~, 'true', 1.50]\nx-z: *a\nimports: [a.yaml, b.yaml]\ntools:\n{}",
        tool("two", "${what}")
    );
    let sandbox = agent(main);
    sandbox.write("agent/a.yaml", "tools:\n- name: one\n  description: \"a \\\"b\\\"\\n\\u2028\"\n  shell: |\n    cat ${file} | wc -l\n  env: {A: '${AGENT_HOME}/x', B: 010}\n  parameters:\n  - {name: file, type: string, default: 'null'}\n- name: two\n  exec: old\n");
    sandbox.write("agent/b.yaml", file("", &[("three", "b")]));
    sandbox.run("hi", &[]).expect_code(0);
    let kept = sandbox.read("work/.delta/r/agent/agent.yaml");
    assert_eq!(
        kept,
        "name: \"t\"\nllm: {provider: \"script\", model: \"script.yaml\"}\nversion: 1.10\n\"x-y\": [\"yes\", null, \"true\", 1.50]\n\"x-z\": [\"yes\", null, \"true\", 1.50]\ntools:\n  - {name: \"one\", description: \"a \\\"b\\\"\\n\\u2028\", shell: \"cat ${file} | wc -l\\n\", env: {A: \"${AGENT_HOME}/x\", B: 010}, parameters: [{name: \"file\", type: \"string\", default: \"null\"}]}\n  - {name: \"two\", exec: \"echo ${what}\"}\n  - {name: \"three\", exec: \"echo b\"}\n"
    );
    // The same agent again, from what was kept: the LLM is sent the same.
    let request = |dir: &str| {
        let files = sandbox.files(&format!("{dir}/io/invocations"));
        let record = sandbox.read(&format!("{dir}/io/invocations/{}", files[0]));
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        record["request"].clone()
    };
    let from = sandbox.path("work/.delta/r/agent");
    for name in sandbox.files("work/.delta/r/agent") {
        sandbox.write(&format!("again/{name}"), std::fs::read(from.join(name)).unwrap());
    }
    sandbox.write("again/script.yaml", "turns:\n- say: done\n");
    let args = ["run", "--agent", "again", "-w", "work", "--run-id", "s", "-m", "hi"];
    sandbox.delta(args).output().expect_code(0);
    assert_eq!(request("work/.delta/s"), request("work/.delta/r"));
    assert_eq!(sandbox.read("work/.delta/s/agent/agent.yaml"), kept);
}

#[test]
fn c_2_9_expand_reads_files_that_import_and_files_that_are_imported() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("main.yaml", format!("{GOOD}imports: [t.yaml]\n"));
    sandbox.write("t.yaml", "tools:\n  - name: t\n    command: [ls]\n");
    for name in ["main.yaml", "t.yaml"] {
        let text = sandbox.read(name);
        sandbox.delta(["tool", "expand", name]).output().expect(0, &text, "");
    }
}
