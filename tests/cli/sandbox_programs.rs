//! Package managers as tools of whole runs: they reach a registry of a list of hosts, and nothing else.

use super::sandbox::{agent, expect_done};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use test_support::file_server::start_file_server;
use test_support::needs;
use test_support::sandbox::Sandbox;

/// Whether a command of the machine works.
fn works(command: &[&str]) -> bool {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        needs::skip(format!("needs `{}`", command.join(" ")));
    }
    works
}

/// Runs `script` in a sandbox that reaches `localhost` at `port`. It has to end with a refused name, `other.example`.
fn install(port: u16, script: &str) -> Option<Sandbox> {
    let setting = format!("sandbox: {{net: ['localhost:{port}']}}");
    let sandbox = agent(&setting, &[("sh", script)])?;
    expect_done(sandbox.run("go", &[]));
    let host = format!("localhost:{port}");
    let seen = &sandbox.observations()[0];
    let hint = format!("[sandbox: the network reaches {host}; refused: other.example (");
    assert!(seen.contains("installed\n") && seen.contains(&hint), "{seen}");
    let result = &sandbox.events("ACTION_RESULT")[0];
    assert!(result["sandbox"]["refused"]["other.example"].as_u64() >= Some(1), "{result}");
    let record = result["execution"].as_str().unwrap();
    let record: Value =
        serde_json::from_str(&sandbox.read(&format!("work/.delta/r/{record}"))).unwrap();
    let traffic = &record["sandbox"]["reached"][&host];
    assert!(traffic["connections"].as_u64() >= Some(1), "{record}");
    Some(sandbox)
}

#[test]
fn c_22_4_npm_is_a_tool_that_reaches_its_registry_alone() {
    if !works(&["npm", "--version"]) {
        return;
    }
    let registry = tempfile::tempdir().unwrap();
    let package = registry.path().join("package");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("package.json"), r#"{"name": "tiny", "version": "1.0.0"}"#).unwrap();
    let packed = ["tar", "czf", "tiny.tgz", "package"];
    let packed =
        Command::new(packed[0]).args(&packed[1..]).current_dir(registry.path()).status().unwrap();
    assert!(packed.success());
    let port = start_file_server(registry.path().to_owned());
    let address = format!("http://localhost:{port}");
    let document = format!(
        r#"{{"name": "tiny", "dist-tags": {{"latest": "1.0.0"}}, "versions": {{"1.0.0": {{"name": "tiny",
        "version": "1.0.0", "dist": {{"tarball": "{address}/tiny.tgz"}}}}}}}}"#
    );
    fs::write(registry.path().join("tiny"), document).unwrap();
    let npm = "npm install --no-audit --no-fund --update-notifier=false --fetch-retries=0";
    let script = format!(
        "{npm} --registry {address} tiny && test -e node_modules/tiny/package.json && test -d ~/.npm && \
         echo installed; {npm} --registry http://other.example/ large"
    );
    let Some(sandbox) = install(port, &script) else { return };
    assert!(sandbox.path("work/node_modules/tiny/package.json").exists());
    assert!(!sandbox.path("home/.npm").exists(), "its cache is in the copy");
}

#[test]
fn c_22_4_pip_is_a_tool_that_reaches_its_registry_alone() {
    if !works(&["python3", "-m", "pip", "--version"]) {
        return;
    }
    let registry = tempfile::tempdir().unwrap();
    let directory = registry.path().join("simple/tiny");
    fs::create_dir_all(&directory).unwrap();
    write_wheel(&directory.join("tiny-1.0-py3-none-any.whl"));
    let page = "<a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>";
    fs::write(directory.join("index.html"), page).unwrap();
    let port = start_file_server(registry.path().to_owned());
    let pip = "python3 -m pip install -q --disable-pip-version-check --retries 0 --target site";
    let script = format!(
        "{pip} --index-url http://localhost:{port}/simple tiny; \
         PYTHONPATH=site python3 -c 'import tiny; print(tiny.STATE)'; \
         {pip} --index-url https://other.example/simple large"
    );
    let Some(sandbox) = install(port, &script) else { return };
    assert!(sandbox.path("work/site/tiny.py").exists());
    assert!(!sandbox.path("home/.cache").exists(), "its cache is in the copy");
}

/// A package `tiny` whose module has a text.
fn write_wheel(path: &Path) {
    let script = format!(
        "import zipfile\nz = zipfile.ZipFile({path:?}, 'w')\n\
         z.writestr('tiny.py', 'STATE = \"installed\"')\n\
         z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
         z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         z.writestr('tiny-1.0.dist-info/RECORD', '')\nz.close()\n"
    );
    assert!(Command::new("python3").args(["-c", &script]).status().unwrap().success());
}
