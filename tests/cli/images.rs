//! Images in everything that reads a run (C-23.6): reports, pages, exports, comparisons, packing, recordings, limits.

use super::DELTA;
use super::view::browser::Browser;
use serde_json::{Value, json};
use std::fs;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

/// A whole image of one pixel.
const DOT: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// `shot` prints a large image, `other` another one.
const TOOLS: &str = "  - name: shot\n    exec: cat ${AGENT_HOME}/large.gif\n    output: image\n  \
                     - name: other\n    exec: cat ${AGENT_HOME}/dot.gif\n    output: image\n";

const TURNS: &str =
    "- {say: looking, call: [{tool: shot}]}\n- call: [{tool: other}]\n- say: seen\n";

/// An image of 1200 times 900 pixels, which counts 1,440 tokens.
fn large() -> Vec<u8> {
    let mut bytes = DOT.to_vec();
    bytes[6..10].copy_from_slice(&[0xb0, 0x04, 0x84, 0x03]);
    bytes
}

fn write_images(sandbox: &Sandbox) {
    sandbox.write("agent/large.gif", large());
    sandbox.write("agent/dot.gif", DOT);
}

/// A run with an attached image and two of tools.
fn pictured() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    write_images(&sandbox);
    let dot = sandbox.path("agent/dot.gif").to_string_lossy().into_owned();
    sandbox.run("what is this?", &["-q", "-a", &dot]).expect_code(0);
    sandbox
}

fn command(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(args.iter().chain(&["-w", "work"]).copied()).output().expect_code(0)
}

fn images_of(sandbox: &Sandbox, kind: &str) -> Vec<Value> {
    let events = sandbox.events(kind);
    events
        .iter()
        .flat_map(|event| event["images"].as_array().cloned().unwrap_or_default())
        .collect()
}

#[test]
fn c_18_1_the_page_shows_images_and_loads_nothing() {
    if !needs::browser() {
        return;
    }
    let sandbox = pictured();
    command(&sandbox, &["view", "r"]);
    let page = sandbox.read("r.html");
    assert!(page.contains("img-src data:;"));
    assert!(!page.contains("undecodable"), "the bytes of an image are not on the page as text");
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    let sizes = "(async () => { const all = [...document.querySelectorAll('.picture img')]; \
                 await Promise.all(all.map(one => one.decode())); \
                 return all.map(one => [one.naturalWidth, one.naturalHeight]); })()";
    assert_eq!(browser.value(sizes), json!([[1, 1], [1200, 900], [1, 1]]));
    let captions =
        "[...document.querySelectorAll('.picture figcaption')].map(one => one.textContent)";
    let captions = browser.value(captions);
    let file = &images_of(&sandbox, "ACTION_RESULT")[0]["file"];
    assert_eq!(
        captions[1],
        format!("[image: image/gif, 1200x900, {} bytes, {}]", DOT.len(), file.as_str().unwrap())
    );
    // Opened, a call shows its image too.
    browser.press("e", "e");
    let is_shown =
        "[...document.querySelectorAll('.picture img')].every(one => one.offsetHeight > 0)";
    assert_eq!(browser.value(is_shown), json!(true));
}

#[test]
fn c_16_9_a_replay_names_a_changed_image_and_a_missing_one() {
    let sandbox = pictured();
    let image = &images_of(&sandbox, "USER_MESSAGE")[0];
    let file = image["file"].as_str().unwrap();
    let path = sandbox.path("work/.delta/r").join(file);
    let replay = || sandbox.delta(["replay", "r", "-w", "work", "--format", "json"]).output();
    replay().expect_code(0);
    fs::write(&path, large()).unwrap();
    let changed = replay().expect_code(3).json();
    assert_eq!(changed["differences"][0]["what"], file, "{changed:#}");
    fs::remove_file(&path).unwrap();
    let missing = replay().expect_code(0).json();
    assert_eq!(missing["not_checked"], json!([format!("{file}: missing")]));
    sandbox.unverified("an image is gone");
}

