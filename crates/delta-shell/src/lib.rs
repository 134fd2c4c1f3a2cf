#![doc = include_str!("../README.md")]

mod engine_variables;
mod exec_template;
mod placeholder;
mod shell_template;

pub use engine_variables::{
    EngineVariable, EngineVars, StringPart, find_unknown_variable, find_unknown_variables,
    parse_plain_string, unknown_variable_help,
};
pub use exec_template::{ExecWord, split_exec_template};
pub use placeholder::{
    Placeholder, TemplatePart, escape_argument_template, escape_plain_string, is_identifier,
    parse_argument_template, parse_placeholder,
};
pub use shell_template::{
    OutlinePart, ShellAssignment, ShellOutline, ShellScript, SimpleCommand, TemplateError,
};
