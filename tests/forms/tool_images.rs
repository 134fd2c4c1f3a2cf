//! Tools whose standard output is an image.

use super::images::{FORMS, encoded_images, image_agent, png, run_texts};
use super::{DELTA, bodies};
use serde_json::{Value, json};
use std::fs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// A tool that prints a file of the agent as an image.
const SHOT: &str = "  - name: shot\n    exec: \"cat ${AGENT_HOME}/${file}\"\n    output: image\n";

/// A sandbox whose agent calls `shot` once for each of the files, and then answers.
fn scripted(tools: &str, files: &[&str]) -> Sandbox {
    let turn = |file: &&str| format!("  - call: [{{tool: shot, args: {{file: '{file}'}}}}]\n");
    let turns: String = files.iter().map(turn).collect();
    Sandbox::scripted(DELTA, tools, &format!("{turns}  - say: done\n"))
}

#[test]
fn c_23_6_the_image_that_a_tool_prints_reaches_the_model_in_each_form() {
    for (form, key) in FORMS {
        let shots = vec![("shot", json!({"file": "a.png"})), ("shot", json!({"file": "b.png"}))];
        let server = ScriptedServer::start(vec![
            Answer::calls(shots),
            Answer::call("shot", json!({"file": "a.png"})),
            Answer::text("seen"),
        ]);
        let sandbox = image_agent(form, &server, SHOT);
        sandbox.write("agent/a.png", png(640, 480));
        sandbox.write("agent/b.png", png(10, 20));
        let ran = sandbox.run_command("look", &["--format", "raw"]).env(key, "k-1").output();
        assert_eq!(ran.expect_code(0).stdout, "seen\n", "{form}");
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        let sent = bodies(&server);
        assert_eq!(encoded_images(&sent[1]).len(), 2, "{form}: {}", sent[1]);
        let images = encoded_images(&sent[2]);
        assert_eq!((images.len(), images[0]), (3, images[2]), "{form}: {}", sent[2]);
        assert_ne!(images[0], images[1]);
        let results = sandbox.events("ACTION_RESULT");
        assert_eq!(results[0]["observation_content"], "", "{form}");
        assert_eq!(results[0]["images"][0]["width"], 640);
        assert_eq!(results[0]["images"], results[2]["images"]);
        assert_eq!(sandbox.files("work/.delta/r/files").len(), 2, "the same image is one file");
        for (path, text) in run_texts(&sandbox) {
            assert!(!text.contains("iVBORw0KGgo"), "{form}: base64 in {path}");
        }
        let thought = sandbox.events("THOUGHT").pop().unwrap();
        assert!(thought["estimated_tokens"].as_u64().unwrap() > 821, "{form}: {thought}");
    }
}

#[test]
fn c_23_6_a_run_with_the_image_of_a_tool_continues_and_forks_with_each_other_form() {
    for ((form, key), (other, other_key)) in FORMS.iter().zip(FORMS.iter().cycle().skip(1)) {
        let first = ScriptedServer::start(vec![
            Answer::call("shot", json!({"file": "a.png"})),
            Answer::text("seen"),
        ]);
        let sandbox = image_agent(form, &first, SHOT);
        sandbox.write("agent/a.png", png(3, 4));
        sandbox.run_command("look", &[]).env(key, "k-1").output().expect_code(0);
        let path = |name: &str| sandbox.path(name).to_string_lossy().into_owned();
        let work = path("work");
        let forked = path("forked");
        let args = ["fork", "r", "-w", &work, "--at", "1", "--into", &forked, "--run-id", "f"];
        sandbox.delta(args).output().expect_code(0);
        assert_eq!(sandbox.files("forked/.delta/f/files"), sandbox.files("work/.delta/r/files"));
        let second = ScriptedServer::start(vec![Answer::text("again"), Answer::text("forked")]);
        let at = second.root_url();
        let version = if matches!(*other, "openai" | "responses") { "/v1" } else { "" };
        let llm = format!("provider: {other}\n  model: test-model\n  base_url: {at}{version}");
        sandbox.agent(&llm, SHOT);
        for (run, dir) in [("r", &work), ("f", &forked)] {
            let args = ["continue", run, "-w", dir, "-m", "and now?"];
            sandbox.delta(args).env(other_key, "k-1").output().expect_code(0);
        }
        assert_eq!(second.violations(), Vec::<String>::new(), "{form}, then {other}");
        for body in bodies(&second) {
            assert_eq!(encoded_images(&body).len(), 1, "{form}, then {other}: {body}");
        }
    }
}

