//! Runs in every state, for the tests of what takes them up again.

use super::DELTA;
use delta_base::hex::encode_hex;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// `note` has an effect; `stop` has the engine interrupted; `die` kills it.
pub const TOOLS: &str = "  - name: note\n    shell: echo ${text} >> ledger; echo noted ${text}\n  \
     - name: stop\n    shell: kill -TERM $PPID; sleep 1000\n  \
     - name: die\n    shell: kill -9 $PPID; exec sleep 1000\n";

/// The five states, each with the turn that leads to it.
pub const STATES: [(&str, &str); 5] = [
    ("COMPLETED", "- say: first\n"),
    ("FAILED", "- error: broken\n"),
    ("WAITING_FOR_INPUT", "- call: [{tool: ask_human, args: {prompt: Really?}}]\n"),
    ("INTERRUPTED", "- call: [{tool: stop}]\n"),
    ("RUNNING", "- call: [{tool: die}]\n"),
];

/// The exit code with which `run` leaves a run in a state; -1 is SIGKILL.
pub fn code_of(state: &str) -> i32 {
    match state {
        "COMPLETED" => 0,
        "FAILED" => 1,
        "WAITING_FOR_INPUT" => 101,
        "INTERRUPTED" => 130,
        _ => -1,
    }
}

/// Run `r` in a state; what the LLM says after that is the last message it was given.
pub fn in_state(state: &str) -> Sandbox {
    let (_, turn) = STATES.into_iter().find(|(name, _)| *name == state).unwrap();
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &format!("{turn}- say: 'seen ${{last}}'\n"));
    sandbox.run("task", &[]).expect_code(code_of(state));
    sandbox
}

/// `delta continue` of run `r` in `work/`, with the result alone on stdout.
pub fn resume_command(sandbox: &Sandbox, more: &[&str]) -> Delta {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied())
}

/// The same, to its end.
pub fn resume(sandbox: &Sandbox, more: &[&str]) -> Ran {
    resume_command(sandbox, more).output()
}

/// Every file of the control plane with its bytes, but for the lock, which names who looked at it last.
pub fn snapshot(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let files = sandbox.files("work/.delta").into_iter().filter(|file| !file.ends_with("/lock"));
    files
        .map(|file| {
            let bytes = fs::read(sandbox.path("work/.delta").join(&file)).unwrap();
            (file, bytes)
        })
        .collect()
}

/// The types of all events, in order.
pub fn kinds(sandbox: &Sandbox) -> String {
    let kinds: Vec<String> =
        sandbox.journal().iter().map(|event| text(event, "type").to_owned()).collect();
    kinds.join(" ")
}

/// A text of an event.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no text {field} in {value}"))
}

/// Changes the journal as a crash or a person might.
pub fn edit_journal(sandbox: &Sandbox, edit: impl FnOnce(String) -> String) {
    let path = "work/.delta/r/journal.jsonl";
    sandbox.write(path, edit(sandbox.read(path)));
}

/// Computes all chain values and seals of the journal anew, as who has the operator's key can.
pub fn reseal_journal(sandbox: &Sandbox) {
    edit_journal(sandbox, |journal| {
        let (mut run_id, mut home, mut chain) = (String::new(), String::new(), String::new());
        let mut lines = String::new();
        for line in journal.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            if ["ENGINE_START", "FORK", "RUN_TRUSTED"].contains(&&*text("type")) {
                run_id = text("run_id");
            }
            if text("type") == "ENGINE_START" {
                home = text("agent_home");
            }
            let mut covered = line.rsplit_once(",\"chain\":").unwrap().0.to_owned();
            if let Some((open, _)) = covered.clone().rsplit_once(",\"seal\":\"") {
                let seal = seal_of(sandbox, &["delta chain", &run_id, &home, &chain, open]);
                covered = format!("{open},\"seal\":\"{seal}\"");
            }
            let digest = Sha256::digest(format!("{chain}{covered}"));
            chain = encode_hex(&digest[..16]);
            lines.push_str(&format!("{covered},\"chain\":\"{chain}\"}}\n"));
        }
        lines
    });
}

/// The seal of these parts with the operator's key.
pub fn seal_of(sandbox: &Sandbox, parts: &[&str]) -> String {
    let key = sandbox.read("home/.local/state/delta/seal.key");
    let mut mac = Hmac::<Sha256>::new_from_slice(key.trim().as_bytes()).unwrap();
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    encode_hex(&mac.finalize().into_bytes())
}
