//! What `delta init` writes keeps the LLM out of `.git`, `.env`, `.delta` and the agent directory (C-11.4).

use crate::DELTA;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use test_support::sandbox::Sandbox;

/// What the protected files contain.
const SECRET: &str = "guarded=1\n";

/// Paths to files that a template protects, in `work/`, whose agent is `work/made`.
const GUARDED: [&str; 19] = [
    ".git/config",
    "./.git/config",
    ".git/../.git/config",
    "sub/../.git/config",
    ".git//hooks/../config",
    "sub/.git/config",
    "gitlink/config",
    "moved/config",
    "../work/.git/config",
    ".env",
    "sub/.env",
    "envlink",
    ".env/",
    "sub/./.env",
    ".delta/r/guarded",
    "made/agent.yaml",
    "sub/../made/tools/inside",
    "agentlink/agent.yaml",
    "sub/up/made/agent.yaml",
];

/// Paths to directories that a template protects.
const GUARDED_DIRECTORIES: [&str; 7] =
    [".git", ".git/.", "sub/.git", "gitlink", ".delta", "made", "agentlink/tools"];

/// A workspace with protected files, an agent of the template in it, and symlinks to both.
fn workspace(template: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    for file in [".git/config", "sub/.git/config", ".env", "sub/.env", ".delta/r/guarded"] {
        sandbox.write(&format!("work/{file}"), SECRET);
    }
    std::fs::create_dir(sandbox.path("work/.git/hooks")).unwrap();
    sandbox.delta(["init", "-t", template, "work/made"]).output().expect_code(0);
    for (target, link) in [
        (".git", "gitlink"),
        (".env", "envlink"),
        ("made", "agentlink"),
        ("..", "sub/up"),
        ("../../work/.git", "sub/.delta"),
    ] {
        symlink(target, sandbox.path("work").join(link)).unwrap();
    }
    // A `.git` can be a symlink to a directory of another name.
    sandbox.write("moved/moved/config", SECRET);
    symlink("moved", sandbox.path("moved/.git")).unwrap();
    symlink("../moved/moved", sandbox.path("work/moved")).unwrap();
    sandbox
}

/// Runs the calls, `{tool: ..., args: ...}` each, as run `attack`; returns the observations.
fn attack(sandbox: &Sandbox, agent: &str, work: &str, calls: &[serde_json::Value]) -> Vec<String> {
    let turns = json!({"turns": [{"call": calls}, {"say": "done"}]});
    sandbox.write("turns.yaml", turns.to_string());
    let model = format!("script:{}", sandbox.path("turns.yaml").display());
    let run = ["run", "--agent", agent, "-w", work, "--run-id", "attack", "-q", "-m", "go"];
    let options = ["--model", &model, "--max-calls-per-answer", "128"];
    sandbox.delta(run).args(options).output().expect_code(0);
    let journal = sandbox.read(&format!("{work}/.delta/attack/journal.jsonl"));
    let events = journal.lines().map(|line| serde_json::from_str(line).unwrap());
    let results = events.filter(|event: &serde_json::Value| event["type"] == "ACTION_RESULT");
    results.map(|event| event["observation_content"].as_str().unwrap().to_owned()).collect()
}

/// All files with their contents, except what delta itself writes.
fn content(sandbox: &Sandbox) -> BTreeMap<String, Vec<u8>> {
    let own = [
        "turns.yaml",
        "home/",
        "work/.delta/.gitignore",
        "work/.delta/VERSION",
        "work/.delta/attack/",
    ];
    let files = sandbox.files("").into_iter();
    let files = files.filter(|file| !own.iter().any(|own| file.starts_with(own)));
    files
        .map(|file| (file.clone(), std::fs::read(sandbox.path(&file)).unwrap_or_default()))
        .collect()
}

/// Runs the calls, each of which a template must refuse.
#[track_caller]
fn all_refused(sandbox: &Sandbox, calls: &[serde_json::Value]) {
    let before = content(sandbox);
    for calls in calls.chunks(100) {
        let observations = attack(sandbox, "work/made", "work", calls);
        assert_eq!(observations.len(), calls.len());
        for (call, observation) in calls.iter().zip(observations) {
            assert!(observation.starts_with("[stderr]\n"), "{call}: {observation}");
            assert!(observation.ends_with("[exit code: 1]"), "{call}: {observation}");
        }
        std::fs::remove_dir_all(sandbox.path("work/.delta/attack")).unwrap();
    }
    let after = content(sandbox);
    let changed: Vec<_> =
        after.iter().filter(|(file, text)| before.get(*file) != Some(text)).collect();
    assert!(changed.is_empty() && after.len() == before.len(), "{changed:?}");
}

fn all_paths() -> impl Iterator<Item = &'static str> {
    GUARDED.into_iter().chain(GUARDED_DIRECTORIES)
}

#[test]
fn c_11_4_file_ops_keeps_out_of_git_env_delta_and_the_agent() {
    let sandbox = workspace("file-ops");
    let mut calls = Vec::new();
    for path in all_paths() {
        calls.push(json!({"tool": "read_file", "args": {"path": path}}));
        calls.push(json!({"tool": "write_file", "args": {"path": path, "content": "x"}}));
        calls.push(json!({"tool": "list_files", "args": {"dir": path}}));
        calls.push(json!({"tool": "search", "args": {"text": "=", "dir": path}}));
    }
    for path in
        [".git/hooks/post-checkout", "new/.git/config", "new/.env", "made/tools/new", ".env/x"]
    {
        calls.push(json!({"tool": "write_file", "args": {"path": path, "content": "x"}}));
    }
    let absolute = sandbox.path("work/.git/config").display().to_string();
    calls.push(json!({"tool": "read_file", "args": {"path": absolute}}));
    all_refused(&sandbox, &calls);
}

