//! `delta send --copy --redact FILE` (C-36.12): nothing in the copy has one of the values.

use super::DELTA;
use super::seals::public_key;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// A name with characters that JSON and URLs escape, and a number.
const VALUES: [&str; 2] = ["Zoë \"Q\" O/Brien", "4711-0815-2342"];
const TOOLS: &str =
    "  - {name: print, exec: 'cat ${file}'}\n  - {name: say, exec: 'echo ${text}'}\n";
/// The bytes that a snapshot reads at once, and more than a record has of an output.
const BUFFER_BYTES: usize = 256 * 1024;

fn there(sandbox: &Sandbox, args: &[&str]) -> Delta {
    fs::create_dir_all(sandbox.path("there/home")).unwrap();
    let command = sandbox.delta(args.iter().copied());
    command.env("HOME", sandbox.path("there/home")).cwd(sandbox.path("there"))
}

/// Base64 as RFC 4648 has it, with padding.
fn encode_base64(bytes: impl AsRef<[u8]>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups = bytes.as_ref().chunks(3).map(|group| {
        let bits = (0..3)
            .fold(0, |bits, at| bits << 8 | group.get(at).map_or(0, |byte| usize::from(*byte)));
        let digit = |at: usize| char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
        (0..4).map(|at| if at > group.len() { '=' } else { digit(at) }).collect::<String>()
    });
    groups.collect()
}

/// The values in the forms in which programs print them; the last one is longer than a line of base64.
fn forms() -> String {
    let [name, number] = VALUES;
    let long = format!("{}{name} and {number}{}", "x".repeat(40), "y".repeat(40));
    let wrapped = encode_base64(long);
    let wrapped: Vec<&str> =
        wrapped.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let escaped = json!({"name": name, "inner": json!({"name": name}).to_string()});
    let ascii = r#"{"name": "Zo\u00eb \"Q\" O\/Brien", "other": "Zo\u00eb \"Q\" O/Brien"}"#;
    let percent = "Zo%C3%AB%20%22Q%22%20O%2FBrien";
    format!("{name} {number}\n{escaped}\n{ascii}\n{percent}\n{}\n", wrapped.join("\n"))
}

/// A run that waits for an answer, whose files, messages, calls and outputs have the values.
fn run_with_values() -> Sandbox {
    let [name, number] = VALUES;
    let call = |tool: &str, args: Value| format!("- call: [{{tool: {tool}, args: {args}}}]\n");
    let arguments = json!({"text": json!([name, {"number": number}]).to_string()});
    let turns = [
        call("print", json!({"file": "forms"})),
        call("print", json!({"file": "large"})),
        call("say", arguments),
        call("ask_human", json!({"prompt": format!("Is it {name}?")})),
        "- say: done\n".to_owned(),
    ];
    let tools = format!("{TOOLS}snapshots: true\n");
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns.concat());
    sandbox.write("agent/notes.md", format!("The customer is {name}.\n"));
    sandbox.write("values.txt", format!("{name}\n\n{number}\r\nnowhere to be found\n"));
    sandbox.write("work/forms", forms());
    let before = "x".repeat(BUFFER_BYTES - 5);
    sandbox.write("work/large", format!("{before}{name}\n{before}{number}\n"));
    sandbox.write(&format!("work/of {number}"), "one\n");
    sandbox.write(&format!("work/dir/{number}/deep"), "two\n");
    sandbox.write("work/.git/HEAD", format!("ref: refs/heads/{number}\n"));
    sandbox.write("work/packed.gz", b"\x1f\x8b\x08 a file that only looks like one");
    symlink(format!("of {number}"), sandbox.path("work/link")).unwrap();
    let task = format!("Look after {name}, {}", encode_base64(number));
    sandbox.run(&task, &["-q"]).expect_code(101);
    sandbox
}

