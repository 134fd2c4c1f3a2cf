//! Programs that run a program text from their arguments.

use super::LintWord;

const MOVE_TO_FILE: &str = "move the program to a file, and pass the value as an argument";

/// A program that runs a program text from its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
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
    Statistics,
    /// A built-in of the shell that makes it parse its arguments.
    Eval,
    /// Joins its arguments to a command line for a shell.
    Parallel,
    /// Gives the value of `-c` to a shell.
    ShellOption,
    /// A built-in of the shell that runs a file in the same shell.
    Source,
    /// Runs the commands of a file, which an option names.
    Make,
}

impl Interpreter {
    /// The interpreter for the file name of a program, with or without a version.
    pub fn from_program_name(name: &str) -> Option<Self> {
        if matches!(name, "." | "source") {
            return Some(Self::Source);
        }
        let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        Some(match unversioned {
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
            "eval" | "trap" => Self::Eval,
            "parallel" => Self::Parallel,
            "flock" | "sg" => Self::ShellOption,
            "make" | "gmake" => Self::Make,
            "Rscript" | "R" | "julia" => Self::Statistics,
            _ => return None,
        })
    }

    /// The words among `arguments` that are program text; none for ssh, which joins its arguments to a command line.
    pub fn program_words(self, arguments: &[LintWord]) -> Vec<&LintWord> {
        match self {
            Self::Shell | Self::Su | Self::ShellOption => {
                words_after_option(arguments, &['c'], &["--command"])
            }
            Self::Python => words_after_option(arguments, &['c'], &[]),
            Self::Perl => words_after_option(arguments, &['e', 'E'], &[]),
            Self::Ruby | Self::Lua | Self::Statistics => words_after_option(arguments, &['e'], &[]),
            Self::Node => match arguments {
                [eval, rest @ ..] if eval.fixed_text() == Some("eval") => {
                    operands(rest, &[]).take(1).collect()
                }
                _ => words_after_option(arguments, &['e', 'p'], &["--eval", "--print"]),
            },
            Self::Php => words_after_option(arguments, &['r'], &["--run"]),
            Self::Watch => watch_command_words(arguments),
            Self::Eval => arguments.iter().collect(),
            // What follows `:::` is quoted.
            Self::Parallel => {
                let words = arguments.iter();
                words.take_while(|word| !word.fixed_prefix().starts_with(":::")).collect()
            }
            Self::Awk => operands(arguments, &['F', 'v', 'f']).take(1).collect(),
            Self::Sed => {
                let expressions = words_after_option(arguments, &['e'], &["--expression"]);
                if expressions.is_empty() {
                    operands(arguments, &['f', 'l']).take(1).collect()
                } else {
                    expressions
                }
            }
            Self::Jq => jq_filter(arguments),
            Self::Sql => {
                let mut statements =
                    words_after_option(arguments, &['c', 'e'], &["--command", "--execute"]);
                statements.extend(operands(arguments, &['h', 'p', 'U', 'd', 'u']).skip(1));
                statements
            }
            Self::Source => operands(arguments, &[]).take(1).collect(),
            Self::Make => {
                let options =
                    arguments.iter().position(|word| word.fixed_prefix().starts_with('-'));
                let options = options.unwrap_or(arguments.len());
                words_after_option(&arguments[options..], &['f'], &["--file", "--makefile"])
            }
            Self::Ssh => Vec::new(),
        }
    }