#[test]
fn c_23_6_what_is_not_an_image_is_an_observation_that_says_why() {
    let files = ["text.png", "empty.png", "binary.png", "cut.png", "large.png", "none.png"];
    let sandbox = scripted(SHOT, &files);
    sandbox.write("agent/text.png", "could not open the display\n");
    sandbox.write("agent/empty.png", "");
    sandbox.write("agent/binary.png", b"\x7fELF\xff\0\0\x01");
    sandbox.write("agent/cut.png", &png(5, 5)[..40]);
    let mut large = png(1, 1);
    large.resize((20 << 20) + 1, 0);
    sandbox.write("agent/large.png", large);
    sandbox.run("look", &[]).expect_code(0);
    let found = sandbox.observations();
    let not_one = "it is not a PNG, JPEG, GIF or WebP image";
    assert_eq!(found[0], format!("could not open the display\n[no image: {not_one}]"));
    assert_eq!(found[1], "[no image: it is empty]");
    let file = sandbox.files("work/.delta/r/io/tool_executions");
    let file = |call: usize| {
        let record = file.iter().filter(|name| name.ends_with(".json")).nth(call).unwrap();
        format!(".delta/r/io/tool_executions/{}.stdout", record.trim_end_matches(".json"))
    };
    let place = |call, bytes| format!("{bytes} bytes; the whole lies in {}]", file(call));
    assert_eq!(found[2], format!("[no image: {not_one}; {}", place(2, 8)));
    let cut = "it begins like image/png, but its end is missing";
    assert_eq!(found[3], format!("[no image: {cut}; {}", place(3, 40)));
    let large = "it has 20972 KB; an image may have 20 MiB";
    assert_eq!(found[4], format!("[no image: {large}; {}", place(4, (20 << 20) + 1)));
    assert!(found[5].starts_with("[stderr]\ncat: "), "{}", found[5]);
    assert!(found[5].ends_with("\n[exit code: 1]") && !found[5].contains("no image"));
    assert!(sandbox.events("ACTION_RESULT").iter().all(|result| result.get("images").is_none()));
    assert!(!sandbox.path("work/.delta/r/files").exists());
}

#[test]
fn c_23_6_an_image_of_exactly_twenty_mebibytes_and_one_with_an_exit_code_are_taken() {
    let tools = "  - name: shot\n    shell: \"cat ${AGENT_HOME}/${file}; echo differs >&2; exit 1\"\n    output: image\n";
    let sandbox = scripted(tools, &["large.png"]);
    let mut large = png(7, 1);
    large.resize(20 << 20, 0);
    sandbox.write("agent/large.png", large);
    sandbox.run("look", &[]).expect_code(0);
    let result = &sandbox.events("ACTION_RESULT")[0];
    assert_eq!(result["observation_content"], "[stderr]\ndiffers\n[exit code: 1]");
    assert_eq!(result["images"][0]["width"], 7);
    assert_eq!(result["images"][0]["bytes"], 20 << 20);
    assert_eq!(result["truncated"], false);
}

#[test]
fn c_23_6_a_tool_that_did_not_exit_by_itself_has_no_image() {
    let tools =
        "  - name: shot\n    shell: \"cat ${AGENT_HOME}/${file}; kill -9 $$\"\n    output: image\n";
    let sandbox = scripted(tools, &["a.png"]);
    sandbox.write("agent/a.png", png(7, 1));
    sandbox.run("look", &[]).expect_code(0);
    let text = &sandbox.observations()[0];
    assert!(text.starts_with("[no image: the tool did not exit by itself; 45 bytes; "), "{text}");
    assert!(text.ends_with("]\n[killed by SIGKILL]"), "{text}");
}

