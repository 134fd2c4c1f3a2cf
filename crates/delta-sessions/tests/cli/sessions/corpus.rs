//! Dialogues with a session, compared with the same text typed into one interactive interpreter: the output and the state at
//! the end must be equal. docs/reference/sessions.md lists the intended differences.
//!
//! `DELTA_DIALOGUE=closures` runs only the dialogues with that in their name.

use super::{PYTHON, Session};
use delta_base::text::text_diff::LineDiff;
use regex::Regex;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use test_support::needs;

/// A named sequence of commands.
struct Dialogue {
    name: String,
    commands: Vec<String>,
}

fn dialogues(text: &str) -> Vec<Dialogue> {
    let parts = text.strip_prefix("=== ").unwrap().split("\n=== ");
    parts
        .map(|part| {
            let (name, commands) = part.split_once('\n').unwrap();
            let commands = commands.trim_end_matches('\n').split("\n---\n").map(str::to_owned);
            Dialogue { name: name.to_owned(), commands: commands.collect() }
        })
        .collect()
}

/// An interpreter, and how its output is compared.
struct Interpreter {
    command: String,
    /// The arguments of an interactive interpreter that reads from stdin.
    arguments: &'static [&'static str],
    /// Typed first.
    begin: &'static str,
    /// Ends a command.
    enter: &'static str,
    /// Prints the state.
    state: &'static str,
    /// Replacements in stderr before it is compared.
    differs: Vec<(&'static str, &'static str)>,
}

fn bash() -> Interpreter {
    Interpreter {
        command: "bash".to_owned(),
        arguments: &["--noprofile", "--norc", "--noediting", "-i", "+H"],
        begin: "",
        enter: "\n",
        state: r#"builtin unset -f cd declare printf; builtin unalias -a
for v in $(IFS=$' \t\n'; PATH=/usr/bin:/bin; compgen -v); do
case $v in BASH*|HIST*|PS?|DELTA_*|COLUMNS|LINES|EPOCH*|SRANDOM|RANDOM|SECONDS|PPID|LINENO|_|v|FUNCNAME|PIPESTATUS|SHELLOPTS|SHLVL|DIRSTACK|COMP_WORDBREAKS|TERM|GROUPS|__delta_*|HOSTNAME|MAILCHECK) ;; *) declare -p $v ;; esac; done
for v in $(IFS=$' \t\n'; compgen -A function); do case $v in __delta_*|trap) ;; *) declare -f -- "$v" ;; esac; done
declare -Fx; alias; umask; dirs -l -p; echo "$@"; set +o | while read -r v; do case $v in *history|*histexpand|*emacs|*monitor) ;; *) echo "$v" ;; esac; done
shopt | while read -r v; do case $v in login_shell*|progcomp*) ;; *) echo "$v" ;; esac; done"#,
        // An interactive shell does not number or repeat lines, and reports jobs and its exit. Without a terminal it
        // complains at its start, and whenever a signal ends a part of a pipeline: SIGPIPE may or may not come.
        differs: vec![
            (r"(?m)^bash: (?:eval: )?(?:line \d+: )?", "bash: "),
            (r"(?m)^bash: `.*'\n", ""),
            (r"(?m)^bash: (?:cannot set terminal process group|no job control).*\n", ""),
            (r"(?m)^bash: \[\d+: \d+ \(\d+\)\] tcsetattr: .*\n", ""),
            (r"(?m)^\[\d+\].*\n", ""),
            (r"(?m)^exit\n\z", ""),
            (r"(?m)^\++ ", "+ "),
        ],
    }
}