    /// The words among `arguments` that name a file with the program.
    pub fn program_files(self, arguments: &[LintWord]) -> Vec<&LintWord> {
        let operand = |options| program_operand(arguments, options).into_iter().collect();
        match self {
            Self::Shell => operand(&ProgramOptions {
                text_letters: "cs",
                value_letters: "oO",
                long_values: &["--rcfile", "--init-file"],
                ..NO_OPTIONS
            }),
            Self::Python => {
                operand(&ProgramOptions { text_letters: "cm", value_letters: "XW", ..NO_OPTIONS })
            }
            Self::Perl => {
                operand(&ProgramOptions { text_letters: "eE", value_letters: "IMm", ..NO_OPTIONS })
            }
            Self::Ruby => {
                operand(&ProgramOptions { text_letters: "e", value_letters: "CEIr", ..NO_OPTIONS })
            }
            Self::Node => operand(&ProgramOptions {
                text_letters: "ep",
                value_letters: "Cr",
                long_texts: &["--eval", "--print"],
                long_values: &["--require", "--import", "--loader"],
                // deno and bun have commands where node has the file.
                subcommand: Some("run"),
                needs_path: true,
            }),
            Self::Php => operand(&ProgramOptions {
                text_letters: "r",
                value_letters: "cdz",
                long_texts: &["--run"],
                ..NO_OPTIONS
            }),
            Self::Lua => {
                operand(&ProgramOptions { text_letters: "e", value_letters: "l", ..NO_OPTIONS })
            }
            Self::Statistics => {
                operand(&ProgramOptions { text_letters: "e", needs_path: true, ..NO_OPTIONS })
            }
            Self::Awk | Self::Sed | Self::Jq | Self::Sql | Self::Make => {
                words_after_option(arguments, &['f'], &["--file", "--from-file", "--makefile"])
            }
            Self::Source => operands(arguments, &[]).take(1).collect(),
            Self::Ssh
            | Self::Su
            | Self::Watch
            | Self::Eval
            | Self::Parallel
            | Self::ShellOption => Vec::new(),
        }
    }

    /// The help that says how to pass the value `source` to the program `name` instead.
    pub fn argument_help(self, source: &str, name: &str) -> String {
        let example = match self {
            Self::Watch => format!("{name} -x PROGRAM -- {source}"),
            Self::Shell => format!("{name} -c '... \"$1\" ...' -- {source}"),
            // The first argument after `--` is `$0` of the script.
            Self::Su => format!("{name} USER -c '... \"$1\" ...' -- sh {source}"),
            Self::Python => format!("{name} -c 'import sys; ... sys.argv[1]' {source}"),
            Self::Perl => format!("{name} -e '... $ARGV[0] ...' -- {source}"),
            Self::Ruby => format!("{name} -e '... ARGV[0] ...' -- {source}"),
            // deno has another option for a program text, and another name for its arguments.
            Self::Node if name == "deno" => return MOVE_TO_FILE.to_owned(),
            Self::Node => format!("{name} -e '... process.argv[1] ...' -- {source}"),
            Self::Php => format!("{name} -r '... $argv[1] ...' -- {source}"),
            Self::Lua | Self::Statistics => return MOVE_TO_FILE.to_owned(),
            Self::Awk => {
                return format!(
                    "pass it as an environment variable, which awk does not parse: `v={source} {name} '... ENVIRON[\"v\"] ...'`"
                );
            }
            Self::Eval => {
                return "run the command itself, with the value as an argument".to_owned();
            }
            Self::Parallel => format!("{name} PROGRAM -- ::: {source}"),
            Self::ShellOption if name == "flock" => {
                format!("flock FILE sh -c '... \"$1\" ...' -- {source}")
            }
            Self::ShellOption | Self::Source | Self::Make => return MOVE_TO_FILE.to_owned(),
            Self::Sed => {
                return "use a program that takes the value as an argument, or list the allowed values with `enum:`".to_owned();
            }
            Self::Jq => {
                return format!("pass it as a variable: `{name} --arg v {source} '... $v ...'`");
            }
            Self::Ssh => {
                return "pass it by `stdin:` to a program on the remote host that reads it there"
                    .to_owned();
            }
            Self::Sql => {
                return "use a program that binds values, such as a few lines of Python with `?` in the statement".to_owned();
            }
        };
        format!("pass it as an argument: `{example}`")
    }

    /// The kind of program text, with its article.
    pub fn text_kind(self) -> &'static str {
        match self {
            Self::Shell
            | Self::Su
            | Self::Watch
            | Self::Eval
            | Self::Parallel
            | Self::ShellOption
            | Self::Source => "a shell script",
            Self::Make => "a makefile",
            Self::Ssh => "a command line for a remote shell",
            Self::Sql => "an SQL statement",
            _ => "a program",
        }
    }
}

/// The options before the file of a program.
#[derive(Clone, Copy)]
struct ProgramOptions {
    /// The letters of the options with which the program comes from elsewhere than a file.
    text_letters: &'static str,
    /// The letters of the options that take a value.
    value_letters: &'static str,
    long_texts: &'static [&'static str],
    long_values: &'static [&'static str],
    /// The word that may precede the file.
    subcommand: Option<&'static str>,
    /// Whether a name without an extension and a directory is something else.
    needs_path: bool,
}

