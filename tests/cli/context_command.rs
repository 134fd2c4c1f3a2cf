//! `delta context`: what the LLM sees, what changes between two requests, and what a first one would be.

use super::DELTA;
use serde_json::{Value, json};
use std::process::Command;
use test_support::normal::normal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const NOTE: &str = "  - {name: note, shell: 'echo ${text} >> notes; echo noted'}\n";
const TURNS: &str = "- say: looking\n  call: [{tool: note, args: {text: a}}]\n- call: [{tool: note, args: {text: b}}]\n- say: done\n";
/// What changes stands before the conversation.
const VOLATILE: &str = "sources:
  - {type: file, id: prompt, path: system_prompt.md}
  - {type: file, id: guide, path: '${CWD}/DELTA.md', on_missing: skip}
  - {type: file, id: notes, path: '${CWD}/notes'}
  - {type: journal}
";
const PRICED: &str =
    "provider: script\n  model: script.yaml\n  pricing: {input: 2, cached_input: 0.5, output: 8}";

const SHOWN: &str = r##"{
  "run_id": "r",
  "iteration": 1,
  "reported": null,
  "messages": 3,
  "bytes": 1010,
  "tokens": 255,
  "sha256": "ad28ba1708b28c042e9740f7940b71a87f477817f88bd51bf638248dd2f2414f",
  "blocks": [
    {
      "order": 1,
      "source": "prompt",
      "type": "file",
      "messages": 1,
      "first_message": 1,
      "bytes": 74,
      "tokens": 19,
      "sha256": "0585e9527cf4f1140841fe33ed920f752bdc1a70b7dd3fb8af26bb493b0ec8c4",
      "cut": null,
      "skipped": null
    },
    {
      "order": 2,
      "source": "guide",
      "type": "file",
      "messages": 0,
      "first_message": null,
      "bytes": 0,
      "tokens": 0,
      "sha256": null,
      "cut": null,
      "skipped": "there is no DIR/work/DELTA.md"
    },
    {
      "order": 3,
      "source": "notes",
      "type": "file",
      "messages": 1,
      "first_message": 2,
      "bytes": 61,
      "tokens": 16,
      "sha256": "490864e5eae39d20cbdf4bb180494fc22cb8f7cfbfaf4ddc363547f40b84b5c0",
      "cut": null,
      "skipped": null
    },
    {
      "order": 4,
      "source": "journal",
      "type": "journal",
      "messages": 1,
      "first_message": 3,
      "bytes": 36,
      "tokens": 10,
      "sha256": "2edbf8d8d17f277cd6d061e4e1cf1ae4a8dfbc0e52a3ca3f83dd42e3f2915a7c",
      "cut": null,
      "skipped": null
    }
  ],
  "tools": {
    "names": [
      "note",
      "finish",
      "ask_human"
    ],
    "bytes": 791,
    "tokens": 198,
    "sha256": "0137be94e4b8f538efd19199908e335abc0137561b6823e6fce1a6c75f6d5076"
  },
  "rest": {
    "bytes": 48,
    "tokens": 12
  },
  "replaced": false
}"##;
const COMPARED: &str = r##"{
  "run_id": "r",
  "from": {
    "iteration": 1,
    "bytes": 1010,
    "tokens": 253,
    "sha256": "ad28ba1708b28c042e9740f7940b71a87f477817f88bd51bf638248dd2f2414f",
    "reported": null
  },
  "to": {
    "iteration": 2,
    "bytes": 1225,
    "tokens": 307,
    "sha256": "85e78154c09ec9aaeedab44bbb0e761fc456dd4abf498a9891bde51861744388",
    "reported": null
  },
  "blocks": [
    {
      "source": "prompt",
      "type": "file",
      "change": "same",
      "before": {
        "bytes": 74,
        "tokens": 19
      },
      "after": {
        "bytes": 74,
        "tokens": 19
      }
    },
    {
      "source": "guide",
      "type": "file",
      "change": "same",
      "before": {
        "bytes": 0,
        "tokens": 0
      },
      "after": {
        "bytes": 0,
        "tokens": 0
      }
    },
    {
      "source": "notes",
      "type": "file",
      "change": "changed",
      "before": {
        "bytes": 61,
        "tokens": 16
      },
      "after": {
        "bytes": 64,
        "tokens": 17
      }
    },
    {
      "source": "journal",
      "type": "journal",
      "change": "grew",
      "before": {
        "bytes": 36,
        "tokens": 10
      },
      "after": {
        "bytes": 248,
        "tokens": 63
      }
    }
  ],
  "replaced": false,
  "settings": [],
  "breaks": {
    "part": "messages",
    "offset": 969,
    "message": 2,
    "role": "system",
    "source": "notes",
    "before": "…xt Block: notes\\n\\none\\n\"}",
    "after": "…xt Block: notes\\n\\none\\na\\n\"}"
  },
  "cacheable": {
    "bytes": 971,
    "tokens": 243
  },
  "behind": {
    "bytes": 254,
    "tokens": 64
  },
  "lost": {
    "bytes": 39,
    "tokens": 10
  },
  "cost_usd": {
    "cacheable": 0.0001215,
    "behind": 0.000128,
    "lost": 0.000015
  }
}"##;

