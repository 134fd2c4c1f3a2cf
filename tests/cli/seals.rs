//! Seals that others verify (C-36.1 to C-36.4): whose key made them, and what delta does with the runs of other operators.

use super::DELTA;
use super::runs::{TOOLS, edit_journal, reseal_journal, resume};
use super::verify::{edit_lines, forge};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use test_support::sandbox::{Delta, Ran, Sandbox};

const TURNS: &str =
    "- call: [{tool: note, args: {text: one}}]\n- say: done\n- say: more\n- say: again\n";

/// A command of the other operator, whose key is in another home directory.
pub fn by_alice(sandbox: &Sandbox, args: &[&str]) -> Delta {
    fs::create_dir_all(sandbox.path("alice")).unwrap();
    sandbox.delta(args.iter().copied()).env("HOME", sandbox.path("alice"))
}

fn delta(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(args.iter().copied()).output()
}

const RUN: [&str; 8] = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-q"];

/// Run `r` of alice.
fn alices(tools: &str, turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    by_alice(&sandbox, &[&RUN[..], &["-m", "task"]].concat()).output();
    sandbox
}

/// The public key that `delta config` prints.
pub fn public_key(config: Delta) -> String {
    let settings = config.output().expect_code(0).json();
    let mut settings = settings.as_array().unwrap().iter();
    let key = settings.find(|setting| setting["key"] == "seal_public_key").unwrap();
    key["value"].as_str().unwrap().to_owned()
}

fn alices_key(sandbox: &Sandbox) -> String {
    public_key(by_alice(sandbox, &["config", "--format", "json"]))
}

fn own_key(sandbox: &Sandbox) -> String {
    public_key(sandbox.delta(["config", "--format", "json"]))
}

fn accept(sandbox: &Sandbox) -> String {
    let key = alices_key(sandbox);
    let ran = delta(sandbox, &["trust", "--key", &key, "--name", "alice"]).expect_code(0);
    assert_eq!(ran.stdout, format!("Accepted the key of alice: {key}\n"));
    key
}

fn verify(sandbox: &Sandbox, more: &[&str]) -> Ran {
    delta(sandbox, &[&["verify", "r", "-w", "work"], more].concat())
}

/// What the verifier in Python prints, or how it fails.
pub fn verify_by_python(run_dir: &Path, keys: &[&str]) -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/verify_seals.py");
    let output = Command::new("python3").arg(script).arg(run_dir).args(keys).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn c_36_1_others_verify_a_run_with_the_public_key_alone() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.run("task", &[]).expect_code(0);
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    let key = own_key(&sandbox);
    let run_dir = sandbox.path("work/.delta/r");
    assert_eq!(verify_by_python(&run_dir, &[&key]), Ok("4\n".to_owned()));
    let other = alices_key_of_a_run(&sandbox);
    assert!(verify_by_python(&run_dir, &[&other]).unwrap_err().contains("key of line 1"));
    // A third operator, without a key.
    let nobody = |args: &[&str]| {
        let args = [&["verify", "r", "-w", "work"], args].concat();
        sandbox.delta(args).env("HOME", sandbox.path("nobody")).output()
    };
    let ran = nobody(&["--by", &key]).expect_code(0);
    let lines = sandbox.journal().len();
    assert!(
        ran.stdout.contains(&format!("  seal:          lines 1 to {lines}, by {key}\n")),
        "{}",
        ran.stdout
    );
    let ran = nobody(&["--by", &other]).expect_code(3);
    let finding = format!("line 1 has a seal of {key}, which is not yours, accepted or given\n");
    assert!(ran.stdout.contains(&finding), "{}", ran.stdout);
    assert!(!sandbox.path("nobody").exists(), "a reader makes no key");
    let secret = sandbox.read("home/.local/state/delta/seal.key");
    for file in sandbox.files("work") {
        let bytes = fs::read(sandbox.path("work").join(&file)).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(secret.trim()), "{file}");
    }
}