const NO_OPTIONS: ProgramOptions = ProgramOptions {
    text_letters: "",
    value_letters: "",
    long_texts: &[],
    long_values: &[],
    subcommand: None,
    needs_path: false,
};

/// The file of the program: the first word that is neither an option nor the value of one.
fn program_operand<'a>(
    arguments: &'a [LintWord],
    options: &ProgramOptions,
) -> Option<&'a LintWord> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let prefix = word.fixed_prefix();
        let text = word.fixed_text();
        if prefix == "--" {
            return words.next();
        }
        if options.subcommand.is_some() && text == options.subcommand {
            continue;
        }
        // Shells switch options off with `+`.
        if !prefix.starts_with(['-', '+']) || prefix == "-" {
            let is_path = text.is_none_or(|text| text.contains(['.', '/']));
            return Some(word).filter(|_| is_path || !options.needs_path);
        }
        if prefix.starts_with("--") {
            let (name, value) =
                prefix.split_once('=').map_or((prefix, false), |(name, _)| (name, true));
            if options.long_texts.contains(&name) {
                return None;
            }
            if options.long_values.contains(&name) && !value {
                words.next();
            }
            continue;
        }
        let letters = &prefix[1..];
        // What follows the first letter with a value is the value.
        let at = letters.find(|letter| {
            options.text_letters.contains(letter) || options.value_letters.contains(letter)
        });
        let Some(at) = at else { continue };
        if letters[at..].starts_with(|letter| options.text_letters.contains(letter)) {
            return None;
        }
        if at + 1 == letters.len() {
            words.next();
        }
    }
    None
}

/// The command of `watch`, which gives it to a shell unless `-x` is present.
fn watch_command_words(arguments: &[LintWord]) -> Vec<&LintWord> {
    let has_exec_option =
        arguments.iter().any(|word| matches!(word.fixed_text(), Some("-x" | "--exec")));
    if has_exec_option { Vec::new() } else { operands(arguments, &['n']).collect() }
}

/// The filter among the arguments of jq, whose `--arg` takes two words.
fn jq_filter(arguments: &[LintWord]) -> Vec<&LintWord> {
    let mut index = 0;
    while let Some(word) = arguments.get(index) {
        index += match word.fixed_prefix() {
            "--arg" | "--argjson" | "--slurpfile" | "--rawfile" => 3,
            "-L" | "-f" | "--from-file" | "--indent" => 2,
            prefix if prefix.starts_with('-') => 1,
            _ => return vec![word],
        };
    }
    Vec::new()
}

/// The words after an option such as `-c` or `-lc`, and those in `--command=...`.
pub fn words_after_option<'a>(
    arguments: &'a [LintWord],
    letters: &[char],
    long_options: &[&str],
) -> Vec<&'a LintWord> {
    let mut words = Vec::new();
    for (index, word) in arguments.iter().enumerate() {
        let prefix = word.fixed_prefix();
        if prefix == "--" {
            break;
        }
        let text = word.fixed_text().unwrap_or_default();
        let is_short = text.starts_with('-') && !text.starts_with("--") && text.ends_with(letters);
        let has_long_value = long_options
            .iter()
            .any(|long| prefix.strip_prefix(long).is_some_and(|rest| rest.starts_with('=')));
        if is_short || long_options.contains(&text) {
            words.extend(arguments.get(index + 1));
        } else if has_long_value {
            words.push(word);
        } else if !prefix.starts_with('-') && index == 0 {
            // The file of the program, and its own arguments follow; but `su` has the user here.
            let may_be_user = matches!(letters, ['c']) && long_options.len() == 1;
            if !may_be_user {
                break;
            }
        }
    }
    words
}

/// The words that are neither options nor the values of the options in `letters`.
pub fn operands<'a>(
    arguments: &'a [LintWord],
    letters: &'a [char],
) -> impl Iterator<Item = &'a LintWord> {
    let mut after_options = false;
    let mut is_value = false;
    arguments.iter().filter(move |word| {
        let prefix = word.fixed_prefix();
        if std::mem::take(&mut is_value) {
            return false;
        }
        if after_options || !prefix.starts_with('-') || prefix == "-" {
            return true;
        }
        after_options = prefix == "--";
        is_value = prefix.len() == 2 && word.fixed_text().is_some() && prefix.ends_with(letters);
        false
    })
}
