//! The official conformance suite, and servers of others. `.ci/run` installs them below target/.

use super::DELTA;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::effort::cases;
use test_support::needs;
use test_support::sandbox::Sandbox;

/// The path of this process with the suite's Node first.
fn path_with_node(modules: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", modules.join("node/bin").display())
}

#[test]
fn c_30_1_the_conformance_suite_accepts_the_client() {
    let Some(modules) = find_suite() else { return };
    // What the version added, with its eleven scenarios of OAuth.
    run_suite(&modules, &["--suite", "draft", "--spec-version", "2026-07-28"], 17);
    for (scenario, version) in
        [("tools_call", "2026-07-28"), ("initialize", "2025-11-25"), ("tools_call", "2025-11-25")]
    {
        run_suite(&modules, &["--scenario", scenario, "--spec-version", version], 1);
    }
}

/// The other scenarios of OAuth. Those that are left out are extensions: proofs of possession, and assertions of identity
/// providers, workloads and keys; and an issuer without metadata, as servers of March 2025 had it.
#[test]
fn c_36_21_the_conformance_suite_accepts_the_logins() {
    let Some(modules) = find_suite() else { return };
    for version in cases(&["2026-07-28"][..], &["2026-07-28", "2025-11-25"]) {
        run_suite(&modules, &["--suite", "auth", "--spec-version", version], 14);
    }
    run_suite(&modules, &["--scenario", "auth/client-credentials-basic"], 1);
    run_suite(&modules, &["--scenario", "auth/2025-03-26-oauth-metadata-backcompat"], 1);
}

fn find_suite() -> Option<PathBuf> {
    let modules = needs::fetched("mcp-suite/node_modules")?;
    needs::programs(&["python3"]).then_some(modules)
}

/// Runs scenarios of the suite with delta as the client. `count` of them pass, and none fails.
fn run_suite(modules: &Path, selection: &[&str], count: usize) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/conformance_client.py");
    let home = Sandbox::new(DELTA);
    let client = format!("python3 {} {DELTA}", script.display());
    let mut suite = Command::new(modules.join(".bin/conformance"));
    // The scenarios of a suite run at the same time.
    suite.args(["client", "--command", &client, "--timeout", "240000"]).args(selection);
    suite.env("PATH", path_with_node(modules)).env("HOME", home.path("home"));
    let output = suite.current_dir(home.path("home")).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = printed.matches("\n✓ ").count() + errors.matches("✅ OVERALL: PASSED").count();
    assert!(
        output.status.success() && passed == count,
        "{selection:?}: {passed} of {count}\n{printed}{errors}"
    );
}

#[test]
fn c_30_1_tools_of_real_servers_work() {
    let Some(modules) = needs::fetched("mcp-suite/node_modules") else { return };
    let module = |name: &str| {
        modules.join("@modelcontextprotocol").join(name).join("dist/index.js").display().to_string()
    };
    let sandbox = Sandbox::new(DELTA);
    let call = |arguments: &[&str], server: &str| {
        let more = ["--", "node", server];
        let arguments = ["mcp", "call"].iter().chain(arguments).chain(&more).copied();
        sandbox.delta(arguments).env("PATH", path_with_node(&modules)).output()
    };
    let everything = module("server-everything");
    let ran = call(&["echo", "--arg", "message=hello"], &everything);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "Echo: hello\n"), "{}", ran.stderr);
    let ran = call(&["get-sum", "--arg", "a=2", "--arg", "b=3"], &everything);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "The sum of 2 and 3 is 5.\n"),
        "{}",
        ran.stderr
    );
    let ran = call(&["get-tiny-image"], &everything);
    assert!(ran.stdout.contains("[image: image/png, 4033 bytes: "), "{}", ran.stdout);
    assert_eq!(call(&["no-such-tool"], &everything).code, 1);
    sandbox.write("work/notes.txt", "from a file\n");
    let notes = sandbox.path("work/notes.txt").display().to_string();
    let files = module("server-filesystem");
    let arguments = ["mcp", "call", "read_text_file", "--arg"];
    let path = format!("path={notes}");
    let more = [path.as_str(), "--", "node", &files, "work"];
    let ran = sandbox
        .delta(arguments.iter().chain(&more).copied())
        .env("PATH", path_with_node(&modules))
        .output();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "from a file\n"), "{}", ran.stderr);
}

#[test]
fn c_30_1_a_server_of_the_python_sdk_works() {
    let Some(bin) = needs::python_env("mcp-suite/py") else { return };
    let sandbox = Sandbox::new(DELTA);
    sandbox.write(
        "server.py",
        "from mcp.server.mcpserver import MCPServer\n\nserver = MCPServer('sums')\n\n\n@server.tool()\ndef add(a: int, b: int) -> int:\n    \"\"\"Adds.\"\"\"\n    return a + b\n\n\nserver.run()\n",
    );
    let python = bin.join("python").display().to_string();
    let ran = sandbox.delta(["mcp", "list", "--json", "--", &python, "server.py"]).output();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["era"], "modern");
    let arguments =
        ["mcp", "call", "add", "--arg", "a=2", "--arg", "b=3", "--", &python, "server.py"];
    let ran = sandbox.delta(arguments).output();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "5\n"), "{}", ran.stderr);
}
