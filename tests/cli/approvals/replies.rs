//! Without a terminal a run waits, and any command that continues it decides.

use super::{approvals, notes, noting, paste, resume};
use crate::DELTA;
use serde_json::{Value, json};
use test_support::normal::normal;
use test_support::sandbox::Sandbox;

#[test]
fn c_21_2_the_run_waits_and_a_file_says_for_what() {
    let sandbox = noting("ask", &["it's"]);
    let ran = sandbox.run("go", &["--format", "json"]).expect_code(101);
    let mut interaction = json!({
        "kind": "approval",
        "prompt": "Approve note: sh -c 'echo \"$1\" >> notes; echo noted \"$1\"' -- \"it's\"",
        "input_type": "confirmation",
        "sensitive": false,
        "tool": "note",
        "arguments": {"text": "it's"},
        "argv": ["sh", "-c", "echo \"$1\" >> notes; echo noted \"$1\"", "--", "it's"],
    });
    let result = &ran.json()["interaction"];
    let id = result["request_id"].as_str().unwrap();
    interaction["request_id"] = id.into();
    assert_eq!(*result, interaction);
    let stderr = normal(&sandbox, &ran.stderr);
    assert!(
        stderr.ends_with(
            "WAITING_FOR_INPUT after 1 iteration, SPAN\nThe agent is waiting for your approval:\n  \
             delta approve r -w DIR/work --request-id REQUEST\n  \
             delta deny r -w DIR/work --request-id REQUEST -m REASON\n"
        ),
        "{stderr}"
    );
    let request = sandbox.read("work/.delta/r/interaction/request.json");
    let mut request: Value = serde_json::from_str(&request).unwrap();
    let fields = request.as_object_mut().unwrap();
    assert!(fields.remove("timestamp").unwrap().is_string());
    assert_eq!(request, interaction);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().normal(&sandbox);
    assert!(shown.stdout.contains("? approve note\n"), "{}", shown.stdout);
    let approve = "approve with: delta approve r -w work --request-id REQUEST\n";
    assert!(shown.stdout.contains(approve), "{}", shown.stdout);
}

/// Two approvals of the same call, from two windows, approved the next call, which nobody had seen.
#[test]
fn c_21_2_an_answer_that_names_its_question_answers_no_other() {
    let sandbox = noting("ask", &["a", "b"]);
    let ran = sandbox.run("go", &[]).expect_code(101);
    let mut printed = ran.stderr.lines().filter(|line| line.contains("--request-id"));
    let approve = printed.next().unwrap();
    let open = || {
        let request = sandbox.read("work/.delta/r/interaction/request.json");
        let request: Value = serde_json::from_str(&request).unwrap();
        request["request_id"].as_str().unwrap().to_owned()
    };
    let first = open();
    assert!(approve.contains(&first[..8]), "{approve}");
    paste(&sandbox, approve, &[]).expect_code(101);
    let second = open();
    assert_ne!(first, second);
    for again in [
        &["approve", "r"] as &[&str],
        &["deny", "r"],
        &["answer", "r", "yes"],
        &["continue", "r", "-m", "yes"],
        &["continue", "r", "-i"],
    ] {
        let named = [again, &["-w", "work", "--request-id", &first]].concat();
        let ran = sandbox.delta(named).output().expect_code(1);
        let refused = format!("error: run r does not wait for the answer to {first}\n");
        assert!(ran.stderr.starts_with(&refused), "{}", ran.stderr);
        let named = format!("--request-id {}", &second[..8]);
        assert!(ran.stderr.contains("to answer that: delta approve r -w "), "{}", ran.stderr);
        assert_eq!(ran.stderr.matches(&named).count(), 2, "{}", ran.stderr);
    }
    assert_eq!((notes(&sandbox), open()), (vec!["a".to_owned()], second.clone()));
    for wrong in ["", "1234567", "yes please", &format!("{second}0")] {
        let named = ["approve", "r", "-w", "work", "--request-id", wrong];
        let ran = sandbox.delta(named).output().expect_code(2);
        assert!(ran.stderr.contains("expected the `request_id` of a question"), "{}", ran.stderr);
    }
    let named = ["approve", "r", "-w", "work", "--request-id", &second.to_uppercase()];
    sandbox.delta(named).output().expect_code(0);
    assert_eq!(notes(&sandbox), ["a", "b"]);
}