fn context(sandbox: &Sandbox, args: &[&str]) -> Ran {
    let ran = sandbox.delta(["context"].iter().chain(args).copied()).output();
    ran.normal(sandbox)
}

/// A finished run of three iterations, whose second source changes with each.
fn volatile() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, NOTE, TURNS);
    sandbox.agent(PRICED, NOTE);
    sandbox.write("agent/context.yaml", VOLATILE);
    sandbox.write("work/notes", "one\n");
    sandbox.run("the task", &[]).expect_code(0);
    sandbox
}

/// The exact request of an iteration, with the sandbox's path taken out.
fn request(sandbox: &Sandbox, iteration: usize) -> String {
    let number = iteration.to_string();
    let shown = sandbox.delta(["show", "r", "-w", "work", "--request", &number]).output();
    shown.expect_code(0).stdout
}

fn preview(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["context", "preview", "--agent", "agent", "the task"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

#[test]
fn c_8_5_a_preview_without_an_agent_is_of_the_agent_that_runs_here() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("work/AGENTS.md", "Speak plainly.\n");
    let preview = |more: &[&str]| {
        let fixed = ["context", "preview", "-m", "x", "--format", "json"];
        sandbox.delta(fixed.iter().chain(more).copied()).cwd(sandbox.path("work")).output()
    };
    let ran = preview(&[]).expect_code(126);
    assert!(ran.stderr.contains("no model is chosen for the built-in agent"), "{}", ran.stderr);
    let shown = preview(&["--model", "gpt-4o"]).expect_code(0).json();
    assert_eq!(shown["agent"], "coding");
    assert_eq!(shown["workspace"].as_str().unwrap(), sandbox.path("work").to_str().unwrap());
    let blocks = shown["blocks"].as_array().unwrap();
    assert!(blocks.iter().any(|block| block["source"] == "AGENTS.md"), "{shown}");
    assert!(!sandbox.path("work/.delta").exists());
}

#[test]
fn c_8_5_every_block_with_its_source_its_size_and_its_hash() {
    let sandbox = volatile();
    let shown = context(&sandbox, &["show", "r", "-w", "work"]);
    shown.expect(
        0,
        "\
r iteration 3

#  source   type     messages  bytes  tokens  sha256
1  prompt   file            1     74      19  0585e9527cf4
2  guide    file            0      0       0  -
     skipped: there is no DIR/work/DELTA.md
3  notes    file            1     67      17  9335101b2d3a
4  journal  journal         5    455     114  323e8c2f3a4c
   3 tools                       791     198  0137be94e4b8
   other                          48      12  -
   total                    7   1435     360  755fa7520f3b

the endpoint reported no tokens
",
        "",
    );
    let args = ["show", "r", "-w", "work", "--iteration", "1", "--format", "json"];
    let shown = context(&sandbox, &args).expect_code(0).json();
    assert_eq!(format!("{shown:#}"), SHOWN);
}

#[test]
fn c_8_5_the_messages_of_a_block() {
    let sandbox = volatile();
    let block = |wanted: &str, more: &[&str]| {
        let fixed = ["show", "r", "-w", "work", "--iteration", "2", "--block", wanted];
        context(&sandbox, &[&fixed, more].concat())
    };
    let journal = "--- user\nthe task\n--- assistant\nlooking\n→ note {\"text\":\"a\"} (call_1_1)\n--- tool call_1_1\nnoted\n";
    block("4", &[]).expect(0, journal, "");
    block("journal", &[]).expect(0, journal, "");
    let notes = block("3", &["--format", "json"]).expect_code(0).json();
    assert_eq!(
        notes["messages"],
        json!([{"role": "system", "content": "# Context Block: notes\n\none\na\n"}])
    );
    block("guide", &[]).expect(
        1,
        "",
        "error: block 2 (`guide`) has no messages to show\nhelp: it was skipped: there is no DIR/work/DELTA.md\n",
    );
    block("nix", &[]).expect(
        1,
        "",
        "error: there is no block `nix`\nhelp: the blocks are 1 (`prompt`), 2 (`guide`), 3 (`notes`), 4 (`journal`)\n",
    );
}

#[test]
fn c_8_5_what_cannot_be_shown_is_said() {
    let sandbox = volatile();
    sandbox.unverified("its records are made those of an older delta");
    context(&sandbox, &["show", "r", "-w", "work", "--iteration", "7"]).expect(
        1,
        "",
        "error: there is no iteration 7\nhelp: the last iteration of the run is 3\n",
    );
    context(&sandbox, &["show", "nix", "-w", "work"]).expect_code(1);
    // A record of a delta that did not say where the messages come from.
    for name in sandbox.files("work/.delta/r/io/invocations") {
        let path = format!("work/.delta/r/io/invocations/{name}");
        sandbox.write(&path, sandbox.read(&path).replace("\"context\":", "\"unknown\":"));
    }
    context(&sandbox, &["show", "r", "-w", "work"]).expect(
        1,
        "",
        "error: record io/invocations/STAMP_3.json does not list the sources of its messages\n\
         help: an older version of delta wrote it; `delta show RUN --request N` prints the request\n",
    );
}

#[test]
fn c_8_5_a_damaged_record_is_refused_or_shown_and_never_ends_the_program() {
    let sandbox = volatile();
    sandbox.unverified("its records are damaged");
    let names = sandbox.files("work/.delta/r/io/invocations");
    let path = |index: usize| format!("work/.delta/r/io/invocations/{}", names[index]);
    // A count that no request has.
    let whole = sandbox.read(&path(1));
    assert!(whole.contains("\"messages\":1,"), "{whole}");
    let most = whole.replacen("\"messages\":1,", "\"messages\":18446744073709551615,", 1);
    sandbox.write(&path(1), most);
    let args = ["show", "r", "-w", "work", "--iteration", "2", "--format", "json"];
    assert_eq!(context(&sandbox, &args).expect_code(0).json()["replaced"], true);
    // Two records, each of which says that the other one holds its messages.
    for (index, other) in [(0, 1), (1, 0)] {
        let mut record: Value = serde_json::from_str(&sandbox.read(&path(index))).unwrap();
        record["request"]["messages"] = json!([{"same_as": names[other], "count": 1}]);
        sandbox.write(&path(index), record.to_string());
    }
    let told =
        "error: could not read the record io/invocations/STAMP_1.json: it refers to STAMP_2.json\n";
    let seen = context(&sandbox, &["show", "r", "-w", "work", "--iteration", "2"]).expect_code(1);
    assert_eq!((seen.stdout.as_str(), seen.stderr.as_str()), ("", told));
}

#[test]
fn c_8_5_what_is_left_out_and_what_a_hook_replaced() {
    let sandbox = Sandbox::scripted(DELTA, NOTE, TURNS);
    let sources = "sources:\n  - {type: file, id: big, path: '${CWD}/big', max_tokens: 40}\n  - {type: journal}\n";
    sandbox.write("agent/context.yaml", sources);
    sandbox.write("work/big", "word ".repeat(100));
    sandbox.run("the task", &[]).expect_code(0);
    let shown = context(&sandbox, &["show", "r", "-w", "work", "--iteration", "1"]).expect_code(0);
    let note = "     left out: what is beyond 40 tokens\n";
    assert!(shown.stdout.contains(note), "{}", shown.stdout);

    let hook = "#!/bin/sh\necho '{\"messages\": [{\"role\": \"user\", \"content\": \"other\"}]}'\n";
    sandbox.write_program("agent/gate", hook);
    sandbox.write("agent/hooks.yaml", "pre_llm_request: {command: ['${AGENT_HOME}/gate']}\n");
    let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "h", "-m", "x"];
    sandbox.delta(args).output();
    let shown = context(&sandbox, &["show", "h", "-w", "work", "--format", "json"]).json();
    let seen = (&shown["replaced"], &shown["messages"], &shown["blocks"][0]["sha256"]);
    assert_eq!(seen, (&json!(true), &json!(1), &Value::Null));
    let diff = context(&sandbox, &["diff", "h", "1", "2", "-w", "work"]).expect_code(0);
    let said = "\n\na hook replaced the messages of the blocks\n";
    assert!(diff.stdout.contains(said), "{}", diff.stdout);
}

