//! The options of the commands that drive a run.

use crate::arguments::anchor::Anchor;
use crate::arguments::approve_options::ApproveOptions;
use crate::arguments::budget::LimitOptions;
use crate::arguments::conversation::TerminalConversation;
use crate::arguments::served_output::ServedOutput;
use crate::arguments::terminal_prompt::{InboxExit, TerminalPrompt};
use crate::env_files::EnvFileOptions;
use crate::environment;
use crate::sandbox_options::SandboxOptions;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args};
use delta_agent::ask_human::HumanPrompt;
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_engine::progress::Verbosity;
use delta_engine::result_output::OutputFormat;
use delta_llm::llm::{LlmSetting, ModelChoice};
use delta_program::number_argument::parse_number_in;
use delta_program::stdio;
use delta_words::TierChoice;

/// The line in the help of a command whose other options [`show_only`] leaves out.
pub const CONTINUE_OPTIONS: &str =
    "Takes most options of `delta continue` too; `delta run --help` lists them";
/// The same line of `continue`, which shares options with `run`.
pub const RUN_OPTIONS: &str =
    "Takes the options of `delta run` too: model, output, approvals, limits, sandbox";

/// Leaves all arguments out of the help but the ones with these `ids`. They still work, and shells and manual pages still have them.
pub fn show_only(ids: &[&str]) -> impl Fn(Arg) -> Arg {
    move |arg| {
        let is_hidden = !ids.contains(&arg.get_id().as_str());
        arg.hide_short_help(is_hidden).hide_long_help(is_hidden)
    }
}

/// The heading of options that few commands need, at the end of the help.
pub const OTHER_HEADING: &str = "Other options";

/// Parses the number of LLM calls that a process may make.
pub fn parse_max_iterations(text: &str) -> Result<u32, String> {
    let number = parse_number_in(1..=(1 << 31) - 1)(text);
    number.map_err(|error| format!("{error}; no value means `no limit`: write a large number"))
}

/// Parses the name of a service tier.
pub fn tier_parser() -> impl TypedValueParser<Value = TierChoice> {
    PossibleValuesParser::new(TierChoice::NAMES)
        .map(|name| TierChoice::parse(&name).unwrap_or_default())
}

/// The options of `run` and `continue`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Answer the agent's questions, and approve its calls, at this terminal
    ///
    /// [default: at a terminal, without `-q` and CI]
    #[arg(short, long, overrides_with = "no_interactive")]
    pub interactive: bool,
    /// Ask nothing; at a question, exit with 101 and leave the run waiting
    #[arg(long, overrides_with = "interactive")]
    pub no_interactive: bool,
    /// Do not offer the LLM the tool `ask_human`
    #[arg(long, hide_short_help = true)]
    pub no_ask_human: bool,
    /// Show errors only, and print the result without a summary
    #[arg(short, long)]
    pub quiet: bool,
    /// Show reasoning and complete results
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Output format, else DELTA_FORMAT, else `format` in config.yaml
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub format: OutputFormat,
    /// Use another LLM: NAME, PROVIDER:NAME or script:FILE
    #[arg(long, value_name = "MODEL", value_parser = ModelChoice::parse)]
    pub model: Option<ModelChoice>,
    /// Set a key of `llm` in agent.yaml for this run, such as `temperature=0.7`; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = LlmSetting::parse, hide_short_help = true)]
    pub llm: Vec<LlmSetting>,
    /// Service tier of requests; `cheapest` is `flex` where the model costs less in it
    #[arg(long, value_name = "TIER", value_parser = tier_parser(), hide_short_help = true)]
    pub tier: Option<TierChoice>,
    /// Be a run of the job N of a sweep, whose runs follow each other
    #[arg(long, value_name = "N", hide = true)]
    pub cache_job: Option<u32>,
    /// Which calls start without a question, and how the others are decided.
    #[command(flatten, next_help_heading = "Approvals")]
    pub approvals: ApproveOptions,
    /// Stop after N LLM calls of this process [default: `max_iterations` in agent.yaml]
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = parse_max_iterations, allow_hyphen_values = true)]
    pub max_iterations: Option<u32>,
    /// What the run may cost.
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitOptions,
    /// Take a snapshot of the workspace at each iteration, for `delta rollback` and `delta diff`
    #[arg(long, help_heading = OTHER_HEADING, hide_short_help = true)]
    pub snapshots: bool,
    /// The sandbox of tools, as the operator wants it.
    #[command(flatten, next_help_heading = "Sandbox")]
    pub sandbox: SandboxOptions,
    /// Include the skills of the workspace that `skills` in agent.yaml names
    #[arg(long, help_heading = OTHER_HEADING, hide_short_help = true)]
    pub project_skills: bool,
    /// Files with variables.
    #[command(flatten, next_help_heading = OTHER_HEADING)]
    pub env_files: EnvFileOptions,
    /// Append the head of the journal to FILE (or pass it to `|COMMAND`) at exit; see `delta verify --help`
    #[arg(long, value_name = "FILE", help_heading = OTHER_HEADING, hide_short_help = true, value_parser = Anchor::parse)]
    pub anchor: Option<Anchor>,
    /// Be the process in the background of a command with `--detach`
    #[arg(long, hide = true)]
    pub detached: bool,
    /// Work for a server, which asks what the run waits for
    #[arg(long, value_enum, value_name = "OUTPUT", hide = true)]
    pub served: Option<ServedOutput>,
    /// Print nothing, not even errors; the caller reports them.
    #[arg(skip)]
    pub silent: bool,
    /// The inbox that asks, if one does.
    #[arg(skip)]
    pub inbox: Option<InboxExit>,
    /// What the user types at the terminal.
    #[arg(skip)]
    pub conversation: TerminalConversation,
}

