//! An agent that is broken is refused before anything is made, with everything that is wrong in it in one go.

use super::DELTA;
use test_support::sandbox::{Ran, Sandbox};

const GOOD: &str = "name: t\nllm: {provider: script, model: script.yaml}\n";

/// An agent that works, with the given agent.yaml.
fn agent(main: impl AsRef<[u8]>) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("agent/script.yaml", "turns:\n- say: done\n");
    sandbox.write("agent/agent.yaml", main);
    sandbox
}

/// Runs the agent, which must be refused with nothing left behind; gives what is said.
#[track_caller]
fn refused(sandbox: &Sandbox) -> String {
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
fn check(main: impl AsRef<[u8]>, expected: &str) {
    assert_eq!(refused(&agent(main)), expected);
}

/// Checks what is said of a context.yaml.
#[track_caller]
fn check_context(text: impl AsRef<[u8]>, expected: &str) {
    let sandbox = agent(GOOD);
    sandbox.write("agent/context.yaml", text);
    assert_eq!(refused(&sandbox), expected);
}

/// Checks what is said of an `llm:` section, whose line follows `name: t` in flow style.
#[track_caller]
fn check_llm(section: &str, expected: &str) {
    check(format!("name: t\nllm: {{{section}}}\n"), expected);
}

#[track_caller]
fn accepted(main: &str) -> Ran {
    agent(main).run("hi", &["-q", "--format", "raw"]).expect_code(0)
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
    sandbox.write("agent/hooks.yaml", "on_run_end: {command: [x]}\n");
    let expected = "\
error: the system prompt is empty
  --> DIR/agent/system_prompt.md
  = help: write into it what the agent is and how it is to work

error: unknown key `nmae` in agent.yaml
  --> DIR/agent/agent.yaml:1:1
   |
 1 | nmae: x
   | ^^^^
  = help: did you mean `name`?

error: agent.yaml has no `name`
  --> DIR/agent/agent.yaml:1:1
   |
 1 | nmae: x
   | ^^^^
  = help: write `name: my-agent`

error: `version` must be a text, not a list
  --> DIR/agent/agent.yaml:2:10
   |
 2 | version: [1]
   |          ^^^

error: `llm` has no `model`
  --> DIR/agent/agent.yaml:4:3
   |
 4 |   provider: script
   |   ^^^^^^^^
  = help: write `model: gpt-4o`

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

error: a `file` source has no `path`
  --> DIR/agent/context.yaml:2:5
   |
 2 |   - type: file
   |     ^^^^
  = help: write `path: '${CWD}/DELTA.md'`

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

error: this version of delta does not run hooks yet, and does not run an agent without its hooks
  --> DIR/agent/hooks.yaml
  = help: take hooks.yaml out of the agent directory if the agent is safe without it
";
    assert_eq!(refused(&sandbox), expected);
}

#[test]
fn c_1_1_no_directory_no_agent() {
    let sandbox = agent(GOOD);
    let run =
        |dir: &str| sandbox.delta(["run", "--agent", dir, "-m", "hi"]).output().normal(&sandbox);
    run("nowhere").expect(126, "", "error: no agent directory: No such file or directory (os error 2)\n  --> nowhere\n  = help: name an agent directory with `--agent DIR`\n");
    run("agent/agent.yaml").expect(126, "", "error: this is not a directory\n  --> agent/agent.yaml\n  = help: name the directory that holds agent.yaml\n");
    run("home").expect(
        126,
        "",
        "error: agent.yaml not found\n  --> DIR/home\n  = help: an agent is a directory with agent.yaml, system_prompt.md and context.yaml; name one with `--agent DIR`\n",
    );
}

#[test]
fn c_1_1_what_comes_with_a_later_version_is_refused() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("agent/config.yaml", GOOD);
    assert_eq!(
        refused(&sandbox),
        "error: agent.yaml not found\n  --> DIR/agent\n  = help: this version does not read config.yaml; rename it to agent.yaml\n"
    );
    for key in ["imports", "lifecycle_hooks"] {
        let carets = "^".repeat(key.len());
        check(
            format!("{GOOD}{key}: []\n"),
            &format!(
                "error: this version of delta does not support `{key}` yet\n  --> DIR/agent/agent.yaml:3:1\n   |\n 3 | {key}: []\n   | {carets}\n  = help: take it out; nothing is ever ignored silently\n"
            ),
        );
    }
}