#[test]
fn c_8_6_where_the_prompt_cache_breaks() {
    let sandbox = volatile();
    let args = ["diff", "r", "1", "2", "-w", "work"];
    context(&sandbox, &args).expect(
        0,
        "\
r iteration 1, 253 tokens, and iteration 2, 307 tokens

source   type                 bytes   tokens
prompt   file     same           74       19
guide    file     same            0        0
notes    file     changed   61 → 64  16 → 17
journal  journal  grew     36 → 248  10 → 63

the prompt cache breaks in message 2 (system of `notes`), byte 969 of the request:
  iteration 1  …xt Block: notes\\n\\none\\n\"}
  iteration 2  …xt Block: notes\\n\\none\\na\\n\"}

  before the break, from the cache  243 tokens  0.000121 USD
  after the break, in full           64 tokens  0.000128 USD
  lost from iteration 1              10 tokens  0.000015 USD

the endpoint reported no tokens
",
        "",
    );
    let seen = context(&sandbox, &[&args[..], &["--format", "json"]].concat()).json();
    assert_eq!(format!("{seen:#}"), COMPARED);
}

#[test]
fn c_8_6_a_conversation_that_only_grows_breaks_nothing() {
    let usage = |input: u64, cached: u64| json!({"prompt_tokens": input, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": cached}});
    let call = json!({"id": "c1", "type": "function", "function": {"name": "note", "arguments": "{\"text\": \"a\"}"}});
    let mut answers = vec![
        json!({"choices": [{"message": {"content": "done"}}], "usage": usage(500, 384)}),
        json!({"choices": [{"message": {"content": null, "tool_calls": [call]}}], "usage": usage(420, 0)}),
    ];
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        Answer::raw(200, answers.pop().unwrap_or_default().to_string())
    });
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: m\n  stream: false\n  base_url: {}", server.url());
    sandbox.agent(&llm, NOTE);
    sandbox.run("the task", &[]).expect_code(0);
    let args = ["diff", "r", "1", "2", "-w", "work", "--format", "json"];
    let seen = context(&sandbox, &args).expect_code(0).json();
    let changes: Vec<&Value> =
        seen["blocks"].as_array().unwrap().iter().map(|block| &block["change"]).collect();
    assert_eq!(changes, ["same", "grew"]);
    assert_eq!((&seen["breaks"], &seen["settings"]), (&Value::Null, &json!([])));
    assert_eq!(
        (&seen["lost"], &seen["cost_usd"]),
        (&json!({"bytes": 0, "tokens": 0}), &Value::Null)
    );
    // Corrected by what was reported, the estimate of the later request is what was reported of it.
    let (cacheable, behind) = (&seen["cacheable"]["tokens"], &seen["behind"]["tokens"]);
    assert_eq!(cacheable.as_u64().unwrap() + behind.as_u64().unwrap(), 500);
    assert_eq!(seen["to"]["reported"]["cached_input_tokens"], 384);
    let text = context(&sandbox, &args[..6]).expect_code(0).stdout;
    let calm = "the prompt cache does not break: the request begins with the whole earlier one\n";
    assert!(text.contains(calm), "{text}");
    let reported = "\nthe endpoint reported 500 tokens in, 384 of them cached, and 5 out\n";
    assert!(text.ends_with(reported), "{text}");
}

