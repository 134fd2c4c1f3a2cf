//! `delta export --follow`: each span when it is complete, until no process works on the runs.

use super::collector::{CollectorError, CollectorSummary, OtlpCollector};
use super::{
    ExportArgs, delivery_failure, open_collector, otlp_options, print_warning, report_delivery,
    unwritten_failure,
};
use delta_base::signal::CancelToken;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::run_argument::RunArgument;
use delta_operator::runs::run_watch::RunWatch;
use delta_program::stdio;
use delta_report::export::ExportedRun;
use delta_report::export::otlp::{OtlpOptions, SentSpans, SpanBatch, build_new_span_batches};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The time between two looks at the runs.
const INTERVAL: Duration = Duration::from_secs(1);

/// The exit code after an interruption.
const INTERRUPTED: u8 = 130;

/// A run whose spans are sent.
struct FollowedRun {
    watch: RunWatch,
    sent: SentSpans,
    /// The run as it was read last, while not all of its spans are sent.
    unsent: Option<ExportedRun>,
    is_active: bool,
    /// Why it could not be read at the last look.
    failure: Option<CommandFailure>,
}

/// Where the spans go.
struct SpanSink {
    /// None is stdout.
    collector: Option<OtlpCollector>,
    accepted: CollectorSummary,
    /// Why the collector last refused spans; empty if it never did.
    problem: String,
}

/// Exports the spans of the runs as they become complete; returns the exit code.
pub fn follow_runs(args: &ExportArgs) -> Result<ExitCode, CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let options = otlp_options(args);
    let mut sink = SpanSink::open(args)?;
    let mut runs = BTreeMap::new();
    let mut selected = args.runs.select(|_| true)?;
    loop {
        add_runs(args, selected, &mut runs)?;
        for run in runs.values_mut() {
            run.look();
            if !args.runs.is_recursive()
                && let Some(failure) = run.failure.take()
            {
                return Err(failure);
            }
            run.send(&mut sink, &options, &cancel)?;
        }
        if sink.is_abandoned() {
            return Ok(ExitCode::SUCCESS);
        }
        if !runs.values().any(|run| run.is_active) {
            return end(runs, sink);
        }
        if cancel.wait(INTERVAL) {
            sink.report();
            return Ok(ExitCode::from(INTERRUPTED));
        }
        selected = args.runs.select_again()?;
    }
}

/// Adds the runs that are not followed yet.
fn add_runs(
    args: &ExportArgs,
    selected: Vec<RunArgument>,
    runs: &mut BTreeMap<PathBuf, FollowedRun>,
) -> Result<(), CommandFailure> {
    for run in selected {
        if let RunArgument::Dir(dir) = &run
            && runs.contains_key(dir)
        {
            continue;
        }
        let run = match run.find_readable(&args.runs.work_dir) {
            Ok(run) => run,
            // It was removed after it was listed.
            Err(_) if args.runs.is_recursive() => continue,
            Err(failure) => return Err(failure),
        };
        runs.entry(run.dir.clone()).or_insert_with(|| FollowedRun {
            watch: RunWatch::new(&run),
            sent: SentSpans::default(),
            unsent: None,
            is_active: false,
            failure: None,
        });
    }
    Ok(())
}

/// The end, when no process works on the runs.
fn end(runs: BTreeMap<PathBuf, FollowedRun>, sink: SpanSink) -> Result<ExitCode, CommandFailure> {
    if runs.values().any(|run| run.unsent.is_some()) {
        return Err(delivery_failure(CollectorError::Undelivered(sink.problem)));
    }
    let code = sink.report();
    let failures = runs.into_values().filter_map(|run| run.failure);
    Ok(failures.fold(code, |_, failure| failure.report()))
}

impl FollowedRun {
    /// Reads the run if it has changed. A run that cannot be read now may be readable at the next look.
    fn look(&mut self) {
        self.failure = None;
        match self.watch.look() {
            Ok(look) => {
                self.is_active = look.is_active;
                if let Some(events) = look.events {
                    self.unsent = Some(ExportedRun::read(&self.watch.dir, events));
                }
            }
            Err(failure) => {
                self.is_active = false;
                self.failure = Some(failure);
            }
        }
    }

    fn send(
        &mut self,
        sink: &mut SpanSink,
        options: &OtlpOptions,
        cancel: &CancelToken,
    ) -> Result<(), CommandFailure> {
        let Some(run) = &self.unsent else { return Ok(()) };
        let mut sent = self.sent.clone();
        let batches = build_new_span_batches(run, options, &mut sent);
        // Whatever of it was delivered is sent again, with the same ids.
        if batches.is_empty() || sink.send(&batches, cancel)? {
            self.sent = sent;
            self.unsent = None;
        }
        Ok(())
    }
}

impl SpanSink {
    fn open(args: &ExportArgs) -> Result<Self, CommandFailure> {
        let sends = args.send || args.endpoint.is_some();
        let collector = sends.then(|| open_collector(args)).transpose()?;
        Ok(Self { collector, accepted: CollectorSummary::default(), problem: String::new() })
    }

    /// Sends the batches; false if the collector does not take them now, which may be otherwise at the next look.
    fn send(
        &mut self,
        batches: &[SpanBatch],
        cancel: &CancelToken,
    ) -> Result<bool, CommandFailure> {
        let Some(collector) = &mut self.collector else {
            let lines: String = batches.iter().map(|batch| batch.line.as_str()).collect();
            return stdio::print_json_result(&lines).map(|()| true).map_err(unwritten_failure);
        };
        match collector.send(batches, cancel, &mut print_warning) {
            Ok(accepted) => {
                self.accepted.add(accepted);
                Ok(true)
            }
            Err(CollectorError::Undelivered(problem)) => {
                if self.problem != problem {
                    print_warning(&format!("{problem}; delta tries again"));
                }
                self.problem = problem;
                Ok(false)
            }
            Err(error) => Err(delivery_failure(error)),
        }
    }

    /// Whether the spans go to a pipe that has no reader any more.
    fn is_abandoned(&self) -> bool {
        self.collector.is_none() && stdio::is_stdout_abandoned()
    }

    /// Prints how many spans the collector has accepted; returns the exit code.
    fn report(&self) -> ExitCode {
        match &self.collector {
            Some(_) => report_delivery(&self.accepted),
            None => ExitCode::SUCCESS,
        }
    }
}
