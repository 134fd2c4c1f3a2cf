//! Answers that were cut off at their token limit (C-37.7): the text is kept, and `llm.on_length` says what it means.

use super::DELTA;
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

fn cut(text: &str) -> Answer {
    Answer::text(text).finish_reason(Some("length"))
}

fn served(answers: Vec<Answer>, llm: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: m\n  base_url: {}{llm}", server.url()), "");
    (server, sandbox)
}

#[test]
fn c_37_7_the_text_of_an_answer_that_was_cut_off_is_kept() {
    let (server, sandbox) = served(vec![cut("Once upon"), Answer::text("a time")], "");
    let result = sandbox.run("go", &["--format", "json"]).expect_code(1).json();
    assert_eq!(result["error"]["type"], "length");
    let thought = &sandbox.events("THOUGHT")[0];
    assert_eq!((&thought["content"], &thought["cut_off"]), (&json!("Once upon"), &json!(true)));
    assert_eq!(sandbox.events("ERROR").len(), 1);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains("Once upon"), "{shown}");
    assert!(shown.contains("! the answer was cut off at the token limit"), "{shown}");
    let view = sandbox.delta(["export", "r", "-w", "work", "--to", "markdown"]).output();
    assert!(view.expect_code(0).stdout.contains("The answer was cut off at the token limit."));
    let args = ["continue", "r", "-w", "work", "-q", "--format", "raw", "-m", "and?"];
    assert_eq!(sandbox.delta(args).output().expect_code(0).stdout, "a time\n");
    let body = &server.requests()[1].body;
    let messages = body["messages"].as_array().unwrap();
    let texts: Vec<&str> = messages.iter().filter_map(|one| one["content"].as_str()).collect();
    let [.., task, text, note, message] = texts[..] else { panic!("{texts:?}") };
    assert_eq!([task, text, message], ["go", "Once upon", "and?"]);
    assert!(note.starts_with("[Your answer was cut off at the token limit."), "{note}");
}

#[test]
fn c_37_7_what_was_cut_off_is_accepted_or_continued() {
    let (_server, sandbox) = served(vec![cut("Once upon")], "\n  on_length: accept");
    let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "Once upon\n");
    assert_eq!(sandbox.events("THOUGHT")[0]["cut_off"], true);
    let answers = || vec![cut("Once "), cut("upon "), Answer::text("a time.")];
    let (server, sandbox) = served(answers(), "\n  on_length: continue");
    let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
    assert_eq!((ran.stdout.as_str(), server.requests().len()), ("Once upon a time.\n", 3));
    // The option counts like the key, and a fork starts with the text that is there.
    let (_server, sandbox) = served(answers(), "");
    sandbox.run("go", &["--llm", "on_length=continue"]).expect_code(0);
    let fork = ["fork", "r", "-w", "work", "--at", "2", "--into", "new", "--run-id", "f", "-q"];
    let fork = fork.into_iter().chain(["--format", "raw", "--model"]);
    sandbox.write("script.yaml", "turns: [{say: the end}]\n");
    let model = format!("script:{}", sandbox.path("script.yaml").display());
    let ran = sandbox.delta(fork.map(str::to_owned).chain([model])).output();
    assert_eq!(ran.expect_code(0).stdout, "Once upon the end\n");
}

#[test]
fn c_37_7_ensure_says_how_to_try_again_and_does() {
    let (server, sandbox) = served(vec![cut("Once "), Answer::text("upon")], "");
    let ensure =
        |more: &[&str]| sandbox.run("go", &[&["--ensure", "--format", "raw", "-q"], more].concat());
    ensure(&[]).expect_code(1);
    let again = ensure(&[]).expect_code(1);
    assert!(again.stderr.contains("FAILED earlier: the answer was cut off"), "{}", again.stderr);
    assert!(
        again.stderr.contains("the same command with `--retry length`, or `delta continue r -w "),
        "{}",
        again.stderr
    );
    assert_eq!(server.requests().len(), 1);
    assert_eq!(ensure(&["--retry", "llm,length"]).expect_code(0).stdout, "Once upon\n");

    let sandbox = Sandbox::scripted(
        DELTA,
        "  - {name: t, exec: echo x}\n",
        "- call: [{tool: t}]\n- say: done",
    );
    let ensure = |more: &[&str]| {
        sandbox.run(
            "go",
            &[&["--ensure", "--format", "raw", "-q", "--max-iterations", "1"], more].concat(),
        )
    };
    ensure(&[]).expect_code(1);
    assert_eq!(ensure(&["--retry", "max_iterations"]).expect_code(0).stdout, "done\n");
}
