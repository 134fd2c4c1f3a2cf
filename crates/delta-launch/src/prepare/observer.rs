//! What a process shows while it works on a run: progress on stderr, engine.log, and events or pieces on stdout.

use delta_base::durable::LogFile;
use delta_base::signal::CancelToken;
use delta_base::{terminal, time};
use delta_engine::progress::{ProgressPrinter, Verbosity};
use delta_engine::result_output::OutputFormat;
use delta_operator::arguments::options::RunOptions;
use delta_operator::arguments::served_output::{PiecePrinter, ServedOutput};
use delta_operator::environment;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::event::Event;
use delta_run::run::{RunNotice, RunObserver};
use delta_run::state::RunState;
use std::path::Path;

/// Whether delta repaints the end of the terminal on stderr during the run: the terminal can move its cursor, and no
/// events are printed there at the same time.
pub fn shows_live_output(options: &RunOptions) -> bool {
    let prints_events = options.format == OutputFormat::Jsonl && terminal::is_stdout_terminal();
    environment::can_move_cursor() && !prints_events && options.verbosity() > Verbosity::Quiet
}

/// Whether a server gets pieces of answers and output as they arrive.
pub fn prints_pieces(options: &RunOptions) -> bool {
    options.served == Some(ServedOutput::Pieces)
}

/// Shows progress on stderr, writes engine.log, and with `jsonl` prints every event to stdout. `before` is the state of the
/// run so far.
pub fn open_run_observer(
    options: &RunOptions,
    run_dir: &Path,
    before: &RunState,
    cancel: &CancelToken,
) -> Result<RunObserver, CommandFailure> {
    let mut progress = ProgressPrinter::new(
        options.verbosity(),
        terminal::is_stderr_terminal(),
        time::current_time,
    );
    if !shows_live_output(options) {
        progress.disable_live_output();
    }
    progress.log_to(LogFile::open(&run_dir.join("engine.log"))?);
    progress.load_state(before);
    progress.report_stopping(cancel);
    progress.set_asks_here(options.asks_human());
    if options.conversation.has_earlier_turn() {
        progress.omit_start();
    }
    if options.served.is_some() {
        progress.omit_questions();
    }
    if terminal::is_stdout_terminal() && terminal::is_stderr_terminal() {
        match options.format {
            OutputFormat::Text | OutputFormat::Raw => progress.omit_result(),
            OutputFormat::Json | OutputFormat::Jsonl => {}
        }
    }
    // With `--detach`, the command prints only the id of the run.
    let mut prints_events = options.format == OutputFormat::Jsonl && !options.detached;
    let mut pieces = prints_pieces(options).then(|| PiecePrinter::new(before));
    Ok(Box::new(move |notice| {
        if let Some(pieces) = &mut pieces {
            pieces.show_notice(&notice);
        }
        if let RunNotice::EventDurable(event, _) = &notice {
            prints_events = prints_events && stdio::print_json(&Event::to_line(event));
        }
        progress.show_notice(&notice);
    }))
}