/// The key of alice, who has made another run with it.
fn alices_key_of_a_run(sandbox: &Sandbox) -> String {
    let run = ["run", "--agent", "agent", "-w", "other", "--run-id", "o", "-q", "-m", "task"];
    by_alice(sandbox, &run).output().expect_code(0);
    alices_key(sandbox)
}

/// What was sealed is changed, and the chain computed anew, as who can write the file can.
#[test]
fn c_36_1_every_forged_line_or_seal_is_found() {
    let key_of = |line: &str| line.split("\"seal\":\"").nth(1).unwrap()[..51].to_owned();
    type Forgery = fn(&mut Vec<String>, &str);
    let forgeries: [(&str, Forgery); 9] = [
        ("edited", |lines, _| lines[0] = lines[0].replacen("\"epoch\":1", "\"epoch\":2", 1)),
        ("result", |lines, _| {
            let last = lines.len() - 1;
            lines[last] =
                lines[last].replacen("\"status\":\"COMPLETED\"", "\"status\":\"FAILED\"", 1);
        }),
        // The end of another run by the same operator.
        ("swapped", |lines, other| {
            let last = lines.len() - 1;
            let seal = |line: &str| line.split("\"seal\":\"").nth(1).unwrap()[..138].to_owned();
            lines[last] = lines[last].replacen(&seal(&lines[last]), &seal(other), 1);
        }),
        ("upper case", |lines, _| lines[0] = lines[0].replacen("\"ed25519:", "\"ED25519:", 1)),
        ("truncated", |lines, _| {
            lines[0] = lines[0]
                .replacen("\",\"chain\"", "#", 1)
                .replacen('#', "\",\"chain\"", 1)
                .replacen("\"seal\":\"ed25519:", "\"seal\":\"ed25519:A", 1)
        }),
        ("padded", |lines, _| lines[0] = lines[0].replacen("\",\"chain\"", "=\",\"chain\"", 1)),
        ("absent", |lines, _| {
            let (open, rest) = lines[0].split_once(",\"seal\":\"").unwrap();
            lines[0] = format!("{open}{}", &rest[139..]);
        }),
        ("two seals", |lines, other| {
            let seal = &other.split(",\"seal\":\"").nth(1).unwrap()[..138];
            lines[0] =
                lines[0].replacen(",\"seal\":\"", &format!(",\"seal\":\"{seal}\",\"seal\":\""), 1);
        }),
        ("behind", |lines, _| lines[0] = lines[0].replacen(",\"chain\"", ",\"x\":1,\"chain\"", 1)),
    ];
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.unverified("its seals are forged");
    sandbox.run("task", &[]).expect_code(0);
    let other = ["run", "--agent", "agent", "-w", "other", "--run-id", "o", "-q", "-m", "task"];
    delta(&sandbox, &other).expect_code(0);
    let other = sandbox.read("other/.delta/o/journal.jsonl").lines().last().unwrap().to_owned();
    let whole = sandbox.read("work/.delta/r/journal.jsonl");
    let key = own_key(&sandbox);
    assert_eq!(key_of(whole.lines().next().unwrap()), key);
    for (name, change) in forgeries {
        sandbox.write("work/.delta/r/journal.jsonl", &whole);
        edit_lines(&sandbox, |lines| {
            let before = lines.clone();
            change(lines, &other);
            assert_ne!(*lines, before, "{name}");
            forge(lines);
        });
        let run_dir = sandbox.path("work/.delta/r");
        for more in [&[][..], &["--by", &key]] {
            let ran = verify(&sandbox, more);
            assert_eq!(ran.code, 3, "{name}: {}", ran.stdout);
        }
        assert!(verify_by_python(&run_dir, &[&key]).is_err() || name == "absent", "{name}");
    }
}

