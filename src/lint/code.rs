//! Values inside program text of another interpreter, which would read them as code.

use super::view::{Bit, Command, Word};
use super::{Level, Sink, Subject};

/// A program that runs a text which stands among its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interpreter {
    Shell,
    Python,
    Perl,
    Ruby,
    Node,
    Php,
    Lua,
    Awk,
    Sed,
    Jq,
    Ssh,
    Sql,
    Su,
    Watch,
    Stats,
}

impl Interpreter {
    /// The interpreter that a program of that name is.
    pub fn named(name: &str) -> Option<Self> {
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        Some(match plain {
            "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "fish" => Self::Shell,
            "python" | "pypy" => Self::Python,
            "perl" => Self::Perl,
            "ruby" => Self::Ruby,
            "node" | "nodejs" | "deno" | "bun" => Self::Node,
            "php" => Self::Php,
            "lua" | "luajit" => Self::Lua,
            "awk" | "gawk" | "mawk" | "nawk" => Self::Awk,
            "sed" | "gsed" => Self::Sed,
            "jq" => Self::Jq,
            "ssh" => Self::Ssh,
            "sqlite" | "psql" | "mysql" | "mariadb" | "duckdb" => Self::Sql,
            "su" | "runuser" => Self::Su,
            "watch" => Self::Watch,
            "Rscript" | "R" | "julia" => Self::Stats,
            _ => return None,
        })
    }

    /// The words among `arguments` that are program text.
    fn programs(self, arguments: &[Word]) -> Vec<&Word> {
        match self {
            Self::Shell => after_option(arguments, &['c'], &["--command"]),
            Self::Python => after_option(arguments, &['c'], &[]),
            Self::Perl => after_option(arguments, &['e', 'E'], &[]),
            Self::Ruby | Self::Lua | Self::Stats => after_option(arguments, &['e'], &[]),
            Self::Node => match arguments {
                [eval, rest @ ..] if eval.fixed() == Some("eval") => {
                    operands(rest, &[]).take(1).collect()
                }
                _ => after_option(arguments, &['e', 'p'], &["--eval", "--print"]),
            },
            Self::Php => after_option(arguments, &['r'], &["--run"]),
            Self::Su => after_option(arguments, &['c'], &["--command"]),
            // It gives what it is to run to a shell, unless told otherwise.
            Self::Watch => {
                let direct = |word: &Word| matches!(word.fixed(), Some("-x" | "--exec"));
                match arguments.iter().any(direct) {
                    true => Vec::new(),
                    false => operands(arguments, &['n']).collect(),
                }
            }
            Self::Awk => operands(arguments, &['F', 'v', 'f']).take(1).collect(),
            Self::Sed => {
                let given = after_option(arguments, &['e'], &["--expression"]);
                match given.is_empty() {
                    true => operands(arguments, &['f', 'l']).take(1).collect(),
                    false => given,
                }
            }
            Self::Jq => jq_filter(arguments),
            Self::Sql => {
                let mut given = after_option(arguments, &['c', 'e'], &["--command", "--execute"]);
                given.extend(operands(arguments, &['h', 'p', 'U', 'd', 'u']).skip(1));
                given
            }
            Self::Ssh => Vec::new(),
        }
    }

