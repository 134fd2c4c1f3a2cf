//! Which commands of the coding agent start without a question.

use super::{coding, commit_all, run_calls};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// Which commands start without a question. `--approve-all` approves the others, and the journal says who did.
#[test]
fn c_25_3_only_plain_commands_that_look_start_unasked() {
    let sandbox = coding();
    sandbox.write("work/src/a.c", "int x;\n");
    sandbox.write("work/.env", "KEY=secret\n");
    commit_all(&sandbox);
    let harmless = [
        "pwd",
        "ls",
        "ls -la -R",
        "git status",
        "git status --short -b",
        "git diff",
        "git diff --stat HEAD -- src/a.c",
        "git diff HEAD~1..HEAD",
        "git diff main...main -- src",
        "git diff -U5 -- src/a.c",
        "git diff --cached",
        "git log --oneline -5 --graph main",
        "git log -n 5 -p src/a.c",
        "git show HEAD:src/a.c",
        "git show HEAD^",
        "git blame -L 1,2 src/a.c",
        "git branch -a",
        "git branch --show-current",
        "git rev-parse --abbrev-ref HEAD",
        "git ls-files src",
        "git log main..HEAD -- .",
        "git log -10 -- \"src/a.c\"",
        "git log 'main'",
        " git  status ",
    ];
    let asked = [
        // Other programs, and options of git that write, run or read something else.
        "touch PWNED",
        "git -c core.pager=touch log",
        "git -c alias.log=!touch log",
        "git --exec-path=src log",
        "git -C src status",
        "git --git-dir=src status",
        "git log --output=PWNED",
        "git diff --output PWNED",
        "git diff --outp=PWNED",
        "git diff --ext-diff",
        "git diff --textconv",
        "git diff -OPWNED",
        "git diff -O PWNED",
        "git show --show-signature",
        "git blame --contents PWNED src/a.c",
        "git blame -S PWNED src/a.c",
        "git grep -Otouch x",
        "git branch new",
        "git branch -D main",
        "git branch -a new",
        "git tag new",
        "git stash",
        "git stash list -p",
        "git reflog delete HEAD@",
        "git status --ignore-submodules=x",
        "git config --list",
        "ls --color=auto",
        "ls --hyperlink",
        "find . -name x -exec touch PWNED",
        "env touch PWNED",
        "date -s now",
        "uname -a PWNED",
        // Outside of a repository, two paths are two files.
        "git diff src/a.c src/b.c",
        "git diff -- src/a.c src/b.c",
        "git diff --stat src/a.c src/b.c",
        "git diff --no-index src/a.c",
        "ls src",
        // What got past the lists of other agents.
        "git -p status",
        "git --paginate log",
        "git log --format=%G?",
        "git log --pretty=%G?",
        "git difftool -y -x touch",
        "git diff-index --output=PWNED HEAD",
        "git show --output PWNED",
        "git config --get-urlmatch a b",
        "git help -m git",
        "git archive --remote=. HEAD",
        "git ls-remote --upload-pack=touch .",
        "git rev-parse --parseopt",
        "git branch --edit-description",
        "git branch --format=x",
        "git tag -l --sort=x",
        "git stash list --output=PWNED",
        "git log --exec-path",
        "git status --no-optional-locks=x",
        "GIT_PAGER=touch git log",
        "GIT_EXTERNAL_DIFF=touch git diff",
        "GIT_DIR=src git status",
        "PATH=. ls",
        "LS_COLORS=x ls",
        "cd src && git status",
        "sort -o PWNED src/a.c",
        "sort --compress-program=touch src/a.c",
        "sed -i s/x/y/ src/a.c",
        "sed w\\ PWNED src/a.c",
        "sed 1e src/a.c",
        "rg --pre touch x",
        "rg --hostname-bin touch x",
        "man -P touch ls",
        "man --html=touch ls",
        "less src/a.c",
        "xargs touch",
        "xargs -a src/a.c touch",
        "env -S touch",
        "date -f .env",
        "date --file=src/a.c",
        "date -r src/a.c",
        "tree -o PWNED",
        "file -C -m src/a.c",
        "file -f src/a.c",
        "awk 1 src/a.c",
        "find src -delete",
        "find src -fprintf PWNED x",
        "tail -f src/a.c",
        "wc --files0-from=.env",
        "cat src/a.c",
        "echo x",
        "printf -v x y",
        "test -v x",
        "true",
        "uniq src/a.c PWNED",
        "tee PWNED",
        "hostname x",
        "uname -a -a PWNED",
        "command git status",
        "builtin pwd",
        "exec pwd",
        "eval pwd",
        "time pwd",
        "nice pwd",
        "busybox ls",
        "alias ls=touch",
        "export PATH",
        "ls --",
        "pwd -P",
        "history -s x",
        // What a shell reads as more than words.
        "git status; touch PWNED",
        "git status && touch PWNED",
        "git status || touch PWNED",
        "git status | touch PWNED",
        "git status & touch PWNED",
        "git status\ntouch PWNED",
        "git status\r\ntouch PWNED",
        "pwd\n",
        "git log $(touch PWNED)",
        "git log `touch PWNED`",
        "git log <(touch PWNED)",
        "git log > PWNED",
        "git log >PWNED",
        "git log 2>&1",
        "git log ${x}",
        "git log $x",
        "git log \\a",
        "git log src/*",
        "git log src/?.c",
        "git log [a-z]",
        "git log {a,--output=PWNED}",
        "git log #",
        "git log !!",
        "git log a\ttouch",
        "git log a\u{a0}b",
        "git log \u{200b}",
        "git log 'a\u{202e}b'",
        "git log a\\\ntouch",
        "git log 'a\n'",
        "git log $'a'",
        "git log $\"a\"",
        "git log \"$x\"",
        "git log \"`touch PWNED`\"",
        "git log \"a\\\"b",
        "git log 'a",
        "git log 'a;touch PWNED'",
        "git log '$(touch PWNED)'",
        "git log '-x'",
        "git log --\"output=PWNED\"",
        "git log '--output=PWNED'",
        "git 'log' --output=PWNED",
        "'git' log",
        "\"git log\"",
        "git log &",
        "git log |& touch PWNED",
        "git log <<< a",
        "git log << a",
        "! git log",
        "( git log )",
        "{ git log; }",
        "if git log",
        "git log () touch",
        "function git log",
        "git log a=~root",
        "git log ~+",
        "git log {1..3}",
        "git log +(a)",
        "x=1 git log",
        "ls x=~root",
        "GIT status",
        // Paths to what the other tools do not show.
        "ls /etc",
        "ls ~",
        "ls ~root",
        "ls ..",
        "ls src/..",
        "ls src/../..",
        "ls .git",
        "ls src/.env",
        "git diff /etc/passwd src/a.c",
        "git diff ../x src/a.c",
        "git show HEAD:.env",
        "git show HEAD:../x",
        "git show HEAD:'.env'",
        "git show HEAD:/x",
        "git log src/.env",
        "git log -L :x:.env",
        "git diff src/../.env",
        "git diff .env src/a.c",
        "./ls",
        "src/a.c",
        "/bin/ls",
        "",
    ];
    let calls: Vec<_> = harmless
        .iter()
        .chain(&asked)
        .map(|command| ("run", json!({"command": command, "timeout": 20})))
        .collect();
    let answers: Vec<&[(&str, Value)]> = calls.chunks(50).collect();
    run_calls(&sandbox, &answers);
    let requests = sandbox.events("ACTION_REQUEST");
    assert_eq!(requests.len(), calls.len());
    for (index, request) in requests.iter().enumerate() {
        let by = if index < harmless.len() { "rule" } else { "flag" };
        assert_eq!(request["approval"]["by"], by, "{}", request["argv"]);
    }
}