#[test]
fn c_1_2_a_missing_context_yaml_prints_the_default_ready_to_paste() {
    let sandbox = agent(GOOD);
    std::fs::remove_file(sandbox.path("agent/context.yaml")).unwrap();
    let said = refused(&sandbox);
    let (heading, content) = said.split_once("\n\n").unwrap();
    assert_eq!(
        heading,
        "error: context.yaml not found in DIR/agent\n  --> DIR/agent/context.yaml\n  = help: it says what the LLM sees; create it with this content:"
    );
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

#[test]
fn c_1_2_the_system_prompt_is_there_and_says_something() {
    let sandbox = agent(GOOD);
    let prompt = sandbox.path("agent/system_prompt.md");
    let help = "  = help: write into it what the agent is and how it is to work\n";
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
            "error: the system prompt cannot be read: it is not UTF-8\n  --> DIR/agent/system_prompt.md\n{help}"
        )
    );
    std::fs::remove_file(&prompt).unwrap();
    std::fs::create_dir(&prompt).unwrap();
    assert_eq!(
        refused(&sandbox),
        format!(
            "error: the system prompt cannot be read: Is a directory (os error 21)\n  --> DIR/agent/system_prompt.md\n{help}"
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
        b"name: \xff\n",
        "error: the file cannot be read: it is not UTF-8\n  --> DIR/agent/agent.yaml\n",
    );
    check_context(
        b"\xfe",
        "error: the file cannot be read: it is not UTF-8\n  --> DIR/agent/context.yaml\n",
    );
    let sandbox = agent(GOOD);
    std::fs::remove_file(sandbox.path("agent/context.yaml")).unwrap();
    std::fs::create_dir(sandbox.path("agent/context.yaml")).unwrap();
    assert_eq!(
        refused(&sandbox),
        "error: the file cannot be read: Is a directory (os error 21)\n  --> DIR/agent/context.yaml\n"
    );
}

#[test]
fn c_1_3_yaml_that_is_none() {
    let at = |line: &str, what: &str, source: &str, caret: &str| {
        format!(
            "error: {what}\n  --> DIR/agent/agent.yaml:{line}\n   |\n {} | {source}\n   | {caret}\n",
            &line[..1]
        )
    };
    check(
        "name: t\nllm: {a: b\n",
        &at(
            "3:1",
            "not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'",
            "",
            "^",
        ),
    );
    check(
        "name: t\n  llm: x\n",
        &at(
            "2:6",
            "not valid YAML: mapping values are not allowed in this context",
            "  llm: x",
            "     ^",
        ),
    );
    check(
        "name:\n  - x\n y: 1\n",
        &at(
            "3:2",
            "not valid YAML: while parsing a block mapping, did not find expected key",
            " y: 1",
            " ^",
        ),
    );
    check(
        "name: *x\n",
        &at(
            "1:7",
            "not valid YAML: while parsing node, found unknown anchor",
            "name: *x",
            "      ^",
        ),
    );
    check(
        "name: t\nname: u\nllm: {model: m}\n",
        &(at("2:1", "`name` stands twice in this mapping", "name: u", "^^^^")
            + "  = help: keep one of them\n"),
    );
    check("", &at("1:1", "agent.yaml must be a mapping (`key: value`), not nothing", "", "^"));
    check(
        "- a\n",
        &at("1:1", "agent.yaml must be a mapping (`key: value`), not a list", "- a", "^^^"),
    );
    check(
        format!("{GOOD}---\nname: u\n"),
        &at("3:1", "a second document begins here; one file holds one", "---", "^"),
    );
    check(
        "name: t\nllm: !own {}\n",
        &at("2:6", "tags of one's own (`!name`) are not read", "llm: !own {}", "     ^"),
    );
}

#[test]
fn c_1_3_a_tab_in_the_indentation_is_named() {
    let said = refused(&agent("name: t\nllm:\n\tmodel: m\n"));
    assert!(said.contains("tab") && said.contains("= help: indent with spaces"), "{said}");
}

