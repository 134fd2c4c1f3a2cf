//! Makes scripts of nested constructs, together with what they write.

use crate::tape::Tape;
use std::collections::BTreeMap;

/// A piece of a template, and what the shell makes of it.
type Made = (String, String);

/// How deep constructs are nested.
const DEPTH: usize = 4;

/// What a script does.
pub struct Script {
    pub template: String,
    pub output: String,
    /// The files that it writes, and what is in them.
    pub files: BTreeMap<String, String>,
}

/// The script that `tape` describes, for as many parameters as there are values.
pub fn script(tape: &[u8], values: &[String]) -> Script {
    let mut maker = Maker {
        tape: Tape::new(tape),
        values,
        template: String::new(),
        output: String::new(),
        files: BTreeMap::new(),
        variables: 0,
        braces: 0,
        substituted: false,
        backquoted: false,
    };
    maker.prelude();
    maker.command();
    while !maker.tape.used_up() {
        maker.command();
    }
    Script { template: maker.template, output: maker.output, files: maker.files }
}

struct Maker<'a> {
    tape: Tape<'a>,
    values: &'a [String],
    /// The script so far.
    template: String,
    /// Its output so far.
    output: String,
    /// Files that it writes.
    files: BTreeMap<String, String>,
    variables: usize,
    /// How many `${...}` are open.
    braces: usize,
    /// Inside a command substitution, where shells disagree about a `$(` that is plain text.
    substituted: bool,
    /// Inside backquotes.
    backquoted: bool,
}

/// Around what a piece stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    /// Nothing: a word of a command, which is split.
    Word,
    /// Nothing, but no splitting: an assignment, the word of a `case`.
    Unsplit,
    Double,
    Heredoc,
    /// Nothing, but in the pattern of `${v#...}` inside double quotes, where shells disagree about single quotes.
    Pattern,
    /// Nothing: what `case` compares.
    Case,
}

