//! The keys of sweep.yaml and of its sections: `delta schema sweep` prints them, and the program `delta-sweep` reads the file.

use delta_words::TierChoice;
use delta_yaml::yaml::MappingSchema;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};

/// The types of errors that `retry.on` may name: of the endpoint, of the disk, of a source of context.yaml.
pub const RETRIED_TYPES: [&str; 3] = ["llm", "io", "context"];

/// A time with its unit: a number alone could be taken for seconds.
const TIME_SHAPE: ValueShape = ValueShape::Pattern("[0-9].*[a-z]");

/// The number of an iteration.
const ITERATION_SHAPE: ValueShape = ValueShape::Integer(0..1 << 32);

/// The keys of sweep.yaml.
pub static SWEEP_MAPPING: MappingSchema = MappingSchema::new(
    "sweep.yaml",
    "A sweep: agents, models and parameters on inputs, each a number of times.",
    &[
        KeySchema::required(
            "name",
            ValueShape::Text,
            "Its name, and the directory that `delta sweep plan` makes by default.",
        ),
        KeySchema::required(
            "agents",
            ValueShape::OneOf(&[ValueShape::List(&ValueShape::OneOf(&[
                ValueShape::Text,
                ValueShape::Mapping(&AGENT_MAPPING),
            ]))]),
            "Agent directories, relative to this file.",
        ),
        KeySchema::optional(
            "models",
            ValueShape::OneOf(&[ValueShape::List(&ValueShape::OneOf(&[
                ValueShape::Text,
                ValueShape::Mapping(&MODEL_MAPPING),
            ]))]),
            "Models as for `--model`; the agents' own without it.",
        ),
        KeySchema::required(
            "inputs",
            ValueShape::OneOf(&[
                ValueShape::Text,
                ValueShape::List(&ValueShape::Mapping(&INPUT_MAPPING)),
                ValueShape::Mapping(&FOUND_INPUTS_MAPPING),
            ]),
            "A file with one JSON object a line, relative to this file; or a list; or `{dirs: PATTERN}`; or `{runs: PATTERN, at: each}`.",
        ),
        KeySchema::with_default(
            "task",
            ValueShape::Text,
            DefaultValue::Text("${input.task}"),
            "The task of every run.",
        ),
        KeySchema::optional(
            "env",
            ValueShape::TextMap,
            "Variables of the environment of every run. Keys belong into your own environment.",
        ),
        KeySchema::optional(
            "files",
            ValueShape::TextMap,
            "Files of every workspace, with their texts; they replace files of `from`; files of an input replace both.",
        ),
        KeySchema::optional(
            "llm",
            ValueShape::MapOf(&ValueShape::Any),
            "Keys of `llm` of the agents, as with `--llm`, for every run.",
        ),
        KeySchema::optional(
            "params",
            ValueShape::MapOf(&ValueShape::List(&ValueShape::Any)),
            "Parameters, each with the values that are tried.",
        ),
        KeySchema::with_default(
            "repeats",
            ValueShape::Integer(1..1 << 20),
            DefaultValue::Integer(1),
            "How often each combination runs.",
        ),
        KeySchema::optional(
            "exclude",
            ValueShape::List(&ValueShape::MapOf(&ValueShape::Any)),
            "Combinations that are left out: a run with all values of an entry.",
        ),
        KeySchema::optional("run", ValueShape::Mapping(&RUN_MAPPING), "The limits of each run."),
        KeySchema::optional(
            "budget",
            ValueShape::Mapping(&BUDGET_MAPPING),
            "The limits of the whole sweep.",
        ),
        KeySchema::optional(
            "retry",
            ValueShape::Mapping(&RETRY_MAPPING),
            "Failures of the infrastructure that are tried again.",
        ),
        KeySchema::optional(
            "rate",
            ValueShape::Mapping(&RATE_MAPPING),
            "How much the runs ask of an endpoint.",
        ),
        KeySchema::with_default(
            "tier",
            ValueShape::Choice(&TierChoice::NAMES),
            DefaultValue::Text("direct"),
            "The service tier of the runs, as for `--tier`.",
        ),
        KeySchema::with_default(
            "answers",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "Whether runs on one input share equal answers; repeats of a setting do not.",
        ),
        KeySchema::optional(
            "grade",
            ValueShape::List(&ValueShape::Mapping(&GRADER_MAPPING)),
            "Graders of the runs. The first one counts unless another one is named.",
        ),
        KeySchema::optional(
            "gate",
            ValueShape::Mapping(&GATE_MAPPING),
            "How `delta sweep gate` judges a change.",
        ),
    ],
);