#[test]
fn c_18_6_a_missing_or_changed_image_is_named_on_the_page() {
    if !needs::browser() {
        return;
    }
    let sandbox = pictured();
    let image = &images_of(&sandbox, "ACTION_RESULT")[0];
    let path = sandbox.path("work/.delta/r").join(image["file"].as_str().unwrap());
    for content in [Some(DOT), None] {
        match content {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        command(&sandbox, &["view", "r"]);
        let mut browser = Browser::start();
        browser.open(&sandbox.path("r.html"), "");
        assert_eq!(browser.value("document.querySelectorAll('.picture img').length"), json!(2));
        let note = browser.value("document.querySelector('.picture .warn').textContent");
        let expected = if content.is_some() { "it was changed" } else { "No such file" };
        assert!(note.as_str().unwrap().contains(expected), "{note}");
    }
}

#[test]
fn c_18_4_an_answer_that_occurs_in_an_image_by_chance_leaves_it_whole() {
    let turns = "- call: [{tool: ask_human, args: {prompt: PIN, sensitive: true}}]\n- call: [{tool: other}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    write_images(&sandbox);
    sandbox.run("go", &[]).expect_code(101);
    // The base64 of GIF89a begins like that.
    command(&sandbox, &["continue", "r", "-m", "R0lGODlh"]);
    command(&sandbox, &["view", "r"]);
    assert!(sandbox.read("r.html").contains("\"data:image/gif;base64,R0lGODlh"));
}

#[test]
fn c_23_6_reports_and_exports_name_the_images() {
    let sandbox = pictured();
    let attached = images_of(&sandbox, "USER_MESSAGE");
    let printed = images_of(&sandbox, "ACTION_RESULT");
    let file = |image: &Value| image["file"].as_str().unwrap().to_owned();
    let shown = command(&sandbox, &["show", "r", "--format", "json"]).json();
    assert_eq!(shown["messages"][0]["images"], json!(attached));
    assert_eq!(shown["iterations"][0]["calls"][0]["result"]["images"][0], printed[0]);
    let text = command(&sandbox, &["show", "r"]);
    let text = format!("{}{}", text.stdout, text.stderr);
    assert_eq!(text.matches(&format!("[image: image/gif, 1x1, {} bytes", DOT.len())).count(), 2);
    assert!(text.contains(&format!("1200x900, {} bytes, {}]", DOT.len(), file(&printed[0]))));

    let atif = command(&sandbox, &["export", "r", "--to", "atif"]).json();
    let step = |source: &str| {
        let steps = atif["steps"].as_array().unwrap();
        steps.iter().find(|step| step["source"] == source).unwrap().clone()
    };
    let part = |image: &Value| {
        let source = json!({"media_type": "image/gif", "path": image["file"]});
        json!({"type": "image", "source": source})
    };
    let text = json!({"type": "text", "text": "what is this?"});
    assert_eq!(step("user")["message"], json!([text, part(&attached[0])]));
    let result = &step("agent")["observation"]["results"][0];
    assert_eq!(result["content"], json!([part(&printed[0])]));

    let otlp = command(&sandbox, &["export", "r", "--to", "otlp", "--content=all"]).stdout;
    let reference = format!("delta:{}#1200x900", file(&printed[0]));
    let part = format!(
        r#"{{\"type\":\"uri\",\"modality\":\"image\",\"mime_type\":\"image/gif\",\"uri\":\"{reference}\"}}"#
    );
    assert!(otlp.contains(&part), "{otlp}");
    assert!(otlp.contains("[image: image/gif, 1200x900"), "the result of the call");
    let openai = command(&sandbox, &["export", "r", "--to", "openai"]).json();
    assert!(openai.to_string().contains(&reference));
}

#[test]
fn c_23_6_the_parts_of_a_request_count_their_images() {
    let sandbox = pictured();
    let tokens = |request: &str| {
        let args = ["context", "show", "r", "--iteration", request, "--format", "json"];
        let request = command(&sandbox, &args).json();
        let blocks = request["blocks"].as_array().unwrap().clone();
        let journal = blocks.into_iter().find(|block| block["type"] == "journal").unwrap();
        (request["tokens"].as_u64().unwrap(), journal["tokens"].as_u64().unwrap())
    };
    let first = tokens("1");
    let second = tokens("2");
    assert!((1440..1600).contains(&(second.1 - first.1)), "{first:?} {second:?}");
    assert_eq!(second.0 - first.0, second.1 - first.1);
    let diff = command(&sandbox, &["context", "diff", "r", "1", "2", "--format", "json"]).json();
    let fresh = diff["behind"]["tokens"].as_u64();
    assert!((1440..1600).contains(&fresh.unwrap()), "{diff}");
}

#[test]
fn c_16_8_two_runs_with_other_images_differ() {
    let sandbox = pictured();
    sandbox.write("agent/large.gif", DOT);
    let again = ["run", "--agent", "agent", "-w", "work", "--run-id", "s", "-m", "what is this?"];
    let dot = sandbox.path("agent/dot.gif").to_string_lossy().into_owned();
    sandbox.delta(again.iter().chain(&["-a", &dot]).copied()).output().expect_code(0);
    let diff = sandbox.delta(["diff", "r", "s", "-w", "work"]).output().expect_code(1);
    assert!(diff.stdout.contains("1200x900") && diff.stdout.contains("1x1"), "{}", diff.stdout);
}

#[test]
fn c_25_8_packing_leaves_the_images_and_removing_takes_them() {
    let sandbox = pictured();
    let names = sandbox.files("work/.delta/r/files");
    let page = command(&sandbox, &["view", "r", "-o", "-"]).stdout;
    let data = |page: &str| page.matches("data:image/gif;base64,").count();
    assert_eq!(data(&page), 3);
    command(&sandbox, &["pack", "r"]);
    assert_eq!(sandbox.files("work/.delta/r/files"), names);
    assert_eq!(data(&command(&sandbox, &["view", "r", "-o", "-"]).stdout), 3);
    command(&sandbox, &["replay", "r"]);
    command(&sandbox, &["unpack", "r"]);
    assert_eq!(sandbox.files("work/.delta/r/files"), names);
    command(&sandbox, &["rm", "r"]);
    assert!(!sandbox.path("work/.delta/r").exists());
}

#[test]
fn c_23_6_ensure_attaches_an_image_once() {
    let sandbox = Sandbox::scripted(
        DELTA,
        TOOLS,
        "- call: [{tool: ask_human, args: {prompt: Go?}}]\n- call: [{tool: shot}]\n- say: seen\n",
    );
    write_images(&sandbox);
    let dot = sandbox.path("agent/dot.gif").to_string_lossy().into_owned();
    let ensure = || sandbox.run("look", &["--ensure", "--format", "raw", "-a", &dot]);
    ensure().expect_code(101);
    ensure().expect_code(101);
    command(&sandbox, &["continue", "r", "-m", "yes"]);
    assert_eq!(ensure().expect_code(0).stdout, "seen\n");
    assert_eq!(images_of(&sandbox, "USER_MESSAGE").len(), 1);
    assert_eq!(sandbox.files("work/.delta/r/files").len(), 2);
}

#[test]
fn c_23_6_a_script_sees_the_text_of_a_message_with_images() {
    let turns = "- {when: '\\A\\z', say: 'an image alone'}\n- {say: 'got ${task}', when: 'this'}\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    write_images(&sandbox);
    let dot = sandbox.path("agent/dot.gif").to_string_lossy().into_owned();
    let ran = sandbox.run("what is this?", &["--format", "raw", "-a", &dot]).expect_code(0);
    assert_eq!(ran.stdout, "got what is this?\n");
}

#[test]
fn c_12_8_a_limit_counts_an_image_before_the_call() {
    let server = ScriptedServer::start(vec![
        Answer::call("shot", json!({})).usage(100, 10),
        Answer::text("seen").usage(1600, 10),
    ]);
    let sandbox = Sandbox::new(DELTA);
    write_images(&sandbox);
    sandbox.agent(&format!("model: m\n  max_tokens: 50\n  base_url: {}", server.url()), TOOLS);
    let ran = sandbox.run("look", &["--max-tokens", "1800"]).expect_code(1);
    assert!(
        ran.stderr.contains("max_tokens") || ran.stderr.contains("--max-tokens"),
        "{}",
        ran.stderr
    );
    assert_eq!(server.requests().len(), 1, "the request with the image was not sent");
    let args = ["continue", "r", "-w", "work", "-m", "go on", "--max-tokens", "5000"];
    sandbox.delta(args).output().expect_code(0);
}

#[test]
fn c_17_5_a_test_with_images_is_recorded_and_replayed() {
    let server =
        ScriptedServer::start(vec![Answer::call("shot", json!({})), Answer::text("a large one")]);
    let sandbox = Sandbox::new(DELTA);
    write_images(&sandbox);
    sandbox.agent(&format!("model: m\n  base_url: {}", server.url()), TOOLS);
    let test = "task: look\nexpect:\n  result: a large one\n  calls: [{tool: shot, observation: {contains: '1200x900'}}]\n";
    sandbox.write("agent/tests/look.yaml", test);
    sandbox.delta(["test", "agent", "--record"]).output().expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    drop(server);
    let tape = sandbox.read("agent/tests/cassettes/look.jsonl");
    assert!(tape.contains("answer") || tape.contains("large"), "{tape}");
    assert!(!tape.contains("R0lGOD"), "no image is on the tape");
    let strict = format!("{test}llm: {{cassette: cassettes/look.jsonl, strict: true}}\n");
    sandbox.write("agent/tests/look.yaml", strict);
    sandbox.delta(["test", "agent"]).output().expect_code(0);
}