#[test]
fn c_36_2_runs_with_seals_of_earlier_versions_and_of_former_keys_stay_own() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.run("task", &[]).expect_code(0);
    // As earlier versions sealed.
    reseal_journal(&sandbox);
    let seals = |sandbox: &Sandbox| -> Vec<usize> {
        sandbox.journal().iter().filter_map(|event| event["seal"].as_str().map(str::len)).collect()
    };
    assert_eq!(seals(&sandbox), [64, 64]);
    let by_me = ", by your key\n";
    assert!(verify(&sandbox, &[]).expect_code(0).stdout.contains(by_me));
    let former = own_key(&sandbox);
    let ran = delta(&sandbox, &["trust", "--new-key"]).expect_code(0);
    let key = own_key(&sandbox);
    assert_ne!(key, former);
    assert_eq!(ran.stdout, format!("New key {key}; seals of the former keys stay yours\n"));
    assert!(verify(&sandbox, &[]).expect_code(0).stdout.contains(by_me));
    sandbox.run("task", &["--ensure", "--format", "raw"]).expect(0, "done\n", "");
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    delta(&sandbox, &["trust", "--new-key"]).expect_code(0);
    resume(&sandbox, &["-m", "again"]).expect_code(0);
    assert_eq!(seals(&sandbox), [64, 64, 138, 138, 138, 138]);
    assert!(verify(&sandbox, &[]).expect_code(0).stdout.contains(by_me));
    // Without its line, a key is another operator's.
    let path = "home/.local/state/delta/seal.key";
    let keys = sandbox.read(path);
    assert_eq!(keys.lines().count(), 3);
    let without: Vec<&str> =
        keys.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, key)| key).collect();
    sandbox.write(path, without.join("\r\n\r\n"));
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(
        ran.stdout.contains(&format!(" has a seal of {key}, which is not yours")),
        "{}",
        ran.stdout
    );
}

#[test]
fn c_36_3_verify_names_the_key_of_each_seal() {
    let sandbox = alices(TOOLS, TURNS);
    let unknown = verify(&sandbox, &["--format", "json"]);
    let key = accept(&sandbox);
    let unknown = unknown.expect_code(0).json();
    assert_eq!(unknown["checks"][1]["state"], "not_checked", "nobody has a key yet: {unknown}");
    delta(&sandbox, &["trust", "--new-key"]).expect_code(0);
    let lines = sandbox.journal().len();
    let ran = verify(&sandbox, &[]).expect_code(0);
    assert!(ran.stdout.contains(&format!(" lines 1 to {lines}, by alice\n")), "{}", ran.stdout);
    let found = verify(&sandbox, &["--format", "json"]).expect_code(0).json();
    let seal = |line: usize| json!({"line": line, "by": "accepted", "name": "alice", "key": key});
    assert_eq!(found["seals"], json!([seal(1), seal(lines)]));
    let listed = delta(&sandbox, &["trust", "--list"]).expect_code(0).stdout;
    assert_eq!(listed, format!("key       {key}  alice\n"));
    let listed = delta(&sandbox, &["trust", "--list", "--format", "json"]).json();
    assert_eq!(listed["keys"], json!([{"name": "alice", "key": key}]));
    // One name, one key; a key needs a name.
    let own = own_key(&sandbox);
    let twice = delta(&sandbox, &["trust", "--key", &own, "--name", "alice"]);
    assert!(
        twice.stderr.contains(&format!("alice is the name of the key {key}")),
        "{}",
        twice.stderr
    );
    let nameless = delta(&sandbox, &["trust", "--key", &own]);
    assert!(nameless.code != 0 && nameless.stderr.contains("needs a name"), "{}", nameless.stderr);
    delta(&sandbox, &["trust", "--remove", "--key", &key]).expect_code(0);
    let ran = verify(&sandbox, &[]).expect_code(3);
    let finding =
        format!("    line 1 has a seal of {key}, which is not yours, accepted or given\n");
    assert!(ran.stdout.contains(&finding), "{}", ran.stdout);
    let ran = verify(&sandbox, &["--by", &key]).expect_code(0);
    assert!(ran.stdout.contains(&format!(", by {key}\n")), "{}", ran.stdout);
    let again = delta(&sandbox, &["trust", "--remove", "--key", &key]);
    assert!(again.code != 0 && again.stderr.contains("is not trusted"), "{}", again.stderr);
    // A point of small order verifies what nobody has signed; the others are no keys.
    let wrong = [
        "ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        key.to_uppercase(),
        key[..key.len() - 1].to_owned(),
        format!("{key}="),
        key.replacen("ed25519:", "", 1),
    ];
    for key in &wrong {
        for args in [&["trust", "--name", "eve", "--key", key][..], &["verify", "r", "--by", key]] {
            assert_eq!(delta(&sandbox, args).code, 2, "{key}");
        }
    }
    // Nobody accepts a key from inside of a run.
    let inside = sandbox.delta(["trust", "--key", &key, "--name", "alice"]);
    assert_eq!(inside.env("DELTA_RUN_ID", "r").output().code, 126);
    let inside = sandbox.delta(["trust", "--new-key"]).env("DELTA_RUN_ID", "r").output();
    assert_eq!(inside.code, 126);
}

