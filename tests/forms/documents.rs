//! PDFs of messages, in each form.

use super::images::{FORMS, image_agent, png, run_texts};
use super::{DELTA, bodies, records};
use serde_json::{Value, json};
use std::fs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const PDF: &[u8] = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n";
/// The base64 of its first bytes.
const PDF_START: &str = "JVBERi0xLjQK";

/// A file with this content, and its path.
fn written(sandbox: &Sandbox, name: &str, content: &[u8]) -> String {
    fs::write(sandbox.path(name), content).unwrap();
    sandbox.path(name).to_string_lossy().into_owned()
}

/// The first value in `value`, at any depth, that `find` finds.
fn first<'a>(value: &'a Value, find: &dyn Fn(&Value) -> bool) -> Option<&'a Value> {
    if find(value) {
        return Some(value);
    }
    match value {
        Value::Array(items) => items.iter().find_map(|item| first(item, find)),
        Value::Object(members) => members.values().find_map(|member| first(member, find)),
        _ => None,
    }
}

#[test]
fn c_23_6_a_pdf_reaches_the_model_as_a_document_in_each_form() {
    for (form, key) in FORMS {
        let answers = vec![Answer::text("read"), Answer::text("again")];
        let server = ScriptedServer::start(answers);
        let sandbox = image_agent(form, &server, "");
        let pdf = written(&sandbox, "a.pdf", PDF);
        let image = written(&sandbox, "b.png", &png(2, 2));
        let ran = sandbox.run_command("what is this?", &["-a", &pdf, "-a", &image]);
        ran.env(key, "k-1").output().expect_code(0);
        let work = sandbox.path("work").to_string_lossy().into_owned();
        let args = ["continue", "r", "-w", &work, "-m", "next", "-a", &pdf];
        sandbox.delta(args).env(key, "k-1").output().expect_code(0);
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        let sent = bodies(&server);
        assert_eq!(sent[0].to_string().matches(PDF_START).count(), 1, "{form}: {}", sent[0]);
        assert_eq!(sent[1].to_string().matches(PDF_START).count(), 2, "{form}: {}", sent[1]);
        let is_part = |value: &Value| match form {
            "anthropic" => value["type"] == "document" && value["source"]["type"] == "base64",
            "gemini" => value["inlineData"]["mimeType"] == "application/pdf",
            "responses" => value["type"] == "input_file" && value["file_data"].is_string(),
            _ => value["type"] == "file" && value["file"]["file_data"].is_string(),
        };
        assert!(first(&sent[0], &is_part).is_some(), "{form}: {}", sent[0]);
        let file = &sandbox.events("USER_MESSAGE")[0]["images"][0];
        let sha256 = file["sha256"].as_str().unwrap();
        let name = format!("files/{sha256}.pdf");
        let expected = json!({"sha256": sha256, "file": name, "media_type": "application/pdf", "bytes": PDF.len()});
        assert_eq!(*file, expected);
        assert_eq!(fs::read(sandbox.path(&format!("work/.delta/r/{name}"))).unwrap(), PDF);
        for (path, text) in run_texts(&sandbox) {
            assert!(!text.contains(PDF_START), "{form}: base64 in {path}");
        }
        let request = &records(&sandbox)[0]["request"];
        let is_reference = |value: &Value| value["file"]["file_data"].is_string();
        let part = first(request, &is_reference).unwrap();
        assert_eq!(part["file"]["file_data"], format!("delta:{name}#{}", PDF.len()));
    }
}