    /// How a value is given to it instead.
    fn help(self, source: &str, name: &str) -> String {
        match self {
            Self::Watch => format!("give it as an argument: `{name} -x PROGRAM -- {source}`"),
            Self::Shell | Self::Su => format!("give it as an argument: `{name} -c '... \"$1\" ...' -- {source}`"),
            Self::Python => format!("give it as an argument: `{name} -c 'import sys; ... sys.argv[1]' {source}`"),
            Self::Perl => format!("give it as an argument: `{name} -e '... $ARGV[0] ...' -- {source}`"),
            Self::Ruby => format!("give it as an argument: `{name} -e '... ARGV[0] ...' -- {source}`"),
            Self::Node => format!("give it as an argument: `{name} -e '... process.argv[1] ...' -- {source}`"),
            Self::Php => format!("give it as an argument: `{name} -r '... $argv[1] ...' -- {source}`"),
            Self::Lua | Self::Stats => "put the program into a file, and give the value as an argument".to_owned(),
            Self::Awk => format!("give it as a variable from the environment, where nothing is read again: `v={source} {name} '... ENVIRON[\"v\"] ...'`"),
            Self::Sed => "use a program that takes a value as an argument, or list the allowed values with `enum:`".to_owned(),
            Self::Jq => format!("give it as a variable: `{name} --arg v {source} '... $v ...'`"),
            Self::Ssh => "give it by `stdin:`, to a program on the other side that reads it from there".to_owned(),
            Self::Sql => "use a program that binds values, such as a few lines of Python with `?` in the statement".to_owned(),
        }
    }

    fn language(self) -> &'static str {
        match self {
            Self::Shell | Self::Su | Self::Watch => "a script for a shell",
            Self::Ssh => "a command line that a shell on the other side reads",
            Self::Awk | Self::Sed | Self::Jq => "a program text",
            Self::Sql => "an SQL statement",
            _ => "program text",
        }
    }
}

pub(super) fn check(subject: &Subject<'_>, sink: &mut Sink) {
    for (number, command) in subject.commands.iter().enumerate() {
        check_arguments(subject, command, sink);
        check_input(subject, command, subject.commands.get(number + 1), sink);
    }
}

/// Looks at every interpreter in the words: behind `xargs`, `find -exec`, `docker exec` and the like they run too.
fn check_arguments(subject: &Subject<'_>, command: &Command, sink: &mut Sink) {
    for (at, word) in command.words.iter().enumerate() {
        if at > 0 && word.fixed().is_none() {
            continue;
        }
        let name = word.program();
        let Some(interpreter) = Interpreter::named(name) else { continue };
        // The name of a program is an argument to most others.
        if at > 0 && !runs_commands(&command.words[..at]) {
            continue;
        }
        let arguments = &command.words[at + 1..];
        let embedded = match interpreter {
            Interpreter::Ssh => remote(arguments),
            _ => interpreter.programs(arguments).into_iter().find_map(|text| text.embedded()),
        };
        if let Some(value) = embedded {
            return report(subject, interpreter, name, &value.source, sink);
        }
        let braces = |text: &&Word| matches!(text.bits.as_slice(), [Bit::Text(text)] if text.contains("{}") && text != "{}");
        let texts = interpreter.programs(arguments);
        if interpreter == Interpreter::Shell && at > 0 && texts.iter().any(braces) {
            let message = "each name that takes the place of `{}` is read as a part of the script";
            let help = "give it as an argument: `sh -c '... \"$1\" ...' -- {}`";
            return sink.add("program-text", Level::Warning, subject.at("{}", message, help));
        }
    }
}

/// Looks at a here-document, or at what `echo` pipes into the command.
fn check_input(subject: &Subject<'_>, command: &Command, next: Option<&Command>, sink: &mut Sink) {
    let reader = |command: &Command| {
        let words = super::options::unwrapped(&command.words);
        let interpreter = Interpreter::named(words.first()?.program())?;
        let reads = match interpreter {
            Interpreter::Awk
            | Interpreter::Sed
            | Interpreter::Jq
            | Interpreter::Su
            | Interpreter::Watch => false,
            Interpreter::Sql => true,
            Interpreter::Ssh => operands(&words[1..], &[]).count() < 2,
            _ => {
                !words[1..].iter().any(|word| !word.lead().starts_with('-') || word.lead() == "-c")
            }
        };
        reads.then(|| (interpreter, words[0].program().to_owned()))
    };
    if let (Some(source), Some((interpreter, name))) = (command.input.first(), reader(command)) {
        return report(subject, interpreter, &name, source, sink);
    }
    let Some((interpreter, name)) = next.filter(|_| command.piped).and_then(reader) else { return };
    let prints = matches!(command.words.first().map(Word::program), Some("echo" | "printf"));
    let printed = command.words.iter().filter(|_| prints).find_map(Word::embedded);
    let source = printed.map(|value| &value.source).or(command.input.first());
    if let Some(source) = source {
        report(subject, interpreter, &name, source, sink);
    }
}

