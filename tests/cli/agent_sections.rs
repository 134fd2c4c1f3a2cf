//! Every part of an agent's files is checked, and a mistake is shown where it stands.

use super::agent_loading::{GOOD, agent, check, check_context, refused};
use serde_json::json;
use test_support::sandbox::Ran;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

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
fn c_1_4_the_command_line_overrides_what_the_file_limits() {
    let iterations = |section: &str, options: &[&str], code: i32| {
        let sandbox = agent(format!("{GOOD}{section}"));
        sandbox.run("hi", options).expect_code(code);
        sandbox.events("ENGINE_START")[0]["max_iterations"].clone()
    };
    assert_eq!(iterations("", &[], 0), 30);
    let section = "max_iterations: 3\nlimits: {max_tokens: 1}\n";
    assert_eq!(iterations(section, &[], 1), 3);
    let options = ["--max-iterations", "5", "--max-tokens", "900000"];
    assert_eq!(iterations(section, &options, 0), 5);
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
    check(
        "provider: |opnai|, model: m",
        "`provider` must be `openai`, `anthropic`, `responses`, `gemini`, `script`, `command` or `recorded`",
        "did you mean `openai`?",
    );
    check(
        "provider: |mainframe|, model: m",
        "`provider` must be `openai`, `anthropic`, `responses`, `gemini`, `script`, `command` or `recorded`",
        "for any OpenAI-compatible endpoint, write `provider: openai` and its address as `base_url`",
    );
    check(
        "provider: |command|, model: m",
        "the provider `command` requires a `command`",
        "write `command: [PROGRAM, ARG, ...]`; it reads the request from stdin",
    );
    check("model: m, temperature: |-0.1|", "`temperature` must be a number from 0 to 2", "");
    check("model: m, temperature: |2.01|", "`temperature` must be a number from 0 to 2", "");
    check(
        "model: m, temperature: |'1'|",
        "`temperature` must be a number from 0 to 2",
        "write `1`, without quotes",
    );
    check(
        "model: m, max_tokens: |0|",
        "`max_tokens` must be a whole number from 1 to 1099511627775",
        "write a whole number, or one such as `2k` or `1.5M`",
    );
    check(
        "model: m, timeout_ms: |1.5|",
        "`timeout_ms` must be a whole number from 1 to 1099511627775",
        "write milliseconds, or a time with its unit, such as `30s`",
    );
    check("model: m, max_retries: |-1|", "`max_retries` must be a whole number from 0 to 100", "");
    check("model: m, stream: |yes|", "`stream` must be `true` or `false`", "write `true`");
    check("model: m, |messages|: []", "`messages` is set by the engine", "remove the key");
    check(
        "model: m, base_url: |localhost|",
        "expected the URL of an LLM endpoint, found `localhost`",
        "write it with its scheme, such as `http://localhost:11434/v1`",
    );
    // They loaded, an editor objected, and what was wrong was said only when the LLM was to be asked.
    for address in ["http://a b/v1", "http://", "https://:80", "http://[::1/", "http://a\\n/v1"] {
        let found = address.replace("\\n/v1", "…");
        let message = format!("expected the URL of an LLM endpoint, found `{found}`");
        let help = "write it with its scheme, such as `http://localhost:11434/v1`";
        check(&format!("model: m, base_url: |\"{address}\"|"), &message, help);
    }
    check("model: m, pricing: {|input|: 1}", "`pricing` has no `output`", "write `output: 2.5`");
    check(
        "model: m, pricing: {input: |x|, output: 1}",
        "`input` must be a number of at least 0",
        "",
    );
    check(
        "model: m, pricing: {input: 1, output: 1, |cached|: 1}",
        "unknown key `cached` in `pricing`",
        "did you mean `cached_input`?",
    );
    check("model: |[m]|", "`model` must be a string, not a list", "");
    check(
        "model: m, |api_key|: sk-1",
        "unknown key `api_key` in `llm`",
        "put the key into DELTA_API_KEY, or name its variable, such as `api_key_env: MY_KEY`; in this file, every run would record it",
    );
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
        "could not read the schema DIR/agent/nix.json: No such file or directory (os error 2)",
        "",
    );
    check(
        "{schema: {type: string}}",
        18,
        14,
        "the schema of `finish` must be of type object",
        "  = help: a tool's arguments are an object: write `type: object`\n",
    );
    // A keyword that is not checked would be a constraint without effect.
    check(
        "{schema: {type: object, properties: {a: {uniqueItem: true}}}}",
        50,
        10,
        "the schema of `finish`, /properties/a/uniqueItem: the keyword `uniqueItem` is not supported",
        "  = help: did you mean `uniqueItems`?\n",
    );
    check(
        "{schema: {type: object, properties: {a: {$ref: '#/properties/a'}}}}",
        46,
        1,
        "the schema of `finish`, /properties/a: the references from this schema lead back to it, for the same value",
        "",
    );
}

