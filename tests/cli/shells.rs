//! What shells and manuals are told: `delta completions`, asked by real shells, and `delta man`, as groff shows it; and the
//! same of the other programs.

use super::DELTA;
use std::process::Command;
use std::sync::LazyLock;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

/// The program for sessions, which another package builds, under its two names.
static SESSIONS: LazyLock<String> = LazyLock::new(|| test_support::sibling("delta-sessions"));
static PTY: LazyLock<String> = LazyLock::new(test_support::pty_link);

/// Agents `agent` and `my-agent`, the first with a workspace; runs in that and in `my work/`.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, "", "  - say: done");
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    for (workspace, id) in [("my work", "first"), ("agent/workspaces/W001", "third")] {
        sandbox
            .delta(["run", "--agent", "agent", "-w", workspace, "--run-id", id, "-q", "-m", "a: b"])
            .output()
            .expect_code(0);
    }
    sandbox
}

/// A shell with `script`, in the sandbox, with delta on its PATH.
fn shell(sandbox: &Sandbox, program: &str, args: &[&str]) -> Ran {
    let path = std::env::var("PATH").unwrap();
    let output = Command::new(program)
        .args(args)
        .current_dir(sandbox.path(""))
        .env_clear()
        .env("PATH", format!("{}:{path}", sandbox.path("bin").display()))
        .env("HOME", sandbox.path("home"))
        .output()
        .unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

/// What bash offers for the last of these words, which are given as they are typed.
fn offered(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    offered_for(sandbox, "delta", words)
}

/// The same for a program that is not delta.
fn offered_for(sandbox: &Sandbox, program: &str, words: &[&str]) -> Vec<String> {
    let script = r#"
        source <("$1" completions bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        function=$(complete -p "$1" | sed "s/.* -F \([a-z_]*\) $1/\1/")
        "$function" "$1" "${@: -1}" "${@: -2:1}" 2> /dev/null  # compopt works at a prompt only
        printf '%s\n' "${COMPREPLY[@]}""#;
    let ran = shell(sandbox, "bash", &[&["-c", script, "bash", program], words].concat());
    ran.expect_code(0).stdout.lines().map(str::to_owned).collect()
}

/// A sandbox with `delta-sessions` on its PATH, and sessions in it: one of bash, one of `cat -n`, and one that was ended.
fn with_sessions() -> (Sandbox, [String; 2]) {
    let sandbox = Sandbox::new(&SESSIONS);
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(&*SESSIONS, sandbox.path("bin/delta-sessions")).unwrap();
    let start = |command: &str| {
        let started = sandbox.delta(["start", command]).output().expect_code(0).json();
        started["session_id"].as_str().unwrap().to_owned()
    };
    let (ended, active) = (start("bash"), [start("bash"), start("cat -n")]);
    sandbox.delta(["end", &ended]).output().expect_code(0);
    (sandbox, active)
}

#[test]
fn c_11_6_bash_completes_what_delta_knows() {
    let sandbox = sandbox();
    let offered = |words: &[&str]| offered(&sandbox, words);
    assert_eq!(offered(&["co"]), ["continue", "context", "config", "completions"]);
    assert_eq!(offered(&["run", "--ag"]), ["--agent"]);
    assert_eq!(offered(&["run", "--format", ""]), ["text", "json", "raw", "jsonl"]);
    assert_eq!(
        offered(&["init", "-t", ""]),
        ["minimal", "hello-world", "file-ops", "api-tester", "coding"]
    );
    assert_eq!(offered(&["tool", "expand", "agent/a"]), ["agent/agent.yaml"]);
    assert_eq!(offered(&["t"]), ["tell", "test", "tool", "trust"]);
    assert_eq!(offered(&["sw"]), ["sweep"]);
    assert_eq!(offered(&["sweep", "p"]), ["plan", "pack"]);
    assert_eq!(offered(&["--lease", "turns", "sweep", "plan", "--di"]), ["--dir"]);
    assert_eq!(offered(&["man", "sweep", "l"]), ["list"]);
    assert_eq!(offered(&["help", "sweep", "l"]), ["list"]);
    assert_eq!(offered(&["man", "co"]), ["continue", "context", "config", "completions"]);
    assert_eq!(offered(&["man", "tool", ""]), ["expand", "lint", "migrate", "--all", "--help"]);
    assert_eq!(offered(&["continue", "-w", "my\\ work", "f"]), ["first"]);
}

#[test]
fn c_11_6_bash_completes_runs_workspaces_and_agents() {
    let sandbox = sandbox();
    let offered = |words: &[&str]| offered(&sandbox, words);
    for typed in ["my\\ work", "'my work'", "\"my work\""] {
        assert_eq!(offered(&["continue", "-w", typed, "--run-id", ""]), ["last", "first"]);
        assert_eq!(offered(&["context", "show", "-w", typed, "f"]), ["first"]);
        assert_eq!(offered(&["show", "--work-dir", typed, "fi"]), ["first"]);
    }
    // bash makes three words of `--option=value`, and what it inserts has to be quoted, unless a quote is open.
    assert_eq!(offered(&["show", "--work-dir", "=", "'my work'", "fi"]), ["first"]);
    assert_eq!(offered(&["continue", "-w", "my\\ work", "--run-id", "=", "f"]), ["first"]);
    assert_eq!(offered(&["continue", "-w", "my\\ work", "--run-id", "="]), ["last", "first"]);
    assert_eq!(offered(&["show", "-w", "my"]), ["my\\ work/"]);
    assert_eq!(offered(&["show", "-w", "\"my"]), ["my work/"]);
    sandbox.write("[s-z]*/x", "");
    assert_eq!(offered(&["show", "--work-dir", "=", "[s"]), ["\\[s-z\\]\\*/"]);
    assert_eq!(offered(&["show", "-w", "agent/workspaces/W001", "t"]), ["third"]);
    assert_eq!(offered(&["show", "-w", "agent/workspaces/W001", "f"]), [""; 1]);
    assert_eq!(offered(&["continue", "-w", "nowhere", "--run-id", ""]), [""; 1]);
    assert_eq!(
        offered(&["run", "--agent", "agent", "-w", "agent/w"]),
        ["agent/workspaces/W001", "agent/workspaces/"]
    );
    assert_eq!(offered(&["run", "--agent", ""])[0], "agent/");
    assert_eq!(offered(&["run", "--agent", "ho"]), ["home/"]);
    sandbox.write("home/.local/share/delta/agents/honest/agent.yaml", "");
    assert_eq!(offered(&["run", "--agent", "ho"]), ["honest", "home/"]);
}

#[test]
fn c_11_6_zsh_completes() {
    if !needs::programs(&["zsh"]) {
        return;
    }
    let script = r#"
        autoload -Uz compinit && compinit -u -d dump
        source <(delta completions zsh)
        _describe() { print -rl -- "${(P@)3}" }
        words=(delta continue -w 'my work' --run-id '') CURRENT=6
        $_comps[delta]"#;
    let sandbox = sandbox();
    let ran = shell(&sandbox, "zsh", &["-f", "-c", script]).expect_code(0);
    assert_eq!(
        (&*ran.stdout, &*ran.stderr),
        ("last:first COMPLETED a: b\nfirst:COMPLETED a: b\n", "")
    );
}

#[test]
fn c_11_6_fish_completes() {
    if !needs::programs(&["fish"]) {
        return;
    }
    let script = r#"
        delta completions fish | source
        complete -C "delta continue -w 'my work' --run-id "
        complete -C "delta run --agent a""#;
    let sandbox = sandbox();
    let ran = shell(&sandbox, "fish", &["--no-config", "-c", script]).expect_code(0);
    assert_eq!(
        (&*ran.stdout, &*ran.stderr),
        ("last\tfirst COMPLETED a: b\nfirst\tCOMPLETED a: b\nagent/\tagent\n", "")
    );
}

#[test]
fn c_11_6_sessions_are_completed() {
    let (sandbox, [first, last]) = with_sessions();
    let offered = |words: &[&str]| offered_for(&sandbox, "delta-sessions", words);
    assert_eq!(offered(&["e"]), ["exec", "end"]);
    for command in ["exec", "end"] {
        assert_eq!(offered(&[command, "s"]), [&*last, &*first]);
    }
    assert_eq!(offered(&["exec", &first, "--t"]), ["--timeout"]);
    assert_eq!(offered(&["completions", "z"]), ["zsh"]);
    assert_eq!(offered(&["man", "cl"]), ["cleanup"]);
}

#[test]
fn c_11_6_sessions_at_a_terminal_are_completed() {
    let sandbox = Sandbox::new(&PTY);
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(&*PTY, sandbox.path("bin/delta-sessions-pty")).unwrap();
    let started = sandbox.delta(["start", "cat"]).output().expect_code(0).json();
    let id = started["session_id"].as_str().unwrap();
    let offered = |words: &[&str]| offered_for(&sandbox, "delta-sessions-pty", words);
    assert_eq!(offered(&["write"]), ["write", "write-key"]);
    assert_eq!(offered(&["status", "s"]), [id]);
    assert_eq!(offered(&["read", id, "--s"]), ["--screen"]);
    sandbox.delta(["end", id]).output().expect_code(0);
    assert_eq!(offered(&["status", "s"]), [""]);
}

#[test]
fn c_11_6_zsh_and_fish_complete_sessions() {
    let (sandbox, [first, last]) = with_sessions();
    let zsh = r#"
        autoload -Uz compinit && compinit -u -d dump
        source <(delta-sessions completions zsh)
        _describe() { print -rl -- "${(P@)3}" }
        words=(delta-sessions end '') CURRENT=3
        $_comps[delta-sessions]"#;
    if needs::programs_for_part(&["zsh"]) {
        let ran = shell(&sandbox, "zsh", &["-f", "-c", zsh]).expect_code(0);
        let offered: Vec<&str> = ran.stdout.lines().take(2).collect();
        assert_eq!(offered, [format!("{last}:cat -n"), format!("{first}:bash")]);
    }
    let fish = r#"
        delta-sessions completions fish | source
        complete -C "delta-sessions exec s""#;
    if needs::programs_for_part(&["fish"]) {
        let ran = shell(&sandbox, "fish", &["--no-config", "-c", fish]).expect_code(0);
        assert_eq!(ran.stdout, format!("{last}\tcat -n\n{first}\tbash\n"));
    }
}

#[test]
fn c_11_6_an_unknown_shell_is_a_usage_error() {
    for program in [DELTA, &SESSIONS, &PTY] {
        let sandbox = Sandbox::new(program);
        let ran = sandbox.delta(["completions", "tcsh"]).output().expect_code(2);
        assert!(ran.stderr.contains("[possible values: bash, zsh, fish]"), "{}", ran.stderr);
        let ran = sandbox.delta(["completions"]).output().expect_code(2);
        assert_eq!(ran.stdout, "");
    }
}

/// A manual page as a terminal of 80 columns shows it, without warnings.
fn page(sandbox: &Sandbox, command: &[&str]) -> String {
    let roff = sandbox.delta([&["man"], command].concat()).output().expect_code(0);
    assert_eq!(roff.stderr, "");
    sandbox.write("page.1", &roff.stdout);
    let args = ["-man", "-Tascii", "-ww", "-P-cbou", "page.1"];
    let ran = shell(sandbox, "groff", &args).expect_code(0);
    assert_eq!(ran.stderr, "", "{command:?}");
    ran.stdout
}

#[test]
fn c_11_7_every_command_has_a_manual_page() {
    if !needs::programs(&["groff"]) {
        return;
    }
    let sandbox = Sandbox::new(DELTA);
    let root = page(&sandbox, &[]);
    for shown in ["DELTA(1)", "\n       delta-run(1)\n", "\nEXIT CODES\n", "\nSEE ALSO\n"] {
        assert!(root.contains(shown), "{shown:?} is not in:\n{root}");
    }
    assert!(
        root.contains("\n         delta run --agent ./my-agent \"Summarise the logs\"\n"),
        "{root}"
    );
    let listed =
        root.lines().filter_map(|line| line.trim().strip_prefix("delta-")?.strip_suffix("(1)"));
    let names: Vec<&str> = listed.filter(|name| !name.contains('(')).collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let text = page(&sandbox, &[name]);
        assert!(text.starts_with(&format!("DELTA-{}(1)", name.to_uppercase())), "{text}");
    }
    let run = page(&sandbox, &["run"]);
    assert!(run.contains("\nSYNOPSIS\n       delta run [OPTIONS] [TEXT]\n"), "{run}");
    for shown in ["\nOPTIONS\n", "--max-iterations <N>\n", "\nEXIT CODES\n"] {
        assert!(run.contains(shown), "{shown:?} is not in:\n{run}");
    }
    let expand = page(&sandbox, &["tool", "expand"]);
    assert!(expand.contains("\n       delta tool expand <FILE>\n"), "{expand}");
    assert!(
        expand.contains("\nEXAMPLE\n         delta tool expand my-agent/agent.yaml | less\n"),
        "{expand}"
    );
}

#[test]
fn c_11_7_every_command_of_sessions_has_a_manual_page() {
    if !needs::programs(&["groff"]) {
        return;
    }
    let sandbox = Sandbox::new(&SESSIONS);
    let root = page(&sandbox, &[]);
    for shown in ["DELTA-SESSIONS(1)", "\n       delta-sessions-exec(1)\n", "\nEXIT CODES\n"] {
        assert!(root.contains(shown), "{shown:?} is not in:\n{root}");
    }
    for name in ["start", "exec", "end", "list", "cleanup", "completions", "man"] {
        let text = page(&sandbox, &[name]);
        assert!(text.starts_with(&format!("DELTA-SESSIONS-{}(1)", name.to_uppercase())), "{text}");
        assert!(text.contains("delta-sessions(1)"), "{text}");
    }
}

#[test]
fn c_11_7_every_command_of_sessions_at_a_terminal_has_a_manual_page() {
    if !needs::programs(&["groff"]) {
        return;
    }
    let sandbox = Sandbox::new(&PTY);
    let root = page(&sandbox, &[]);
    assert!(root.contains("\n       delta-sessions-pty-write-key(1)\n"), "{root}");
    // Only delta-sessions-pty itself starts it.
    assert!(!root.contains("holder"), "{root}");
    for name in ["start", "write", "write-key", "read", "resize", "attach", "status", "cleanup"] {
        let text = page(&sandbox, &[name]);
        let title = format!("DELTA-SESSIONS-PTY-{}(1)", name.to_uppercase());
        assert!(text.starts_with(&title), "{text}");
    }
}

#[test]
fn c_11_7_all_pages_are_written_to_a_directory() {
    let sandbox = Sandbox::new(DELTA);
    let dir = "home/.local/share/man/man1";
    let write = || sandbox.delta(["man", "--all", dir]).output().expect_code(0);
    let ran = write();
    let files = sandbox.files(dir);
    let path = sandbox.path("home/.local/share/man").display().to_string();
    let note = format!("Note: if `man` does not find them: export MANPATH={path}:\"$MANPATH\"\n");
    assert_eq!(ran.stderr, format!("Wrote {} pages to {dir}\n{note}", files.len()));
    let elsewhere = sandbox.delta(["man", "--all", "pages"]).output().expect_code(0).stderr;
    let note = "Note: `man` finds pages in directories with the name man1 only\n";
    assert!(elsewhere.ends_with(note), "{elsewhere}");
    assert!(files.len() > 25 && !files.iter().any(|file| file.contains("help")), "{files:?}");
    for name in ["delta", "delta-run", "delta-tool-lint", "delta-rm", "delta-sweep-plan"] {
        let words: Vec<&str> = name.split('-').skip(1).collect();
        let page = sandbox.delta(["man"].iter().chain(&words).copied()).output().stdout;
        assert_eq!(sandbox.read(&format!("{dir}/{name}.1")), page, "{name}");
    }
    // A newer version replaces them.
    sandbox.write(&format!("{dir}/delta.1"), "older");
    write();
    assert_ne!(sandbox.read(&format!("{dir}/delta.1")), "older");
    sandbox.delta(["man", "run", "--all", dir]).output().expect_code(2);
    sandbox.write("file", "");
    let refused = sandbox.delta(["man", "--all", "file/x"]).output().expect_code(1).stderr;
    assert!(refused.starts_with("error: could not create the directory file/x: "), "{refused}");
    if needs::programs_for_part(&["man"]) {
        let manual = |command: &mut Command| {
            let output = command.output().unwrap();
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(shown.contains("Remove runs"), "{shown}");
        };
        manual(Command::new("man").args(["-M", &path, "delta-rm"]));
        manual(Command::new("man").arg("delta-rm").env("MANPATH", format!("{path}:")));
    }
}

#[test]
fn c_11_6_completions_are_installed_where_the_shell_looks() {
    let sandbox = sandbox();
    let install =
        |more: &[&str]| sandbox.delta(["completions", "--install"].iter().chain(more).copied());
    let ran = install(&["bash"]).output().normal(&sandbox);
    let note = "Note: bash loads it with the package bash-completion, in new shells\n";
    ran.expect(0, "DIR/home/.local/share/bash-completion/completions/delta\n", note);
    let script = sandbox.delta(["completions", "bash"]).output().stdout;
    let file = "home/.local/share/bash-completion/completions/delta";
    assert_eq!(sandbox.read(file), script);
    sandbox.write(file, "older");
    install(&[]).env("SHELL", "/bin/bash").output().expect_code(0);
    assert_eq!(sandbox.read(file), script);
    let data = sandbox.path("data");
    let ran = install(&["zsh"]).env("XDG_DATA_HOME", &data).output().normal(&sandbox);
    let note = "Note: zsh loads it if ~/.zshrc has this line before compinit: fpath=(DIR/data/zsh/site-functions $fpath)\n";
    ran.expect(0, "DIR/data/zsh/site-functions/_delta\n", note);
    let printed = sandbox.delta(["completions", "zsh"]).output().stdout;
    assert_eq!(sandbox.read("data/zsh/site-functions/_delta"), printed);
    install(&["fish"]).output().normal(&sandbox).expect(
        0,
        "DIR/home/.config/fish/completions/delta.fish\n",
        "",
    );
    for shell in ["/bin/tcsh", ""] {
        let refused = install(&[]).env("SHELL", shell).output().expect_code(2).stderr;
        assert!(
            refused.ends_with("help: name the shell: `delta completions bash --install`\n"),
            "{refused}"
        );
    }
    sandbox.delta(["completions"]).output().expect_code(2);
    if needs::programs_for_part(&["zsh"]) {
        // The first completion loads the file and answers.
        let script = r#"
            fpath=(data/zsh/site-functions $fpath)
            autoload -Uz compinit && compinit -u -d dump
            _describe() { print -rl -- "${(P@)3}" }
            words=(delta continue -w 'my work' --run-id '') CURRENT=6
            $_comps[delta]"#;
        let ran = shell(&sandbox, "zsh", &["-f", "-c", script]).expect_code(0);
        assert_eq!(ran.stdout, "last:first COMPLETED a: b\nfirst:COMPLETED a: b\n");
    }
    if needs::programs_for_part(&["fish"]) {
        let script = "complete -C \"delta continue -w 'my work' --run-id \"";
        let ran = shell(&sandbox, "fish", &["-c", script]).expect_code(0);
        assert_eq!(ran.stdout, "last\tfirst COMPLETED a: b\nfirst\tCOMPLETED a: b\n");
    }
}

#[test]
fn c_11_7_a_page_that_is_not_there_is_a_usage_error() {
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["man", "tool", "nope"]).output().expect_code(2);
    let error =
        "error: there is no command `tool nope`\n\nUsage: delta man [OPTIONS] [COMMAND]...\n";
    assert!(ran.stderr.starts_with(error), "{}", ran.stderr);
    let sandbox = Sandbox::new(&SESSIONS);
    let ran = sandbox.delta(["man", "nope"]).output().expect_code(2);
    let error =
        "error: there is no command `nope`\n\nUsage: delta-sessions man [OPTIONS] [COMMAND]...\n";
    assert!(ran.stderr.starts_with(error), "{}", ran.stderr);
}
