//! The places in which no placeholder is allowed, because the shell does more with a value there than pass it on.
//!
//! Many of them concern bash, which is `sh` on many systems. Bash evaluates array subscripts, and executes the command
//! substitutions in them, wherever it expects the name of a variable or a number.

use super::TemplateError;

/// A place in which no placeholder is allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForbiddenPlace {
    /// The place, as the end of a sentence that begins with "${name} is".
    location: &'static str,
    help: &'static str,
}

impl ForbiddenPlace {
    const fn new(location: &'static str, help: &'static str) -> Self {
        Self { location, help }
    }

    /// The error that `subject` is in this place.
    pub(super) fn to_error(self, fragment: &str, subject: &str) -> TemplateError {
        TemplateError::new(fragment, format!("{subject} is {}", self.location), self.help)
    }
}

pub(super) const ARITHMETIC: ForbiddenPlace = ForbiddenPlace::new(
    "in arithmetic, where the shell evaluates the value as an expression",
    "use a program that takes numbers as arguments, such as `expr`, or compute in the tool itself",
);
pub(super) const VARIABLE_NAME: ForbiddenPlace = ForbiddenPlace::new(
    "in the position of a variable name",
    "write the name in the template; only the value of the variable can come from a parameter",
);
pub(super) const FUNCTION_NAME: ForbiddenPlace =
    ForbiddenPlace::new("in the position of a function name", "write the name in the template");
pub(super) const FUNCTION_BODY: ForbiddenPlace = ForbiddenPlace::new(
    "in the body of a function, where `$1` is the function's own argument",
    "pass it to the function as an argument, or assign it to a variable before the definition",
);
pub(super) const AFTER_SHIFT: ForbiddenPlace = ForbiddenPlace::new(
    "after a `set` or `shift`, which changes `$1`, `$2`, ...",
    "assign it to a variable first (`name=${name}`), and use the variable after the `set` or `shift`",
);
pub(super) const SHIFT_IN_LOOP: ForbiddenPlace = ForbiddenPlace::new(
    "in a loop that runs `set` or `shift`, which changes `$1`, `$2`, ... for the next iteration",
    "assign it to a variable before the loop",
);
pub(super) const SUBSCRIPT: ForbiddenPlace = ForbiddenPlace::new(
    "in an array subscript, which bash evaluates",
    "use plain variables; `sh` has no arrays",
);
pub(super) const COMMENT: ForbiddenPlace = ForbiddenPlace::new(
    "in a comment, where the shell never sees it",
    "move it out of the comment, or write `\\${name}` for the text itself",
);
pub(super) const QUOTED_HEREDOC: ForbiddenPlace = ForbiddenPlace::new(
    "in a here-document with a quoted delimiter, where the shell expands nothing",
    "write the delimiter without quotes, or pass the value by `stdin:`",
);
pub(super) const HEREDOC_DELIMITER: ForbiddenPlace = ForbiddenPlace::new(
    "in the delimiter of a here-document",
    "write a fixed delimiter, such as `EOF`",
);
pub(super) const NON_POSIX_EXPANSION: ForbiddenPlace = ForbiddenPlace::new(
    "in an expansion that is not POSIX and that some shells evaluate",
    "use `:-`, `:+`, `:?`, `#`, `##`, `%` or `%%`, or a program such as `cut` or `sed`",
);
pub(super) const UNQUOTED_ASSIGNMENT: ForbiddenPlace = ForbiddenPlace::new(
    "in `${name:=...}` outside double quotes, where the shell splits the result",
    "put the whole expansion in double quotes",
);
pub(super) const DESCRIPTOR_TARGET: ForbiddenPlace = ForbiddenPlace::new(
    "after `>&` or `<&`, where bash expands a value that is not a number a second time",
    "write `>` for a file",
);
pub(super) const SCRIPT_ARGUMENT: ForbiddenPlace = ForbiddenPlace::new(
    "in a command that makes the shell execute the value as a script",
    "to run a script that the LLM writes, write `sh -c ${script}`",
);
pub(super) const PRINTF_FORMAT: ForbiddenPlace = ForbiddenPlace::new(
    "at the beginning of printf's format, where bash may read the value as the option `-v`",
    "write `printf '%s' ${value}`",
);
pub(super) const TEST_OPERAND: ForbiddenPlace = ForbiddenPlace::new(
    "next to another value in a test, where bash may read the first as `-v` and evaluate the second",
    "write an operator, such as `=`, between them in the template",
);
pub(super) const WAIT_ARGUMENT: ForbiddenPlace = ForbiddenPlace::new(
    "in a `wait`, where bash may read the value as the option `-p`",
    "wait for `$!`",
);
pub(super) const EVALUATED_VARIABLE: ForbiddenPlace = ForbiddenPlace::new(
    "in the value of a variable that bash evaluates when it is set",
    "choose another name for the variable",
);
pub(super) const CASE_EXPANSION: ForbiddenPlace = ForbiddenPlace::new(
    "in a `${...}` in a word that `case` compares, where bash inserts a byte for an empty value",
    "put the whole expansion in double quotes",
);
pub(super) const HEREDOC_PATTERN: ForbiddenPlace = ForbiddenPlace::new(
    "in the pattern of an expansion in a here-document, where dash ignores quotes and matches `*` in the value",
    "assign the result to a variable first, and write the variable in the here-document",
);