#[test]
fn c_1_4_a_schema_in_a_file_is_checked_as_a_whole() {
    let sandbox = agent(format!("{GOOD}finish: {{schema: s.json}}\n"));
    let schema = "{\"type\": \"object\", \"unevaluatedProperties\": false, \"properties\": {\"a\": {\"pattern\": \"(?=a)\"}}}";
    sandbox.write("agent/s.json", schema);
    let said = refused(&sandbox);
    // An editor may have put a byte order mark before it.
    sandbox.write("agent/s.json", format!("\u{feff}{schema}"));
    assert_eq!(refused(&sandbox), said);
    for expected in [
        "error: the schema of `finish`, /unevaluatedProperties: the keyword `unevaluatedProperties` is not supported\n",
        "error: the schema of `finish`, /properties/a/pattern: the pattern is not supported: lookahead and lookbehind are not supported\n",
        "  --> DIR/agent/agent.yaml:3:18\n",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn c_7_9_a_script_has_positions_of_its_own() {
    let sandbox = agent(GOOD);
    std::fs::remove_file(sandbox.path("agent/script.yaml")).unwrap();
    assert_eq!(
        refused(&sandbox),
        "error: could not read the script DIR/agent/script.yaml: No such file or directory (os error 2)\n  --> DIR/agent/agent.yaml:2:32\n   |\n 2 | llm: {provider: script, model: script.yaml}\n   |                                ^^^^^^^^^^^\n  = help: for the `script` provider, `model` is the path of a script file\n"
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

error: a turn with `error` must not have `say`, `call` or `usage`
  --> DIR/agent/script.yaml:3:3
   |
 3 | - say: a
   |   ^^^^^^

error: not a regular expression: unclosed group
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
  = help: write milliseconds, or a time with its unit, such as `30s`
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
fn c_2_1_a_name_has_1_to_64_letters_digits_and_signs() {
    let tool = |name: &str| agent(format!("{GOOD}tools:\n  - name: '{name}'\n    exec: ls\n"));
    let longest = "x".repeat(64);
    let too_long = "x".repeat(65);
    for name in ["a", "7", "_-", &longest] {
        tool(name).run("hi", &[]).expect_code(0);
    }
    for name in ["a b", "a.b", "ä", &too_long] {
        let message = refused(&tool(name));
        assert!(message.contains(&format!("error: `{name}` is not a tool name\n")), "{message}");
    }
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
        &at(
            2,
            11,
            "  - type: fiel",
            4,
            "`fiel` is not a `type` of a source",
            "did you mean `file`?",
        ),
    );
    check_context(
        "sorces: []\n",
        &at(
            1,
            1,
            "sorces: []",
            6,
            "unknown key `sorces` in context.yaml",
            "did you mean `sources`?",
        ),
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
            "leave it out for the whole conversation",
        ),
    );
    check_context(
        "sources: x\n",
        &at(
            1,
            10,
            "sources: x",
            1,
            "`sources` must be a list, not a string",
            "write `sources: [{type: file, path: x}, {type: journal}]`",
        ),
    );
}

#[test]
fn c_1_8_no_key_and_a_public_address() {
    let sandbox = agent("name: t\nllm: {model: m}\n");
    assert_eq!(
        refused(&sandbox),
        "\
error: no API key for https://api.openai.com/v1
help: set a key:
        export DELTA_API_KEY=...   # or OPENAI_API_KEY
      or use a local server:
        export DELTA_BASE_URL=http://localhost:11434/v1   # Ollama
        export DELTA_BASE_URL=http://localhost:8080/v1    # llama.cpp
        export DELTA_BASE_URL=http://localhost:8000/v1    # vLLM
      or run without an LLM:
        --model script:FILE
      or select another provider (`m` is a model of openai):
        --model anthropic:NAME
"
    );
    let ran = sandbox.run_command("hi", &[]).env("DELTA_BASE_URL", "localhost:1").output();
    ran.expect(126, "", "error: expected the URL of an LLM endpoint, found `localhost:1`\nhelp: write it with its scheme, such as `http://localhost:11434/v1`\n");
    assert!(!sandbox.path("work").exists());
}

#[test]
fn c_1_3_a_wrong_model_is_the_option_that_names_it() {
    let sandbox = agent("name: t\nllm: {model: m}\n");
    let said = |model: &str, code: i32| {
        let ran = sandbox.run("hi", &["--model", model]).normal(&sandbox).expect_code(code);
        assert!(!sandbox.path("work").exists());
        ran.stderr
    };
    assert_eq!(
        said("script:gone.yaml", 126),
        "error: could not read the script DIR/agent/gone.yaml: No such file or directory (os error 2)\n  --> --model script:gone.yaml\n  = help: for the `script` provider, `model` is the path of a script file\n"
    );
    assert_eq!(
        said("command:x", 126),
        "error: the agent's `llm` has no `command`\n  --> --model command:x\n  = help: write `command: [PROGRAM, ARG, ...]`; it reads the request from stdin\n"
    );
    let slip = said("scrpt:x.yaml", 2);
    let wanted = "unknown provider `scrpt`; did you mean `script`? (for a model of this name, write `openai:scrpt:x.yaml`)";
    assert!(slip.contains(wanted), "{slip}");
    sandbox.write("agent/agent.yaml", "name: t\nllm: {provider: script, model: script.yaml}\n");
    let gone = said("gone.yaml", 126);
    let help = "  --> --model gone.yaml\n  = help: for the `script` provider, `model` is the path of a script file; for a model of an endpoint, write `--model openai:gone.yaml`\n";
    assert!(gone.ends_with(help), "{gone}");
}

#[test]
fn c_23_4_a_vendor_before_a_slash_is_the_provider_where_no_other_endpoint_is_set_up() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("hi"));
    let asked = |agent_yaml: &str, more: &[(&str, &str)]| {
        let sandbox = agent(agent_yaml);
        let mut command = sandbox.run_command("hi", &["--model", "anthropic/m", "-q"]);
        command = command.env("ANTHROPIC_BASE_URL", server.root_url());
        for (name, value) in more {
            command = command.env(name, value);
        }
        command.output().expect_code(0);
        let request = server.requests().pop().unwrap();
        (request.path().to_owned(), request.body["model"].clone())
    };
    let messages = ("POST /v1/messages".to_owned(), json!("m"));
    assert_eq!(asked("name: t\n", &[]), messages);
    assert_eq!(asked("name: t\nllm: {model: gpt-4o}\n", &[("OPENAI_API_KEY", "k")]), messages);
    // The name of a model may tell the vendor too.
    let of_name = |model: &str, address: &str, value: &str, key: &str| {
        let sandbox = agent("name: t\n");
        let command = sandbox.run_command("hi", &["--model", model, "-q"]);
        let ran = command.env(address, value).env(key, "k").output().expect_code(0);
        assert_eq!(ran.stdout, "hi\n");
        server.requests().pop().unwrap().path().to_owned()
    };
    let root = server.root_url();
    let claude = of_name("claude-x", "ANTHROPIC_BASE_URL", &root, "ANTHROPIC_API_KEY");
    assert_eq!(claude, "POST /v1/messages");
    let gateway = of_name("claude-x", "DELTA_BASE_URL", &server.url(), "ANTHROPIC_API_KEY");
    assert_eq!(gateway, "POST /v1/chat/completions");
    // An address for Chat Completions is one of a gateway.
    let chat = ("POST /v1/chat/completions".to_owned(), json!("anthropic/m"));
    assert_eq!(asked("name: t\n", &[("DELTA_BASE_URL", &server.url())]), chat);
    let own = format!("name: t\nllm: {{model: m, base_url: \"{}\"}}\n", server.url());
    assert_eq!(asked(&own, &[]), chat);
}