#[test]
fn c_8_6_leaving_iterations_out_breaks_the_cache_where_they_stood() {
    let turns: String = (1..=5)
        .map(|n| {
            format!("- call: [{{tool: note, args: {{text: {}}}}}]\n", format!("t{n}").repeat(40))
        })
        .collect();
    let sandbox = Sandbox::scripted(DELTA, NOTE, &format!("{turns}- say: done\n"));
    let sources = "sources:\n  - {type: file, id: prompt, path: system_prompt.md}\n  - {type: journal, max_tokens: 250}\n";
    sandbox.write("agent/context.yaml", sources);
    sandbox.run("the task", &[]).expect_code(0);
    let diff = |from: &str, to: &str| {
        context(&sandbox, &["diff", "r", from, to, "-w", "work", "--format", "json"]).json()
    };
    assert_eq!(diff("1", "2")["breaks"], Value::Null);
    let cut = (2..=5)
        .map(|from| diff(&from.to_string(), &(from + 1).to_string()))
        .find(|seen| seen["breaks"] != Value::Null)
        .unwrap();
    assert_eq!(
        (&cut["breaks"]["message"], &cut["breaks"]["source"]),
        (&json!(2), &json!("journal"))
    );
    assert_eq!(cut["blocks"][1]["change"], "changed");
    assert!(cut["lost"]["tokens"].as_u64().unwrap() > 0, "{cut}");
}