#[test]
fn c_11_4_file_ops_searches_only_what_it_may_read() {
    let sandbox = workspace("file-ops");
    sandbox.write("work/sub/notes.md", "guarded=2\n");
    sandbox.write("work/(", "guarded=3\n");
    let search = |dir: &str| json!({"tool": "search", "args": {"text": "guarded", "dir": dir}});
    let seen = attack(&sandbox, "work/made", "work", &[search("."), search("sub"), search("(")]);
    let mut lines: Vec<&str> = seen[0].lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["./(:1:guarded=3", "./sub/notes.md:1:guarded=2"]);
    assert_eq!(seen[1..], ["./sub/notes.md:1:guarded=2\n", "./(:1:guarded=3\n"]);
    // The directory that `.git` is a symlink to.
    sandbox.write("moved/notes.md", "guarded=4\n");
    let read = json!({"tool": "read_file", "args": {"path": "moved/config"}});
    let seen = attack(&sandbox, "work/made", "moved", &[search("."), read]);
    assert_eq!(seen[0], "./notes.md:1:guarded=4\n");
    assert!(seen[1].ends_with("[exit code: 1]"), "{}", seen[1]);
}

#[test]
fn c_11_4_coding_keeps_out_of_git_env_delta_and_the_agent() {
    let sandbox = workspace("coding");
    let mut calls = Vec::new();
    for path in all_paths() {
        calls.push(json!({"tool": "read", "args": {"path": path}}));
        calls.push(json!({"tool": "write", "args": {"path": path, "content": "x"}}));
        calls.push(json!({"tool": "edit", "args": {"path": path, "old": "1", "new": "2"}}));
        calls.push(json!({"tool": "list", "args": {"dir": path}}));
        calls.push(json!({"tool": "search", "args": {"pattern": "=", "path": path}}));
    }
    for path in
        [".git/hooks/post-checkout", "new/.git/config", "new/.env", "made/tools/new", ".env/x"]
    {
        calls.push(json!({"tool": "write", "args": {"path": path, "content": "x"}}));
    }
    all_refused(&sandbox, &calls);
}

#[test]
fn c_11_4_coding_shows_only_what_it_may_read() {
    let sandbox = workspace("coding");
    sandbox.write("work/sub/notes.md", "guarded=2\n");
    sandbox.write("work/(", "guarded=3\n");
    let search =
        |path: &str| json!({"tool": "search", "args": {"pattern": "guarded", "path": path}});
    let list = |dir: &str| json!({"tool": "list", "args": {"dir": dir, "depth": 9}});
    let calls = [search("."), search("sub"), search("("), list("."), list("sub")];
    let seen = attack(&sandbox, "work/made", "work", &calls);
    assert_eq!(
        seen,
        [
            "(:1:guarded=3\nsub/notes.md:1:guarded=2\n",
            "sub/notes.md:1:guarded=2\n",
            "(:1:guarded=3\n",
            "(\nagentlink\nenvlink\ngitlink\nmoved\nsub/notes.md\nsub/up\n",
            "sub/notes.md\nsub/up\n",
        ]
    );
    // The directory that `.git` is a symlink to.
    sandbox.write("moved/notes.md", "guarded=4\n");
    let seen = attack(&sandbox, "work/made", "moved", &[search("."), list(".")]);
    assert_eq!(seen, ["notes.md:1:guarded=4\n", "notes.md\n"]);
}

#[test]
fn c_11_4_hello_world_keeps_out_of_git_env_delta_and_the_agent() {
    let sandbox = workspace("hello-world");
    let calls: Vec<_> = all_paths()
        .flat_map(|path| {
            let save = json!({"tool": "save", "args": {"file": path, "text": "x"}});
            [save, json!({"tool": "count_words", "args": {"file": path}})]
        })
        .collect();
    all_refused(&sandbox, &calls);
}

#[test]
fn c_11_4_minimal_keeps_out_of_git_env_delta_and_the_agent() {
    let sandbox = workspace("minimal");
    let calls: Vec<_> =
        all_paths().map(|path| json!({"tool": "list_files", "args": {"dir": path}})).collect();
    all_refused(&sandbox, &calls);
}

#[test]
fn c_11_4_api_tester_writes_no_report_through_a_symlink() {
    for target in [".env", ".git/config", "made/agent.yaml", "../secret", "sub/.env"] {
        let sandbox = workspace("api-tester");
        sandbox.write("secret", SECRET);
        symlink(target, sandbox.path("work/report.md")).unwrap();
        all_refused(&sandbox, &[json!({"tool": "save_report", "args": {"text": "x"}})]);
    }
}

/// A workspace in the agent directory is usual, and the agent directory as its own workspace is not.
#[test]
fn c_11_4_the_agent_directory_is_no_workspace() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.delta(["init", "-t", "file-ops", "made"]).output().expect_code(0);
    let write = |path: &str| json!({"tool": "write_file", "args": {"path": path, "content": "x"}});
    let calls = [write("agent.yaml"), write("tools/inside"), write("new")];
    for observation in attack(&sandbox, "made", "made", &calls) {
        assert!(
            observation.contains("the workspace is the directory of this agent"),
            "{observation}"
        );
    }
    let calls = [write("new"), write("../../agent.yaml"), write("../W002/new")];
    let seen = attack(&sandbox, "made", "made/workspaces/W001", &calls);
    assert_eq!(seen[0], "wrote 1 bytes\n");
    assert!(seen[1..].iter().all(|seen| seen.contains("is not in the workspace")), "{seen:?}");
}
