//! The keys of a tool in a `tools:` list.

use super::approval::{APPROVE_SHAPE, PREVIEW_MAPPING};
use super::parameter::{PARAMETER_MAPPING, PARAMETER_NAME_SHAPE};
use super::wrong_values;
use delta_sandbox::SANDBOX_SHAPE;
use delta_yaml::yaml::MappingSchema;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};

/// The keys of a tool.
pub static TOOL_MAPPING: MappingSchema = MappingSchema::new(
    "a tool",
    "A command that the LLM may call.",
    &[
        KeySchema::required(
            "name",
            ValueShape::Pattern("[A-Za-z0-9_-]{1,64}"),
            "The name for the LLM: 1 to 64 letters, digits, `_` or `-`.",
        ),
        KeySchema::optional(
            "description",
            ValueShape::Text,
            "The description for the LLM: what the tool does, and when to use it.",
        ),
        KeySchema::optional(
            "exec",
            ValueShape::Text,
            "A program and its arguments, started without a shell. `${name}` is a parameter, always a single argument.",
        )
        .with_help(wrong_values::one_line_help),
        KeySchema::optional(
            "shell",
            ValueShape::Text,
            "A script for `sh`. `${name}` is a parameter, whose value is always one literal string; `$name` is a shell variable.",
        )
        .with_help(wrong_values::script_help),
        KeySchema::optional(
            "command",
            ValueShape::List(&ValueShape::OneOf(&[
                ValueShape::Text,
                ValueShape::Mapping(&COMMAND_ELEMENT_MAPPING),
            ])),
            "The complete form: a program and its arguments, one element each.",
        )
        .with_help(wrong_values::command_help),
        KeySchema::optional(
            "stdin",
            PARAMETER_NAME_SHAPE,
            "The parameter passed on standard input.",
        ),
        KeySchema::optional(
            "parameters",
            ValueShape::List(&ValueShape::Mapping(&PARAMETER_MAPPING)),
            "The descriptions of the parameters.",
        )
        .with_help(wrong_values::parameters_help),
        KeySchema::optional(
            "schema",
            ValueShape::Any,
            "A JSON Schema of the arguments, of type object, or the path of a JSON file that holds one; the arguments go to standard input as one object.",
        ),
        KeySchema::with_default(
            "timeout_ms",
            ValueShape::Milliseconds(1..u32::MAX as u64 + 1),
            DefaultValue::Integer(120_000),
            "The timeout in milliseconds: SIGTERM to its processes, SIGKILL 5 s later.",
        ),
        KeySchema::with_default(
            "max_output_bytes",
            ValueShape::Integer(1..(16 << 20) + 1),
            DefaultValue::Integer(32_768),
            "The number of bytes of each output stream that the LLM sees; the run directory keeps all of it.",
        )
        .with_help(wrong_values::byte_count_help),
        KeySchema::optional(
            "env",
            ValueShape::TextMap,
            "Environment variables; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are replaced.",
        ),
        KeySchema::optional(
            "pass_env",
            ValueShape::List(&ValueShape::Text),
            "The names of key variables that it receives nevertheless.",
        )
        .with_help(wrong_values::names_help),
        KeySchema::with_default(
            "idempotent",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "Whether a call that the engine did not survive may simply run again.",
        ),
        KeySchema::with_default(
            "survive",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "Whether the command of a call outlives the engine: `delta continue` waits for it and takes its result, once.",
        ),
        KeySchema::with_default(
            "parallel",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "Whether a call has no effect on other calls, so that calls of one answer may run at the same time.",
        ),
        KeySchema::with_default(
            "background",
            ValueShape::Choice(&["end", "run", "keep"]),
            DefaultValue::Text("end"),
            "What becomes of processes that a call leaves running: they `end` with the call, `run` until the engine exits, or `keep` running.",
        )
        .with_help(wrong_values::background_help),
        KeySchema::with_default(
            "output",
            ValueShape::Choice(&["text", "json", "image", "file"]),
            DefaultValue::Text("text"),
            "What the tool prints on standard output: `text`; `json`, which the LLM sees without its blanks; the bytes of one `image` (PNG, JPEG, GIF or WebP), which the LLM sees; or data for a `file`, of which the LLM sees the name.",
        )
        .with_help(wrong_values::output_help),
        KeySchema::with_default(
            "ends_run",
            ValueShape::OneOf(&[ValueShape::Boolean, ValueShape::Mapping(&ENDS_RUN_MAPPING)]),
            DefaultValue::Boolean(false),
            "Whether a call ends the run, with its observation as the result: `true`, or with which exit code.",
        ),
        KeySchema::optional(
            "approve",
            APPROVE_SHAPE,
            "Which calls a person has to approve: `never` (the default), `ask`, a list of rules, or the `commands` that start without a question.",
        ),
        KeySchema::optional(
            "remember",
            ValueShape::List(&ValueShape::Text),
            "The parameters that must be equal in the later calls that `p` at a question allows; without it, all.",
        ),
        KeySchema::optional(
            "preview",
            ValueShape::Mapping(&PREVIEW_MAPPING),
            "The parameters that say what a call does to a file, so that an approval can show a diff.",
        ),
        KeySchema::optional(
            "stage",
            ValueShape::Choice(&["ask"]),
            "`ask`: what a call changes in the workspace is applied only after a person has seen it as a diff and agreed.",
        ),
        KeySchema::optional(
            "sandbox",
            SANDBOX_SHAPE,
            "What its processes may do: `workspace`, `reader`, `off`, a name in `sandboxes` of agent.yaml, or a map of keys over the sandbox of the agent.",
        ),
        KeySchema::optional("__meta", ValueShape::Any, "Written by `delta tool expand`; ignored."),
        KeySchema::misplaced("type", "leave it out: a tool has no other type"),
        KeySchema::misplaced(
            "function",
            "write its `name`, `description` and `parameters` next to the `exec:` of the tool",
        ),
        KeySchema::misplaced("args", "write the arguments after the program: `exec: PROGRAM ARG`"),
        KeySchema::misplaced("cmd", COMMAND_KEYS),
        KeySchema::misplaced("run", COMMAND_KEYS),
        KeySchema::misplaced("script", COMMAND_KEYS),
        KeySchema::misplaced("net", IN_SANDBOX),
        KeySchema::misplaced("network", IN_SANDBOX),
        KeySchema::misplaced("write", IN_SANDBOX),
        KeySchema::misplaced("hide", IN_SANDBOX),
    ],
).with_exactly_one_of(&["exec", "shell", "command"]);

const COMMAND_KEYS: &str = "write `exec: PROGRAM ARG`, or `shell:` for a script";
const IN_SANDBOX: &str = "it belongs under `sandbox:`, as in `sandbox: {net: all}`";

/// The keys of `ends_run`.
pub(super) static ENDS_RUN_MAPPING: MappingSchema = MappingSchema::new(
    "`ends_run`",
    "Which calls end the run.",
    &[KeySchema::required(
        "exit_code",
        ValueShape::Integer(0..256),
        "The exit code of a call that ends the run.",
    )],
);

/// The keys of an element of `command:` that has parameters.
pub(super) static COMMAND_ELEMENT_MAPPING: MappingSchema = MappingSchema::new(
    "an element of `command`",
    "An argument that contains parameters.",
    &[KeySchema::required(
        "template",
        ValueShape::Text,
        "The argument, always a single word; `${name}` is a parameter.",
    )],
);
