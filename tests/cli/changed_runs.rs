//! Runs that others have changed (C-27.1, C-20.4, C-13.3): what is found, what is refused, and what nothing hides.

use super::DELTA;
use super::runs::{TOOLS, in_state, resume, seal_of, snapshot};
use super::staged_calls::{self, waiting};
use super::verify::{changed, edit_lines, forge, verify, whole};
use delta_run::chain::{ChainValue, split_line};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

const JOURNAL: &str = "work/.delta/r/journal.jsonl";
const METADATA: &str = "work/.delta/r/metadata.json";

fn replay(sandbox: &Sandbox) -> Ran {
    sandbox.delta(["replay", "r", "-w", "work"]).output()
}

/// The line without its chain value, as an earlier version could have written it.
fn strip_chain(line: &str) -> String {
    format!("{}}}\n", String::from_utf8_lossy(split_line(line.as_bytes()).0))
}

/// Puts something that is not a file of delta's at `path`.
fn replace_file(sandbox: &Sandbox, path: &str, kind: &str) {
    let target = sandbox.path(path);
    let moved = sandbox.path("moved");
    fs::rename(&target, &moved).unwrap();
    match kind {
        "pipe" => assert!(Command::new("mkfifo").arg(&target).status().unwrap().success()),
        "directory" => fs::create_dir(&target).unwrap(),
        "symlink" => symlink(&moved, &target).unwrap(),
        text => fs::write(&target, text).unwrap(),
    }
}

/// Without its chain values, a journal looked like one of an earlier version, whose lines nothing protects.
#[test]
fn c_27_1_lines_that_have_lost_their_chain_values_are_named() {
    let strip_all = |lines: &mut Vec<String>| {
        lines.iter_mut().for_each(|line| *line = strip_chain(line));
    };
    let sandbox = changed("its chain is removed", strip_all);
    for more in [&[][..], &["--no-seal"]] {
        let ran = verify(&sandbox, more).expect_code(3);
        for line in 1..=11 {
            let finding = format!("    line {line} has lost its chain value\n");
            assert!(ran.stdout.contains(&finding), "{}", ran.stdout);
        }
        assert!(!ran.stdout.contains("earlier version"), "{}", ran.stdout);
    }
    let replayed = replay(&sandbox).expect_code(3);
    assert!(
        replayed.stdout.contains("a line that has lost its chain value"),
        "{}",
        replayed.stdout
    );
    let ran = resume(&sandbox, &["-m", "more"]).expect_code(126);
    assert!(ran.stderr.contains("run r is foreign"), "{}", ran.stderr);
    // With a chain that is computed anew over the rest.
    let sandbox = changed("the chain of its start is removed", |lines| {
        let start = strip_chain(&lines[0]);
        let mut head = Some(ChainValue::after(None, start.as_bytes()));
        lines[0] = start;
        for line in &mut lines[1..] {
            let covered = String::from_utf8(split_line(line.as_bytes()).0.to_vec()).unwrap();
            let value = ChainValue::after(head, covered.as_bytes());
            *line = format!("{covered},\"chain\":\"{value}\"}}\n");
            head = Some(value);
        }
    });
    let ran = verify(&sandbox, &["--no-seal"]).expect_code(3);
    assert!(ran.stdout.contains("    line 1 has lost its chain value\n"), "{}", ran.stdout);
}

/// A metadata.json that could not be read was no metadata, and hid that the end of the journal was cut.
#[test]
fn c_27_1_metadata_that_cannot_be_read_hide_no_cut() {
    let kinds = [
        ("pipe", "it is not a regular file"),
        ("directory", "Is a directory"),
        ("symlink", "it is a symlink"),
        ("", "incomplete JSON"),
        ("{\"run_id\":", "incomplete JSON"),
    ];
    for (kind, reason) in kinds {
        let sandbox = changed("its end is cut", |lines| drop(lines.pop()));
        replace_file(&sandbox, METADATA, kind);
        let ran = verify(&sandbox, &[]).expect_code(3);
        let finding = format!("    metadata.json does not show whether the end is cut: {reason}");
        assert!(ran.stdout.contains(&finding), "{kind}: {}", ran.stdout);
        let ran = replay(&sandbox).expect_code(3);
        assert!(ran.stdout.contains(&format!("  recorded: {reason}")), "{kind}: {}", ran.stdout);
    }
}

/// `replay` named it as missing, which is not a difference.
#[test]
fn c_16_10_a_copy_of_the_configuration_that_is_not_a_file_is_a_difference() {
    let kinds = [("pipe", "it is not a regular file"), ("symlink", "it is a symlink")];
    for (kind, reason) in kinds {
        let sandbox = whole();
        sandbox.unverified("its configuration is replaced");
        replace_file(&sandbox, "work/.delta/r/agent/agent.yaml", kind);
        let ran = replay(&sandbox).expect_code(3);
        let expected = format!("first: agent/agent.yaml\n  recorded: {reason}");
        assert!(ran.stdout.contains(&expected), "{}", ran.stdout);
        let ran = verify(&sandbox, &[]).expect_code(3);
        let finding = format!("    could not read agent/agent.yaml: {reason}");
        assert!(ran.stdout.contains(&finding), "{}", ran.stdout);
    }
}