/// The keys of an entry of `agents`.
pub static AGENT_MAPPING: MappingSchema = MappingSchema::new(
    "an entry of `agents`",
    "An agent and its name in the sweep.",
    &[
        KeySchema::optional(
            "id",
            ValueShape::Text,
            "Its name in the sweep; the name of the directory by default.",
        ),
        KeySchema::required(
            "path",
            ValueShape::Text,
            "The agent directory, relative to this file.",
        ),
    ],
);

/// The keys of an entry of `models`.
pub static MODEL_MAPPING: MappingSchema = MappingSchema::new(
    "an entry of `models`",
    "A model and its name in the sweep.",
    &[
        KeySchema::optional(
            "id",
            ValueShape::Text,
            "Its name in the sweep; the text of `model` by default.",
        ),
        KeySchema::required("model", ValueShape::Text, "The model, as for `--model`."),
        KeySchema::optional(
            "llm",
            ValueShape::MapOf(&ValueShape::Any),
            "Keys of `llm`, which replace the keys of the sweep.",
        ),
        KeySchema::optional(
            "env",
            ValueShape::TextMap,
            "Variables, which replace the ones of the sweep.",
        ),
    ],
);

/// The keys of an entry of `inputs`.
pub static INPUT_MAPPING: MappingSchema = MappingSchema::new(
    "an entry of `inputs`",
    "An input. Other keys are for `${input.NAME}` and for graders.",
    &[
        KeySchema::required("id", ValueShape::Text, "Its name in the sweep."),
        KeySchema::optional("task", ValueShape::Text, "Its task."),
        KeySchema::optional(
            "from",
            ValueShape::Text,
            "A directory whose files the workspace begins with, relative to this file.",
        ),
        KeySchema::optional(
            "files",
            ValueShape::TextMap,
            "More files of the workspace, with their texts.",
        ),
        KeySchema::optional(
            "group",
            ValueShape::Text,
            "Inputs of one group are not independent of each other.",
        ),
    ],
)
.with_other_keys();

/// The keys of `inputs`, if it names directories or recorded runs.
pub static FOUND_INPUTS_MAPPING: MappingSchema = MappingSchema::new(
    "`inputs`",
    "A directory for each input, or recorded runs.",
    &[
        KeySchema::optional(
            "dirs",
            ValueShape::Text,
            "The directories, such as `cases/*`, relative to this file. Each is an input with the name of the directory as `id`, and the directory as `from`.",
        ),
        KeySchema::optional(
            "runs",
            ValueShape::Text,
            "The directories of recorded runs, or of their workspaces, such as `work/.delta/*`, relative to this file. Each is an input after each iteration that `at` names.",
        ),
        KeySchema::with_default(
            "at",
            ValueShape::OneOf(&[
                ValueShape::Choice(&["each", "last"]),
                ITERATION_SHAPE,
                ValueShape::List(&ITERATION_SHAPE),
            ]),
            DefaultValue::Text("last"),
            "The iterations of recorded runs after which runs begin; 0 is the task alone.",
        ),
    ],
)
.with_exactly_one_of(&["dirs", "runs"]);

/// The keys of `run`.
pub static RUN_MAPPING: MappingSchema = MappingSchema::new(
    "`run`",
    "The limits of each run.",
    &[
        KeySchema::optional(
            "max_iterations",
            ValueShape::Integer(1..1 << 31),
            "As `--max-iterations`.",
        ),
        KeySchema::optional("max_duration", TIME_SHAPE, "As `--max-duration`, such as `30m`."),
        KeySchema::optional(
            "max_cost",
            ValueShape::Number(0.0, f64::MAX),
            "As `--max-cost`, in USD.",
        ),
        KeySchema::optional(
            "max_tokens",
            ValueShape::TokenCount(1..1 << 53),
            "As `--max-tokens`, such as `200k`.",
        ),
        KeySchema::with_default(
            "snapshots",
            ValueShape::Boolean,
            DefaultValue::Boolean(false),
            "As `--snapshots`.",
        ),
    ],
);

