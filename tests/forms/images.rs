//! Images of messages and of results, in each form.

use super::{DELTA, bodies, records};
use serde_json::{Value, json};
use std::fs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// Each form with the variable of its key.
pub(super) const FORMS: [(&str, &str); 4] = [
    ("openai", "OPENAI_API_KEY"),
    ("anthropic", "ANTHROPIC_API_KEY"),
    ("responses", "OPENAI_API_KEY"),
    ("gemini", "GEMINI_API_KEY"),
];

/// An agent of the provider `form` with these tools.
pub(super) fn image_agent(form: &str, server: &ScriptedServer, tools: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let url = server.root_url();
    let path = if matches!(form, "openai" | "responses") { "/v1" } else { "" };
    let llm = format!("provider: {form}\n  model: test-model\n  base_url: {url}{path}");
    sandbox.agent(&llm, tools);
    sandbox
}

/// A PNG of this size, without any pixels.
pub(super) fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend(b"\x08\0\0\0\0CRC1\0\0\0\0IENDCRC2");
    bytes
}

/// All texts of a JSON value that are the base64 of a PNG, also in a `data:` URL.
pub(super) fn encoded_images(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => {
            let data = text.rsplit(";base64,").next().unwrap();
            if data.starts_with("iVBORw0KGgo") { vec![data] } else { Vec::new() }
        }
        Value::Array(items) => items.iter().flat_map(encoded_images).collect(),
        Value::Object(members) => members.values().flat_map(encoded_images).collect(),
        _ => Vec::new(),
    }
}

/// Every file of run `r`, as text, except those in files/.
pub(super) fn run_texts(sandbox: &Sandbox) -> Vec<(String, String)> {
    let dirs = ["", "io/invocations", "io/tool_executions"];
    let dirs = dirs.map(|dir| format!("work/.delta/r/{dir}"));
    let files = dirs.iter().flat_map(|dir| {
        let entries = fs::read_dir(sandbox.path(dir)).unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.path().is_file()).map(|entry| entry.path())
    });
    files
        .map(|path| {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            (path.display().to_string(), text)
        })
        .collect()
}

#[test]
fn c_23_6_attached_images_reach_the_model_in_each_form() {
    for (form, key) in FORMS {
        let server = ScriptedServer::start(vec![Answer::text("seen").usage(900, 5)]);
        let sandbox = image_agent(form, &server, "");
        let one = sandbox.path("one.png");
        let other = sandbox.path("other.png");
        fs::write(&one, png(640, 480)).unwrap();
        fs::write(&other, png(10, 20)).unwrap();
        let files = [&one, &other, &one].map(|path| path.to_string_lossy().into_owned());
        let [a, b, c] = &files;
        let args = ["--format", "raw", "-a", a, "--attach", b, "-a", c];
        let ran = sandbox.run_command("what is this?", &args).env(key, "k-1").output();
        assert_eq!(ran.expect_code(0).stdout, "seen\n", "{form}");
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        let sent = bodies(&server);
        let images = encoded_images(&sent[0]);
        assert_eq!(images.len(), 3, "{form}: {}", sent[0]);
        assert_eq!(images[0], images[2]);
        assert_ne!(images[0], images[1]);
        let message = &sandbox.events("USER_MESSAGE")[0];
        assert_eq!(message["images"][0]["media_type"], "image/png");
        assert_eq!(
            (&message["images"][0]["width"], &message["images"][1]["height"]),
            (&json!(640), &json!(20))
        );
        assert_eq!(message["images"][0]["bytes"], 45);
        assert_eq!(sandbox.files("work/.delta/r/files").len(), 2, "the same image is one file");
        let file = message["images"][0]["file"].as_str().unwrap();
        assert_eq!(file, format!("files/{}.png", message["images"][0]["sha256"].as_str().unwrap()));
        assert_eq!(
            fs::read(sandbox.path(&format!("work/.delta/r/{file}"))).unwrap(),
            png(640, 480)
        );
        for (path, text) in run_texts(&sandbox) {
            assert!(!text.contains("iVBORw0KGgo"), "{form}: base64 in {path}");
        }
        let record = &records(&sandbox)[0];
        assert_eq!(record["wire"]["form"], form, "the wire body is another one");
        let parts = &record["request"]["messages"];
        let parts = parts.as_array().unwrap().last().unwrap()["content"].as_array().unwrap();
        assert_eq!(parts[1]["image_url"]["url"], format!("delta:{file}#640x480"));
        // 640 x 480 / 750 twice, and one for the small one.
        let thought = &sandbox.events("THOUGHT")[0];
        assert!(thought["estimated_tokens"].as_u64().unwrap() > 821, "{form}: {thought}");
    }
}

