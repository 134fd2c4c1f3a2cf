//! Statements of runs (C-36.13): what `delta export --to in-toto` says, and what `delta verify FILE` finds.

use super::DELTA;
use super::runs::{edit_journal, resume};
use super::seals::{by_alice, public_key};
use delta_base::hex::sha256_hex;
use delta_report::statement::document::PAYLOAD_TYPE;
use delta_report::statement::envelope::SignedEnvelope;
use delta_run::journal::seal_key::SealKey;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};

const COMMIT: &str = "1f0c9f6a7f1b3c0f0f6d5d3f4a2b1c0d9e8f7a6b";
const FIRST: &str = "mkdir src; echo one > src/a; rm old; ln -s a src/link; echo x > gone";
const SECOND: &str = "echo two >> src/a; rm gone; echo more > .git/index; mkdir empty; kill -0 $$";

/// Run `r` of two processes, between which a person has changed the workspace, and its signed statement.
fn stated() -> Sandbox {
    let tools = "  - {name: do, exec: 'sh -c ${script}', approve: ask}\n";
    let call = |script| format!("- call: [{{tool: do, args: {}}}]\n", json!({"script": script}));
    let turns = format!("{}- say: done\n{}- say: done\n", call(FIRST), call(SECOND));
    let sandbox = Sandbox::scripted(DELTA, tools, &turns);
    sandbox.write("work/old", "before\n");
    sandbox.write("work/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.write("work/.git/refs/heads/main", format!("{COMMIT}\n"));
    sandbox.run("the task", &["--snapshots", "--approve-all"]).expect_code(0);
    sandbox.write("work/theirs", "of a person\n");
    resume(&sandbox, &["-m", "more", "--approve-all"]).expect_code(0);
    export(&sandbox, &["-o", "change.intoto.json"]).expect_code(0);
    sandbox
}

fn export(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["export", "r", "-w", "work", "--to", "in-toto"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

fn verify(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["verify", "change.intoto.json", "-w", "work"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

fn own_key(sandbox: &Sandbox) -> String {
    public_key(sandbox.delta(["config", "--format", "json"]))
}

/// What the verifier in Python prints, or how it fails.
fn verify_by_python(sandbox: &Sandbox, key: &str) -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/verify_statement.py");
    let mut command = Command::new("python3");
    command.args([script, sandbox.path("change.intoto.json"), key.into(), sandbox.path("work")]);
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn c_36_13_a_statement_says_which_agent_made_which_changes() {
    let sandbox = stated();
    let unsigned = export(&sandbox, &["--unsigned"]).expect_code(0);
    assert_eq!(export(&sandbox, &["--unsigned"]).stdout, unsigned.stdout);
    let statement = unsigned.json();
    let digest = |name: &str| json!({"sha256": sha256_hex(sandbox.read(name))});
    let link = json!({"sha256": sha256_hex("a")});
    assert_eq!(
        statement["subject"],
        json!([{"name": "src/a", "digest": digest("work/src/a")},
               {"name": "src/link", "digest": link, "annotations": {"kind": "symlink"}}])
    );
    let definition = &statement["predicate"]["buildDefinition"];
    let parameters = &definition["externalParameters"];
    assert_eq!(parameters["task"], json!({"sha256": sha256_hex("the task")}));
    assert_eq!(parameters["messages"], json!([{"sha256": sha256_hex("more")}]));
    assert_eq!(parameters["options"][0]["approve"], json!({"all": true}));
    let internal = &definition["internalParameters"];
    assert_eq!(internal["removed"], json!(["old"]));
    let approval = json!({"call": "call_1_1", "tool": "do", "approved": true, "by": "flag"});
    assert_eq!(internal["approvals"][0], approval, "{internal}");
    let journal = sandbox.journal();
    let trees = sandbox.events("SNAPSHOT");
    let start = &journal[0];
    assert_eq!(
        definition["resolvedDependencies"],
        json!([
            {"name": "agent", "digest": {"deltaTree": start["agent_tree"]}, "annotations": {"agent": start["agent_name"]}},
            {"name": "workspace", "digest": {"deltaTree": trees[0]["tree"], "gitCommit": COMMIT}},
            {"name": "workspace", "digest": {"deltaTree": trees[2]["tree"]}, "annotations": {"process": 2}},
        ])
    );
    let details = &statement["predicate"]["runDetails"];
    let last = journal.last().unwrap();
    let metadata = json!({"invocationId": "r", "startedOn": start["timestamp"], "finishedOn": last["timestamp"]});
    assert_eq!(details["metadata"], metadata);
    assert_eq!(
        details["byproducts"],
        json!([
            {"name": "journal.jsonl", "digest": digest("work/.delta/r/journal.jsonl"), "annotations": {"seq": journal.len(), "chain": last["chain"]}},
            {"name": "workspace", "digest": {"deltaTree": trees.last().unwrap()["tree"]}},
        ])
    );
    // It is made to be published.
    for private in ["the task", sandbox.path("").to_str().unwrap()] {
        assert!(!unsigned.stdout.contains(private), "{private}");
    }
    let text = export(&sandbox, &["--unsigned", "--with-task"]).expect_code(0).json();
    let parameters = &text["predicate"]["buildDefinition"]["externalParameters"];
    assert_eq!(parameters["task"], json!({"text": "the task"}));
    let wrong = sandbox.delta(["export", "r", "-w", "work", "--to", "atif", "--unsigned"]);
    let wrong = wrong.output().expect_code(2);
    assert!(wrong.stderr.contains("`--unsigned` is for `--to in-toto`"), "{}", wrong.stderr);
}

#[test]
fn c_36_13_a_statement_is_verified_with_the_public_key_alone() {
    let sandbox = stated();
    let key = own_key(&sandbox);
    assert_eq!(verify_by_python(&sandbox, &key), Ok("src/a\nsrc/link\n".to_owned()));
    let expected = |by: &str| {
        format!(
            "statement change.intoto.json is intact\n  signature:     by {by}\n  statement:     of run r\n  \
             subjects:      files: 2, removed: 1\n"
        )
    };
    assert_eq!(verify(&sandbox, &[]).expect_code(0).stdout, expected("your key"));
    let ran = verify(&sandbox, &["r", "--format", "json"]).expect_code(0).json();
    let checks: Vec<_> = ran["checks"].as_array().unwrap().iter().map(|it| &it["check"]).collect();
    assert_eq!(checks, ["signature", "statement", "subjects", "journal", "trees"]);
    assert_eq!((&ran["signed"]["by"], &ran["run"]["holds"]), (&json!("own"), &json!(true)));
    let by_other = |more: &[&str]| {
        let fixed = ["verify", "change.intoto.json", "-w", "work"];
        by_alice(&sandbox, &[&fixed[..], more].concat()).output()
    };
    let ran = by_other(&[]).expect_code(3);
    let finding = format!("it has a signature of {key}, which is not yours, accepted or given\n");
    assert!(ran.stdout.contains(&finding), "{}", ran.stdout);
    assert_eq!(by_other(&["--by", &key]).expect_code(0).stdout, expected(&key));
    by_alice(&sandbox, &["trust", "--key", &key, "--name", "bob"]).output().expect_code(0);
    assert_eq!(by_other(&[]).expect_code(0).stdout, expected("bob"));
    // Who has the run may have removed its snapshots, but not changed them.
    fs::rename(sandbox.path("work/.delta/r/snapshots"), sandbox.path("snapshots")).unwrap();
    let ran = verify(&sandbox, &["r"]).expect_code(0);
    assert!(ran.stdout.contains("  trees:         not checked: "), "{}", ran.stdout);
    fs::rename(sandbox.path("snapshots"), sandbox.path("work/.delta/r/snapshots")).unwrap();
    let tree = sandbox.events("SNAPSHOT")[0]["tree"].as_str().unwrap().to_owned();
    let object = format!("work/.delta/r/snapshots/objects/{}/{}", &tree[..2], &tree[2..]);
    let content = fs::read(sandbox.path(&object)).unwrap();
    sandbox.write(&object, "another tree");
    let ran = verify(&sandbox, &["r"]).expect_code(3);
    assert!(ran.stdout.contains("  trees:         broken: "), "{}", ran.stdout);
    sandbox.write(&object, content);
    // The run may grow: a statement is of what was there.
    resume(&sandbox, &["-m", "again"]).expect_code(1);
    verify(&sandbox, &["r"]).expect_code(0);
    let ran = verify(&sandbox, &["--no-seal"]).expect_code(2);
    assert!(ran.stderr.contains("`delta verify FILE [RUN]`"), "{}", ran.stderr);
}

/// The statement in the file, changed and without another signature.
fn edit_statement(sandbox: &Sandbox, from: &str, to: &str) {
    let mut envelope: Value = serde_json::from_str(&sandbox.read("change.intoto.json")).unwrap();
    let unsigned = export(sandbox, &["--unsigned"]).stdout;
    let payload = unsigned.trim_end().replacen(from, to, 1);
    assert_ne!(payload, unsigned.trim_end());
    let other_key = SealKey::from_derived(&"00".repeat(32)).unwrap();
    let other = SignedEnvelope::sign(PAYLOAD_TYPE, payload.as_bytes(), &other_key);
    let other: Value = serde_json::from_str(&other).unwrap();
    envelope["payload"] = other["payload"].clone();
    sandbox.write("change.intoto.json", envelope.to_string());
}

#[test]
fn c_36_13_every_change_of_what_a_statement_says_is_found() {
    let sandbox = stated();
    let original = sandbox.read("change.intoto.json");
    let file = sandbox.read("work/src/a");
    let digits = sha256_hex(&file);
    type Change = fn(&Sandbox);
    let changes: [(&str, Change, &str); 12] = [
        ("subject", |it| it.write("work/src/a", "other\n"), "src/a has the SHA-256 "),
        ("missing", |it| fs::remove_file(it.path("work/src/a")).unwrap(), "src/a is missing"),
        ("removed", |it| it.write("work/old", ""), "old exists, and the run has removed it"),
        (
            "link to the same content",
            |it| {
                fs::rename(it.path("work/src/a"), it.path("work/src/b")).unwrap();
                symlink("b", it.path("work/src/a")).unwrap();
            },
            "src/a could not be read: ",
        ),
        (
            "directory elsewhere",
            |it| {
                fs::rename(it.path("work/src"), it.path("moved")).unwrap();
                symlink("../moved", it.path("work/src")).unwrap();
            },
            "src/a could not be read: ",
        ),
        (
            "signature",
            |it| {
                let envelope = it.read("change.intoto.json");
                let at = envelope.find("\"sig\":\"").unwrap() + 17;
                let other = if &envelope[at..=at] == "A" { "B" } else { "A" };
                it.write(
                    "change.intoto.json",
                    [&envelope[..at], other, &envelope[at + 1..]].concat(),
                );
            },
            "no signature is valid",
        ),
        ("payload", |it| edit_statement(it, "src/a", "src/c"), "no signature is valid"),
        (
            "other type",
            |it| {
                let envelope = it.read("change.intoto.json");
                it.write("change.intoto.json", envelope.replacen("in-toto+json", "other+json", 1));
            },
            "it is of the type application/vnd.other+json",
        ),
        (
            "not signed",
            |it| {
                let ran = export(it, &["--unsigned", "-o", "change.intoto.json"]);
                ran.expect_code(0);
            },
            "the statement has no signature",
        ),
        (
            "no statement",
            |it| edit_statement(it, "Statement/v1", "Statement/v9"),
            "expected https://in-toto.io/Statement/v1",
        ),
        (
            "out of the checkout",
            |it| edit_statement(it, "src/a", "../agent/agent.yaml"),
            "../agent/agent.yaml could not be read: ",
        ),
        (
            "journal",
            |it| {
                it.unverified("its journal is changed");
                edit_journal(it, |journal| journal.replacen("the task", "a task", 1));
            },
            "  journal:       broken: lines 1 to ",
        ),
    ];
    for (what, change, expected) in changes {
        change(&sandbox);
        let more: &[&str] = if what == "journal" { &["r"] } else { &[] };
        let ran = verify(&sandbox, more).expect_code(3);
        assert!(ran.stdout.contains("statement change.intoto.json is not intact\n"), "{what}");
        assert!(ran.stdout.contains(expected), "{what}: {}", ran.stdout);
        sandbox.write("change.intoto.json", &original);
        let _ = fs::remove_file(sandbox.path("work/src"));
        let _ = fs::rename(sandbox.path("moved"), sandbox.path("work/src"));
        let _ = fs::remove_file(sandbox.path("work/src/a"));
        let _ = fs::remove_file(sandbox.path("work/old"));
        sandbox.write("work/src/a", &file);
        assert!(verify_by_python(&sandbox, &own_key(&sandbox)).is_ok(), "{what}: {digits}");
    }
    // No signature of yours is of what others have recorded.
    let ran = export(&sandbox, &[]).expect_code(126);
    assert!(ran.stderr.contains("its end has no seal of yours"), "{}", ran.stderr);
    for (content, reason) in [("{}", "it is not a DSSE envelope"), ("", "it is empty\n")] {
        sandbox.write("change.intoto.json", content);
        let ran = verify(&sandbox, &[]).expect_code(126);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
        assert!(ran.stderr.contains("\nhelp: name a file that `delta export"), "{}", ran.stderr);
    }
}

#[test]
fn c_36_13_a_run_without_snapshots_has_a_statement_of_its_result() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: the answer\n- error: broken\n");
    sandbox.run("task", &[]).expect_code(0);
    export(&sandbox, &["-o", "change.intoto.json"]).expect_code(0);
    let statement = export(&sandbox, &["--unsigned"]).expect_code(0).json();
    assert_eq!(
        statement["subject"],
        json!([{"name": "result", "digest": {"sha256": sha256_hex("the answer")}, "annotations": {"kind": "result"}}])
    );
    let ran = verify(&sandbox, &["r"]).expect_code(0);
    assert!(ran.stdout.contains("  subjects:      not checked: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("  trees:         subjects: 1\n"), "{}", ran.stdout);
    resume(&sandbox, &["-m", "more"]).expect_code(1);
    let ran = export(&sandbox, &[]).expect_code(126);
    assert!(ran.stderr.contains("nothing to make a statement about"), "{}", ran.stderr);
}

/// A path that the run has changed in one process was named with whatever others wrote there before the next one.
#[test]
fn c_36_13_contents_that_others_wrote_are_not_of_the_run() {
    let tools = "  - {name: do, exec: 'sh -c ${script}'}\n";
    let call = |script| format!("- call: [{{tool: do, args: {}}}]\n", json!({"script": script}));
    let first = "echo 1 > edited; echo 1 > again; echo 1 > mode; echo 1 > moved; rm removed; rm back; echo 2 > back";
    let second = "echo 2 > again; chmod 700 mode; chmod 700 kept";
    let turns = format!("{}- say: done\n{}- say: done\n", call(first), call(second));
    let sandbox = Sandbox::scripted(DELTA, tools, &turns);
    for name in ["removed", "back", "kept"] {
        sandbox.write(&format!("work/{name}"), "before\n");
    }
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    for name in ["edited", "again", "mode", "removed"] {
        sandbox.write(&format!("work/{name}"), "of a person\n");
    }
    fs::remove_file(sandbox.path("work/back")).unwrap();
    fs::rename(sandbox.path("work/moved"), sandbox.path("work/renamed")).unwrap();
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    let statement = export(&sandbox, &["--unsigned"]).expect_code(0).json();
    let digest = |text: &str| json!({"sha256": sha256_hex(text)});
    assert_eq!(
        statement["subject"],
        json!([{"name": "again", "digest": digest("2\n")},
               {"name": "kept", "digest": digest("before\n")}])
    );
    let internal = &statement["predicate"]["buildDefinition"]["internalParameters"];
    assert_eq!(internal["removed"], json!([]), "a person removed back, and wrote removed");
}

/// The command of the job in the guide that the file `name` has.
fn job_command(name: &str) -> String {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/provenance.md");
    let guide = fs::read_to_string(guide).unwrap();
    let job = guide.split("```").find(|block| block.contains(name)).expect(name);
    let line = job.lines().find(|line| line.contains("delta verify")).expect(job);
    line.trim_start_matches([' ', '-']).trim_start_matches("run: ").to_owned()
}

/// Runs git in a directory of the sandbox, with no configuration but its own.
fn git(sandbox: &Sandbox, dir: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]);
    command.args(["-c", "protocol.file.allow=always"]).args(arguments);
    command.current_dir(sandbox.path(dir)).env("HOME", sandbox.path("home"));
    let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A branch of a repository with what a run has changed, removed and renamed there, and its statement.
fn branch() -> Sandbox {
    let script = "echo two > src/a; rm old; git mv moved src/moved; echo new > new";
    let call = json!({"script": script});
    let turns = format!("- call: [{{tool: do, args: {call}}}]\n- say: done\n");
    let sandbox = Sandbox::scripted(DELTA, "  - {name: do, exec: 'sh -c ${script}'}\n", &turns);
    for file in ["src/a", "old", "moved", "kept"] {
        sandbox.write(&format!("work/{file}"), format!("{file}\n"));
    }
    git(&sandbox, "work", &["init", "-q", "-b", "main"]);
    git(&sandbox, "work", &["add", "-A"]);
    git(&sandbox, "work", &["commit", "-q", "-m", "first"]);
    git(&sandbox, "work", &["checkout", "-q", "-b", "fix"]);
    sandbox.run("the task", &["--snapshots"]).expect_code(0);
    export(&sandbox, &["-o", "work/change.intoto.json"]).expect_code(0);
    commit(&sandbox, "the change of a run");
    sandbox
}

fn commit(sandbox: &Sandbox, subject: &str) {
    git(sandbox, "work", &["add", "-A"]);
    git(sandbox, "work", &["commit", "-q", "-m", subject]);
}

fn verify_branch(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["verify", "work/change.intoto.json", "-w", "work", "--changed-since"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

#[test]
fn c_36_13_every_file_that_a_branch_changes_must_be_in_the_statement() {
    let sandbox = branch();
    let ran = verify_branch(&sandbox, &["main"]).expect_code(0);
    assert!(ran.stdout.contains("  changes:       since main: 5\n"), "{}", ran.stdout);
    // What main has changed since then is no change of the branch.
    git(&sandbox, "work", &["checkout", "-q", "main"]);
    sandbox.write("work/kept", "of main\n");
    commit(&sandbox, "another change");
    git(&sandbox, "work", &["checkout", "-q", "fix"]);
    verify_branch(&sandbox, &["main"]).expect_code(0);

    let expect = |names: &[&str], why: &str| {
        let ran = verify_branch(&sandbox, &["main", "--format", "json"]).expect_code(3);
        let checks = ran.json()["checks"].as_array().unwrap().clone();
        let changes = checks.iter().find(|check| check["check"] == "changes").unwrap();
        let findings: Vec<&str> = changes["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding.as_str().unwrap().split(" main").next().unwrap())
            .collect();
        assert_eq!(findings, names, "{why}");
        git(&sandbox, "work", &["reset", "-q", "--hard", "fix"]);
        git(&sandbox, "work", &["clean", "-q", "-f", "-d"]);
    };
    sandbox.write("work/untracked", "of a person\n");
    expect(&["untracked differs from"], "a new file");
    sandbox.write("work/src/b", "of a person\n");
    git(&sandbox, "work", &["add", "-A"]);
    fs::remove_file(sandbox.path("work/src/b")).unwrap();
    expect(&["src/b was removed since"], "a file in the index alone");
    sandbox.write("work/kept", "of a person\n");
    expect(&["kept differs from"], "a changed file");
    git(&sandbox, "work", &["rm", "-q", "kept"]);
    expect(&["kept was removed since"], "a removed file");
    git(&sandbox, "work", &["mv", "kept", "renamed"]);
    expect(&["kept was removed since", "renamed differs from"], "a renamed file");
    fs::rename(sandbox.path("work/kept"), sandbox.path("kept")).unwrap();
    symlink("src/a", sandbox.path("work/kept")).unwrap();
    expect(&["kept differs from"], "a symlink");
    fs::create_dir(sandbox.path("module")).unwrap();
    git(&sandbox, "module", &["init", "-q"]);
    git(&sandbox, "module", &["commit", "-q", "--allow-empty", "-m", "one"]);
    let url = sandbox.path("module").display().to_string();
    git(&sandbox, "work", &["submodule", "add", "-q", &url, "module"]);
    git(&sandbox, "work", &["config", "-f", ".gitmodules", "submodule.module.ignore", "all"]);
    expect(&[".gitmodules differs from", "module differs from"], "a submodule that is ignored");

    // A workspace that is only a part of the repository vouches for nothing else.
    let ran = sandbox.delta(["verify", "work/change.intoto.json", "-w", "work/src"]);
    let ran = ran.args(["--changed-since", "main"]).output().expect_code(3);
    assert!(ran.stdout.contains("/work/new differs from main"), "{}", ran.stdout);
    let unknown = verify_branch(&sandbox, &["nowhere"]).expect_code(126);
    assert!(unknown.stderr.contains("there is no revision `nowhere`"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("help: a shallow clone"), "{}", unknown.stderr);
    let other = ["verify", "r", "-w", "work", "--changed-since", "main"];
    sandbox.delta(other).output().expect_code(2);
}

/// The files of the checkout were compared alone, by the index of the user: neither what HEAD has, which is merged, nor a file
/// that is marked as unchanged was looked at.
#[test]
fn c_36_13_what_git_does_not_show_as_changed_is_compared() {
    let sandbox = branch();
    let expect = |why: &str| {
        let ran = verify_branch(&sandbox, &["main"]).expect_code(3);
        assert!(ran.stdout.contains("kept differs from main"), "{why}: {}", ran.stdout);
    };
    // A sparse checkout lacks files that nobody has removed.
    git(&sandbox, "work", &["sparse-checkout", "set", "--no-cone", "/*", "!/kept"]);
    assert!(!sandbox.path("work/kept").exists());
    verify_branch(&sandbox, &["main"]).expect_code(0);
    git(&sandbox, "work", &["sparse-checkout", "disable"]);
    for flag in ["assume-unchanged", "skip-worktree"] {
        git(&sandbox, "work", &["update-index", &format!("--{flag}"), "kept"]);
        verify_branch(&sandbox, &["main"]).expect_code(0);
        let kept = sandbox.read("work/kept");
        sandbox.write("work/kept", "of a person\n");
        expect(flag);
        sandbox.write("work/kept", kept);
        git(&sandbox, "work", &["update-index", &format!("--no-{flag}"), "kept"]);
    }
    sandbox.write("work/kept", "of a person\n");
    commit(&sandbox, "a change");
    git(&sandbox, "work", &["checkout", "-q", "main", "--", "kept"]);
    expect("HEAD");
}

/// A statement without files is about a result, and vouches for no file of a branch.
#[test]
fn c_36_13_a_statement_of_a_result_covers_no_file() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: the answer\n");
    sandbox.write("work/kept", "kept\n");
    git(&sandbox, "work", &["init", "-q", "-b", "main"]);
    commit(&sandbox, "first");
    git(&sandbox, "work", &["checkout", "-q", "-b", "fix"]);
    sandbox.run("task", &[]).expect_code(0);
    export(&sandbox, &["-o", "work/change.intoto.json"]).expect_code(0);
    commit(&sandbox, "the statement");
    verify_branch(&sandbox, &["main"]).expect_code(0);
    sandbox.write("work/kept", "of a person\n");
    commit(&sandbox, "a change");
    let ran = verify_branch(&sandbox, &["main"]).expect_code(3);
    assert!(ran.stdout.contains("kept differs from main"), "{}", ran.stdout);
}

#[test]
fn the_jobs_of_the_guide_check_the_files_of_a_branch() {
    let sandbox = branch();
    let key = own_key(&sandbox);
    let program = Path::new(DELTA).parent().unwrap().display();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let base = git(&sandbox, "work", &["rev-parse", "main"]);
    // Each service in its own way: the merge of the branch with its parents, and the branch.
    let check_out = |name: &str| {
        git(&sandbox, "work", &["checkout", "-q", "-B", "merge", "main"]);
        git(&sandbox, "work", &["merge", "-q", "--no-ff", "-m", "merge", "fix"]);
        let url = format!("file://{}", sandbox.path("work").display());
        let (branch, depth) = if name == "github" { ("merge", "2") } else { ("fix", "100") };
        let clone = ["clone", "-q", "--depth", depth, "--branch", branch, &url, name];
        git(&sandbox, "", &clone);
        git(&sandbox, "work", &["checkout", "-q", "fix"]);
    };
    let run_jobs = |round: &str, code: i32| {
        for (file, name) in
            [(".github/workflows/provenance.yml", "github"), (".gitlab-ci.yml", "gitlab")]
        {
            check_out(name);
            let mut job = Command::new("sh");
            job.args(["-e", "-c", &job_command(file)]).current_dir(sandbox.path(name));
            job.env_clear().env("PATH", &path).env("HOME", sandbox.path("runner"));
            job.env("CI_MERGE_REQUEST_DIFF_BASE_SHA", &base);
            let output = job.env("DELTA_KEY", &key).output().unwrap();
            Ran::of(output.status, &output.stdout, &output.stderr).expect_code(code);
            fs::rename(sandbox.path(name), sandbox.path(&format!("{name}-{round}"))).unwrap();
        }
    };
    run_jobs("one", 0);
    sandbox.write("work/kept", "of a person\n");
    commit(&sandbox, "a change of a person");
    run_jobs("two", 3);
    git(&sandbox, "work", &["revert", "--no-edit", "HEAD"]);
    run_jobs("three", 0);
    sandbox.write("work/src/a", "of a person\n");
    commit(&sandbox, "another change of a person");
    run_jobs("four", 3);
}
