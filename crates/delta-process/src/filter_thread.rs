//! Threads that start children under a filter of system calls.
//!
//! The kernel compiles and checks a filter for each process that sets it, which takes 50 to 70 µs: more than all other
//! steps into a sandbox together. But a child inherits the filter of the thread that starts it without this cost. So there
//! is one thread for each filter; the other threads of this process stay without.

use super::sandbox_entry::{FilterInstruction, join_new_keyring};
use rustix::io::Errno;
use rustix::thread::set_no_new_privs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::{io, thread};

/// The size of a thread's stack: it makes a few system calls, and allocates the stacks of children.
const STACK_BYTES: usize = 128 * 1024;

/// The threads of this process. They never end: the kernel kills a child when the thread that started it ends.
static THREADS: Mutex<Vec<FilterThread>> = Mutex::new(Vec::new());

type Job = Box<dyn FnOnce() + Send>;

struct FilterThread {
    filter: Vec<FilterInstruction>,
    jobs: Sender<Job>,
}

/// Runs `job` under a filter, and waits for it. The caller must have blocked all signals, which a new thread inherits.
///
/// # Errors
/// The thread could not be started, or the kernel refuses the filter.
pub(super) fn run_under_filter<T: Send + 'static>(
    filter: &[FilterInstruction],
    job: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let jobs = find_thread(filter)?;
    let (sender, result) = channel();
    let job = Box::new(move || drop(sender.send(job())));
    jobs.send(job).map_err(|_| io::ErrorKind::BrokenPipe)?;
    result.recv().map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn find_thread(filter: &[FilterInstruction]) -> io::Result<Sender<Job>> {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = threads.iter().find(|known| known.filter == filter) {
        return Ok(known.jobs.clone());
    }
    let jobs = start_thread(filter.to_vec())?;
    threads.push(FilterThread { filter: filter.to_vec(), jobs: jobs.clone() });
    Ok(jobs)
}

fn start_thread(filter: Vec<FilterInstruction>) -> io::Result<Sender<Job>> {
    let (jobs, queue) = channel();
    let (sender, outcome) = channel();
    let thread = thread::Builder::new().name("delta-filter".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || {
        let outcome = set_filter(&filter);
        let is_set = outcome.is_ok();
        let _ = sender.send(outcome);
        if is_set {
            run_jobs(&queue);
        }
    })?;
    outcome.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
    Ok(jobs)
}

fn run_jobs(queue: &Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        job();
    }
}

/// Makes the filter hold for this thread and its children.
fn set_filter(filter: &[FilterInstruction]) -> Result<(), Errno> {
    // A filter may keep the children from doing that.
    join_new_keyring()?;
    set_no_new_privs(true)?;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(u16::MAX),
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the program points to instructions with the layout of the kernel, which it only reads.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}