#[test]
fn c_23_6_a_hook_gets_the_name_of_the_image_and_can_take_it_away() {
    for (hook, expected) in [
        ("cat > \\\"$RUN_DIR/seen\\\"", None),
        ("echo '{\\\"observation\\\": \\\"a picture of a cat\\\"}'", Some("a picture of a cat")),
        ("exit 3", Some("[withheld: ")),
    ] {
        let sandbox = scripted(SHOT, &["a.png"]);
        sandbox.write("agent/a.png", png(7, 1));
        let hooks =
            format!("post_tool_execution:\n  command: [sh, -c, \"{hook}\"]\n  on_failure: fail\n");
        sandbox.write("agent/hooks.yaml", hooks);
        let ran = sandbox.run("look", &[]);
        let result = &sandbox.events("ACTION_RESULT")[0];
        let text = result["observation_content"].as_str().unwrap();
        match expected {
            Some(expected) => {
                assert!(text.starts_with(expected), "{text}\n{}", ran.stderr);
                assert_eq!(result.get("images"), None);
                assert!(!sandbox.path("work/.delta/r/files").exists());
            }
            None => {
                assert_eq!((text, &result["images"][0]["width"]), ("", &json!(7)));
                let seen: Value =
                    serde_json::from_str(&sandbox.read("work/.delta/r/seen")).unwrap();
                let file = result["images"][0]["file"].as_str().unwrap();
                let line = format!("[image: image/png, 7x1, 45 bytes, {file}]");
                assert_eq!(seen["result"], line);
            }
        }
    }
}

#[test]
fn c_23_6_progress_and_report_name_the_image() {
    let sandbox = scripted(SHOT, &["a.png"]);
    sandbox.write("agent/a.png", png(7, 1));
    let stderr = sandbox.run("look", &["-v"]).expect_code(0).stderr;
    let file = fs::read_dir(sandbox.path("work/.delta/r/files")).unwrap().next().unwrap().unwrap();
    let line = format!("[image: image/png, 7x1, 45 bytes, files/{}]", file.file_name().display());
    assert!(stderr.contains(&line), "{stderr}");
    assert!(!stderr.contains("IHDR"), "the bytes are not shown: {stderr}");
}

#[test]
fn c_23_6_an_image_of_a_tool_that_the_endpoint_refuses_is_left_out_by_a_fork() {
    let error =
        json!({"error": {"message": "image dimensions exceed max allowed size: 8000 pixels"}});
    let server = ScriptedServer::start(vec![
        Answer::call("shot", json!({"file": "small.png"})),
        Answer::call("shot", json!({"file": "large.png"})),
        Answer::raw(400, error.to_string()),
        Answer::text("done"),
    ]);
    let sandbox = image_agent("anthropic", &server, SHOT);
    sandbox.write("agent/small.png", png(10, 20));
    sandbox.write("agent/large.png", png(9000, 10));
    let run = sandbox.run_command("look", &[]).env("ANTHROPIC_API_KEY", "k-1");
    let ran = run.output().expect_code(1);
    assert!(!ran.stderr.contains("attach"), "{}", ran.stderr);
    let (_, command) = ran.stderr.split_once("`delta fork ").expect(&ran.stderr);
    let command = command.split('`').next().unwrap();
    assert!(command.starts_with("r -w ") && command.ends_with(" --at 1"), "{command}");
    let words: Vec<&str> = ["fork"].into_iter().chain(command.split(' ')).collect();
    let forked = sandbox.path("forked").to_string_lossy().into_owned();
    let more = ["--into", &forked, "--format", "raw", "without it"];
    let fork = sandbox.delta(words.into_iter().chain(more)).env("ANTHROPIC_API_KEY", "k-1");
    assert_eq!(fork.output().expect_code(0).stdout, "done\n");
    assert_eq!(encoded_images(&bodies(&server)[3]).len(), 1);
}