#[test]
fn c_8_7_a_preview_is_what_a_run_then_sends() {
    let tools = "  - {name: z_last, exec: 'true'}\n  - {name: a_first, exec: 'true', description: First}\nfinish: {schema: {type: object, properties: {b: {type: string}, a: {type: integer}}, required: [b]}}\n";
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("done"));
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    let llm = format!(
        "model: test-model\n  base_url: {}\n  temperature: 0.5\n  api_key_env: MY_KEY",
        server.url()
    );
    sandbox.agent(&llm, tools);
    sandbox.write(
        "agent/context.yaml",
        "total_max_tokens: 400
sources:
  - {type: file, id: prompt, path: system_prompt.md}
  - {type: file, id: api, path: system_prompt.md, condition: {when: task_contains, pattern: API}}
  - {type: file, id: task, path: system_prompt.md, condition: {when: task_contains, pattern: task}}
  - {type: file, id: late, path: system_prompt.md, condition: {when: iteration_at_least, iteration: 2}}
  - {type: file, id: big, path: '${CWD}/big', max_tokens: 50}
  - {type: journal}
",
    );
    sandbox.write("work/big", "word ".repeat(200));
    let seen = preview(&sandbox, &["-w", "work", "--request"]).expect_code(0);
    assert_eq!(server.requests().len(), 0, "nothing is asked");
    assert_eq!(sandbox.files("work"), ["big"], "nothing is made");
    let note = "Note: no run was created and no LLM called; RUN_DIR is DIR/work/.delta/preview, which does not exist\n";
    assert_eq!(normal(&sandbox, &seen.stderr), note);
    let shown = preview(&sandbox, &["-w", "work", "--format", "json"]).expect_code(0).json();
    sandbox.run_command("the task", &[]).env("MY_KEY", "sk-1234567890").output().expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(seen.stdout.as_bytes(), server.requests()[0].bytes);
    assert_eq!(seen.stdout, request(&sandbox, 1));
    let recorded = context(&sandbox, &["show", "r", "-w", "work", "--format", "json"]).json();
    assert_eq!((&shown["blocks"], &shown["tools"]), (&recorded["blocks"], &recorded["tools"]));
    assert_eq!(shown["sha256"], recorded["sha256"]);
    assert_eq!(shown["tools"]["names"], json!(["z_last", "a_first", "finish", "ask_human"]));
}