#[test]
fn c_23_6_a_continued_run_sends_the_first_image_again_and_a_new_one() {
    for (form, key) in FORMS {
        let server = ScriptedServer::start(vec![Answer::text("one"), Answer::text("two")]);
        let sandbox = image_agent(form, &server, "");
        fs::write(sandbox.path("one.png"), png(1, 1)).unwrap();
        fs::write(sandbox.path("two.png"), png(2, 2)).unwrap();
        let path = |name: &str| sandbox.path(name).to_string_lossy().into_owned();
        let run = sandbox.run_command("first", &["-a", &path("one.png")]).env(key, "k-1");
        run.output().expect_code(0);
        let work = path("work");
        let args = ["continue", "r", "-w", &work, "-m", "next", "-a", &path("two.png")];
        sandbox.delta(args).env(key, "k-1").output().expect_code(0);
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        assert_eq!(encoded_images(&bodies(&server)[1]).len(), 2, "{form}");
    }
}

#[test]
fn c_23_6_what_cannot_be_attached_is_an_error_and_nothing_is_created() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  script: s.yaml", "");
    sandbox.write("agent/s.yaml", "turns:\n  - text: done\n");
    sandbox.write("text.png", "not an image");
    sandbox.write("empty.png", "");
    fs::create_dir(sandbox.path("dir.png")).unwrap();
    let mut large = png(1, 1);
    large.resize((20 << 20) + 1, 0);
    fs::write(sandbox.path("large.png"), large).unwrap();
    for (name, expected) in [
        ("text.png", "it is not a PNG, JPEG, GIF or WebP image"),
        ("empty.png", "it is empty"),
        ("dir.png", "Is a directory"),
        ("missing.png", "No such file"),
        ("large.png", "an image may have 20 MiB"),
    ] {
        let path = sandbox.path(name).to_string_lossy().into_owned();
        let ran = sandbox.run_command("hello", &["-a", &path]).output();
        let stderr = ran.expect_code(126).stderr;
        assert!(stderr.contains(&format!("could not attach {path}: ")), "{stderr}");
        assert!(stderr.contains(expected), "{name}: {stderr}");
        assert!(!sandbox.path("work/.delta/r").exists(), "{name}");
    }
}

#[test]
fn c_23_6_a_model_that_takes_no_images_is_named_as_the_cause() {
    for (status, message, expected) in [
        (404, "No endpoints found that support image input", "the model does not take images"),
        (400, "messages: image exceeds 5 MB maximum", "refuses an image of this size"),
        (400, "Image dimensions must not be greater than 33177600 pixels", "attach a smaller one"),
        (400, "image dimensions are too small", "attach a larger one"),
        (400, "The size of an image must be at most 5 MB.", "attach a smaller one"),
        (400, "At most 1 image(s) may be provided in one request.", "refuses so many images"),
        (400, "At most 0 image(s) may be provided in one request.", "does not take images"),
        (400, "Too many images in request. Maximum is 5.", "refuses so many images"),
        (400, "At most 5 images are allowed per request.", "refuses so many images"),
        (400, "Number of images exceeds the limit of 5.", "refuses so many images"),
        (400, "No image inputs: not a valid image_url capable model", "does not take images"),
        (400, "The image data does not represent a valid image.", "cannot read an image"),
        (400, "unsupported image: use one of the following formats", "cannot read an image"),
    ] {
        let error = json!({"error": {"message": message}}).to_string();
        let server = ScriptedServer::start(vec![Answer::raw(status, error)]);
        let sandbox = image_agent("openai", &server, "");
        fs::write(sandbox.path("one.png"), png(1, 1)).unwrap();
        let path = sandbox.path("one.png").to_string_lossy().into_owned();
        let run = sandbox.run_command("look", &["-a", &path]).env("OPENAI_API_KEY", "k-1");
        let stderr = run.output().expect_code(1).stderr;
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn c_23_6_a_fork_has_the_images_of_its_events_and_replays() {
    let server = ScriptedServer::start(vec![Answer::text("one"), Answer::text("two")]);
    let sandbox = image_agent("anthropic", &server, "");
    fs::write(sandbox.path("one.png"), png(3, 4)).unwrap();
    let path = |name: &str| sandbox.path(name).to_string_lossy().into_owned();
    let run = sandbox.run_command("look", &["-a", &path("one.png")]);
    run.env("ANTHROPIC_API_KEY", "k-1").output().expect_code(0);
    let work = path("work");
    let forked = path("forked");
    let fork = ["fork", "r", "-w", &work, "--at", "0", "--into", &forked, "--run-id", "f"];
    sandbox.delta(fork).output().expect_code(0);
    let name = &sandbox.files("work/.delta/r/files")[0];
    assert_eq!(sandbox.files("forked/.delta/f/files"), std::slice::from_ref(name));
    let args = ["continue", "f", "-w", &forked, "-m", "again"];
    sandbox.delta(args).env("ANTHROPIC_API_KEY", "k-1").output().expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(encoded_images(&bodies(&server)[1]).len(), 1);
    // Without the file the run fails, and names it.
    fs::remove_file(sandbox.path(&format!("forked/.delta/f/files/{name}"))).unwrap();
    let args = ["continue", "f", "-w", &forked, "-m", "once more"];
    let ran = sandbox.delta(args).env("ANTHROPIC_API_KEY", "k-1").output().expect_code(1);
    assert!(
        ran.stderr.contains(&format!("could not read the image files/{name}")),
        "{}",
        ran.stderr
    );
}