/// The id was made of the run's id and the number of the event, so a command for one run approved calls of another.
#[test]
fn c_21_2_an_answer_is_for_this_run_and_not_for_a_later_one_of_the_same_name() {
    let sandbox = noting("ask", &["harmless"]);
    let ran = sandbox.run("go", &[]).expect_code(101);
    let approve = ran.stderr.lines().find(|line| line.contains("delta approve")).unwrap();
    let elsewhere = ["run", "--agent", "agent", "-w", "other", "--run-id", "r", "-q", "go"];
    sandbox.delta(elsewhere).output().expect_code(101);
    let ids = ["work", "other"].map(|workspace| {
        let request = sandbox.read(&format!("{workspace}/.delta/r/interaction/request.json"));
        serde_json::from_str::<Value>(&request).unwrap()["request_id"].clone()
    });
    assert_ne!(ids[0], ids[1], "the same question in another workspace");

    sandbox.delta(["rm", "r", "-w", "work", "--yes"]).output().expect_code(0);
    let turns = sandbox.read("agent/script.yaml").replace("harmless", "DANGEROUS");
    sandbox.write("agent/script.yaml", turns);
    sandbox.run("go", &[]).expect_code(101);
    let ran = paste(&sandbox, approve, &[]).expect_code(1);
    assert!(ran.stderr.contains("does not wait for the answer to"), "{}", ran.stderr);
    assert!(notes(&sandbox).is_empty());
}

#[test]
fn c_21_2_the_id_of_a_question_is_the_same_in_every_process() {
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &[]).expect_code(101);
    let open = || {
        let request = sandbox.read("work/.delta/r/interaction/request.json");
        serde_json::from_str::<Value>(&request).unwrap()["request_id"].clone()
    };
    let first = open();
    // As if its process had been killed while it waited.
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let end = journal.trim_end().rfind('\n').unwrap() + 1;
    assert!(journal[end..].contains("ENGINE_END"));
    sandbox.write("work/.delta/r/journal.jsonl", &journal[..end]);
    std::fs::remove_file(sandbox.path("work/.delta/r/metadata.json")).unwrap();
    resume(&sandbox, &[]).expect_code(101);
    assert_eq!(open(), first);
    let inbox = sandbox.delta(["inbox", "work", "--json"]).output().json();
    assert_eq!(inbox[0]["request_id"], first);
}

/// An earlier version made the id of the run's id and the number of the event, and has printed it.
#[test]
fn c_21_2_a_question_of_an_earlier_version_keeps_its_id() {
    let sandbox = noting("ask", &["a"]);
    sandbox.unverified("its journal is that of an earlier version");
    sandbox.run("go", &[]).expect_code(101);
    let mut seq = 0;
    let lines: Vec<String> = sandbox
        .journal()
        .iter()
        .map(|event| {
            let mut event = event.clone();
            let fields = event.as_object_mut().unwrap();
            fields.remove("chain");
            if fields.remove("named_by").is_some() {
                seq = fields["seq"].as_u64().unwrap();
            }
            event.to_string() + "\n"
        })
        .collect();
    sandbox.write("work/.delta/r/journal.jsonl", lines.concat());
    let printed = delta_base::id::text_uuid(&format!("r {seq}"));
    let inbox = sandbox.delta(["inbox", "work", "--json"]).output().json();
    assert_eq!(inbox[0]["request_id"], printed);
}