#[test]
fn c_23_6_what_only_says_that_it_is_a_pdf_is_an_error_and_nothing_is_created() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    let mut large = PDF.to_vec();
    large.resize((50 << 20) + 1, b' ');
    for (name, content, expected) in [
        ("text.pdf", &b"not a PDF"[..], "it is not a PDF, which begins with `%PDF-`"),
        ("image.PDF", &png(1, 1), "it is not a PDF, which begins with `%PDF-`"),
        ("empty.pdf", b"", "it is empty"),
        ("large.pdf", &large, "a PDF may have 50 MiB"),
    ] {
        let path = written(&sandbox, name, content);
        let stderr = sandbox.run("read", &["-a", &path]).expect_code(126).stderr;
        assert!(stderr.contains(&format!("could not attach {path}: ")), "{stderr}");
        assert!(stderr.contains(expected), "{name}: {stderr}");
        assert!(!sandbox.path("work/.delta/r").exists(), "{name}");
    }
    large.pop();
    let path = written(&sandbox, "large.pdf", &large);
    let stderr = sandbox.run("read", &["-a", &path]).expect_code(0).stderr;
    assert!(stderr.contains("is larger than 20 MiB: many endpoints refuse it"), "{stderr}");
}

#[test]
fn c_23_6_an_endpoint_that_takes_no_pdf_is_named_as_the_cause() {
    for (status, message, expected) in [
        (
            400,
            "Invalid value: 'file'. Supported values are: 'text', 'image_url'",
            "the model does not take PDFs",
        ),
        (400, "unsupported content[].type", "the model does not take PDFs"),
        (400, "A maximum of 100 PDF pages may be provided", "refuses a PDF of this size"),
        (400, "The PDF specified is password protected", "cannot read a PDF"),
    ] {
        let error = json!({"error": {"message": message}}).to_string();
        let server = ScriptedServer::start(vec![Answer::raw(status, error)]);
        let sandbox = image_agent("openai", &server, "");
        let path = written(&sandbox, "a.pdf", PDF);
        let run = sandbox.run_command("read", &["-a", &path]).env("OPENAI_API_KEY", "k-1");
        let stderr = run.output().expect_code(1).stderr;
        assert!(stderr.contains(expected) && stderr.contains(message), "{stderr}");
    }
}

#[test]
fn c_23_6_reports_exports_forks_and_pages_have_a_pdf_as_a_document() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n- say: more\n");
    let path = written(&sandbox, "a.pdf", PDF);
    sandbox.run("read", &["-q", "-a", &path]).expect_code(0);
    let name = format!("files/{}", sandbox.files("work/.delta/r/files")[0]);
    let line = format!("[document: application/pdf, {} bytes, {name}]", PDF.len());
    let delta = |args: &[&str]| {
        sandbox.delta(args.iter().chain(&["-w", "work"]).copied()).output().expect_code(0)
    };
    let shown = delta(&["show", "r"]);
    assert!(format!("{}{}", shown.stdout, shown.stderr).contains(&line));
    assert!(delta(&["export", "r", "--to", "markdown"]).stdout.contains(&line));
    let atif = delta(&["export", "r", "--to", "atif"]).json();
    let part = json!({"type": "text", "text": line});
    assert!(first(&atif, &|value| *value == part).is_some(), "{atif}");
    let otlp = delta(&["export", "r", "--to", "otlp", "--content=all"]).stdout;
    assert!(
        otlp.contains(r#"\"modality\":\"document\",\"mime_type\":\"application/pdf\""#),
        "{otlp}"
    );
    delta(&["view", "r"]);
    let page = sandbox.read("r.html");
    assert!(page.contains(&line) && !page.contains(PDF_START));
    delta(&["verify", "r"]);
    delta(&["replay", "r"]);
    delta(&["fork", "r", "--at", "0", "--into", "forked", "--run-id", "f"]);
    let copy = fs::read(sandbox.path(&format!("forked/.delta/f/{name}"))).unwrap();
    assert_eq!(copy, PDF);
    fs::write(sandbox.path(&format!("work/.delta/r/{name}")), b"%PDF-1.7 another").unwrap();
    sandbox.unverified("its document is another one");
    let verified = sandbox.delta(["verify", "r", "-w", "work"]).output();
    assert_ne!(verified.code, 0, "{}", verified.stdout);
    delta(&["view", "r"]);
    assert!(sandbox.read("r.html").contains("it was changed"));
}
