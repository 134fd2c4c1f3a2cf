//! `delta tool hold` and `delta tool await`: the process that holds the command of a call which outlives the engine, and
//! the one that stands for it in the engine.

use clap::Args;
use delta_base::checksum::RunningChecksum;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, environment};
use delta_process::{
    Background, Containment, LaunchContext, ProcessCommand, ProcessNotice, ProcessResult,
    RunProcesses, adopt_orphans, prepare_process, run_together,
};
use delta_program::stdio;
use delta_run::record::surviving_call::{
    HOLDER_READY, HolderOrder, StreamFile, StreamFiles, SurvivingCall, SurvivingEnd,
    leaves_commands,
};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a look at the call by another process may keep its holder from the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);
/// The pause between two looks at what the command has printed.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(20);
/// Twice the longest key, of which the end of a stream may be the start.
const MIN_EXCERPT_BYTES: usize = 256 * 1024;

/// Hold the command of a call that outlives its engine
///
/// The order is on standard input.
#[derive(Debug, Args)]
pub struct CallHolderArgs {
    /// Directory of the call, which lets other processes recognize the holder
    dir: Option<PathBuf>,
}

/// Wait for the command of a call that outlives its engine, and print what it prints
///
/// The engine runs this in a call of a tool with `survive: true`.
#[derive(Debug, Args)]
pub struct AwaitArgs {
    /// Directory of the call
    dir: PathBuf,
    /// Epoch of the engine
    epoch: u32,
}

/// Holds the command of a call. The order is on standard input.
pub fn hold_command() -> Result<(), CommandFailure> {
    let failed = |error: io::Error| {
        CommandFailure::config(format!("could not hold the command of a call: {error}"), None)
    };
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(failed)?;
    let order: HolderOrder = serde_json::from_str(&line).map_err(|error| failed(error.into()))?;
    let call = SurvivingCall::open(order.dir.clone());
    let cancel = cancel::install_cancel()?;
    let Some(_lock) = take_lock(&call, &cancel)? else {
        // The process that works on the run has given the call up, so its command must not start.
        return Ok(());
    };
    if call.is_given_up() {
        return Ok(());
    }
    let end_file = call.create_end_file().map_err(failed)?;
    let mut output = HeldOutput::create(&call, order.max_bytes).map_err(failed)?;
    stdio::print_text(HOLDER_READY);
    let result = run_held(&call, &order, &mut output, &cancel);
    output.write_rest(&result);
    end_file.write(&SurvivingEnd::of_result(result, output.files())).map_err(failed)?;
    Ok(())
}

/// Takes the lock of the call; `None` if another process has it.
fn take_lock(
    call: &SurvivingCall,
    cancel: &CancelToken,
) -> Result<Option<delta_base::durable::FileLock>, CommandFailure> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        let lock = call.try_hold()?;
        if lock.is_some() || Instant::now() >= deadline || cancel.wait(LOCK_INTERVAL) {
            return Ok(lock);
        }
    }
}

/// Runs the command to its end.
fn run_held(
    call: &SurvivingCall,
    order: &HolderOrder,
    output: &mut HeldOutput,
    cancel: &CancelToken,
) -> ProcessResult {
    adopt_orphans();
    let containment = Containment {
        processes: RunProcesses::new(&order.run_id, &order.run_dir).with_held_call(call.name()),
        background: Background::Survive,
        is_limited: false,
    };
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let context = LaunchContext {
        secrets: Secrets::new(order.secrets.iter().cloned()),
        containment: Some(containment),
        ..LaunchContext::new(cwd, environment::variables().clone())
    };
    let timeout = Duration::from_millis(order.timeout_ms);
    let excerpt_bytes = order.excerpt_bytes.max(MIN_EXCERPT_BYTES);
    let process = ProcessCommand {
        program: order.program.as_deref(),
        stdin: order.command.stdin.as_bytes(),
        ..ProcessCommand::new(&order.command.argv, &context, timeout, excerpt_bytes)
    };
    let mut held_result = None;
    run_together(vec![prepare_process(&process)], cancel, &mut |_, notice| match notice {
        ProcessNotice::Output(piece) => output.write(piece.is_stderr, piece.bytes),
        ProcessNotice::Ended(result) => held_result = Some(*result),
    });
    held_result.unwrap_or_else(|| unreachable!("every command that is run has an end"))
}

/// The files of what a command prints, written as it is printed.
struct HeldOutput {
    streams: [HeldStream; 2],
}