#[test]
fn c_23_4_a_model_of_another_vendor_gets_the_line_to_write() {
    let sandbox = agent("name: t\nllm: {model: m}\n");
    let said =
        |model: &str, code: i32| sandbox.run("hi", &["--model", model]).expect_code(code).stderr;
    for (model, lines) in [
        (
            "claude-opus-5",
            "export ANTHROPIC_API_KEY=...\n        --model anthropic:claude-opus-5\n",
        ),
        ("anthropic/claude-opus-5", "--model anthropic:claude-opus-5\n"),
        (
            "gemini-3.5-flash",
            "export GOOGLE_API_KEY=...\n        --model gemini:gemini-3.5-flash\n",
        ),
        ("gemini/x", "--model gemini:x\n"),
        (
            "ollama/qwen3",
            "set DELTA_BASE_URL=http://localhost:11434/v1, and `--model openai:qwen3`\n",
        ),
        ("anthropic:gpt-4o", "export DELTA_API_KEY=...\n        --model openai:gpt-4o\n"),
    ] {
        let stderr = said(model, 126);
        assert!(stderr.starts_with("error: no API key") && stderr.contains(lines), "{stderr}");
    }
    // With a key, the vendor would answer that it has no such model.
    let with_key = |model: &str| {
        let command = sandbox.run_command("hi", &["--model", model]);
        command.env("OPENAI_API_KEY", "k").output().expect_code(126).stderr
    };
    for (model, line) in [
        ("claude-opus-5", "        --model anthropic:claude-opus-5\n"),
        ("google/gemini-3.5-flash", "        --model gemini:gemini-3.5-flash\n"),
        (
            "models/gemini-3.5-flash",
            "        llm: {provider: gemini, model: gemini-3.5-flash}   # in agent.yaml\n",
        ),
        ("sonnet", "        --model anthropic:claude-sonnet-5-5\n"),
        ("opus[1m]", "        --model anthropic:claude-opus-5-5\n"),
        (
            "groq/llama",
            "set DELTA_BASE_URL=https://api.groq.com/openai/v1 DELTA_API_KEY=..., and `--model openai:llama`\n",
        ),
        (
            "ollama_chat/qwen3",
            "set DELTA_BASE_URL=http://localhost:11434/v1, and `--model openai:qwen3`\n",
        ),
        ("mistral/m", "set DELTA_BASE_URL=https://api.mistral.ai/v1 "),
        ("azure/mine", "and `--model openai:mine --llm auth=api-key`\n"),
        (
            "bedrock/m",
            "https://bedrock-runtime.REGION.amazonaws.com/openai/v1 DELTA_API_KEY=..., and `--model openai:m`\n",
        ),
        ("us.anthropic.claude-x", "and `--model openai:us.anthropic.claude-x`\n"),
        ("vertex_ai/gemini-x", "and `--model gemini:gemini-x --llm auth=bearer`\n"),
        ("vertex_ai/claude-x", "and `--model anthropic:claude-x --llm auth=bearer`\n"),
        (
            "huggingface/a/b",
            "set DELTA_BASE_URL=https://router.huggingface.co/v1 DELTA_API_KEY=..., and `--model openai:a/b`\n",
        ),
    ] {
        let stderr = with_key(model);
        let message = format!("error: api.openai.com has no model `{model}`\nhelp: ");
        assert!(stderr.starts_with(&message) && stderr.contains(line), "{stderr}");
    }
    for (model, wanted) in [
        (
            "hf:org/m",
            "`hf` is not a provider: set DELTA_BASE_URL=https://router.huggingface.co/v1 ",
        ),
        (
            "openrouter/a/b:free",
            "`openrouter` is not a provider: set DELTA_BASE_URL=https://openrouter.ai/api/v1 DELTA_API_KEY=..., and `--model openai:a/b:free`",
        ),
        ("us.anthropic.claude-x-v1:0", "`--model openai:us.anthropic.claude-x-v1:0`"),
        (
            "ollama:llama3:8b",
            "set DELTA_BASE_URL=http://localhost:11434/v1, and `--model openai:llama3:8b`",
        ),
        (
            "openrouter:a/b",
            "set DELTA_BASE_URL=https://openrouter.ai/api/v1 DELTA_API_KEY=..., and `--model openai:a/b`",
        ),
        ("google:gemini-3.5-flash", "did you mean `gemini:gemini-3.5-flash`?"),
    ] {
        let stderr = said(model, 2);
        assert!(stderr.contains(wanted), "{stderr}");
    }
}