#[test]
fn c_8_7_a_preview_makes_no_workspace_and_says_what_a_run_would() {
    let sandbox = Sandbox::scripted(DELTA, NOTE, TURNS);
    sandbox.write("agent/context.yaml", VOLATILE);
    let before = sandbox.files("");
    let seen = preview(&sandbox, &[]).normal(&sandbox);
    seen.expect(
        1,
        "",
        "error: context source `notes`: could not read DIR/agent/workspaces/W001/notes: No such file or directory (os error 2) (`on_missing: skip` omits it)\n",
    );
    sandbox.write("agent/context.yaml", "sources:\n  - {type: journal}\n");
    let seen = preview(&sandbox, &[]).normal(&sandbox).expect_code(0);
    assert!(seen.stdout.starts_with("test-agent iteration 1, not sent\n"), "{}", seen.stdout);
    assert_eq!(sandbox.files(""), before);
    sandbox.write("agent/agent.yaml", "name: x\n");
    preview(&sandbox, &[]).expect_code(126);
}

/// It was in the form of Chat Completions, whatever form the run sends.
#[test]
fn c_8_7_a_preview_is_in_the_form_of_the_endpoint() {
    let pricing = "{input: 2, cached_input: 0.5, cache_write: 3, output: 8}";
    for (form, llm, more) in [
        ("openai", "\n  system_messages: merged", ""),
        ("anthropic", "", ""),
        ("anthropic", "\n  cache: {ttl: 1h}\n  stream: false", ""),
        ("anthropic", "", "max_iterations: 1\n"),
        ("responses", "", ""),
        ("responses", &format!("\n  pricing: {pricing}"), "max_iterations: 1\n"),
        ("gemini", "", ""),
    ] {
        let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("done"));
        let is_of_openai = ["openai", "responses"].contains(&form);
        let url = if is_of_openai { server.url() } else { server.root_url() };
        let sandbox = Sandbox::new(DELTA);
        let llm = format!("provider: {form}\n  model: test-model\n  base_url: {url}{llm}");
        sandbox.agent(&llm, &format!("{NOTE}{more}"));
        let sources = "sources:\n  - {type: file, path: system_prompt.md}\n  - {type: file, path: more.md}\n  - {type: journal}\n";
        sandbox.write("agent/context.yaml", sources);
        sandbox.write("agent/more.md", "word ".repeat(2000));
        let seen = preview(&sandbox, &["-w", "work", "--request"]).expect_code(0);
        assert_eq!(server.requests().len(), 0, "nothing is asked");
        let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "preview", "the task"];
        sandbox.delta(run).env("DELTA_API_KEY", "k").output().expect_code(0);
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        let sent = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
        assert_eq!(seen.stdout, sent, "{form}");
    }
}

#[test]
fn c_8_7_the_request_is_printed_without_a_key() {
    let sandbox = Sandbox::new(DELTA);
    let key_command = "provider: anthropic\n  model: claude-opus-4-5\n  api_key_command: [sh, -c, 'touch asked; echo k']";
    for llm in ["provider: anthropic\n  model: claude-opus-4-5", key_command] {
        sandbox.agent(llm, NOTE);
        let seen = preview(&sandbox, &["--request"]).expect_code(0).json();
        assert!(seen["tools"][0]["input_schema"].is_object(), "{seen}");
    }
    assert!(!sandbox.path("asked").exists() && !sandbox.path("agent/asked").exists());
}