/// The process can die between an approval and the start of the call. Another approval is not for the next call.
#[test]
fn c_21_3_an_approval_after_one_that_had_no_effect_yet_is_refused() {
    let sandbox = noting("ask", &["a", "b"]);
    sandbox.unverified("the journal is cut");
    sandbox.run("go", &[]).expect_code(101);
    sandbox.delta(["approve", "r", "-w", "work"]).output().expect_code(101);
    std::fs::remove_file(sandbox.path("work/notes")).unwrap();
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let decided = journal.lines().position(|line| line.contains("APPROVAL_DECISION")).unwrap();
    let lines: Vec<&str> = journal.lines().take(decided + 1).collect();
    sandbox.write("work/.delta/r/journal.jsonl", lines.join("\n") + "\n");
    for again in [&["approve", "r"] as &[&str], &["deny", "r"], &["answer", "r", "yes"]] {
        let ran = sandbox.delta([again, &["-w", "work"]].concat()).output().expect_code(1);
        let hint =
            "help: the answer is recorded already; to continue: delta continue --run-id r -w ";
        assert!(ran.stderr.contains("run r does not wait for an"), "{}", ran.stderr);
        assert!(ran.stderr.contains(hint), "{}", ran.stderr);
    }
    assert!(notes(&sandbox).is_empty());
    resume(&sandbox, &[]).expect_code(101);
    assert_eq!(notes(&sandbox), ["a"]);
}

#[test]
fn c_21_2_yes_no_and_the_reason_and_nothing_else() {
    let sandbox = noting("ask", &["a", "b", "c"]);
    sandbox.run("go", &[]).expect_code(101);
    for other in ["", "maybe", "yes please", "no way"] {
        let ran = resume(&sandbox, &["-m", other, "--format", "json"]).expect_code(1);
        assert!(
            ran.stderr.contains("expected `yes`, `no` or `no: REASON` for: Approve note:"),
            "{}",
            ran.stderr
        );
        assert_eq!(ran.json()["status"], "WAITING_FOR_INPUT");
    }
    let ran = resume(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.contains("Run is WAITING_FOR_INPUT: Approve note:"), "{}", ran.stderr);
    assert!(notes(&sandbox).is_empty() && sandbox.events("APPROVAL_DECISION").is_empty());
    resume(&sandbox, &["-m", "Yes"]).expect_code(101);
    assert_eq!(notes(&sandbox), ["a"]);
    resume(&sandbox, &["-m", "no: not b"]).expect_code(101);
    resume(&sandbox, &["-m", "n"]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
    assert_eq!(sandbox.observations()[1], "Denied by the operator; the tool was not run.\nnot b");
    assert_eq!(approvals(&sandbox), [json!(["operator", null])]);
    assert!(!sandbox.path("work/.delta/r/interaction").exists());
}

#[test]
fn c_21_2_a_file_that_a_tool_can_write_approves_nothing() {
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &[]).expect_code(101);
    sandbox.write("work/.delta/r/interaction/response.txt", "yes\n");
    let ran = resume(&sandbox, &[]).expect_code(1);
    assert!(!ran.stderr.contains("response.txt"), "{}", ran.stderr);
    assert!(notes(&sandbox).is_empty());
}

#[test]
fn c_21_2_request_json_has_the_change_of_the_file() {
    let turns = "- call: [{tool: put, args: {path: f, content: \"b\\n\"}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &super::TOOLS.replace("APPROVE", "ask"), turns);
    sandbox.write("work/f", "a\n");
    sandbox.run("go", &[]).expect_code(101);
    let request = sandbox.read("work/.delta/r/interaction/request.json");
    let request: Value = serde_json::from_str(&request).unwrap();
    assert_eq!(request["preview"], "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n");
}