#[test]
fn c_23_4_what_is_before_a_colon_is_a_provider() {
    let sandbox = agent("name: t\nllm: {model: m}\n");
    for model in ["llama3:8b", "command-r:35b", "openchat:7b", "openai/gpt-oss-20b:free", ":x"] {
        let ran = sandbox.run("hi", &["--model", model]).expect_code(2);
        let (prefix, _) = model.split_once(':').unwrap();
        let wanted = format!(
            "error: invalid value '{model}' for '--model <MODEL>': unknown provider `{prefix}`; the providers are openai, anthropic, responses, gemini, script, command, recorded (for a model of this name, write `openai:{model}`)\n"
        );
        assert!(ran.stderr.starts_with(&wanted), "{}", ran.stderr);
        let ran = sandbox.run("hi", &["--model", &format!("openai:{model}")]).expect_code(126);
        assert!(ran.stderr.starts_with("error: no API key"), "{}", ran.stderr);
    }
    let sandbox = agent("name: t\n");
    let ran = sandbox.run_command("hi", &[]).env("DELTA_MODEL", "llama3:8b").output();
    let ran = ran.expect_code(126);
    let wanted = "error: DELTA_MODEL: unknown provider `llama3`; the providers are ";
    assert!(ran.stderr.starts_with(wanted), "{}", ran.stderr);
    sandbox.write("home/.config/delta/config.yaml", "model: llama3:8b\n");
    let ran = sandbox.run("hi", &[]).normal(&sandbox).expect_code(126);
    let wanted = "error: unknown provider `llama3`; the providers are openai, anthropic, responses, gemini, script, command, recorded (for a model of this name, write `openai:llama3:8b`)\n  --> DIR/home/.config/delta/config.yaml:1:8\n";
    assert!(ran.stderr.starts_with(wanted), "{}", ran.stderr);
    // In agent.yaml the provider has its own key, and the name is a name.
    let sandbox = agent("name: t\nllm: {model: \"llama3:8b\"}\n");
    let ran = sandbox.run("hi", &[]).expect_code(126);
    assert!(ran.stderr.starts_with("error: no API key"), "{}", ran.stderr);
}

