#![doc = include_str!("../README.md")]

mod exec_template;
mod placeholder;
mod plain_command;
mod shell_template;

pub use exec_template::{ExecWord, split_exec_template};
pub use placeholder::{
    Placeholder, TemplatePart, escape_argument_template, escape_plain_string,
    parse_argument_template, parse_placeholder,
};
pub use plain_command::{CommandPattern, CommandPatternError, read_plain_command};
pub use shell_template::{
    OutlinePart, ShellAssignment, ShellOutline, ShellScript, SimpleCommand, TemplateError,
};
