//! The places where no placeholder may stand, and why: there the shell does more with a value than pass it on.
//!
//! Much of this concerns bash, which is `sh` on many systems: it evaluates array subscripts, command substitutions in
//! them included, wherever it expects a variable name or a number.

use super::Refusal;
use super::lexer::refuse;

/// A reason for which no placeholder may stand somewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forbidden {
    place: &'static str,
    help: &'static str,
}

impl Forbidden {
    const fn new(place: &'static str, help: &'static str) -> Self {
        Self { place, help }
    }

    pub(super) fn refuse(self, fragment: &str, subject: &str) -> Refusal {
        refuse(fragment, format!("{subject} stands {}", self.place), self.help)
    }
}

pub(super) const ARITHMETIC: Forbidden = Forbidden::new(
    "in arithmetic, where the shell evaluates the value as an expression",
    "use a program that takes numbers as arguments, such as `expr`, or compute in the tool itself",
);
pub(super) const VARIABLE: Forbidden = Forbidden::new(
    "in the place of a variable name",
    "name the variable in the template; only its value can come from a parameter",
);
pub(super) const FUNCTION: Forbidden =
    Forbidden::new("in the place of a function name", "name the function in the template");
pub(super) const FUNCTION_BODY: Forbidden = Forbidden::new(
    "in the body of a function, where `$1` is the function's own argument",
    "pass it to the function as an argument, or put it into a variable before the definition",
);
pub(super) const MOVED: Forbidden = Forbidden::new(
    "after a `set` or `shift`, which changes what `$1`, `$2`, ... are",
    "put it into a variable first (`name=${name}`), and use the variable after the `set` or `shift`",
);
pub(super) const MOVED_IN_LOOP: Forbidden = Forbidden::new(
    "in a loop that runs `set` or `shift`, which changes what `$1`, `$2`, ... are the next time round",
    "put it into a variable before the loop",
);
pub(super) const SUBSCRIPT: Forbidden = Forbidden::new(
    "in an array subscript, which bash evaluates",
    "use plain variables; `sh` has no arrays",
);
pub(super) const COMMENT: Forbidden = Forbidden::new(
    "in a comment, where the shell never sees it",
    "take it out of the comment, or write `\\${name}` for the text itself",
);
pub(super) const QUOTED_HEREDOC: Forbidden = Forbidden::new(
    "in a here-document with a quoted delimiter, where the shell expands nothing",
    "write the delimiter without quotes, or give the value by `stdin:`",
);
pub(super) const DELIMITER: Forbidden =
    Forbidden::new("in the delimiter of a here-document", "write a fixed delimiter, such as `EOF`");
pub(super) const NOT_POSIX: Forbidden = Forbidden::new(
    "in an expansion that is not POSIX and that some shells evaluate",
    "use `:-`, `:+`, `:?`, `#`, `##`, `%` or `%%`, or a program such as `cut` or `sed`",
);
pub(super) const ASSIGNING: Forbidden = Forbidden::new(
    "in `${name:=...}` outside double quotes, where the shell splits the result",
    "put double quotes around the whole expansion",
);
pub(super) const DESCRIPTOR: Forbidden = Forbidden::new(
    "after `>&` or `<&`, where bash expands a value that is no number a second time",
    "write `>` for a file",
);
pub(super) const EVALUATED: Forbidden = Forbidden::new(
    "in a command that makes the shell read the value as a script",
    "to run a script that the LLM writes, say so: `sh -c ${script}`",
);
pub(super) const FORMAT: Forbidden = Forbidden::new(
    "at the beginning of printf's format, where bash may take the value for the option `-v`",
    "write `printf '%s' ${value}`",
);
pub(super) const OPERAND: Forbidden = Forbidden::new(
    "directly beside another value in a test, where bash may take the first for `-v` and evaluate the second",
    "write the operator between them in the template, such as `=`",
);
pub(super) const WAIT: Forbidden = Forbidden::new(
    "in a `wait`, where bash may take the value for the option `-p`",
    "wait for `$!`",
);
pub(super) const EVALUATING: Forbidden = Forbidden::new(
    "in the value of a variable that bash evaluates when it is set",
    "choose another name for the variable",
);
pub(super) const MATCHED: Forbidden = Forbidden::new(
    "in a `${...}` in what `case` compares, where bash leaves a byte behind for a value that is empty",
    "put double quotes around the whole expansion",
);
pub(super) const HEREDOC_PATTERN: Forbidden = Forbidden::new(
    "in the pattern of an expansion in a here-document, where dash takes no quotes and matches `*` in the value",
    "put the result into a variable first, and the variable into the here-document",
);
