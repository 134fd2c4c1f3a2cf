//! `delta doctor`: what it finds on machines and with settings of every kind, and that it does nothing else.

use super::DELTA;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use test_support::needs;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

/// `delta doctor` in an empty workspace.
fn doctor(sandbox: &Sandbox) -> Delta {
    fs::create_dir_all(sandbox.path("work")).unwrap();
    sandbox.delta(["doctor", "-w", "work", "--format", "json"]).env("DELTA_LEASE", "auto")
}

/// The only check of that name, with its status, finding and remedy.
fn check(ran: &Ran, name: &str) -> (String, String, String) {
    let found = checks(ran, name);
    assert_eq!(found.len(), 1, "{name}: {}", ran.stdout);
    found.into_iter().next().unwrap()
}

fn checks(ran: &Ran, name: &str) -> Vec<(String, String, String)> {
    let json = ran.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = json["checks"].as_array().unwrap().iter();
    let named = checks.filter(|check| check["name"] == name);
    named.map(|it| (text(&it["status"]), text(&it["finding"]), text(&it["help"]))).collect()
}

#[test]
fn c_11_10_a_machine_without_settings_works_with_warnings_and_nothing_is_changed() {
    let sandbox = Sandbox::new(DELTA);
    fs::create_dir(sandbox.path("work")).unwrap();
    let before = sandbox.files("");
    let ran = doctor(&sandbox).output().expect_code(0);
    assert_eq!(sandbox.files(""), before);
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.json()["status"], "warn", "{}", ran.stdout);
    let (status, finding, _) = check(&ran, "delta");
    assert_eq!(status, "ok");
    assert!(finding.starts_with(env!("CARGO_PKG_VERSION")), "{finding}");
    let (status, finding, _) = check(&ran, "workspace");
    assert_eq!(status, "ok", "{finding}");
    let root = sandbox.path("work").canonicalize().unwrap();
    assert!(finding.starts_with(&format!("{} on ", root.display())), "{finding}");
    assert!(finding.contains(" MiB free; runs are kept to one process "), "{finding}");
    let (status, finding, help) = check(&ran, "endpoint");
    assert_eq!(status, "warn");
    assert!(finding.contains("none has a key"), "{finding}");
    assert!(help.contains("ANTHROPIC_API_KEY") && help.contains("DELTA_BASE_URL"), "{help}");
    let (status, _, help) = check(&ran, "model");
    assert_eq!(status, "warn");
    assert!(help.contains("DELTA_MODEL=") && help.contains("config.yaml"), "{help}");
    let (_, finding, _) = check(&ran, "terminal");
    assert!(finding.starts_with("none: "), "{finding}");
    // Every check that is not ok has a remedy, and no other one.
    for check in ran.json()["checks"].as_array().unwrap() {
        assert_eq!(check["status"] == "ok", check["help"].is_null(), "{check}");
    }
}

#[test]
fn c_11_10_keys_are_named_by_their_places_and_never_printed() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write(
        "home/.config/delta/config.yaml",
        "model: anthropic:claude\napi_key_command: {gemini: touch started}\n",
    );
    sandbox.write("key", "secret-of-the-file\n");
    let ran = doctor(&sandbox)
        .env("DELTA_API_KEY_FILE", sandbox.path("key"))
        .env("ANTHROPIC_API_KEY", "secret-of-the-variable")
        .output()
        .expect_code(0);
    let found = checks(&ran, "endpoint");
    let findings: Vec<&str> = found.iter().map(|(_, finding, _)| finding.as_str()).collect();
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert!(findings[0].starts_with("openai: https://api.openai.com/v1, key in "), "{findings:?}");
    assert!(findings[0].contains("DELTA_API_KEY_FILE"), "{findings:?}");
    assert_eq!(findings[1], "anthropic: https://api.anthropic.com, key in ANTHROPIC_API_KEY");
    assert!(
        findings[2].starts_with("gemini: ") && findings[2].ends_with(", not started"),
        "{findings:?}"
    );
    assert!(found.iter().all(|(status, ..)| status == "ok"));
    assert_eq!(check(&ran, "model").1, "anthropic:claude");
    assert!(!ran.stdout.contains("secret"), "{}", ran.stdout);
    let ran = doctor(&sandbox).env("ANTHROPIC_API_KEY", "seven77").output().expect_code(0);
    let (_, finding, _) = &checks(&ran, "endpoint")[0];
    let short = "anthropic: https://api.anthropic.com, key in ANTHROPIC_API_KEY, which is too short to be redacted";
    assert_eq!(finding, short);
    assert!(!sandbox.path("started").exists() && !sandbox.path("home/started").exists());
}