fn report(
    subject: &Subject<'_>,
    interpreter: Interpreter,
    name: &str,
    source: &str,
    sink: &mut Sink,
) {
    let message = format!(
        "{source} stands in {}: `{name}` would read the value as code",
        interpreter.language()
    );
    sink.add(
        "program-text",
        Level::Warning,
        subject.at(source, message, interpreter.help(source, name)),
    );
}

/// Whether the words before belong to a program that runs the rest as a command.
fn runs_commands(before: &[Word]) -> bool {
    let last = before.last().map(Word::program).unwrap_or_default();
    let first = before.first().map(Word::program).unwrap_or_default();
    let inside = [
        "docker",
        "podman",
        "kubectl",
        "find",
        "parallel",
        "chroot",
        "unshare",
        "strace",
        "flock",
        "busybox",
        "bwrap",
        "firejail",
        "systemd-run",
        "uv",
        "poetry",
        "entr",
    ];
    super::table::WRAPPERS.contains(&first) || inside.contains(&first) || last.starts_with("-exec")
}

/// The words behind an option such as `-c` or `-lc`, or in `--command=...`.
fn after_option<'a>(arguments: &'a [Word], letters: &[char], long: &[&str]) -> Vec<&'a Word> {
    let mut found = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let lead = word.lead();
        if lead == "--" {
            break;
        }
        let fixed = word.fixed().unwrap_or_default();
        let short = fixed.starts_with('-') && !fixed.starts_with("--") && fixed.ends_with(letters);
        if short || long.contains(&fixed) {
            found.extend(arguments.get(at + 1));
        } else if long
            .iter()
            .any(|long| lead.strip_prefix(long).is_some_and(|rest| rest.starts_with('=')))
        {
            found.push(word);
        } else if !lead.starts_with('-') && at == 0 {
            // The file that is run; what follows are its own arguments.
            let user = matches!(letters, ['c']) && long.len() == 1;
            if !user {
                break;
            }
        }
    }
    found
}

/// The words that are no options, nor the values of those that `letters` names.
fn operands<'a>(arguments: &'a [Word], letters: &'a [char]) -> impl Iterator<Item = &'a Word> {
    let mut ended = false;
    let mut value = false;
    arguments.iter().filter(move |word| {
        let lead = word.lead();
        if std::mem::take(&mut value) {
            return false;
        }
        if ended || !lead.starts_with('-') || lead == "-" {
            return true;
        }
        ended = lead == "--";
        value = lead.len() == 2 && word.fixed().is_some() && lead.ends_with(letters);
        false
    })
}

/// The filter among the arguments of jq, whose `--arg` takes two words.
fn jq_filter(arguments: &[Word]) -> Vec<&Word> {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += match word.lead() {
            "--arg" | "--argjson" | "--slurpfile" | "--rawfile" => 3,
            "-L" | "-f" | "--from-file" | "--indent" => 2,
            lead if lead.starts_with('-') => 1,
            _ => return vec![word],
        };
    }
    Vec::new()
}

/// The options of ssh that take the next word as their value.
const SSH_VALUES: [char; 21] = [
    'B', 'b', 'c', 'D', 'E', 'e', 'F', 'I', 'i', 'J', 'L', 'l', 'm', 'O', 'o', 'p', 'Q', 'R', 'S',
    'W', 'w',
];

/// The first value in the command that ssh sends to the other side. One that is all of the command is meant as one.
fn remote(arguments: &[Word]) -> Option<&super::view::Value> {
    let command: Vec<&Word> = operands(arguments, &SSH_VALUES).skip(1).collect();
    match command.as_slice() {
        [only] => only.embedded(),
        words => words.iter().flat_map(|word| word.values()).find(|value| !value.tame),
    }
}