#[test]
fn c_1_3_what_belongs_elsewhere_is_sent_there() {
    let check = |line: &str, message: &str, width: usize, column: usize, help: &str| {
        let (blanks, carets) = (" ".repeat(column - 1), "^".repeat(width));
        let sandbox = agent(format!("{GOOD}{line}\n"));
        let expected = format!(
            "error: {message}\n  --> DIR/agent/agent.yaml:3:{column}\n   |\n 3 | {line}\n   | {blanks}{carets}\n  = help: {help}\n"
        );
        assert_eq!(refused(&sandbox), expected);
    };
    let unknown = |name: &str| format!("unknown key `{name}` in agent.yaml");
    check("hooks: {}", &unknown("hooks"), 5, 1, "hooks belong in hooks.yaml, next to this file");
    check("temperature: 0", &unknown("temperature"), 11, 1, "it belongs under `llm:`");
    let list = "`imports` must be a list, not a string";
    check("imports: x.yaml", list, 6, 10, "write `imports: [\"x.yaml\"]`");
    let types = "`type` must be `string`, `integer`, `number`, `boolean`, `array` or `object`";
    let tool = "tools: [{name: t, exec: 'echo ${n}', parameters: [{name: n, type: int}]}]";
    check(tool, types, 3, 67, "write `integer`");
    let lost = "Parameter 'n' not found in template";
    let tool = "tools: [{name: t, shell: 'cd ${d}; head -n $n', parameters: [{name: n}]}]";
    check(tool, lost, 1, 69, "write `${n}`: `$n` is a shell variable");
}