#[test]
fn c_37_6_a_proxy_that_delta_cannot_use_is_found() {
    let sandbox = Sandbox::new(DELTA);
    let ran = doctor(&sandbox)
        .env("OPENAI_API_KEY", "sk-x")
        .env("HTTPS_PROXY", "socks4://proxy.example:1080")
        .output()
        .expect_code(1);
    let (status, finding, _) = check(&ran, "endpoint");
    assert_eq!(status, "fail");
    assert!(finding.contains("cannot use a proxy with `socks4://`"), "{finding}");
}

#[test]
fn c_11_10_an_endpoint_without_a_key_tells_about_its_models() {
    let endpoint = |url: &str| {
        let sandbox = Sandbox::new(DELTA);
        let ran = doctor(&sandbox).env("DELTA_BASE_URL", url).output().expect_code(0);
        check(&ran, "endpoint")
    };
    let (status, finding, help) = endpoint("http://127.0.0.1:9/v1");
    assert_eq!(status, "warn");
    assert!(finding.starts_with("openai: http://127.0.0.1:9/v1, no key\n"), "{finding}");
    assert!(help.starts_with("start the server"), "{help}");
    for (tools, expected, known) in
        [("true", "ok", "takes tools"), ("false", "warn", "takes no tools")]
    {
        let server = ScriptedServer::for_anything(move |request: &RecordedRequest| {
            Answer::raw(
                200,
                match request.target.as_str() {
                    "GET /v1/models" => {
                        r#"{"data": [{"id": "q", "owned_by": "llamacpp"}]}"#.to_owned()
                    }
                    _ => format!(
                        r#"{{"default_generation_settings": {{"n_ctx": 4096}}, "chat_template_caps": {{"supports_tools": {tools}}}}}"#
                    ),
                },
            )
        });
        let (status, finding, help) = endpoint(&server.url());
        assert_eq!(status, expected, "{finding}");
        assert!(finding.ends_with(&format!("\nq: context 4096 tokens, {known}")), "{finding}");
        assert_eq!(help.contains("`--jinja`"), expected == "warn", "{help}");
    }
}