impl Maker<'_> {
    fn hole(&mut self) -> Made {
        let number = self.tape.below(self.values.len());
        (format!("${{p{number}}}"), self.values[number].clone())
    }

    /// One to three pieces side by side.
    fn pieces(&mut self, depth: usize, piece: impl Fn(&mut Self, usize) -> Made) -> Made {
        let (mut text, mut value) = piece(self, depth);
        for _ in 0..self.tape.below(3) {
            let more = piece(self, depth);
            text.push_str(&more.0);
            value.push_str(&more.1);
        }
        (text, value)
    }

    fn fixed(&mut self, choices: &[(&str, &str)]) -> Made {
        let (text, value) = self.tape.of(choices);
        (text.to_owned(), value.to_owned())
    }

    /// A word outside quotes.
    fn word(&mut self, depth: usize, around: Around) -> Made {
        self.pieces(depth, |maker, depth| maker.bare(depth, around))
    }

    fn bare(&mut self, depth: usize, around: Around) -> Made {
        match self.tape.below(if depth == 0 { 4 } else { 8 }) {
            0 => self.hole(),
            1 | 2 if around == Around::Pattern => {
                self.fixed(&[("a", "a"), ("\\\\", "\\"), ("x#y", "x#y")])
            }
            1 if self.backquoted => {
                self.fixed(&[("a", "a"), ("\\$", "$"), ("\\\\", "\\"), ("x#y", "x#y")])
            }
            1 => self.fixed(&[
                ("a", "a"),
                ("-b", "-b"),
                ("é", "é"),
                ("\\$", "$"),
                ("\\\\", "\\"),
                ("x#y", "x#y"),
                ("x\\\ny", "xy"),
                ("\\'", "'"),
            ]),
            // A `'` in backquotes beside another substitution is refused.
            2 if self.braces < 2 && !(self.backquoted && self.tape.below(4) > 0) => self.single(),
            3 => self.double(depth),
            4 | 5 if around != Around::Case => self.alternative(depth, around),
            6 if matches!(around, Around::Unsplit | Around::Case) => {
                self.substitution(depth, around)
            }
            _ => self.double(depth),
        }
    }

    fn single(&mut self) -> Made {
        let inner = |maker: &mut Self, _| match maker.tape.below(2) {
            0 => maker.hole(),
            _ if !maker.substituted && maker.tape.below(4) == 0 => {
                maker.fixed(&[("$(", "$("), ("${", "${"), ("\"${x", "\"${x")])
            }
            _ => maker.fixed(&[
                ("a b", "a b"),
                ("\"", "\""),
                ("*", "*"),
                ("\n", "\n"),
                ("`", "`"),
                ("\\\\", "\\\\"),
                ("ā", "ā"),
                ("#", "#"),
            ]),
        };
        let (text, value) = self.pieces(0, inner);
        (format!("'{text}'"), value)
    }

    fn double(&mut self, depth: usize) -> Made {
        let (text, value) = self.pieces(depth, |maker, depth| maker.quoted(depth, Around::Double));
        (format!("\"{text}\""), value)
    }

    /// A piece inside double quotes or a here-document.
    fn quoted(&mut self, depth: usize, around: Around) -> Made {
        match self.tape.below(if depth == 0 { 2 } else { 6 }) {
            0 => self.hole(),
            1 if self.braces > 0 => self.fixed(&[
                (" a ", " a "),
                ("#", "#"),
                ("\\$", "$"),
                ("ā*", "ā*"),
                ("\n", "\n"),
                (")", ")"),
            ]),
            1 if self.backquoted => {
                self.fixed(&[(" a ", " a "), ("#", "#"), ("\\$", "$"), ("ā*", "ā*"), ("\n", "\n")])
            }
            1 if around == Around::Heredoc => self.fixed(&[
                (" a ", " a "),
                ("it's", "it's"),
                ("\"", "\""),
                ("#", "#"),
                ("\\$", "$"),
                ("\\\\", "\\"),
                ("ā*", "ā*"),
                ("\\\"", "\\\""),
                ("\\a", "\\a"),
            ]),
            1 => self.fixed(&[
                (" a ", " a "),
                ("it's", "it's"),
                ("\\\"", "\""),
                ("#", "#"),
                ("\\$", "$"),
                ("\\\\", "\\"),
                ("ā*", "ā*"),
                ("\n", "\n"),
                ("}", "}"),
                (")", ")"),
            ]),
            2 | 3 => self.alternative(depth, around),
            4 => self.substitution(depth, around),
            _ if around == Around::Double => self.trimmed(depth),
            _ => self.hole(),
        }
    }

    /// `${unset:-...}` and `${set:+...}`.
    fn alternative(&mut self, depth: usize, around: Around) -> Made {
        let operator = self.tape.of(&["unset:-", "set:+", "unset-", "set+", "empty:-", "unset:="]);
        let quotes = matches!(around, Around::Double | Around::Heredoc);
        let operator = match (operator, quotes) {
            ("unset:=", true) => {
                self.variables += 1;
                format!("fresh{}:=", self.variables)
            }
            ("unset:=", false) => "unset:-".to_owned(),
            (operator, _) => operator.to_owned(),
        };
        self.braces += 1;
        let (text, value) = match quotes {
            true => self.pieces(depth - 1, |maker, depth| maker.braced(depth, around)),
            false => self.word(depth - 1, around),
        };
        self.braces -= 1;
        (format!("${{{operator}{text}}}"), value)
    }

    /// A piece in braces inside double quotes or a here-document.
    fn braced(&mut self, depth: usize, around: Around) -> Made {
        match self.tape.below(if depth == 0 { 2 } else { 5 }) {
            0 => self.hole(),
            1 => self.fixed(&[
                (" a ", " a "),
                ("#", "#"),
                ("\\$", "$"),
                ("\\\\", "\\"),
                ("ā*", "ā*"),
                ("\\}", "}"),
                (")", ")"),
            ]),
            2 if around == Around::Double && self.braces == 1 => self.double(depth - 1),
            3 => self.alternative(depth, around),
            _ => self.substitution(depth, around),
        }
    }

    /// A variable from which a value is cut off: `${v#...}` and its kin.
    fn trimmed(&mut self, depth: usize) -> Made {
        self.braces += 1;
        let (text, value) = self.word(depth - 1, Around::Pattern);
        self.braces -= 1;
        let number = self.tape.below(self.values.len());
        let operator = self.tape.of(&["#", "##", "%", "%%"]);
        // `w0` is the value of `p0` between two fixed texts; see `prelude`.
        let whole = format!("<{}>", self.values[number]);
        let rest = match operator {
            "#" | "##" => whole.strip_prefix(&value).unwrap_or(&whole),
            _ => whole.strip_suffix(&value).unwrap_or(&whole),
        };
        (format!("${{w{number}{operator}{text}}}"), rest.to_owned())
    }

    /// `$(...)` or backquotes around a command that writes a word and an `X`.
    fn substitution(&mut self, depth: usize, around: Around) -> Made {
        let outer = (std::mem::take(&mut self.braces), self.substituted, self.backquoted);
        // Backquotes in a quoted `${...}` may hold next to nothing.
        let back = outer.0 == 0 && self.tape.below(3) == 0;
        self.substituted = true;
        self.backquoted |= back;
        // Backquotes inside quotes may hold quotes or substitutions, but not both.
        let plain = back && matches!(around, Around::Double | Around::Heredoc);
        let (command, value) = match (plain, self.tape.below(4)) {
            (false, _) => self.substituting(depth),
            (true, 0) => {
                let (hole, value) = self.hole();
                (
                    format!("IFS=; set -f; v=`printf %sX {hole}`; printf %sX $v"),
                    format!("{value}XX"),
                )
            }
            (true, _) => self.substituting(1),
        };
        (self.braces, self.substituted, self.backquoted) = outer;
        if !back {
            return (format!("$({command})"), value);
        }
        let mut escaped = command.replace('\\', "\\\\").replace('`', "\\`");
        if around == Around::Double && self.tape.below(2) == 1 {
            escaped = escaped.replace('"', "\\\"");
        }
        (format!("`{escaped}`"), value)
    }

    fn substituting(&mut self, depth: usize) -> Made {
        let (word, value) = self.word(depth - 1, Around::Word);
        let command = match self.tape.below(9) {
            0 => format!("printf %sX {word}"),
            1 => format!("printf %s {word}; printf X"),
            2 => {
                let comment = if self.backquoted { "a \" )" } else { "it's \" )" };
                format!(" printf %s {word} | cat; printf X # {comment}\n")
            }
            3 => format!("case a in (b) ;; a) printf %sX {word};; esac"),
            4 => format!("{{ printf %sX {word}; }}"),
            5 => format!("if :; then printf %sX {word}; fi"),
            6 => format!(" (printf %sX {word})"),
            7 => format!("for i in {word}; do printf %sX \"$i\"; done"),
            _ => {
                let delimiter = self.delimiter();
                let body = self.body(depth - 1, &delimiter);
                return (
                    format!("cat <<{delimiter}\n{}X\n{delimiter}\n", body.0),
                    format!("{}X", body.1),
                );
            }
        };
        (command, format!("{value}X"))
    }

    /// The body of a here-document without its last line break.
    fn body(&mut self, depth: usize, delimiter: &str) -> Made {
        let (mut text, mut value) = (String::new(), String::new());
        for _ in 0..=self.tape.below(3) {
            let piece = self.pieces(depth, |maker, depth| maker.quoted(depth, Around::Heredoc));
            text.push_str(&format!("{}\n {delimiter}", piece.0));
            value.push_str(&format!("{}\n {delimiter}", piece.1));
        }
        (text, value)
    }

    /// A delimiter that no here-document has had.
    fn delimiter(&mut self) -> String {
        self.variables += 1;
        format!("E{}", self.variables)
    }

    /// Adds a command with its output.
    fn add(&mut self, template: &str, output: &str) {
        self.template.push_str(template);
        self.output.push_str(output);
    }

    fn command(&mut self) {
        match self.tape.below(16) {
            0..=2 => self.printed(),
            3 => {
                let (text, value) = self.word(DEPTH, Around::Unsplit);
                let lead = self.tape.of(&["", "export ", "u=1 "]);
                // `export v=$(...)` is split by some shells.
                let (text, value) =
                    if lead == "export " { self.double(DEPTH) } else { (text, value) };
                self.add(
                    &format!("{lead}v={text}\nprintf '%s\\0' \"$v\"\n"),
                    &format!("{value}\0"),
                );
            }
            4 => {
                let (a, b) = (self.word(DEPTH, Around::Word), self.word(DEPTH, Around::Word));
                self.add(
                    &format!("for i in {} {}\ndo printf '%s\\0' \"$i\"; done\n", a.0, b.0),
                    &format!("{}\0{}\0", a.1, b.1),
                );
            }
            5 => {
                let (a, b) = (self.word(DEPTH, Around::Word), self.word(DEPTH, Around::Word));
                self.add(
                    &format!("f() {{ printf '%s\\0' \"$@\"; }}; f {} {}\n", a.0, b.0),
                    &format!("{}\0{}\0", a.1, b.1),
                );
            }
            6 => {
                let (a, b) = (self.word(DEPTH, Around::Case), self.word(DEPTH, Around::Case));
                let found = if a.1 == b.1 { "yes" } else { "no" };
                self.add(
                    &format!(
                        "case {} in\n ({}) printf yes ;; # it's\n *) printf no\nesac\n",
                        a.0, b.0
                    ),
                    found,
                );
            }
            7 => {
                let (text, value) = self.word(DEPTH, Around::Word);
                self.add(
                    &format!("case x in y|x) printf '%s\\0' {text} ;; esac\n"),
                    &format!("{value}\0"),
                );
            }
            8 => {
                let (a, b) = (self.word(DEPTH, Around::Word), self.word(DEPTH, Around::Word));
                let found = if a.1 == b.1 { "yes" } else { "no" };
                self.add(
                    &format!("if [ x{} = x{} ]; then printf yes; else printf no; fi\n", a.0, b.0),
                    found,
                );
            }
            9 => {
                let (text, value) = self.word(DEPTH, Around::Word);
                self.add(
                    &format!("while :; do printf '%s\\0' {text} | cat; break; done\n"),
                    &format!("{value}\0"),
                );
            }
            10 => {
                let (text, value) = self.word(DEPTH, Around::Word);
                self.add(
                    &format!("(set -- {text} b; printf '%s\\0' \"$@\") && :\n"),
                    &format!("{value}\0b\0"),
                );
            }
            11 => self.file(),
            12 | 13 => self.heredoc(),
            14 => {
                let (e, f) = (self.delimiter(), self.delimiter());
                let (a, b) = (self.body(DEPTH, &f), self.body(DEPTH, &e));
                let text =
                    format!("cat <<{e}; cat <<'G'; cat <<{f}\n{}\n{e}\n$(\nG\n{}\n{f}\n", b.0, a.0);
                self.add(&text, &format!("{}\n$(\n{}\n", b.1, a.1));
            }
            _ => self.add("# it's a \"comment\" with $( and `\n", ""),
        }
    }

    fn printed(&mut self) {
        let words: Vec<Made> =
            (0..=self.tape.below(3)).map(|_| self.word(DEPTH, Around::Word)).collect();
        let text: String = words.iter().map(|word| format!(" {}", word.0)).collect();
        let output: String = words.iter().map(|word| format!("{}\0", word.1)).collect();
        let end = self.tape.of(&["\n", "; ", " # it's\n", " &&\n :\n", " 2>&1\n", "\n\n"]);
        self.add(&format!("printf '%s\\0'{text}{end}"), &output);
    }

    fn heredoc(&mut self) {
        let strip = self.tape.below(2) == 1;
        let e = self.delimiter();
        let (text, value) = self.body(DEPTH, &e);
        match strip {
            true => self.add(&format!("cat <<-{e}\n\t{text}\n\t{e}\n"), &format!("{value}\n")),
            false => self.add(&format!("cat <<{e}\n{text}\n{e}\n"), &format!("{value}\n")),
        }
    }

    /// A redirection to a file whose name is a word.
    fn file(&mut self) {
        let (name, named) = self.word(1, Around::Word);
        let (text, value) = self.word(DEPTH, Around::Word);
        if named.contains('/') || named.len() > 200 {
            return;
        }
        self.add(&format!("printf '%s\\0' {text} >f{name}\n"), "");
        self.files.insert(format!("f{named}"), format!("{value}\0"));
    }

    /// Variables that the constructs use.
    fn prelude(&mut self) {
        let mut text = "set=1 empty=\n".to_owned();
        for number in 0..self.values.len() {
            text.push_str(&format!("w{number}='<'${{p{number}}}'>'\n"));
        }
        self.template.push_str(&text);
    }
}
