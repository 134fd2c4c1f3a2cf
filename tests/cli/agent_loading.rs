//! An agent that is broken is refused before anything is made, with everything that is wrong in it in one go.

use super::DELTA;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};

pub const GOOD: &str = "name: t\nllm: {provider: script, model: script.yaml}\n";

/// An agent that works, with the given agent.yaml.
pub fn agent(main: impl AsRef<[u8]>) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("agent/script.yaml", "turns:\n- say: done\n");
    sandbox.write("agent/agent.yaml", main);
    sandbox
}

/// Runs the agent, which must be refused with nothing left behind; gives what is said.
#[track_caller]
pub fn refused(sandbox: &Sandbox) -> String {
    let before = sandbox.files("");
    // With a workspace and without one: neither is made.
    let given = sandbox.run("hi", &[]).normal(sandbox).expect_code(126);
    let own = sandbox.delta(["run", "--agent", "agent", "-m", "hi"]).output().normal(sandbox);
    assert_eq!(own, given);
    assert_eq!(given.stdout, "");
    assert_eq!(sandbox.files(""), before);
    for made in ["work", "agent/workspaces", ".delta", "agent/.delta"] {
        assert!(!sandbox.path(made).exists(), "{made} was made");
    }
    given.stderr
}

/// Checks what is said of an agent.yaml.
#[track_caller]
pub fn check(main: impl AsRef<[u8]>, expected: &str) {
    assert_eq!(refused(&agent(main)), expected);
}

/// Checks what is said of a context.yaml.
#[track_caller]
pub fn check_context(text: impl AsRef<[u8]>, expected: &str) {
    let sandbox = agent(GOOD);
    sandbox.write("agent/context.yaml", text);
    assert_eq!(refused(&sandbox), expected);
}

#[test]
fn c_1_3_all_mistakes_of_all_files_come_in_one_go() {
    let sandbox = agent(
        "nmae: x\nversion: [1]\nllm:\n  provider: script\n  modle: y\n  temperature: 3\nmax_iterations: 0\n",
    );
    sandbox.write(
        "agent/context.yaml",
        "sources:\n  - type: file\n    pth: x\n    on_missing: ignore\n",
    );
    sandbox.write("agent/system_prompt.md", " \n\t\n");
    sandbox.write("agent/hooks.yaml", "on_run_ned: {command: [x]}\n");
    let expected = "\
error: the system prompt is empty
  --> DIR/agent/system_prompt.md
  = help: describe in it what the agent is and how it should work

error: unknown key `nmae` in agent.yaml
  --> DIR/agent/agent.yaml:1:1
   |
 1 | nmae: x
   | ^^^^
  = help: did you mean `name`?

error: `version` must be a string, not a list
  --> DIR/agent/agent.yaml:2:10
   |
 2 | version: [1]
   |          ^^^

error: `llm` has no `model`
  --> DIR/agent/agent.yaml:5:3
   |
 5 |   modle: y
   |   ^^^^^
  = help: rename `modle` to `model`, if that was meant

error: `temperature` must be a number from 0 to 2
  --> DIR/agent/agent.yaml:6:16
   |
 6 |   temperature: 3
   |                ^

error: `max_iterations` must be a whole number from 1 to 2147483647
  --> DIR/agent/agent.yaml:7:17
   |
 7 | max_iterations: 0
   |                 ^
  = help: no value means `no limit`: write the largest number, 2147483647, or omit `max_iterations` for 30

error: unknown key `pth` in a `file` source
  --> DIR/agent/context.yaml:3:5
   |
 3 |     pth: x
   |     ^^^
  = help: did you mean `path`?

error: `on_missing` must be `skip` or `error`
  --> DIR/agent/context.yaml:4:17
   |
 4 |     on_missing: ignore
   |                 ^^^^^^
  = help: write `skip`

error: `on_run_ned` is not a hook
  --> DIR/agent/hooks.yaml:1:1
   |
 1 | on_run_ned: {command: [x]}
   | ^^^^^^^^^^
  = help: did you mean `on_run_end`?
";
    assert_eq!(refused(&sandbox), expected);
}