#[test]
fn c_36_3_config_prints_the_own_key_and_creates_none() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    let setting = |key: &str| {
        let all = delta(&sandbox, &["config", "--format", "json"]).expect_code(0).json();
        all.as_array().unwrap().iter().find(|setting| setting["key"] == key).cloned()
    };
    assert_eq!(setting("seal_public_key").unwrap()["value"], Value::Null);
    assert!(setting("seal_public_key_pem").is_none());
    assert!(!sandbox.path("home/.local/state/delta/seal.key").exists());
    sandbox.run("task", &[]).expect_code(0);
    let key = setting("seal_public_key").unwrap()["value"].as_str().unwrap().to_owned();
    assert_eq!(sandbox.journal()[0]["seal"].as_str().unwrap().split('.').next(), Some(&*key));
    let text = delta(&sandbox, &["config"]).expect_code(0).stdout;
    assert!(text.contains(&format!("seal_public_key  {key}")), "{text}");
    let pem = setting("seal_public_key_pem").unwrap()["value"].as_str().unwrap().to_owned();
    assert!(pem.starts_with("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA"), "{pem}");
}

#[test]
fn c_36_4_the_result_of_an_accepted_key_is_taken_and_its_agent_is_not_loaded() {
    let sandbox = alices(TOOLS, TURNS);
    let ensure = || sandbox.run("task", &["--ensure", "--format", "raw"]);
    let refused = ensure();
    assert_eq!((refused.code, refused.stdout.as_str()), (126, ""), "{}", refused.stderr);
    accept(&sandbox);
    let ran = ensure().expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    assert!(ran.stderr.contains("Note: run r is of alice, whose key you accept"), "{}", ran.stderr);
    let commands: [&[&str]; 4] = [
        &["continue", "r", "-w", "work", "-m", "more"],
        &["fork", "r", "-w", "work", "--at", "1", "--continue"],
        &["fork", "r", "-w", "work", "--at", "1", "--into", "new"],
        &["replay", "r", "-w", "work", "--mode", "tools", "--into", "replayed"],
    ];
    for command in commands {
        let ran = delta(&sandbox, command);
        assert_eq!((ran.code, ran.stdout.as_str()), (126, ""), "{command:?}: {}", ran.stderr);
        let reason = "run r is foreign: it has a seal of alice, not of you, so delta does not load";
        assert!(
            ran.stderr.contains(reason) && ran.stderr.contains("--agent DIR"),
            "{}",
            ran.stderr
        );
    }
    // An edited result is nobody's.
    let whole = sandbox.read("work/.delta/r/journal.jsonl");
    sandbox.unverified("its result is forged");
    edit_lines(&sandbox, |lines| {
        let at = lines.iter().position(|line| line.contains("\"done\"")).unwrap();
        lines[at] = lines[at].replace("done", "pwned");
        forge(lines);
    });
    let ran = ensure();
    assert_eq!((ran.code, ran.stdout.as_str()), (126, ""), "{}", ran.stderr);
    sandbox.write("work/.delta/r/journal.jsonl", whole);
    let more = ["continue", "r", "-w", "work", "--agent", "agent", "-m", "more", "--format", "raw"];
    assert_eq!(delta(&sandbox, &more).expect_code(0).stdout, "more\n");
    let ran = verify(&sandbox, &[]).expect_code(0);
    assert!(ran.stdout.contains(", by alice and your key\n"), "{}", ran.stdout);
}