struct HeldStream {
    file: File,
    /// How many bytes it may still take.
    room: u64,
    /// How many bytes it has.
    kept: u64,
    /// Of these bytes.
    checksum: RunningChecksum,
}

impl HeldStream {
    fn create(call: &SurvivingCall, name: &str, room: u64) -> io::Result<Self> {
        let file = call.create_output(name)?;
        Ok(Self { file, room, kept: 0, checksum: RunningChecksum::default() })
    }

    fn written(&self) -> StreamFile {
        StreamFile { bytes: self.kept, crc: self.checksum.to_hex() }
    }
}

impl HeldOutput {
    fn create(call: &SurvivingCall, max_bytes: u64) -> io::Result<Self> {
        let stdout = HeldStream::create(call, "stdout", max_bytes)?;
        let stderr = HeldStream::create(call, "stderr", max_bytes)?;
        Ok(Self { streams: [stdout, stderr] })
    }

    fn files(&self) -> StreamFiles {
        let [stdout, stderr] = &self.streams;
        StreamFiles { stdout: stdout.written(), stderr: stderr.written() }
    }

    fn write(&mut self, is_stderr: bool, bytes: &[u8]) {
        let stream = &mut self.streams[usize::from(is_stderr)];
        let count = usize::try_from(stream.room).unwrap_or(usize::MAX).min(bytes.len());
        // What the disk has no room for is lost, and so is what follows; the command continues.
        let is_written = stream.file.write_all(&bytes[..count]).is_ok();
        let length = if is_written {
            stream.kept + count as u64
        } else {
            stream.file.metadata().map_or(stream.kept, |metadata| metadata.len())
        };
        let written = usize::try_from(length - stream.kept).unwrap_or(count).min(count);
        stream.checksum.update(&bytes[..written]);
        stream.kept = length;
        stream.room = if is_written { stream.room - count as u64 } else { 0 };
    }

    /// Writes the end of each stream, which could have been the start of a key.
    fn write_rest(&mut self, result: &ProcessResult) {
        for (is_stderr, capture) in [(false, &result.stdout), (true, &result.stderr)] {
            let missing = capture.bytes.saturating_sub(self.streams[usize::from(is_stderr)].kept);
            let end = match &capture.whole {
                Some(bytes) => bytes,
                None if capture.tail.is_empty() => &capture.head,
                None => &capture.tail,
            };
            let missing = usize::try_from(missing).unwrap_or(usize::MAX);
            if let Some(start) = end.len().checked_sub(missing) {
                self.write(is_stderr, &end[start..]);
            }
        }
    }
}

/// Prints what the command of a call prints until it ends, and exits with its code.
pub fn await_command(args: &AwaitArgs) -> Result<ExitCode, CommandFailure> {
    let call = SurvivingCall::open(args.dir.clone());
    let cancel = cancel::install_cancel()?;
    let mut streams = [
        FollowedStream::new(&call, "stdout", Box::new(io::stdout())),
        FollowedStream::new(&call, "stderr", Box::new(io::stderr())),
    ];
    let mut waiting = cancel.clone();
    let mut is_stopping = false;
    loop {
        // Looked at before the output is read: what is printed by then has been written.
        let has_ended = call.try_hold().map_or(true, |lock| lock.is_some());
        for stream in &mut streams {
            stream.copy();
        }
        if has_ended {
            break;
        }
        if waiting.wait(OUTPUT_INTERVAL) {
            if is_stopping || is_kept(args) {
                break;
            }
            if call.stop().is_err() {
                break;
            }
            is_stopping = true;
            waiting = cancel.for_cleanup();
        }
    }
    // The engine reads from the file how the command ended.
    Ok(ExitCode::SUCCESS)
}

/// Whether the engine leaves the command at work.
fn is_kept(args: &AwaitArgs) -> bool {
    args.dir.ancestors().nth(2).is_some_and(|run_dir| leaves_commands(run_dir, args.epoch))
}

/// A file of output that is copied as it grows.
struct FollowedStream {
    path: PathBuf,
    file: Option<File>,
    to: Box<dyn Write>,
}

impl FollowedStream {
    fn new(call: &SurvivingCall, name: &str, to: Box<dyn Write>) -> Self {
        Self { path: call.output_path(name), file: None, to }
    }

    /// Copies what is new.
    fn copy(&mut self) {
        if self.file.is_none() {
            self.file = delta_base::durable::open_no_follow(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return };
        let mut buffer = [0; 64 * 1024];
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            // Without a reader, nothing is left to do with it.
            let _ = self.to.write_all(&buffer[..count]);
        }
        let _ = self.to.flush();
    }
}