#[test]
fn c_21_3_a_replay_repeats_what_was_decided() {
    let sandbox = noting("ask", &["a", "b"]);
    sandbox.run("go", &[]).expect_code(101);
    resume(&sandbox, &["-m", "yes"]).expect_code(101);
    resume(&sandbox, &["-m", "no: b is enough"]).expect_code(0);
    let replay = |mode: &str| {
        sandbox.delta(["replay", "r", "-w", "work", "--mode", mode, "--into", "again"]).output()
    };
    let ran = replay("tools").expect_code(0);
    assert!(ran.stdout.contains("did the same: 2 answers, 2 calls"), "{}", ran.stdout);
    assert_eq!(sandbox.read("again/notes"), "a\n");

    // What an operator denied although no rule asks is denied again.
    let sandbox = noting("never", &["a"]);
    sandbox.run("go", &["--approve", "ask"]).expect_code(101);
    resume(&sandbox, &["-m", "no"]).expect_code(0);
    let replay = ["replay", "r", "-w", "work", "--mode", "tools", "--into", "again"];
    sandbox.delta(replay).output().expect_code(0);
    assert!(!sandbox.path("again/notes").exists());
}

#[test]
fn c_21_3_a_replay_finds_a_call_that_nobody_approved() {
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &["--approve-all"]).expect_code(0);
    sandbox.unverified("the journal is edited");
    let journal = "work/.delta/r/journal.jsonl";
    let text = sandbox.read(journal).replace(",\"approve\":{\"all\":true}", "");
    sandbox.write(journal, text);
    let ran = sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(3);
    assert!(ran.stdout.contains("the approval of call call_1_1 (note)"), "{}", ran.stdout);
}

#[test]
fn c_21_2_readers_know_a_run_that_waits_for_approval() {
    let sandbox = noting("ask", &["a", "b"]);
    sandbox.run("go", &[]).expect_code(101);
    resume(&sandbox, &["-m", "yes"]).expect_code(101);
    let shown = sandbox.delta(["show", "r", "-w", "work", "--format", "json"]).output();
    let calls = &shown.json()["iterations"][0]["calls"];
    assert_eq!(calls[0]["approval"]["by"], "operator");
    for to in ["otlp", "atif", "openai", "markdown"] {
        sandbox.delta(["export", "r", "-w", "work", "--to", to]).output().expect_code(0);
    }
    let markdown =
        sandbox.delta(["export", "r", "-w", "work", "--to", "markdown"]).output().expect_code(0);
    assert!(markdown.stdout.contains("Approved by the operator."), "{}", markdown.stdout);
    assert!(markdown.stdout.contains("## Waiting for an approval"), "{}", markdown.stdout);
    let page = sandbox.delta(["view", "r", "-w", "work", "-o", "-"]).output().expect_code(0);
    assert!(page.stdout.contains("\"approval\""), "the page has it");
    let listed = sandbox.delta(["list-runs", "-w", "work"]).output().expect_code(0);
    assert!(listed.stdout.contains("WAITING_FOR_INPUT"), "{}", listed.stdout);
    // A fork has the iterations whose calls have their results.
    let fork = ["fork", "r", "-w", "work", "--at", "0", "--into", "forked", "--run-id", "f"];
    sandbox.delta(fork).output().expect_code(0);
    let ran = sandbox.delta(["continue", "f", "-w", "forked"]).output().expect_code(101);
    assert!(ran.stderr.contains("? approve note"), "{}", ran.stderr);
}