impl RunOptions {
    /// Whether they choose the LLM or its settings.
    pub fn changes_llm(&self) -> bool {
        self.model.is_some() || !self.llm.is_empty()
    }

    /// The options of a command that drives a run but has no such options of its own.
    pub fn new(max_iterations: Option<u32>, model: Option<ModelChoice>) -> Self {
        Self {
            max_iterations,
            limits: LimitOptions::default(),
            approvals: ApproveOptions::default(),
            sandbox: SandboxOptions::default(),
            env_files: EnvFileOptions::default(),
            model,
            llm: Vec::new(),
            tier: None,
            cache_job: None,
            snapshots: false,
            project_skills: false,
            anchor: None,
            format: OutputFormat::Text,
            interactive: false,
            no_interactive: true,
            no_ask_human: false,
            verbose: false,
            quiet: false,
            detached: false,
            served: None,
            silent: false,
            inbox: None,
            conversation: TerminalConversation::default(),
        }
    }

    /// How much is printed to stderr.
    pub fn verbosity(&self) -> Verbosity {
        match (self.quiet || self.detached, self.verbose) {
            _ if self.silent => Verbosity::Silent,
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }

    /// Prints notes to stderr, unless the user wants only errors.
    pub fn print_notes(&self, lines: &[String]) {
        for line in lines.iter().filter(|_| !self.quiet && !self.silent) {
            stdio::print_error_line(line);
        }
    }

    /// The prompt for the agent's questions, only at a terminal.
    pub fn human_prompt(&self, cancel: &CancelToken) -> Option<Box<dyn HumanPrompt>> {
        if self.interactive && !self.asks_human() && !self.quiet {
            stdio::print_error_line(
                "Note: `-i` has no effect without a terminal; questions wait for `delta continue`",
            );
        }
        self.asks_human().then(|| {
            let inbox = self.inbox.clone();
            Box::new(TerminalPrompt { cancel: cancel.clone(), inbox }) as Box<dyn HumanPrompt>
        })
    }

    /// Whether the result is printed as text to the terminal that has shown the progress of the run: only what is new follows.
    pub fn result_follows_progress(&self) -> bool {
        self.format == OutputFormat::Text
            && self.verbosity() > Verbosity::Quiet
            && terminal::is_stdout_terminal()
            && terminal::is_stderr_terminal()
    }

    /// Whether an option is set that has an effect only while the engine works.
    pub fn has_engine_option(&self) -> bool {
        self.interactive
            || self.no_interactive
            || self.snapshots
            || self.project_skills
            || self.anchor.is_some()
            || self.max_iterations.is_some()
            || !self.limits.are_none()
            || self.approvals.are_set()
            || self.sandbox.are_set()
    }

    /// Whether the agent's questions are asked at this terminal.
    pub fn asks_human(&self) -> bool {
        if self.interactive {
            return terminal::can_prompt_person();
        }
        // A script that redirects stdin, a job in the background and CI expect no question.
        let is_automated = self.no_interactive || self.quiet || self.detached;
        !is_automated && environment::can_prompt_here()
    }

    /// Whether the user types messages to a run that works, and the next task, at this terminal, which shows everything.
    pub fn takes_input(&self) -> bool {
        self.asks_human()
            && self.result_follows_progress()
            && self.served.is_none()
            && environment::can_prompt_here()
            && environment::can_move_cursor()
    }
}