/// A workspace that the run creates has the instructions of the repository that it is in; a symlink led to another path.
#[test]
fn c_8_7_a_workspace_that_is_not_there_yet_is_in_its_repository() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("done"));
    let sandbox = Sandbox::asking(DELTA, &server.url(), NOTE);
    let sources = "sources:\n  - {type: agents_md}\n  - {type: journal}\n";
    sandbox.write("agent/context.yaml", sources);
    sandbox.write("agent/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.write("agent/AGENTS.md", "Of the agent.\n");
    sandbox.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.write("repo/AGENTS.md", "Of the repository.\n");
    std::os::unix::fs::symlink("repo", sandbox.path("link")).unwrap();
    let before = sandbox.files("");
    for (number, more) in
        [&[] as &[&str], &["-w", "repo/new/deep"], &["-w", "link/b"]].into_iter().enumerate()
    {
        let args = [&["--request"], more].concat();
        let seen = preview(&sandbox, &args).expect_code(0);
        let owner = if number == 0 { "Of the agent." } else { "Of the repository." };
        assert!(seen.stdout.contains(owner), "{more:?}: {}", seen.stdout);
        if number == 0 {
            assert_eq!(sandbox.files(""), before);
        }
        let run = ["run", "--agent", "agent", "-y", "--run-id", "preview", "the task"];
        let run = sandbox.delta(run.iter().chain(more).copied());
        run.env("DELTA_API_KEY", "k").output().expect_code(0);
        let sent = String::from_utf8(server.requests()[number].bytes.clone()).unwrap();
        assert_eq!(seen.stdout, sent, "{more:?}");
    }
}

/// It started the tokenizer, which can write, even for a workspace that does not exist.
#[test]
fn c_8_7_a_tokenizer_counts_when_it_is_asked_to_and_a_hook_is_not_run() {
    let sandbox = Sandbox::scripted(DELTA, NOTE, TURNS);
    let manifest = "tokenizer: {command: ['${AGENT_HOME}/count']}\nsources:\n  - {type: journal, max_tokens: 60}\n";
    sandbox.write("agent/context.yaml", manifest);
    sandbox.write_program("agent/count", "#!/bin/sh\ntouch \"${0%/*}/ran\"\nwc -w\n");
    sandbox.write("agent/hooks.yaml", "pre_llm_request: {command: ['false']}\n");
    let hook = "Note: the hook pre_llm_request did not run; it may change the request\n";
    let seen = preview(&sandbox, &["-w", "new", "--format", "json"]).normal(&sandbox);
    assert_eq!(seen.json()["blocks"][0]["tokens"], 10);
    assert_eq!(
        seen.stderr,
        format!(
            "Note: no run was created and no LLM called; RUN_DIR is DIR/new/.delta/preview, which does not exist\n\
             Note: the tokenizer did not run; tokens are estimated, so a run may cut the request elsewhere; `--generate` runs it\n{hook}"
        )
    );
    assert!(!sandbox.path("new").exists());
    assert!(!sandbox.path("agent/ran").exists(), "the tokenizer is started");
    sandbox.write("work/x", "");
    let args = ["-w", "work", "--generate", "--format", "json"];
    let seen = preview(&sandbox, &args).normal(&sandbox);
    assert_eq!(seen.json()["blocks"][0]["tokens"], 2 + 4);
    assert!(!seen.stderr.contains("tokenizer did not run"), "{}", seen.stderr);
    assert!(sandbox.path("agent/ran").exists());
}

#[test]
fn c_8_7_generators_run_when_they_are_asked_to() {
    let sandbox = Sandbox::scripted(DELTA, NOTE, TURNS);
    let source = "sources:\n  - {type: computed_file, id: made, generator: {command: ['${AGENT_HOME}/gen', '${RUN_DIR}/out']}, output_path: '${RUN_DIR}/out'}\n  - {type: journal}\n";
    sandbox.write("agent/context.yaml", source);
    sandbox.write_program("agent/gen", "#!/bin/sh\npwd > \"$1\"; dirname \"$1\" > ran\n");
    let skipped = preview(&sandbox, &["-w", "work", "--format", "json"]).normal(&sandbox);
    assert_eq!(
        skipped.expect_code(0).json()["blocks"][0]["skipped"],
        "its generator has not run, and DIR/work/.delta/preview/out: No such file or directory (os error 2)"
    );
    // There has to be a workspace to run in.
    preview(&sandbox, &["--generate"]).expect_code(2);
    preview(&sandbox, &["-w", "work", "--generate"]).expect_code(126);
    sandbox.write("work/x", "");
    let args = ["-w", "work", "--generate", "--block", "made"];
    let seen = preview(&sandbox, &args).normal(&sandbox).expect_code(0);
    assert_eq!(seen.stdout, "--- system\n# Context Block: made\n\nDIR/work\n");
    let run_dir = sandbox.read("work/ran");
    assert!(!std::path::Path::new(run_dir.trim()).exists(), "{run_dir} is taken away");
    assert_eq!(sandbox.files("work"), ["ran", "x"]);
}

