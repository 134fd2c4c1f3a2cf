//! A command that a person started: it has the standard streams of this process, and nothing of it is captured.

use super::exit_status::poll_process_end;
use super::spawn::spawn_with_own_streams;
use super::{
    ExecImage, LaunchContext, POLL_INTERVAL, ProcessEnd, TERMINATION_GRACE, exit_fd, program_lookup,
};
use delta_base::signal::{CancelToken, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::process::{Pid, Signal, kill_process_group};
use std::time::{Duration, Instant};

/// Runs a command with the standard streams of this process to its end, in a session of its own. If `cancel` is requested it
/// receives SIGTERM, and SIGKILL 5 seconds later. What it leaves running in its process group is killed.
pub fn run_in_foreground(
    argv: &[String],
    context: &LaunchContext,
    cancel: &CancelToken,
) -> ProcessEnd {
    let delay = cancel.delay_exit();
    let pid = match start(argv, context) {
        Ok(pid) => pid,
        Err(end) => return end,
    };
    cancel.add_child_group(pid.as_raw_pid());
    drop(delay);
    let end = wait_for_end(pid, cancel);
    cancel.remove_child_group(pid.as_raw_pid());
    let _ = kill_process_group(pid, Signal::KILL);
    end
}

fn start(argv: &[String], context: &LaunchContext) -> Result<Pid, ProcessEnd> {
    let name = argv.first().map_or("", String::as_str);
    let path = program_lookup::locate_program(name, context)?;
    let image = ExecImage::new(&path, argv, context).ok_or_else(program_lookup::nul_byte_end)?;
    spawn_with_own_streams(image, &context.cwd, context.sandbox.clone()).map_err(
        |error| match error.step {
            Some(_) => {
                let code = program_lookup::NOT_EXECUTABLE_EXIT_CODE;
                ProcessEnd::NotStarted { code, reason: error.to_string() }
            }
            None => program_lookup::explain_spawn_error(&error.error, argv, &path, context),
        },
    )
}

fn wait_for_end(pid: Pid, cancel: &CancelToken) -> ProcessEnd {
    let exit = exit_fd(pid);
    let mut kill_at: Option<Instant> = None;
    loop {
        if let Some(end) = poll_process_end(pid) {
            return end;
        }
        if kill_at.is_none() && cancel.is_requested() {
            let _ = kill_process_group(pid, Signal::TERM);
            kill_at = Some(Instant::now() + TERMINATION_GRACE);
        }
        if kill_at.is_some_and(|at| at <= Instant::now()) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let mut descriptors: Vec<PollFd<'_>> =
            exit.iter().map(|exit| PollFd::new(exit, PollFlags::IN)).collect();
        let cancelled = cancel.fd();
        if kill_at.is_none() {
            descriptors.push(PollFd::from_borrowed_fd(cancelled.as_fd(), PollFlags::IN));
        }
        let has_to_look = exit.is_none() || kill_at.is_some();
        let limit: Option<Duration> = has_to_look.then_some(POLL_INTERVAL);
        // An interrupted poll looks again.
        let _ = poll(&mut descriptors, limit.map(to_timespec).as_ref());
    }
}
