//! The official conformance suite, and servers of others. `.ci/run` installs them below target/.

use super::DELTA;
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::Sandbox;

/// The path of this process with the suite's Node first.
fn path_with_node(modules: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", modules.join("node/bin").display())
}

#[test]
fn c_30_1_the_conformance_suite_accepts_the_client() {
    let Some(modules) = needs::fetched("mcp-suite/node_modules") else { return };
    if !needs::programs(&["python3"]) {
        return;
    }
    let scenarios = [
        ("tools_call", "2026-07-28"),
        ("request-metadata", "2026-07-28"),
        ("sep-2322-client-request-state", "2026-07-28"),
        ("http-standard-headers", "2026-07-28"),
        ("http-custom-headers", "2026-07-28"),
        ("http-invalid-tool-headers", "2026-07-28"),
        ("json-schema-ref-no-deref", "2026-07-28"),
        ("initialize", "2025-11-25"),
        ("tools_call", "2025-11-25"),
    ];
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/conformance_client.py");
    let home = Sandbox::new(DELTA);
    let mut failed = Vec::new();
    for (scenario, version) in scenarios {
        let mut suite = Command::new(modules.join(".bin/conformance"));
        let client = format!("python3 {} {DELTA}", script.display());
        suite.args([
            "client",
            "--command",
            &client,
            "--scenario",
            scenario,
            "--spec-version",
            version,
        ]);
        suite.env("PATH", path_with_node(&modules)).env("HOME", home.path("home"));
        let output = suite.current_dir(home.path("home")).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            failed.push(format!(
                "{scenario} {version}:\n{printed}{}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
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