/// The keys of `budget`.
pub static BUDGET_MAPPING: MappingSchema = MappingSchema::new(
    "`budget`",
    "The limits of the whole sweep.",
    &[
        KeySchema::optional("max_cost", ValueShape::Number(0.0, f64::MAX), "USD for all runs."),
        KeySchema::optional(
            "max_tokens",
            ValueShape::TokenCount(1..1 << 53),
            "Tokens of all runs.",
        ),
    ],
);

/// The keys of `retry`.
pub static RETRY_MAPPING: MappingSchema = MappingSchema::new(
    "`retry`",
    "Failures of the infrastructure that are tried again.",
    &[
        KeySchema::with_default(
            "attempts",
            ValueShape::Integer(1..1 << 20),
            DefaultValue::Integer(3),
            "How often a run may FAIL with such an error, the first time included.",
        ),
        KeySchema::optional(
            "on",
            ValueShape::List(&ValueShape::Choice(&RETRIED_TYPES)),
            "The types of errors: all of them by default.",
        ),
    ],
);

/// The keys of `rate`.
pub static RATE_MAPPING: MappingSchema = MappingSchema::new(
    "`rate`",
    "How much the runs ask of an endpoint.",
    &[
        KeySchema::with_default(
            "concurrent",
            ValueShape::Integer(1..1 << 16),
            DefaultValue::Integer(8),
            "LLM calls at a time on one host; also the default of `--jobs`.",
        ),
        KeySchema::with_default(
            "warm",
            ValueShape::Choice(&["auto", "off"]),
            DefaultValue::Text("off"),
            "`auto`: one run writes what runs share to the cache, and the others wait for it, where that saves more than 1 %.",
        ),
    ],
);

/// The keys of `gate`.
pub static GATE_MAPPING: MappingSchema = MappingSchema::new(
    "`gate`",
    "How `delta sweep gate` judges a change.",
    &[
        KeySchema::optional(
            "max_drop",
            ValueShape::Number(0.0, 1.0),
            "The drop of the mean score that PASS excludes, 0.1 by default.",
        ),
        KeySchema::optional(
            "against",
            ValueShape::Text,
            "The base: a git revision, an agent directory, or KEY=VALUE; by default the merge base with the default branch of the remote.",
        ),
        KeySchema::optional(
            "ignore",
            ValueShape::Text,
            "A file with a line `ID REASON` for each input that is left out, relative to this file.",
        ),
        KeySchema::with_default(
            "max_age",
            TIME_SHAPE,
            DefaultValue::Text("14d"),
            "How much older than the first run of the change a run of the base may be.",
        ),
    ],
);

/// The keys of a grader.
pub static GRADER_MAPPING: MappingSchema = MappingSchema::new(
    "an entry of `grade`",
    "A grader: a command, an expectation or an agent, which gives each settled run a score from 0 to 1.",
    &[
        KeySchema::required("name", ValueShape::Text, "Its name in tables."),
        KeySchema::optional(
            "command",
            ValueShape::List(&ValueShape::Text),
            "A program and its arguments, started in the workspace of the run. A program with a `/` is relative to this file, and copied.",
        ),
        KeySchema::with_default(
            "timeout",
            TIME_SHAPE,
            DefaultValue::Text("10m"),
            "How long the command may take.",
        ),
        KeySchema::optional(
            "expect",
            ValueShape::MapOf(&ValueShape::Any),
            "What the run must have done, as `expect` of a test (docs/reference/tests-yaml.md): 1 or 0.",
        ),
        KeySchema::optional(
            "agent",
            ValueShape::Text,
            "An agent directory, relative to this file, whose result has `score` and perhaps `pass` and `why`.",
        ),
        KeySchema::optional("model", ValueShape::Text, "The model of the agent, as for `--model`."),
    ],
).with_exactly_one_of(&["command", "expect", "agent"]);