#[test]
fn c_1_1_no_directory_no_agent() {
    let sandbox = agent(GOOD);
    let run =
        |dir: &str| sandbox.delta(["run", "--agent", dir, "-m", "hi"]).output().normal(&sandbox);
    run("./nowhere").expect(126, "", "error: there is no agent `./nowhere`\nhelp: delta searched ./nowhere; name another directory with `--agent DIR`\n");
    run("./agnet").expect(126, "", "error: there is no agent `./agnet`\nhelp: did you mean `./agent`? delta searched ./agnet; name another directory with `--agent DIR`\n");
    run("home/agnet").expect(126, "", "error: there is no agent `home/agnet`\nhelp: did you mean `agent`? delta searched home/agnet; name another directory with `--agent DIR`\n");
    for command in [["tool", "lint", "agnet"], ["tool", "lint", "./agnet"]] {
        let ran = sandbox.delta(command).output().expect_code(126);
        assert!(ran.stderr.contains("did you mean `"), "{}", ran.stderr);
    }
    let preview = sandbox
        .delta(["context", "preview", "--agent", "agnet", "-m", "hi"])
        .output()
        .expect_code(126);
    assert!(preview.stderr.contains("did you mean `agent`?"), "{}", preview.stderr);
    run("agent/agent.yaml").expect(126, "", "error: expected an agent directory, found a file\n  --> agent/agent.yaml\n  = help: write `--agent agent`\n");
    run("agent/context.yaml").expect(126, "", "error: expected an agent directory, found a file\n  --> agent/context.yaml\n  = help: name the directory that contains agent.yaml\n");
    run("home").expect(
        126,
        "",
        "error: there is no agent `DIR/home`\n  --> DIR/home\n  = help: an agent is a directory with agent.yaml, system_prompt.md and context.yaml; name one with `--agent DIR`\n",
    );
}

#[test]
fn c_1_3_the_example_of_a_model_is_one_of_the_provider() {
    for (provider, model) in [("script", "script.yaml"), ("recorded", "cassette.jsonl")] {
        let sandbox = agent(format!("name: a\nllm: {{provider: {provider}}}\n"));
        assert!(refused(&sandbox).ends_with(&format!("  = help: write `model: {model}`\n")));
    }
}

#[test]
fn c_1_1_a_file_with_the_ending_yml_is_named() {
    for name in ["agent", "context"] {
        let sandbox = agent(GOOD);
        let path = sandbox.path(&format!("agent/{name}.yaml"));
        std::fs::rename(&path, path.with_extension("yml")).unwrap();
        let help = format!("  = help: delta does not read {name}.yml: rename it to {name}.yaml\n");
        assert!(refused(&sandbox).ends_with(&help));
    }
}

#[test]
fn c_1_1_the_old_name_of_agent_yaml_is_read_with_a_warning() {
    let sandbox = agent("name: new\nllm: {provider: script, model: script.yaml}\n");
    sandbox.write("agent/script.yaml", "turns:\n- say: done\n- say: done again\n");
    sandbox.write("agent/config.yaml", "name: old\nllm: {provider: script, model: script.yaml}\n");
    let names = |id: &str| {
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "hi"];
        let loud = sandbox.delta(args).output().normal(&sandbox).expect_code(0);
        let metadata = sandbox.read(&format!("work/.delta/{id}/metadata.json"));
        let again = ["continue", "-w", "work", "--run-id", id, "-m", "more", "-q"];
        assert_eq!(sandbox.delta(again).output().expect_code(0).stderr, "");
        let kept = sandbox.read(&format!("work/.delta/{id}/agent/agent.yaml"));
        let name = if metadata.contains(r#""agent_name": "old""#) { "old" } else { "new" };
        assert!(kept.starts_with(&format!("name: {name}\n")), "{kept}");
        (name, loud.stderr.lines().next().unwrap().to_owned())
    };
    let both = "Warning: DIR/agent has both agent.yaml and config.yaml; agent.yaml is used, config.yaml is not read";
    assert_eq!(names("both"), ("new", both.to_owned()));
    std::fs::remove_file(sandbox.path("agent/agent.yaml")).unwrap();
    let old =
        "[DEPRECATION WARNING] DIR/agent/config.yaml is the old name of agent.yaml; rename it";
    assert_eq!(names("old"), ("old", old.to_owned()));
    // Its mistakes are shown where they are.
    sandbox.write("agent/config.yaml", "llm: {provider: script, model: script.yaml}\n");
    let said = sandbox.run("hi", &[]).normal(&sandbox).expect_code(126).stderr;
    assert!(
        said.starts_with("error: config.yaml has no `name`\n  --> DIR/agent/config.yaml:1:1\n"),
        "{said}"
    );
}