fn python() -> Interpreter {
    // An interactive interpreter numbers the lines of each statement; newer ones also name and show it.
    let mut differs = vec![
        (r"^>>> ", ""),
        (r"\n+\z", ""),
        (r#"(File "<stdin>)(?:-\d+)?", line \d+"#, "$1\", line N"),
    ];
    let text = "import sys; sys.exit(sys.version_info >= (3, 13))";
    if !Command::new(&*PYTHON).args(["-c", text]).status().unwrap().success() {
        differs.push((r#"(File "<stdin>", line N, in .*\n)(?:    .*\n)+"#, "$1"));
    }
    Interpreter {
        command: PYTHON.clone(),
        arguments: &["-i", "-q"],
        begin: "import sys; sys.ps1 = sys.ps2 = ''\n",
        enter: "\n\n",
        state: "print(sorted((n, repr(v) if isinstance(v, (int, str, float, list, dict, tuple)) and ' at 0x' not in repr(v) else type(v).__name__) for n, v in globals().items() if not n.startswith('_') and n != 'sys'), __import__('os').getcwd())",
        differs,
    }
}

/// The output of either side.
#[derive(PartialEq, Eq, Debug)]
struct Printed {
    stdout: String,
    stderr: String,
}

impl Interpreter {
    fn in_session(&self, dialogue: &Dialogue) -> Printed {
        let session = Session::start(&[&self.command]);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        for text in dialogue.commands.iter().map(String::as_str).chain([self.state]) {
            let answer = session.exec(text);
            for (all, name) in [(&mut stdout, "stdout"), (&mut stderr, "stderr")] {
                all.push_str(answer[name].as_str().unwrap());
            }
            assert_eq!(answer.get("not_preserved"), None, "{}: {text}", dialogue.name);
        }
        self.normal(stdout, stderr, &session.sandbox.path("work"))
    }

    fn for_real(&self, dialogue: &Dialogue) -> Printed {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (work, home) = (dir.join("work"), dir.join("home"));
        std::fs::create_dir(&work).unwrap();
        std::fs::create_dir(&home).unwrap();
        let mut typed = self.begin.to_owned();
        for text in dialogue.commands.iter().map(String::as_str).chain([self.state]) {
            typed.push_str(text);
            typed.push_str(self.enter);
        }
        let mut child = Command::new(&self.command)
            .args(self.arguments)
            .current_dir(&work)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs([("LANG", "C.UTF-8"), ("PS1", ""), ("PS2", "")])
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The text fits into a pipe, or the shell reads while it works.
        child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.normal(text(&output.stdout), text(&output.stderr), &work)
    }

    fn normal(&self, stdout: String, mut stderr: String, work: &Path) -> Printed {
        for (pattern, instead) in &self.differs {
            stderr = Regex::new(pattern).unwrap().replace_all(&stderr, *instead).into_owned();
        }
        let sandbox = work.parent().unwrap().display().to_string();
        Printed {
            stdout: stdout.replace(&sandbox, "SANDBOX"),
            stderr: stderr.replace(&sandbox, "SANDBOX"),
        }
    }

    fn compare(&self, text: &str, least: usize) {
        let mut all = dialogues(text);
        assert!(all.len() >= least, "where are the dialogues?");
        let only = std::env::var("DELTA_DIALOGUE").unwrap_or_default();
        all.retain(|dialogue| dialogue.name.contains(&only));
        let check = |dialogue: &Dialogue| {
            let (ours, theirs) = (self.in_session(dialogue), self.for_real(dialogue));
            let whole =
                |printed: &Printed| format!("{}--- stderr\n{}", printed.stdout, printed.stderr);
            let (ours, theirs) = (whole(&ours), whole(&theirs));
            (ours != theirs).then(|| {
                let LineDiff { hunks, .. } = LineDiff::new(&ours, &theirs, 1);
                format!("=== {}: in a session (-), for real (+)\n{hunks}", dialogue.name)
            })
        };
        let chunks = all.chunks(all.len().div_ceil(4));
        let wrong: Vec<String> = std::thread::scope(|scope| {
            let check = &check;
            let workers: Vec<_> = chunks
                .map(|chunk| {
                    scope.spawn(move || chunk.iter().filter_map(check).collect::<Vec<_>>())
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn c_14_2_a_session_is_like_one_real_bash() {
    bash().compare(include_str!("../../corpus/bash.txt"), 50);
}

#[test]
fn c_14_3_a_session_is_like_one_real_python() {
    if !needs::programs(&["python3"]) {
        return;
    }
    python().compare(include_str!("../../corpus/python.txt"), 35);
}