fn send(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["send", "r", "-w", "work", "-o", "r.tgz", "--copy", "--redact", "values.txt"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

/// What a text is without line ends, however they are written.
fn unwrap(text: &str) -> String {
    text.replace("\\\\n", "").replace("\\n", "").replace('\n', "")
}

fn assert_no_values(sandbox: &Sandbox, dir: &str) {
    for file in sandbox.files(dir) {
        let bytes = fs::read(sandbox.path(dir).join(&file)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let plain = text.replace('\\', "").replace("u00eb", "ë");
        let unwrapped = unwrap(&text);
        for value in VALUES {
            let without_backslashes = value.replace('\\', "");
            assert!(!plain.contains(&without_backslashes) && !file.contains(value), "{file}");
            // The digits in the middle depend on the value alone, wherever it begins.
            for before in 0..3 {
                let digits = encode_base64([&vec![0; before][..], value.as_bytes()].concat());
                let middle = &digits[4..digits.len() - 4];
                assert!(!unwrapped.contains(middle), "{file}: {middle}");
            }
        }
        assert!(!text.contains("Zo%C3%AB"), "{file}");
    }
}

#[test]
fn c_36_12_a_redacted_copy_has_none_of_the_values() {
    let sandbox = run_with_values();
    let before = sandbox.journal();
    let sending = send(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.journal(), before);
    assert!(!sandbox.files("work/.delta").iter().any(|file| file.contains("redacted")));
    for note in [
        "Not sent: keys, .git, redacted values\n",
        "Note: not in the run: line 4 of values.txt\n",
        "Note: compressed, and not searched: packed.gz\n",
        "Sent a copy of run r\n",
    ] {
        assert!(sending.stderr.contains(note), "{note}: {}", sending.stderr);
    }
    fs::create_dir(sandbox.path("unpacked")).unwrap();
    let unpack = ["xzf", "r.tgz", "-C", "unpacked"];
    let status = Command::new("tar").args(unpack).current_dir(sandbox.path("")).status();
    assert!(status.unwrap().success());
    assert_no_values(&sandbox, "unpacked");

    let key = public_key(sandbox.delta(["config", "--format", "json"]));
    there(&sandbox, &["trust", "--key", &key, "--name", "me"]).output().expect_code(0);
    let receive = ["receive", "../r.tgz", "-w", "work"];
    let ran = there(&sandbox, &receive).output().expect_code(0);
    assert!(ran.stderr.contains("not received: keys, .git, redacted values"), "{ran:?}");
    assert_no_values(&sandbox, "there");
    let files: Vec<String> = sandbox.files("there/work").into_iter().collect();
    for file in ["of [redacted]", "dir/[redacted]/deep", "large"] {
        assert!(files.iter().any(|name| name == file), "{file}: {files:?}");
    }
    assert!(!files.iter().any(|name| name.starts_with(".git/")), "{files:?}");
    let filled = "x".repeat(BUFFER_BYTES - 5);
    let large = format!("{filled}[redacted]\n{filled}[redacted]\n");
    assert!(sandbox.read("there/work/large") == large, "a value that crosses two buffers");
    let target = fs::read_link(sandbox.path("there/work/link")).unwrap();
    assert_eq!(target.to_str(), Some("of [redacted]"));
    // Everything that names something else by its hash names what it is now.
    let verified = there(&sandbox, &["verify", "r", "-w", "work"]).output().expect_code(0);
    assert!(verified.stdout.contains("run r is intact"), "{}", verified.stdout);
    let shown = there(&sandbox, &["show", "r", "-w", "work"]).output().expect_code(0);
    assert!(shown.stdout.contains("Look after [redacted], [redacted]"), "{}", shown.stdout);
    let journal = sandbox.read("there/work/.delta/r/journal.jsonl");
    let events: Vec<Value> =
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sent = events.iter().find(|event| event["type"] == "SENT").unwrap();
    let places = sent["redacted"].as_u64().unwrap();
    assert!(places > 20, "{places}");
    assert!(sending.stderr.contains(&format!("Redacted values in {places} places\n")), "{places}");
    assert_ne!(events[0]["chain"], before[0]["chain"], "it has a chain of its own");
    // It cannot be continued, and can be forked.
    let ran = there(&sandbox, &["continue", "r", "-w", "work", "yes"]).output().expect_code(1);
    assert!(ran.stderr.contains("this is a copy of run r"), "{ran:?}");
    let fork = ["fork", "r", "-w", "work", "--agent", "../agent", "--into", "f", "--at", "2"];
    there(&sandbox, &fork).output();
    assert_eq!(sandbox.read("there/f/of [redacted]"), "one\n");
    sandbox.unverified("what the LLM was sent is redacted");
}

#[test]
fn c_36_12_records_in_a_pack_and_none_are_redacted_too() {
    let sandbox = run_with_values();
    sandbox.delta(["continue", "r", "-w", "work", "yes", "-q"]).output().expect_code(0);
    sandbox.delta(["pack", "r", "-w", "work", "-q"]).output().expect_code(0);
    for (more, has_records) in [(&[][..], true), (&["--records", "none", "--files", "none"], false)]
    {
        let _ = fs::remove_file(sandbox.path("r.tgz"));
        send(&sandbox, more).expect_code(0);
        let dir = format!("unpacked-{has_records}");
        fs::create_dir(sandbox.path(&dir)).unwrap();
        let unpack = ["xzf", "r.tgz", "-C", &*dir];
        let status = Command::new("tar").args(unpack).current_dir(sandbox.path("")).status();
        assert!(status.unwrap().success());
        assert_no_values(&sandbox, &dir);
        let files = sandbox.files(&dir);
        assert_eq!(files.iter().any(|file| file.contains("/io/")), has_records, "{files:?}");
    }
}

#[test]
fn c_36_12_what_cannot_be_redacted_is_refused_and_nothing_is_written() {
    let sandbox = run_with_values();
    let refused = |values: &str, more: &[&str], code: i32, expected: &str| {
        sandbox.write("values.txt", values);
        let ran = send(&sandbox, more).expect_code(code);
        assert!(ran.stderr.contains(expected), "{values}: {}", ran.stderr);
        assert!(!sandbox.path("r.tgz").exists(), "{values}");
        assert!(!sandbox.files("work/.delta").iter().any(|file| file.contains("redacted")));
    };
    refused("long enough\nshort\n", &[], 2, "the value on line 2 of values.txt is shorter than 8");
    refused("\n \n", &[], 2, "values.txt has no values");
    refused("long enough\n", &["--files", "changed"], 2, "use `--files all` or `--files none`");
    // What delta itself needs.
    refused("ENGINE_START\n", &[], 1, "line 1 of the journal cannot be read without the values");
    refused("4711-0815-2342\n[redacted]\n", &[], 1, "a value remains in ");
    sandbox.write("values.txt", "long enough\n");
    let ran = sandbox.delta(["send", "r", "-w", "work", "-o", "r.tgz", "--redact", "values.txt"]);
    ran.output().expect_code(2);
}
