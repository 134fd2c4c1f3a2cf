//! What a tool of a `tools:` list may say: the tables by which it is read.

use super::parameter::PARAMETER;
use crate::yaml::Mapping;
use crate::yaml::shape::{Default, Key, Shape};

/// A tool of a `tools:` list.
pub static TOOL: Mapping = Mapping {
    what: "a tool",
    about: "A command that the LLM may call.",
    keys: &[
        Key::required(
            "name",
            Shape::Pattern("[A-Za-z0-9_-]{1,64}"),
            "What the LLM calls it: 1 to 64 letters, digits, `_` or `-`.",
        ),
        Key::optional(
            "description",
            Shape::Text,
            "What the LLM is told of it: what it does, and when to use it.",
        ),
        Key::optional(
            "exec",
            Shape::Text,
            "A program and its arguments, started without a shell. `${name}` is a parameter, always one word.",
        ),
        Key::optional(
            "shell",
            Shape::Text,
            "A script for `sh`. `${name}` is a parameter, whose value stays one literal string; `$name` is the shell's own.",
        ),
        Key::optional(
            "command",
            Shape::List(&Shape::Either(&[Shape::Text, Shape::Mapping(&ELEMENT)])),
            "The complete form: a program and its arguments, one element each.",
        ),
        Key::optional("stdin", NAME, "The parameter that goes to standard input."),
        Key::optional(
            "parameters",
            Shape::List(&Shape::Mapping(&PARAMETER)),
            "What the values of the parameters may be.",
        ),
        Key::with_default(
            "timeout_ms",
            Shape::Integer(1..u32::MAX as u64 + 1),
            Default::Integer(120_000),
            "Milliseconds before it is ended: SIGTERM to its process group, SIGKILL 5 s later.",
        ),
        Key::with_default(
            "max_output_bytes",
            Shape::Integer(1..(16 << 20) + 1),
            Default::Integer(32_768),
            "Bytes of each output stream that the LLM sees; the whole is kept in the run directory.",
        ),
        Key::optional(
            "env",
            Shape::Names,
            "Environment variables; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are filled in.",
        ),
        Key::optional(
            "pass_env",
            Shape::List(&Shape::Text),
            "Variables that hold a key and that it is given all the same, by name.",
        ),
        Key::with_default(
            "idempotent",
            Shape::Boolean,
            Default::Boolean(false),
            "Whether it may simply be run again when the engine died during a call.",
        ),
        Key::optional("__meta", Shape::Any, "Written by `delta tool expand`; ignored."),
    ],
    one_of: &["exec", "shell", "command"],
    open: false,
};

/// An element of `command:` that has parameters.
pub(super) static ELEMENT: Mapping = Mapping {
    what: "an element of `command`",
    about: "An argument with parameters in it.",
    keys: &[Key::required(
        "template",
        Shape::Text,
        "The argument; `${name}` is a parameter, the whole always one word.",
    )],
    one_of: &[],
    open: false,
};

/// The name of a parameter.
pub(super) const NAME: Shape = Shape::Pattern("[A-Za-z_][A-Za-z0-9_]*");
