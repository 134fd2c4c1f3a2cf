//! The engine killed or failed at each of its durable operations while it changes the model: the model that the journal
//! names is asked, and none is asked again that has been given up.

use super::failpoints::{acknowledged, check_fault, check_files, operations};
use super::*;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

/// A server whose first model is overloaded, and whose second one answers.
fn server() -> ScriptedServer {
    ScriptedServer::start(|request: &RecordedRequest| match request.body["model"].as_str() {
        Some("first") => Answer::error(529, "overloaded", None),
        _ => Answer::text("done"),
    })
}

fn before(server: &ScriptedServer) -> (Sandbox, Delta) {
    let sandbox = Sandbox::new(DELTA);
    let url = server.url();
    let llm = format!("model: first\n  max_retries: 0\n  base_url: {url}\n  fallback: [second]");
    sandbox.agent(&llm, "");
    let command = sandbox.run_command("go", &["--format", "jsonl"]);
    (sandbox, command)
}

#[test]
fn c_37_10_a_change_of_the_model_survives_every_fault() {
    let first = server();
    let (sandbox, command) = before(&first);
    let count = operations(&sandbox, command);
    for mode in ["abort", "enospc"] {
        each((1..=count).collect(), |number| {
            let server = server();
            let (sandbox, command) = before(&server);
            let ran = command.env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
            check_fault(mode, 0, &ran);
            let asked = server.requests().len();
            let has_journal = sandbox.path("work/.delta/r/journal.jsonl").exists();
            let journal = || sandbox.read("work/.delta/r/journal.jsonl");
            let is_changed = has_journal && journal().contains("\"fallback\":{");
            let mut last = if has_journal { resume(&sandbox, &[]) } else { sandbox.run("go", &[]) };
            if last.stderr.contains("never began") {
                last = sandbox.run("go", &[]);
            } else if last.stderr.contains("has no task") || last.stderr.contains("Run is") {
                last = resume(&sandbox, &["-m", "go"]);
            } else if is_changed && last.code == 0 {
                let later = server.requests().split_off(asked);
                let models: Vec<_> = later.iter().map(|it| it.body["model"].clone()).collect();
                assert!(models.iter().all(|model| model == "second"), "{mode}:{number} {models:?}");
            }
            assert_eq!(last.code, 0, "{mode}:{number} {last:?}");
            check_files(&sandbox, &acknowledged(&ran));
        });
    }
}