#[test]
fn c_21_2_a_test_answers_an_approval_as_a_question() {
    let sandbox = noting("ask", &["a"]);
    let asks = "llm: {turns: [{call: [{tool: note, args: {text: a}}]}]}\n";
    let script = "llm: {turns: [{call: [{tool: note, args: {text: a}}]}, {say: done}]}\n";
    sandbox.write(
        "agent/tests/yes.yaml",
        format!("task: go\nanswers: ['yes']\n{script}expect: {{files: {{notes: \"a\\n\"}}}}\n"),
    );
    sandbox.write("agent/tests/no.yaml", format!("task: go\nanswers: ['no: stop']\n{script}expect: {{journal: [{{type: APPROVAL_DECISION}}]}}\n"));
    sandbox.write(
        "agent/tests/open.yaml",
        format!("task: go\n{asks}expect: {{question: {{contains: 'Approve note: sh -c'}}}}\n"),
    );
    let ran = sandbox.delta(["test", "agent"]).output();
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn c_21_2_approve_and_deny_continue_a_run_that_waits_for_them() {
    let sandbox = noting("ask", &["a", "b", "c", "d", "e", "f"]);
    let reply = |arguments: &[&str]| sandbox.delta([arguments, &["-w", "work"]].concat()).output();
    sandbox.run("go", &[]).expect_code(101);
    reply(&["approve", "r"]).expect_code(101);
    reply(&["deny", "r", "-m", "not: b"]).expect_code(101);
    let ran = reply(&["answer", "r", "maybe"]).expect_code(1);
    assert!(ran.stderr.contains("expected `yes`, `no` or `no: REASON`"), "{}", ran.stderr);
    reply(&["deny"]).expect_code(101);
    reply(&["deny", "r", "not d"]).expect_code(101);
    reply(&["deny", "not e"]).expect_code(101);
    reply(&["answer", "-m", "no: not f"]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
    for (index, reason) in [(3, "not d"), (4, "not e"), (5, "not f")] {
        assert!(sandbox.observations()[index].ends_with(&format!("was not run.\n{reason}")));
    }
    assert_eq!(sandbox.observations()[1], "Denied by the operator; the tool was not run.\nnot: b");
    assert_eq!(sandbox.observations()[2], "Denied by the operator; the tool was not run.");
    // A run that waits for nothing gets no message from them.
    let before = sandbox.journal();
    for command in [&["approve", "r"][..], &["deny", "r"], &["answer", "r", "yes"]] {
        let ran = reply(command).expect_code(1);
        assert!(ran.stderr.contains("run r does not wait for an"), "{}", ran.stderr);
    }
    assert_eq!(sandbox.journal(), before);
    let turns = "- call: [{tool: ask_human, args: {prompt: Who?}}]\n- say: 'I heard ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    let reply = |arguments: &[&str]| sandbox.delta([arguments, &["-w", "work"]].concat()).output();
    sandbox.run("go", &[]).expect_code(101);
    let ran = reply(&["approve", "r"]).expect_code(1);
    let answer = format!("delta continue r -w {} TEXT", sandbox.path("work").display());
    assert!(
        ran.stderr.contains(&format!("help: it waits for an answer: {answer}\n")),
        "{}",
        ran.stderr
    );
    let ran = reply(&["answer", "r", "--format", "raw", "-x"]).expect_code(0);
    assert_eq!(ran.stdout, "I heard -x\n");
}

#[test]
fn c_21_4_an_answer_without_a_run_is_for_the_last_one() {
    let turns = "- call: [{tool: ask_human, args: {prompt: Who?}}]\n- say: 'I heard ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("go", &[]).expect_code(101);
    for missing in ["r", "last"] {
        let ran = sandbox.delta(["answer", missing, "-w", "work"]).output().expect_code(2);
        let message = format!("the answer for the run `{missing}` is missing");
        let hint = format!("help: write `delta answer {missing} -w work TEXT`\n");
        assert!(ran.stderr.contains(&message) && ran.stderr.ends_with(&hint), "{}", ran.stderr);
    }
    sandbox.delta(["answer", "-w", "work"]).output().expect_code(2);
    let ran = sandbox.delta(["answer", "-w", "work", "--format", "raw", "me"]).output();
    assert_eq!(ran.expect_code(0).stdout, "I heard me\n");
    let again = sandbox.delta(["answer", "-w", "work", "again"]).output().expect_code(1);
    assert!(again.stderr.contains("run r does not wait for an answer"), "{}", again.stderr);
}