/// `run` took the directory for the one of a run that never began, and replaced what it had.
#[test]
fn c_13_3_a_run_whose_journal_was_emptied_is_not_begun_again() {
    for (journal, metadata) in [("", None), ("{\"type\":\"ENGI", None), ("", Some("directory"))] {
        let sandbox = whole();
        sandbox.unverified("its journal is emptied");
        sandbox.write(JOURNAL, journal);
        metadata.iter().for_each(|kind| replace_file(&sandbox, METADATA, kind));
        let before = snapshot(&sandbox);
        let reason = match metadata {
            None => "metadata.json has COMPLETED at ",
            Some(_) => "metadata.json exists, and cannot be read: Is a directory",
        };
        let lost = format!("journal.jsonl has lost its events: {reason}");
        for ran in [
            sandbox.run("task", &[]),
            sandbox.run("task", &["--ensure"]),
            resume(&sandbox, &["-m", "x"]),
            sandbox.delta(["show", "r", "-w", "work"]).output(),
        ] {
            let ran = ran.expect_code(1);
            assert!(ran.stderr.contains(&lost), "{}", ran.stderr);
            assert!(ran.stderr.contains("`delta rm r -w "), "{}", ran.stderr);
        }
        assert_eq!(snapshot(&sandbox), before);
        sandbox.delta(["rm", "r", "-w", "work"]).output().expect_code(0);
        sandbox.run("task", &[]).expect_code(0);
    }
}

/// Replaces the first sector of the last line with zeros, as far as it belongs to the line.
fn lose_sector(lines: &mut [String]) {
    let (last, before) = lines.split_last_mut().unwrap();
    let begin: usize = before.iter().map(String::len).sum();
    let lost = (512 - begin % 512).min(last.len() - "\n".len());
    last.replace_range(..lost, &"\0".repeat(lost));
}

/// A power failure can leave a last line with zeros, and its newline. `continue` sets it aside, and `verify` called it changed.
#[test]
fn c_27_1_a_last_line_with_a_hole_is_a_torn_end() {
    let sandbox = in_state("RUNNING");
    let count = fs::read_to_string(sandbox.path(JOURNAL)).unwrap().lines().count();
    edit_lines(&sandbox, |lines| lose_sector(lines));
    fs::remove_file(sandbox.path(METADATA)).unwrap();
    let ran = verify(&sandbox, &[]).expect_code(0);
    assert!(ran.stdout.contains(&format!("  chain:         {} lines; head ", count - 1)));
    assert!(ran.stdout.contains("; torn end: "), "{}", ran.stdout);
    let ran = replay(&sandbox).expect_code(0);
    let torn = format!("not checked: journal.jsonl, line {count}: torn, so it is ignored\n");
    assert!(ran.stdout.contains(&torn), "{}", ran.stdout);
    // The request was lost, so the call that kills the engine is done again.
    resume(&sandbox, &[]).expect_code(-1);
    verify(&sandbox, &[]).expect_code(0);
    // What was acknowledged is missing.
    let sandbox = changed("its end has a hole", |lines| lose_sector(lines));
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(ran.stdout.contains("    the end is cut (metadata.json has COMPLETED at "));
    assert!(ran.stdout.contains("; torn end: "), "{}", ran.stdout);
    // Zeros that are no sector are no power failure.
    let sandbox = changed("a byte of its end is zero", |lines| {
        lines.last_mut().unwrap().replace_range(40..41, "\0");
    });
    let ran = verify(&sandbox, &[]).expect_code(3);
    assert!(ran.stdout.contains(" was changed"), "{}", ran.stdout);
}