#[test]
fn c_1_2_a_missing_context_yaml_prints_the_default_ready_to_paste() {
    let sandbox = agent(GOOD);
    std::fs::remove_file(sandbox.path("agent/context.yaml")).unwrap();
    let said = refused(&sandbox);
    let (heading, content) = said.split_once("\n\n").unwrap();
    assert_eq!(
        heading,
        "error: context.yaml not found in DIR/agent\n  --> DIR/agent/context.yaml\n  = help: it lists what the LLM sees; create it with this content:"
    );
    // An agent of the older form is older in more than this.
    let older = agent(format!("{GOOD}lifecycle_hooks: {{}}\n"));
    std::fs::remove_file(older.path("agent/context.yaml")).unwrap();
    let help = "  = help: it lists what the LLM sees; `delta tool migrate` updates the whole directory to the current form; or create it with this content:\n";
    assert!(refused(&older).contains(help));
    // As it is printed, indentation and all, it is a context.yaml.
    sandbox.write("agent/context.yaml", content);
    let ran = sandbox.run("hi", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    for part in
        ["${AGENT_HOME}/system_prompt.md", "${CWD}/DELTA.md", "on_missing: skip", "type: journal"]
    {
        assert!(content.contains(part), "{part}");
    }
}

/// The context.yaml in a message named system_prompt.md, which such an agent does not have.
#[test]
fn c_1_2_the_default_context_names_the_system_prompt_of_the_agent() {
    for (name, path) in
        [("prompt.md", "${AGENT_HOME}/prompt.md"), ("a/it's #1.md", "${AGENT_HOME}/a/it''s #1.md")]
    {
        let sandbox = agent(format!("{GOOD}system_prompt: \"{name}\"\n"));
        std::fs::remove_file(sandbox.path("agent/system_prompt.md")).unwrap();
        sandbox.write(&format!("agent/{name}"), "Be brief.\n");
        std::fs::remove_file(sandbox.path("agent/context.yaml")).unwrap();
        let missing = refused(&sandbox);
        let line = format!("path: '{path}'\n");
        assert!(missing.contains(&line), "{missing}");
        for empty in ["[]\n", "sources: []\n"] {
            sandbox.write("agent/context.yaml", empty);
            let said = refused(&sandbox);
            assert!(said.contains(&line), "{said}");
        }
        let (_, content) = missing.split_once("\n\n").unwrap();
        sandbox.write("agent/context.yaml", content);
        sandbox.run("hi", &[]).expect_code(0);
        std::fs::remove_file(sandbox.path("agent/context.yaml")).unwrap();
        sandbox.delta(["tool", "migrate", "agent", "--write"]).output().expect_code(0);
        sandbox.delta(["run", "--agent", "agent", "-w", "work", "hi"]).output().expect_code(0);
    }
}

const READABLE: &str = "  = help: make it a readable UTF-8 text\n";

#[test]
fn c_1_2_the_system_prompt_is_there_and_says_something() {
    let sandbox = agent(GOOD);
    let prompt = sandbox.path("agent/system_prompt.md");
    let help = "  = help: describe in it what the agent is and how it should work\n";
    std::fs::remove_file(&prompt).unwrap();
    assert_eq!(
        refused(&sandbox),
        format!("error: the system prompt is missing\n  --> DIR/agent/system_prompt.md\n{help}")
    );
    sandbox.write("agent/system_prompt.txt", "");
    assert_eq!(
        refused(&sandbox),
        format!("error: the system prompt is empty\n  --> DIR/agent/system_prompt.txt\n{help}")
    );
    sandbox.write("agent/system_prompt.md", b"\xff\xfe");
    assert_eq!(
        refused(&sandbox),
        format!(
            "error: could not read the system prompt: it is UTF-16, not UTF-8\n  --> DIR/agent/system_prompt.md\n{READABLE}"
        )
    );
    std::fs::remove_file(&prompt).unwrap();
    std::fs::create_dir(&prompt).unwrap();
    assert_eq!(
        refused(&sandbox),
        format!(
            "error: could not read the system prompt: Is a directory (os error 21)\n  --> DIR/agent/system_prompt.md\n{READABLE}"
        )
    );
    check(
        format!("{GOOD}system_prompt: prompts/main.md\n"),
        &format!(
            "error: the system prompt is missing (DIR/agent/prompts/main.md)\n  --> DIR/agent/agent.yaml:3:16\n   |\n 3 | system_prompt: prompts/main.md\n   |                ^^^^^^^^^^^^^^^\n{help}"
        ),
    );
}

#[test]
fn c_1_1_the_txt_form_of_the_system_prompt_stands_in_for_the_md() {
    let sandbox = agent(GOOD);
    std::fs::remove_file(sandbox.path("agent/system_prompt.md")).unwrap();
    sandbox.write("agent/system_prompt.txt", "I am the old form.\n");
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/.delta/r/agent/system_prompt.md"), "I am the old form.\n");
    let files = sandbox.files("work/.delta/r/io/invocations");
    let record = sandbox.read(&format!("work/.delta/r/io/invocations/{}", files[0]));
    assert!(record.contains("I am the old form."), "{record}");
}

#[test]
fn c_1_2_files_that_cannot_be_read() {
    check(
        b"name: a\ndescription: \xc3\xa9\xe9\n",
        &format!(
            "error: could not read the file: it is not UTF-8 (line 2, column 15)\n  --> DIR/agent/agent.yaml\n{READABLE}"
        ),
    );
    check_context(
        b"\xfe",
        &format!(
            "error: could not read the file: it is not UTF-8 (line 1, column 1)\n  --> DIR/agent/context.yaml\n{READABLE}"
        ),
    );
    let sandbox = agent(GOOD);
    std::fs::remove_file(sandbox.path("agent/context.yaml")).unwrap();
    std::fs::create_dir(sandbox.path("agent/context.yaml")).unwrap();
    assert_eq!(
        refused(&sandbox),
        format!(
            "error: could not read the file: Is a directory (os error 21)\n  --> DIR/agent/context.yaml\n{READABLE}"
        )
    );
}

// The agent was said to be missing.
#[test]
fn c_1_2_an_agent_that_may_not_be_read() {
    let sandbox = agent(GOOD);
    for dir in ["", "agent"] {
        let mode = if dir.is_empty() { 0o755 } else { 0o000 };
        std::fs::set_permissions(sandbox.path(dir), Permissions::from_mode(mode)).unwrap();
    }
    sandbox.copy_program(DELTA, "delta");
    for args in [["run", "-m", "hi", "--agent", "agent"].as_slice(), &["test", "agent"]] {
        let mut command = Command::new(sandbox.path("delta"));
        command.args(args).current_dir(sandbox.path("")).env("HOME", "/nowhere");
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let ran = Ran::of(output.status, &output.stdout, &output.stderr).normal(&sandbox);
        let told = "error: could not read the file: Permission denied (os error 13)\n  --> DIR/agent/agent.yaml\n";
        assert!(ran.expect_code(126).stderr.contains(told), "{args:?}");
    }
    std::fs::set_permissions(sandbox.path("agent"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn c_1_3_invalid_yaml_is_an_error() {
    let at = |line: &str, what: &str, source: &str, caret: &str| {
        format!(
            "error: {what}\n  --> DIR/agent/agent.yaml:{line}\n   |\n {} | {source}\n   | {caret}\n",
            &line[..1]
        )
    };
    check(
        "name: t\nname: u\nllm: {model: m}\n",
        &(at("2:1", "duplicate key `name` in this mapping", "name: u", "^^^^")
            + "  = help: keep one of them\n"),
    );
    check(
        "",
        &(at("1:1", "agent.yaml must be a mapping (`key: value`), not empty", "", "^")
            + "  = help: begin with `name: my-agent`; `delta init` writes an agent that works\n"),
    );
    check(
        "- a\n",
        &(at("1:1", "agent.yaml must be a mapping (`key: value`), not a list", "- a", "^^^")
            + "  = help: begin with `name: my-agent`; `delta init` writes an agent that works\n"),
    );
    check(
        format!("{GOOD}---\nname: u\n"),
        &at("3:1", "a second document starts here; expected one per file", "---", "^"),
    );
    check(
        "name: t\nllm: !own {}\n",
        &at("2:6", "custom tags (`!name`) are not supported", "llm: !own {}", "     ^"),
    );
}

#[test]
fn c_1_3_yaml_syntax_errors_say_what_to_write() {
    let at = "  --> DIR/agent/agent.yaml:";
    let quotes = "put quotes around a string that contains one of `{}[],`";
    let both = "write a list as `[a, b]`, or as lines that start with `- `, indented deeper than their key";
    let further = "start an entry with `- `; indent the other keys of an entry like its first key";
    for (text, place, message, help) in [
        (
            "a:\n  - b: c\n\td: e\n",
            "3:1",
            "expected spaces, found a tab",
            "replace the tab with spaces",
        ),
        ("a:\n\tb: c\n", "2:1", "expected spaces, found a tab", "replace the tab with spaces"),
        ("a:\tb\n", "1:3", "expected spaces, found a tab", "replace the tab with spaces"),
        (
            "a:\n- b: echo c: ${d} # e\n",
            "2:12",
            "a string that contains `: ` needs quotes",
            "write `b: 'echo c: ${d}'`",
        ),
        (
            "a: it's b: c\n",
            "1:10",
            "a string that contains `: ` needs quotes",
            "write `a: \"it's b: c\"`",
        ),
        (
            "a: b\n  c: d\n",
            "2:3",
            "indented deeper than the entry before it, which already has a value",
            "indent it like that entry",
        ),
        (
            "a:\n  -b: c\n   d: e\n",
            "2:3",
            "`-` needs a space after it to start a list entry",
            "write `- b: c`",
        ),
        ("a:\n  - b c\n    d: e\n", "2:3", "expected `key: value`, found `b c`", "write `b: c`"),
        (
            "a:\n  b: |\n  c\n",
            "3:3",
            "expected `key: value`, found `c`",
            "indent the text deeper than its key",
        ),
        (
            "a:\n  b: c\n d: e\n",
            "3:2",
            "the indentation matches no entry before it",
            "indent it like the other entries of its mapping",
        ),
        ("a: [b]\n  - c: d\n", "2:3", "expected a key, found a list entry", both),
        (
            "a: [b] and c\n",
            "1:8",
            "a string that starts with `[` needs quotes",
            "write `a: '[b] and c'`",
        ),
        (
            "a:\n  - b: c\n  d: e\n",
            "3:3",
            "expected an entry of the list before it, or a key next to that list",
            further,
        ),
        (
            "a:\n  - b: c\n   - d: e\n",
            "3:4",
            "the indentation matches no entry of its list",
            "indent `- ` like the entries before it",
        ),
        (
            "a: - b\n",
            "1:4",
            "a list cannot start on the line of its key `a`",
            "write each entry on its own line; for a string, write `a: '- b'`",
        ),
        ("a: @b\n", "1:4", "a string that starts with `@` needs quotes", "write `a: '@b'`"),
        ("a: *b\n", "1:4", "a string that starts with `*` needs quotes", "write `a: '*b'`"),
        (
            "a: |b\n",
            "1:4",
            "a string that starts with `|` needs quotes",
            "write `a: '|b'`; start a text of several lines on the line after `|`",
        ),
        (
            "a: \"\\d\"\n",
            "1:4",
            "unknown escape after a backslash in double quotes",
            "use single quotes, or write the backslash as `\\\\`",
        ),
        (
            "a: 'b' c\n",
            "1:8",
            "unexpected text after the closing quote",
            "put quotes around the whole value; inside single quotes, write `'` twice",
        ),
        (
            "a: \"b\nc: d\n",
            "1:4",
            "this quote is not closed",
            "close it; write a text of several lines after `|`",
        ),
        (
            "a: 'b\n",
            "1:4",
            "this quote is not closed",
            "close it; write a text of several lines after `|`",
        ),
        (
            "a: {b: c\nd: e\n",
            "1:4",
            "this `{` is not closed",
            &format!("close it with `}}`; {quotes}"),
        ),
        ("a: [b, {c: d}", "1:4", "this `[` is not closed", &format!("close it with `]`; {quotes}")),
        ("a: [\n", "1:4", "this `[` is not closed", &format!("close it with `]`; {quotes}")),
        ("a: [{b: c ${d}}]\n", "1:12", "expected `,` or `}` here", &format!("add it, or {quotes}")),
    ] {
        let said = refused(&agent(text));
        assert!(said.starts_with(&format!("error: {message}\n{at}{place}\n")), "{text}\n{said}");
        assert!(said.contains(&format!("\n  = help: {help}\n")), "{text}\n{said}");
    }
}

#[test]
fn c_1_3_a_broken_file_does_not_hide_the_others_mistakes() {
    let sandbox = agent("name: [\n");
    sandbox.write("agent/context.yaml", "sources: []\n");
    let said = refused(&sandbox);
    assert!(
        said.contains("agent.yaml:1:7")
            && said.contains("`sources` is empty, so the LLM would see nothing"),
        "{said}"
    );
}

#[test]
fn c_1_3_keys_of_the_author_are_ignored_everywhere() {
    let sandbox = agent(
        "name: t\nx-note: [any, {thing: 1}]\nllm: {provider: script, model: script.yaml, x-y: 1}\ntools:\n  - name: a\n    exec: ls\n    x-z: 1\n",
    );
    sandbox.write("agent/context.yaml", "x-a: 1\nsources:\n  - type: journal\n    x-b: 2\n");
    sandbox.run("hi", &[]).expect_code(0);
}