/// PATH may lead into the workspace, as with a virtual environment or `node_modules/.bin`.
#[test]
fn c_25_3_a_program_of_the_workspace_with_a_listed_name_asks() {
    let sandbox = coding();
    sandbox.write("work/bin/pwd", "#!/bin/sh\necho mine\n");
    // A shell interprets it.
    sandbox.write("work/bin/git", "echo mine\n");
    for name in ["pwd", "git"] {
        let path = sandbox.path(&format!("work/bin/{name}"));
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    symlink("/usr/bin/env", sandbox.path("work/bin/whoami")).unwrap();
    // The same program by another path.
    let nproc = Command::new("sh").args(["-c", "command -v nproc"]).output().unwrap();
    let nproc = String::from_utf8(nproc.stdout).unwrap();
    symlink(nproc.trim(), sandbox.path("work/bin/nproc")).unwrap();
    let calls = ["pwd", "whoami", "git status", "nproc", "date"]
        .map(|command| json!({"tool": "run", "args": {"command": command, "timeout": 20}}));
    let turns = json!({"turns": [{"call": calls}, {"say": "done"}]});
    sandbox.write("made/turns.yaml", turns.to_string());
    // A link elsewhere leads into the workspace, too.
    fs::create_dir(sandbox.path("links")).unwrap();
    symlink(sandbox.path("work/bin/pwd"), sandbox.path("links/pwd")).unwrap();
    let [links, bin] = ["links", "work/bin"].map(|name| sandbox.path(name).display().to_string());
    let path = format!("{links}:{bin}:{}", std::env::var("PATH").unwrap());
    let ran = sandbox
        .delta(["run", "--agent", "made", "--model", "script:turns.yaml", "-w", "work"])
        .args(["--run-id", "r", "-m", "go", "--approve-all"])
        .env("PATH", path)
        .output()
        .expect_code(0);
    let requests = sandbox.events("ACTION_REQUEST");
    let approvals: Vec<&Value> = requests.iter().map(|it| &it["approval"]["by"]).collect();
    assert_eq!(approvals, ["flag", "flag", "flag", "rule", "rule"]);
    let asked = sandbox.events("APPROVAL_REQUEST");
    let program = sandbox.path("work/bin/pwd").canonicalize().unwrap().display().to_string();
    assert!(asked[0]["files"][&program].is_string(), "{}", asked[0]);
    let warning = format!("PATH leads to {program} of the workspace in place of ");
    assert!(ran.stderr.contains(&warning), "{}", ran.stderr);
    sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(0);
}

/// An option in the help of a command of git.
struct GitOption {
    name: String,
    /// Its names, with its value.
    usage: String,
    description: String,
}

fn git_options(command: &[&str]) -> Vec<GitOption> {
    let output = Command::new("git").args(command).arg("-h").output().unwrap();
    let help = [output.stdout, output.stderr].concat();
    let mut options: Vec<GitOption> = Vec::new();
    for line in String::from_utf8_lossy(&help).lines() {
        let text = line.trim_start();
        // The description comes after two blanks, or on the next line.
        let (usage, description) = text.split_once("  ").unwrap_or((text, ""));
        if !text.starts_with('-') {
            if let Some(last) = options.last_mut() {
                last.description.push_str(text);
            }
            continue;
        }
        for name in usage.split(", ") {
            let name = name.replacen("[no-]", "", 1);
            let end = name.find(['[', '=', '<', ' ', '(']).unwrap_or(name.len());
            options.push(GitOption {
                name: name[..end].to_owned(),
                usage: usage.to_owned(),
                description: description.to_owned(),
            });
        }
    }
    options
}

/// Of what git's help lists, only options that change how something looks, or choose what is shown, start without a question:
/// none that writes, runs a program or takes the name of a file.
#[test]
fn c_38_4_options_of_git_that_do_more_than_look_ask() {
    use delta_agent::tool::{ToolSyntax, read_tool_file};
    use delta_words::CallArguments;
    use delta_yaml::yaml::YamlDocument;
    let sandbox = coding();
    let doc = YamlDocument::parse("agent.yaml", sandbox.read("made/agent.yaml")).unwrap();
    let tools = read_tool_file(&doc, &mut delta_yaml::diagnostic::DiagnosticReport::default());
    let run = tools.iter().find(|tool| tool.name == "run").unwrap();
    assert_eq!(run.syntax, ToolSyntax::Exec);
    let starts = |command: &str| {
        let arguments = CallArguments::new(json!({"command": command}).to_string());
        let arguments = run.check_arguments(&arguments).unwrap();
        run.approval_policy().verdict(&run.parameters, &arguments).rule.is_some()
    };
    let takes_file =
        regex::Regex::new("<(file|path|cmd|command|program|tool|dir|directory|template)>");
    let does_more = regex::Regex::new(
        r"(?i)\b(execute|run|program|external|helper|signature|gpg|sign|textconv|editor|delete|force|create|write)\b",
    );
    let (takes_file, does_more) = (takes_file.unwrap(), does_more.unwrap());
    let looking = [
        ("status", "-s -b -v --short --branch --porcelain"),
        (
            "log",
            "-p -w -b -s -n -L -S -G -U --stat --name-only --name-status --no-patch --all --reverse --follow",
        ),
        ("show", "-p -w -b -s -U --stat --name-only --name-status --no-patch"),
        ("diff", "-p -w -b -U --stat --name-only --name-status --no-patch --check --cached"),
        ("blame", "-w -s -l -e -f -L -C -M"),
        ("ls-files", "-c -d -m -o -u -s"),
        ("branch", "-a -v -r --show-current"),
        ("tag", ""),
        ("stash", ""),
        ("rev-parse", ""),
    ];
    let mut seen = 0;
    for (command, looking) in looking {
        let mut options = git_options(&[command]);
        if ["log", "show", "diff"].contains(&command) {
            options.extend(git_options(&["diff", "--no-index"]));
            options.extend(git_options(&["rev-list"]));
        }
        for GitOption { name, usage, description } in options {
            seen += 1;
            if looking.split(' ').any(|option| option == name) {
                let is_more = takes_file.is_match(&usage) || does_more.is_match(&description);
                assert!(!is_more, "git {command} {usage} does more than look: {description}");
                continue;
            }
            for form in [
                format!("git {command} {name}"),
                format!("git {command} {name}=PWNED"),
                format!("git {command} {name}PWNED"),
                format!("git {command} {name}3"),
                format!("git {command} x {name} PWNED"),
                format!("git {name} {command}"),
            ] {
                assert!(!starts(&form), "{form}: {description}");
            }
        }
    }
    assert!(seen > 200, "git's help has only {seen} options");
    let commands = Command::new("git").arg("--list-cmds=main,others,alias").output().unwrap();
    let commands = String::from_utf8(commands.stdout).unwrap();
    for name in commands.lines().filter(|name| !looking.iter().any(|(known, _)| known == name)) {
        for form in [format!("git {name}"), format!("git {name} x"), format!("git {name} -p")] {
            assert!(!starts(&form), "{form}");
        }
    }
}