#[test]
fn c_1_3_a_broken_file_does_not_hide_the_others_mistakes() {
    let sandbox = agent("name: [\n");
    sandbox.write("agent/context.yaml", "sources: []\n");
    let said = refused(&sandbox);
    assert!(
        said.contains("agent.yaml:2:1")
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

#[test]
fn c_1_4_names_and_models_are_not_empty() {
    check(
        "name: ''\nllm: {provider: script, model: script.yaml}\n",
        "error: `name` is empty\n  --> DIR/agent/agent.yaml:1:7\n   |\n 1 | name: ''\n   |       ^^\n  = help: write `name: my-agent`\n",
    );
    check_llm(
        "model: ' '",
        "error: `model` is empty\n  --> DIR/agent/agent.yaml:2:14\n   |\n 2 | llm: {model: ' '}\n   |              ^^^\n  = help: write `model: gpt-4o`\n",
    );
}

#[test]
fn c_1_5_the_llm_section_is_checked() {
    // Shows the section with its faulty part between two bars.
    let at = |marked: &str, what: &str, help: &str| {
        let (before, rest) = marked.split_once('|').unwrap();
        let (part, after) = rest.split_once('|').unwrap();
        let section = [before, part, after].concat();
        let (column, width) = ("llm: {".len() + before.len() + 1, part.len());
        let (lead, carets) = (" ".repeat(column - 1), "^".repeat(width));
        let help = if help.is_empty() { String::new() } else { format!("  = help: {help}\n") };
        (
            section.clone(),
            format!(
                "error: {what}\n  --> DIR/agent/agent.yaml:2:{column}\n   |\n 2 | llm: {{{section}}}\n   | {lead}{carets}\n{help}"
            ),
        )
    };
    let check = |marked: &str, what: &str, help: &str| {
        let (section, expected) = at(marked, what, help);
        check_llm(&section, &expected);
    };
    check("provider: |opnai|, model: m", "`opnai` is not a provider", "did you mean `openai`?");
    check(
        "provider: |command|, model: m",
        "provider `command` needs a `command`",
        "write `command: [PROGRAM, ARG, ...]`; it gets the request on stdin",
    );
    check("model: m, temperature: |-0.1|", "`temperature` must be a number from 0 to 2", "");
    check("model: m, temperature: |2.01|", "`temperature` must be a number from 0 to 2", "");
    check("model: m, temperature: |'1'|", "`temperature` must be a number from 0 to 2", "");
    check(
        "model: m, max_tokens: |0|",
        "`max_tokens` must be a whole number from 1 to 1099511627775",
        "",
    );
    check(
        "model: m, timeout_ms: |1.5|",
        "`timeout_ms` must be a whole number from 1 to 1099511627775",
        "",
    );
    check("model: m, max_retries: |-1|", "`max_retries` must be a whole number from 0 to 100", "");
    check("model: m, stream: |yes|", "`stream` must be `true` or `false`", "");
    check("model: m, |messages|: []", "`messages` is written by the engine", "take it out");
    check(
        "model: m, base_url: |localhost|",
        "`localhost` is not an address",
        "write it with its scheme, such as `http://localhost:11434/v1`",
    );
    check("model: m, pricing: {|input|: 1}", "`pricing` has no `output`", "write `output: 2.5`");
    check(
        "model: m, pricing: {input: |x|, output: 1}",
        "`input` must be a number of USD per million tokens",
        "",
    );
    check(
        "model: m, pricing: {input: 1, output: 1, |cached|: 1}",
        "unknown key `cached` in `pricing`",
        "did you mean `cached_input`?",
    );
    check("model: |[m]|", "`model` must be a text, not a list", "");
}

#[test]
fn c_1_5_the_ends_of_the_ranges_are_allowed() {
    for key in
        ["temperature: 0", "temperature: 2", "temperature: 2.0", "max_retries: 0", "stream: false"]
    {
        accepted(&format!("name: t\nllm: {{provider: script, model: script.yaml, {key}}}\n"));
    }
}

#[test]
fn c_1_4_finish_is_checked() {
    let at = |value: &str, column: usize, width: usize, what: &str, help: &str| {
        let (lead, carets) = (" ".repeat(column - 1), "^".repeat(width));
        format!(
            "error: {what}\n  --> DIR/agent/agent.yaml:3:{column}\n   |\n 3 | finish: {value}\n   | {lead}{carets}\n{help}"
        )
    };
    let check = |value: &str, column, width, what: &str, help: &str| {
        check(format!("{GOOD}finish: {value}\n"), &at(value, column, width, what, help));
    };
    check("maybe", 9, 5, "`finish` must be `true` or `false`", "");
    check(
        "{schema: nix.json}",
        18,
        8,
        "the schema DIR/agent/nix.json cannot be read: No such file or directory (os error 2)",
        "",
    );
    check(
        "{schema: {type: string}}",
        18,
        14,
        "the schema of `finish` must be of type object",
        "  = help: a tool's arguments are an object: write `type: object`\n",
    );
}

#[test]
fn c_7_9_a_script_has_positions_of_its_own() {
    let sandbox = agent(GOOD);
    std::fs::remove_file(sandbox.path("agent/script.yaml")).unwrap();
    assert_eq!(
        refused(&sandbox),
        "error: the script DIR/agent/script.yaml cannot be read: No such file or directory (os error 2)\n  --> DIR/agent/agent.yaml:2:32\n   |\n 2 | llm: {provider: script, model: script.yaml}\n   |                                ^^^^^^^^^^^\n  = help: for the `script` provider, `model` is the path of a script file\n"
    );
    sandbox.write("agent/script.yaml", "turns:\n- sya: x\n- say: a\n  error: b\n- when: '('\n- call: [{args: {}}]\n- delay_ms: soon\n");
    assert_eq!(
        refused(&sandbox),
        "\
error: unknown key `sya` in a turn
  --> DIR/agent/script.yaml:2:3
   |
 2 | - sya: x
   |   ^^^
  = help: did you mean `say`?

error: a turn with `error` says and calls nothing
  --> DIR/agent/script.yaml:3:3
   |
 3 | - say: a
   |   ^^^^^^

error: not a regular expression: regex parse error:…
  --> DIR/agent/script.yaml:5:9
   |
 5 | - when: '('
   |         ^^^

error: a call has no `tool`
  --> DIR/agent/script.yaml:6:11
   |
 6 | - call: [{args: {}}]
   |           ^^^^
  = help: write `tool: list_files`

error: `delay_ms` must be a whole number from 0 to 4294967295
  --> DIR/agent/script.yaml:7:13
   |
 7 | - delay_ms: soon
   |             ^^^^
"
    );
}

#[test]
fn c_2_1_a_broken_tool_is_shown_where_it_stands() {
    check(
        format!("{GOOD}tools:\n  - name: a\n    exec: ls\n    shell: ls\n"),
        "error: exec:, shell:, and command: are mutually exclusive\n  --> DIR/agent/agent.yaml:6:5\n   |\n 6 |     shell: ls\n   |     ^^^^^\n  = help: keep one\n",
    );
}

#[test]
fn c_8_1_context_yaml_is_checked() {
    let at = |line: usize, column: usize, source: &str, width: usize, what: &str, help: &str| {
        let (lead, carets) = (" ".repeat(column - 1), "^".repeat(width));
        let help = if help.is_empty() { String::new() } else { format!("  = help: {help}\n") };
        format!(
            "error: {what}\n  --> DIR/agent/context.yaml:{line}:{column}\n   |\n {line} | {source}\n   | {lead}{carets}\n{help}"
        )
    };
    check_context(
        "sources:\n  - type: fiel\n",
        &at(2, 11, "  - type: fiel", 4, "`fiel` is not a type of source", "did you mean `file`?"),
    );
    check_context(
        "sorces: []\n",
        &(at(
            1,
            1,
            "sorces: []",
            6,
            "unknown key `sorces` in context.yaml",
            "did you mean `sources`?",
        ) + "\n"
            + &at(
                1,
                1,
                "sorces: []",
                6,
                "context.yaml has no `sources`",
                "write `sources: [{type: journal}]`",
            )),
    );
    check_context(
        "sources:\n  - type: computed_file\n    output_path: o\n    generator: {command: []}\n",
        &at(
            4,
            26,
            "    generator: {command: []}",
            2,
            "`command` names no program",
            "write `[PROGRAM, ARG, ...]`",
        ),
    );
    check_context(
        "sources:\n  - {type: journal, max_iterations: 0}\n",
        &at(
            2,
            37,
            "  - {type: journal, max_iterations: 0}",
            1,
            "`max_iterations` must be a whole number from 1 to 4294967295",
            "",
        ),
    );
    check_context(
        "sources: x\n",
        &at(1, 10, "sources: x", 1, "`sources` must be a list, not a text", ""),
    );
}

#[test]
fn c_1_8_no_key_and_a_public_address() {
    let sandbox = agent("name: t\nllm: {model: m}\n");
    assert_eq!(
        refused(&sandbox),
        "\
Error: no API key for https://api.openai.com/v1
Hint: give it a key:               export DELTA_API_KEY=... (or OPENAI_API_KEY)
      or use a local server:       export DELTA_BASE_URL=http://localhost:11434/v1   (Ollama)
                                   export DELTA_BASE_URL=http://localhost:8080/v1    (llama.cpp)
                                   export DELTA_BASE_URL=http://localhost:8000/v1    (vLLM)
      or run it without any LLM:   llm: {provider: script, model: script.yaml} in agent.yaml
"
    );
    let ran = sandbox.run_command("hi", &[]).env("DELTA_BASE_URL", "localhost:1").output();
    ran.expect(126, "", "Error: `localhost:1` is not an address of an LLM\nHint: write it with its scheme, such as `http://localhost:11434/v1`\n");
    assert!(!sandbox.path("work").exists());
}