/// Alice approves a call; her process died before it started. Then the same decision in a process of this operator.
#[test]
fn c_36_4_no_approval_of_another_operator_starts_a_call() {
    let tools = "  - {name: note, shell: 'echo x >> ledger', approve: ask}\n";
    let sandbox = alices(tools, "- call: [{tool: note}]\n- say: done\n");
    sandbox.unverified("its journal is cut");
    accept(&sandbox);
    let approve = ["approve", "r", "-w", "work", "-q"];
    by_alice(&sandbox, &approve).output().expect_code(0);
    fs::remove_file(sandbox.path("work/ledger")).unwrap();
    edit_lines(&sandbox, |lines| {
        let at = lines.iter().position(|line| line.contains("\"APPROVAL_DECISION\"")).unwrap();
        lines.truncate(at + 1);
    });
    fs::remove_file(sandbox.path("work/.delta/r/metadata.json")).unwrap();
    let more = ["continue", "r", "-w", "work", "--agent", "agent", "-q"];
    assert_eq!(delta(&sandbox, &more).code, 101, "it is asked again");
    assert!(!sandbox.path("work/ledger").exists());
    // A decision with her seal in a process of this operator decides nothing either.
    let decision = |journal: &str| {
        let line = journal.lines().find(|line| line.contains("\"APPROVAL_DECISION\""));
        line.unwrap().to_owned()
    };
    edit_journal(&sandbox, |journal| {
        let seq = journal.lines().count();
        let line = decision(&journal);
        let event: Value = serde_json::from_str(&line).unwrap();
        let old = format!("\"seq\":{},", event["seq"]);
        let mut lines: Vec<String> = journal.split_inclusive('\n').map(str::to_owned).collect();
        lines.pop();
        lines.push(line.replacen(&old, &format!("\"seq\":{seq},"), 1) + "\n");
        forge(&mut lines);
        lines.concat()
    });
    fs::remove_file(sandbox.path("work/.delta/r/metadata.json")).unwrap();
    assert_eq!(delta(&sandbox, &more).code, 101, "it is asked again");
    assert!(!sandbox.path("work/ledger").exists());
    assert_eq!(verify(&sandbox, &[]).code, 3);
}

/// git starts what the configuration in `.git` names.
#[test]
fn c_36_4_snapshots_of_others_do_not_change_a_git_directory() {
    let tools = "  - {name: note, shell: 'mkdir -p .git sub && echo ${text} >> ledger'}\n";
    let sandbox =
        Sandbox::scripted(DELTA, tools, "- call: [{tool: note, args: {text: a}}]\n- say: done\n");
    sandbox.write("work/.git/config", "theirs\n");
    sandbox.write("work/sub/.git/config", "theirs\n");
    sandbox.write("work/file", "theirs\n");
    by_alice(&sandbox, &[&RUN[..], &["--snapshots", "-m", "task"]].concat())
        .output()
        .expect_code(0);
    let files = ["work/.git/config", "work/sub/.git/config", "work/file"];
    let change = || files.iter().for_each(|file| sandbox.write(file, "mine\n"));
    let read = || files.map(|file| sandbox.read(file).trim().to_owned());
    let back = ["rollback", "r", "-w", "work", "--to", "0"];
    change();
    let ran = delta(&sandbox, &back).expect_code(0);
    assert_eq!(read(), ["mine", "mine", "theirs"], "{}", ran.stderr);
    assert!(ran.stderr.contains("Note: each .git stays as it is"), "{}", ran.stderr);
    let fork = [
        "fork", "r", "-w", "work", "--at", "1", "--into", "new", "--agent", "agent", "-m", "x",
        "-q",
    ];
    delta(&sandbox, &fork);
    assert!(sandbox.path("new/file").exists() && !sandbox.path("new/.git").exists());
    accept(&sandbox);
    change();
    delta(&sandbox, &back).expect_code(0);
    assert_eq!(read(), ["theirs"; 3]);
}