#[test]
fn c_15_3_a_generator_of_a_preview_gets_no_token_of_a_server() {
    let sandbox = Sandbox::new(DELTA);
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/clean-mcp");
    for file in ["agent.yaml", "mcp.lock.json"] {
        sandbox.write(&format!("agent/{file}"), std::fs::read(corpus.join(file)).unwrap());
    }
    let source = "sources:\n  - {type: computed_file, id: made, generator: {command: [sh, -c, 'env > \"$0\"', '${RUN_DIR}/out']}, output_path: '${RUN_DIR}/out'}\n  - {type: journal}\n";
    sandbox.write("agent/context.yaml", source);
    sandbox.write("work/x", "");
    let args = ["context", "preview", "--agent", "agent", "-m", "the task", "-w", "work"];
    let preview = sandbox.delta(args).args(["--generate", "--block", "made"]);
    let seen = preview.env("TRACKER_TOKEN", "t0ken").env("PLAIN", "yes").output().expect_code(0);
    assert!(seen.stdout.contains("\nPLAIN=yes\n"), "{}", seen.stdout);
    assert!(!seen.stdout.contains("TRACKER_TOKEN"), "{}", seen.stdout);
}

#[test]
fn c_8_8_the_prefix_is_the_same_after_continue() {
    let turns = "- call: [{tool: ask_human, args: {prompt: Sure?}}]\n- call: [{tool: note, args: {text: b}}]\n- say: done\n- say: more\n";
    let sandbox = Sandbox::scripted(DELTA, NOTE, turns);
    sandbox.run("the task", &[]).expect_code(101);
    let go_on = |message: &str| {
        let args = ["continue", "--run-id", "r", "-w", "work", "-m", message];
        sandbox.delta(args).output().expect_code(0);
    };
    go_on("yes");
    go_on("and more");
    for (from, to) in [("1", "2"), ("2", "3"), ("3", "4")] {
        let args = ["diff", "r", from, to, "-w", "work", "--format", "json"];
        let seen = context(&sandbox, &args).expect_code(0).json();
        assert_eq!((&seen["breaks"], &seen["settings"]), (&Value::Null, &json!([])), "{from} {to}");
    }
}

/// The requests of a run that goes on in a copy of everything, elsewhere, and of the original.
#[test]
fn c_8_8_the_same_journal_gives_the_same_bytes_elsewhere() {
    let turns = "- call: [{tool: note, args: {text: a}}, {tool: ask_human, args: {prompt: Sure?}}]\n- call: [{tool: note, args: {text: b}}]\n- say: done\n";
    let original = Sandbox::scripted(DELTA, NOTE, turns);
    original.run("the task", &[]).expect_code(101);
    let copy = Sandbox::new(DELTA);
    for dir in ["agent", "work"] {
        let _ = std::fs::remove_dir_all(copy.path(dir));
        let mut cp = Command::new("cp");
        let copied = cp.arg("-r").arg(original.path(dir)).arg(copy.path(dir)).status();
        assert!(copied.unwrap().success());
    }
    for sandbox in [&original, &copy] {
        let args = ["continue", "--run-id", "r", "-w", "work", "--agent", "agent", "-m", "yes"];
        sandbox.delta(args).output().expect_code(0);
    }
    for iteration in 1..=3 {
        let (here, there) = (request(&original, iteration), request(&copy, iteration));
        let there =
            there.replace(&*copy.path("").to_string_lossy(), &original.path("").to_string_lossy());
        assert_eq!(here, there, "iteration {iteration}");
        let keys = ["\"model\":", "\"tools\":", "\"messages\":"].map(|key| here.find(key));
        assert!(keys.is_sorted() && keys[0].is_some(), "{here}");
    }
}