/// The start of one of the operator's runs made every journal that begins with it the operator's, whatever run it forks.
#[test]
fn c_20_4_a_forged_fork_of_an_own_run_is_foreign() {
    for is_chained in [true, false] {
        let sandbox = whole();
        sandbox.unverified("its journal is forged");
        let lines: Vec<String> =
            sandbox.read(JOURNAL).split_inclusive('\n').map(str::to_owned).collect();
        let work = sandbox.path("other").display().to_string();
        let time = "2026-01-01T00:00:00.000Z";
        let origin = json!({"run_id": "r", "iteration": 0, "run_dir": "/", "work_dir": "/"});
        let fork = format!(
            r#"{{"type":"FORK","seq":3,"timestamp":"{time}","run_id":"x","work_dir":"{work}","workspace_id":"other","from":{origin},"files":"kept"}}"#
        );
        let thought = format!(
            r#"{{"type":"THOUGHT","seq":4,"timestamp":"{time}","iteration":1,"content":"","tool_calls":[{{"id":"a","type":"function","function":{{"name":"note","arguments":"{{\"text\":\"PWNED\"}}"}}}}]}}"#
        );
        let mut forged = lines[..2].to_vec();
        for line in [fork, thought] {
            let open = line.strip_suffix('}').unwrap();
            forged.push(format!("{open},\"chain\":\"{}\"}}\n", "0".repeat(32)));
        }
        forge(&mut forged);
        if !is_chained {
            forged[2..].iter_mut().for_each(|line| *line = strip_chain(line));
        }
        sandbox.write("other/.delta/x/journal.jsonl", forged.concat());
        let ran = sandbox.delta(["continue", "x", "-w", "other"]).output().expect_code(126);
        assert!(ran.stderr.contains("run x is foreign"), "{}", ran.stderr);
        assert!(!sandbox.path("other/ledger").exists());
        let ran = sandbox.delta(["verify", "x", "-w", "other"]).output().expect_code(3);
        assert!(ran.stdout.contains("    line 3 has no valid seal of this operator\n"));
    }
}

/// The seal of an ENGINE_START of an earlier version covers the run id and the agent directory only.
#[test]
fn c_20_4_settings_that_an_older_seal_does_not_cover_make_a_run_foreign() {
    let command = json!(["provider=command", "command=[sh, -c, 'touch PWNED; cat']"]);
    for settings in [json!([]), command] {
        let is_forged = settings != json!([]);
        let sandbox = whole();
        sandbox.unverified("its journal is forged");
        let [mut start, mut message] = [0, 1].map(|index| sandbox.journal()[index].clone());
        let home = start["agent_home"].as_str().unwrap();
        start["seal"] = json!(seal_of(&sandbox, &["delta run", "r", home]));
        start["config"]["llm"]["settings"] = settings;
        start["config"]["kept"] = json!({"dir": "agent"});
        for event in [&mut start, &mut message] {
            event.as_object_mut().unwrap().remove("chain");
        }
        sandbox.write(JOURNAL, format!("{start}\n{message}\n"));
        fs::remove_file(sandbox.path(METADATA)).unwrap();
        let ran = resume(&sandbox, &[]);
        assert_eq!(ran.stderr.contains("run r is foreign"), is_forged, "{}", ran.stderr);
        ran.expect_code(if is_forged { 126 } else { 0 });
        assert!(!sandbox.path("work/PWNED").exists() && !sandbox.path("PWNED").exists());
    }
}

/// The question showed the diff in the journal, and what was applied is the tree next to it.
#[test]
fn c_32_8_changes_that_were_not_shown_are_not_applied() {
    let forgeries: [fn(&str) -> String; 2] = [
        |line| line.replace("+two", "+six"),
        |line| {
            let event: Value = serde_json::from_str(line).unwrap();
            let [tree, base] = ["tree", "base"].map(|name| event["stage"][name].as_str().unwrap());
            line.replace(&format!("\"tree\":\"{tree}\""), &format!("\"tree\":\"{base}\""))
        },
    ];
    for forge_request in forgeries {
        let Some(sandbox) = waiting("", "echo two >> f") else { return };
        sandbox.unverified("its journal is forged");
        // As if its process had been killed while it waited.
        edit_lines(&sandbox, |lines| {
            assert!(lines.pop().unwrap().contains("ENGINE_END"));
            let request = lines.last_mut().unwrap();
            *request = forge_request(request);
            forge(lines);
        });
        fs::remove_file(sandbox.path(METADATA)).unwrap();
        resume(&sandbox, &["-m", "yes"]).expect_code(0);
        let expected = "The changes of this call are not the ones that were approved, because the journal \
                        has changed; they were thrown away, as if the tool had not run.";
        assert_eq!(sandbox.observations()[0], expected);
        assert_eq!(sandbox.read("work/f"), "one\n");
    }
}

/// Only the diff was compared, which ends after 64 KiB.
#[test]
fn c_32_8_changes_after_the_cut_of_the_diff_are_compared_too() {
    let large = "seq 20000 > a; echo WORD > z";
    let scripts = ["evil", "good"].map(|word| large.replace("WORD", word));
    let turns = staged_calls::turns(&[&scripts[0], &scripts[1]]);
    let sandbox = Sandbox::scripted(DELTA, &staged_calls::tools(""), &turns);
    let ran = sandbox.run("go", &[]);
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return;
    }
    sandbox.unverified("its journal is forged");
    resume(&sandbox, &["-m", "no"]).expect_code(101);
    let trees = sandbox.events("APPROVAL_REQUEST");
    let [evil, good] = [0, 1].map(|index| trees[index]["stage"]["tree"].as_str().unwrap());
    edit_lines(&sandbox, |lines| {
        assert!(lines.pop().unwrap().contains("ENGINE_END"));
        let request = lines.last_mut().unwrap();
        *request = request.replace(good, evil);
        forge(lines);
    });
    fs::remove_file(sandbox.path(METADATA)).unwrap();
    resume(&sandbox, &["-m", "yes"]).expect_code(0);
    assert!(sandbox.observations()[1].starts_with("The changes of this call are not the ones"));
    assert!(!sandbox.path("work/z").exists());
}