/// No delta has written the line: its chain value is another one.
#[test]
fn c_36_5_a_last_line_with_another_chain_value_is_set_aside() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.run("task", &[]).expect_code(0);
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let line = format!("{{\"type\":\"NEW\",\"chain\":\"{}\"}}\n", "0".repeat(32));
    sandbox.write("work/.delta/r/journal.jsonl", journal + &line);
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    let files = sandbox.files("work/.delta/r");
    let torn = files.iter().find(|file| file.starts_with("journal.torn-")).expect("a torn line");
    assert_eq!(sandbox.read(&format!("work/.delta/r/{torn}")), line);
}

/// A newer delta has written an event: at the end it was set aside as a torn line, elsewhere the run was refused.
#[test]
fn c_36_5_an_unknown_event_is_refused_at_the_end_as_anywhere() {
    let mut said: Vec<Vec<(i32, String)>> = Vec::new();
    for is_last in [true, false] {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
        sandbox.unverified("it has an event of a newer version");
        sandbox.run("task", &[]).expect_code(0);
        let whole = sandbox.read("work/.delta/r/journal.jsonl");
        let mut number = 0;
        edit_lines(&sandbox, |lines| {
            let time = "2030-01-01T00:00:00.000Z";
            let event = format!(
                "{{\"type\":\"SENT\",\"seq\":{},\"timestamp\":\"{time}\",\"chain\":\"00000000000000000000000000000000\"}}\n",
                lines.len()
            );
            let at = if is_last { lines.len() } else { lines.len() - 1 };
            lines.insert(at, event);
            number = at + 1;
            forge(lines);
        });
        let changed = sandbox.read("work/.delta/r/journal.jsonl");
        let commands: [&[&str]; 6] = [
            &["continue", "r", "-w", "work", "-m", "more"],
            &["fork", "r", "-w", "work", "--at", "1"],
            &["show", "r", "-w", "work"],
            &["list-runs", "-w", "work"],
            &["replay", "r", "-w", "work"],
            &["verify", "r", "-w", "work", "--no-seal"],
        ];
        let answers = commands.iter().map(|command| {
            let ran = delta(&sandbox, command);
            let text = format!("{}{}", ran.stdout, ran.stderr);
            let text = text.replace(&sandbox.path("").display().to_string(), "");
            (ran.code, text.replace(&format!("line {number}"), "line N"))
        });
        let answers: Vec<_> = answers.collect();
        for (command, (code, text)) in commands.iter().zip(&answers).take(2) {
            assert_eq!(*code, 1, "{command:?}: {text}");
            let hint = "its chain value shows that delta wrote it, probably a newer version";
            assert!(text.contains(hint), "{command:?}: {text}");
        }
        assert_eq!(sandbox.read("work/.delta/r/journal.jsonl"), changed);
        assert_ne!(changed, whole);
        said.push(answers);
    }
    assert_eq!(said[0][..2], said[1][..2]);
    assert_eq!(
        said[0].iter().map(|one| one.0).collect::<Vec<_>>(),
        said[1].iter().map(|one| one.0).collect::<Vec<_>>()
    );
}