#[test]
fn c_11_10_an_endpoint_with_a_key_is_not_asked() {
    let server = ScriptedServer::for_anything(|_: &RecordedRequest| Answer::raw(200, "{}"));
    let sandbox = Sandbox::new(DELTA);
    let ran = doctor(&sandbox)
        .env("DELTA_BASE_URL", server.url())
        .env("DELTA_API_KEY", "a-key")
        .output()
        .expect_code(0);
    assert_eq!(check(&ran, "endpoint").0, "ok");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn c_11_10_what_every_run_would_fail_with_is_a_failure() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("home/.config/delta/config.yaml", "modl: x\n");
    let ran = doctor(&sandbox).env("DELTA_BASE_URL", "no address").output().expect_code(1);
    assert_eq!(ran.json()["status"], "fail");
    let (status, finding, help) = check(&ran, "config");
    assert_eq!(status, "fail");
    assert!(finding.contains("unknown key `modl`"), "{finding} {help}");
    // One mistake is one problem.
    assert_eq!(ran.stdout.matches(r#""status": "fail""#).count(), 2, "{}", ran.stdout);
    sandbox.write("home/.config/delta/config.yaml", "");
    let ran = doctor(&sandbox).env("DELTA_BASE_URL", "no address").output().expect_code(1);
    assert_eq!(check(&ran, "endpoint").0, "fail", "{}", ran.stdout);
    let ran = doctor(&sandbox).env("DELTA_MODEL", "scrpt:x").output().expect_code(1);
    assert_eq!(check(&ran, "model").0, "fail");
    let ran = doctor(&sandbox).env("DELTA_API_KEY_FILE", "/nowhere").output().expect_code(1);
    assert!(checks(&ran, "endpoint")[0].1.contains("could not read the API key"), "{}", ran.stdout);
}

#[test]
fn c_11_10_a_machine_without_sh_and_git_is_told_apart() {
    let sandbox = Sandbox::new(DELTA);
    fs::create_dir(sandbox.path("bin")).unwrap();
    let ran = doctor(&sandbox).env("PATH", sandbox.path("bin")).output().expect_code(1);
    assert_eq!((check(&ran, "sh").0.as_str(), check(&ran, "git").0.as_str()), ("fail", "warn"));
    sandbox.write_program("bin/git", "#!/bin/sh\nexit 3\n");
    sandbox.write_program("bin/sh", "#!/bin/sh\n");
    let ran = doctor(&sandbox).env("PATH", sandbox.path("bin")).output().expect_code(0);
    let (status, finding, _) = check(&ran, "git");
    assert_eq!(status, "warn");
    assert!(finding.ends_with("--version` failed"), "{finding}");
}

#[test]
fn c_11_10_how_runs_are_owned_is_what_a_run_records() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    for (lease, words) in [("turns", "by leases"), ("flock", "by a file lock (flock)")] {
        let ran = doctor(&sandbox).env("DELTA_LEASE", lease).output().expect_code(0);
        let (_, finding, _) = check(&ran, "workspace");
        assert!(finding.contains(&format!("runs are kept to one process {words}")), "{finding}");
    }
    let ran = doctor(&sandbox).output().expect_code(0);
    let is_lock = check(&ran, "workspace").1.contains("by a file lock");
    sandbox.run_command("go", &["-q"]).env("DELTA_LEASE", "auto").output().expect_code(0);
    let recorded = &sandbox.events("ENGINE_START")[0]["process"]["lease"];
    assert_eq!(is_lock, recorded != "turns", "{recorded}");
}

#[test]
fn c_11_10_directories_that_cannot_be_used_are_found() {
    let sandbox = Sandbox::new(DELTA);
    let missing = sandbox.delta(["doctor", "-w", "gone", "--format", "json"]).output();
    let missing = missing.expect_code(1);
    assert!(
        check(&missing, "workspace").1.contains("gone is not a directory"),
        "{}",
        missing.stdout
    );
    // The directory of all runs may be missing: the first run creates it.
    let ran =
        doctor(&sandbox).env("DELTA_RUNS_DIR", sandbox.path("new/runs")).output().expect_code(0);
    assert_eq!(check(&ran, "runs").0, "ok", "{}", ran.stdout);
    assert!(!sandbox.path("new").exists());
    let ran = doctor(&sandbox).env("DELTA_STATE_DIR", "relative").output().expect_code(0);
    let (status, finding, help) = check(&ran, "state");
    assert_eq!(status, "warn");
    assert!(finding.contains("not an absolute path"), "{finding}");
    assert!(help.starts_with("set DELTA_STATE_DIR to a directory"), "{help}");
    // Such a HOME says that the user has none, and root could create it.
    for home in [sandbox.path("none"), "/proc/none".into()] {
        let ran = doctor(&sandbox).env("HOME", &home).output().expect_code(0);
        let (status, finding, _) = check(&ran, "state");
        assert_eq!(status, "warn");
        let reason = format!("HOME is {}, which is not a directory", home.display());
        assert!(finding.contains(&reason), "{finding}");
    }
    // A key for seals that cannot be read, and a file that has none.
    let key = sandbox.path("home/.local/state/delta/seal.key");
    std::fs::create_dir_all(&key).unwrap();
    let (status, finding, _) = check(&doctor(&sandbox).output().expect_code(0), "state");
    assert!(status == "warn" && finding.contains("could not read the key"), "{finding}");
    std::fs::remove_dir(&key).unwrap();
    std::fs::write(&key, "short").unwrap();
    let (status, finding, _) = check(&doctor(&sandbox).output().expect_code(1), "state");
    assert!(status == "fail" && finding.contains("has no key for seals"), "{finding}");
    // Nothing can be created in /proc, whoever asks.
    let ran =
        sandbox.delta(["doctor", "-w", "/proc/sys", "--format", "json"]).output().expect_code(1);
    let (status, finding, _) = check(&ran, "workspace");
    assert_eq!(status, "fail", "{finding}");
    assert!(finding.contains("/proc/sys on "), "{finding}");
}

#[test]
fn c_11_10_without_home_no_path_is_empty() {
    let sandbox = Sandbox::new(DELTA);
    let ran = doctor(&sandbox).env("HOME", "").output().expect_code(0);
    let (_, finding, _) = check(&ran, "config");
    assert_eq!(finding, "HOME names no directory; the defaults hold");
    assert_eq!(check(&ran, "model").2, "export DELTA_MODEL=gpt-4o");
}

#[test]
fn c_11_10_a_run_creates_no_home() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.unverified("no key seals its run");
    let run = sandbox.run_command("hi", &[]).env("HOME", sandbox.path("none"));
    let ran = run.output().expect_code(0);
    assert!(ran.stderr.contains("which is not a directory"), "{}", ran.stderr);
    assert!(!sandbox.path("none").exists());
}