#[test]
fn c_27_2_a_run_that_was_renamed_holds_once_it_is_trusted() {
    let sandbox = whole();
    sandbox.unverified("it is renamed");
    fs::rename(sandbox.path("work/.delta/r"), sandbox.path("work/.delta/q")).unwrap();
    sandbox.delta(["trust", "q", "-w", "work"]).output().expect_code(0);
    sandbox.delta(["verify", "q", "-w", "work"]).output().expect_code(0);
}

/// A journal that has lost its last lines was continued, and an older result of it taken, without a word.
#[test]
fn c_27_1_a_journal_that_has_lost_its_end_is_continued_with_a_warning() {
    let cut = || {
        let sandbox = whole();
        sandbox.unverified("its end is cut");
        let journal = sandbox.read(JOURNAL);
        resume(&sandbox, &["-m", "more"]).expect_code(0);
        sandbox.write(JOURNAL, journal);
        sandbox
    };
    let sandbox = cut();
    let before = snapshot(&sandbox);
    for _ in 0..2 {
        let ran = sandbox.run("task", &["--ensure"]).expect_code(126);
        let refusal = "error: run r has a result that is not taken: the end is cut (metadata.json has COMPLETED at ";
        assert!(ran.stderr.starts_with(refusal), "{}", ran.stderr);
    }
    assert_eq!(snapshot(&sandbox), before);
    sandbox.delta(["trust", "r", "-w", "work"]).output().expect_code(0);
    sandbox.run("task", &["--ensure"]).expect_code(0);
    let ran = resume(&cut(), &["-m", "again", "-q"]).expect_code(0);
    let warning = "! the journal has lost lines: the end is cut (metadata.json has COMPLETED at ";
    assert!(ran.stderr.starts_with(warning), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
}

#[test]
fn no_number_of_an_iteration_makes_delta_fail() {
    for number in [0, u32::MAX] {
        let sandbox = changed("its journal is forged", |lines| {
            lines.truncate(6);
            let last = lines.last_mut().unwrap();
            assert!(last.contains("\"THOUGHT\""), "{last}");
            *last = last.replace("\"iteration\":2", &format!("\"iteration\":{number}"));
            forge(lines);
        });
        fs::remove_file(sandbox.path(METADATA)).unwrap();
        resume(&sandbox, &[]).expect_code(0);
        for command in ["show", "verify", "replay", "context"] {
            let args: &[&str] =
                if command == "context" { &["context", "show"] } else { &[command] };
            let ran = sandbox.delta(args.iter().copied().chain(["r", "-w", "work"])).output();
            assert!(ran.code != 70, "{command}: {}", ran.stderr);
        }
    }
}

/// The seals of a run hold in every workspace.
#[test]
fn a_result_of_a_copy_of_a_run_is_named_as_one() {
    let sandbox = whole();
    fs::create_dir(sandbox.path("other")).unwrap();
    let (from, to) = (sandbox.path("work/.delta"), sandbox.path("other/.delta"));
    let ensure = || {
        let args = ["run", "--agent", "agent", "-w", "other", "--run-id", "r", "-m", "task"];
        sandbox.delta(args).args(["--ensure"]).output().expect_code(0).stderr
    };
    assert!(Command::new("cp").arg("-a").args([&from, &to]).status().unwrap().success());
    let work = sandbox.path("work").canonicalize().unwrap();
    let note = format!("Note: run r is a copy of a run in {}: ", work.display());
    assert!(ensure().contains(&note));
    fs::remove_dir_all(from).unwrap();
    assert!(!ensure().contains("is a copy"));
}

#[test]
fn a_full_disk_takes_no_result_from_a_run_and_no_failure_from_its_anchor() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    for anchor in ["/dev/full", "|cat > /dev/full"] {
        let id = if anchor.starts_with('|') { "a" } else { "b" };
        let args = ["run", "--agent", "agent", "-w", "work", "--format", "raw", "-m", "task", "-q"];
        let command = sandbox.delta(args).args(["--run-id", id, "--anchor", anchor]);
        let ran = command.output().expect_code(0);
        assert_eq!(ran.stdout, "done\n");
        let warning = format!("warning: the head of run {id} was not anchored: ");
        assert!(ran.stderr.contains(&warning), "{}", ran.stderr);
        assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    }
}