#[test]
fn c_11_10_a_machine_without_namespaces_gets_a_remedy() {
    let Some(sandbox) = Sandbox::new(DELTA).without_namespaces() else { return };
    let ran = doctor(&sandbox).output();
    let (status, finding, help) = check(&ran, "sandbox");
    assert_ne!(status, "ok", "{finding}");
    assert!(finding.contains("user namespaces are refused"), "{finding}");
    assert!(!help.is_empty());
    assert_eq!(ran.code == 1, status == "fail", "{}", ran.stdout);
}

#[test]
fn c_11_10_text_has_a_line_for_each_check_and_colours_at_a_terminal() {
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["doctor", "-w", "."]).output().expect_code(0);
    for (line, start) in ran.stdout.lines().zip(["ok    delta      ", ""]) {
        assert!(line.starts_with(start), "{}", ran.stdout);
    }
    assert!(ran.stdout.contains("\nwarn  model      none is chosen"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n                 help: export DELTA_MODEL="), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\n\n2 warnings\n"), "{}", ran.stdout);
    let shown = sandbox.delta(["doctor", "-w", "."]).wholly_at_terminal().end();
    assert_eq!(shown.code, 0);
    assert!(shown.stderr.contains("\u{1b}[32mok\u{1b}[0m    delta"), "{}", shown.stderr);
    assert!(shown.stderr.contains("100 columns, 40 lines, xterm-256color"), "{}", shown.stderr);
}

/// root may write everywhere, so this test is only for others.
#[test]
fn c_11_10_a_workspace_that_is_read_only_is_a_failure() {
    let sandbox = Sandbox::new(DELTA);
    fs::create_dir(sandbox.path("work")).unwrap();
    fs::set_permissions(sandbox.path("work"), fs::Permissions::from_mode(0o555)).unwrap();
    if rustix::process::geteuid().is_root() {
        needs::skip("needs another user than root");
        return;
    }
    let ran = doctor(&sandbox).output().expect_code(1);
    assert!(check(&ran, "workspace").1.ends_with("this user cannot create files there"));
}
