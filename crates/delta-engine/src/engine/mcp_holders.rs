//! The processes that hold connections to MCP servers for this process: one for each server, from its first call on.

use super::Engine;
use delta_base::durable;
use delta_base::signal::{CancelToken, to_timespec};
use delta_mcp::holder::{HOLDER_DIR, HolderConfig, READY_LINE};
use delta_process::{LaunchContext, ServiceProcess, own_program};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a holder may take to create its socket.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers of the agent, and the holders that are running.
#[derive(Debug, Default)]
pub(super) struct McpHolders {
    /// What each holder needs.
    configs: Vec<HolderConfig>,
    running: BTreeMap<String, ServiceProcess>,
}

impl<'a> Engine<'a> {
    /// Gives the engine the MCP servers of the agent. None is started before the first call of one of its tools.
    pub fn with_mcp_servers(self, configs: Vec<HolderConfig>) -> Self {
        self.mcp_holders.borrow_mut().configs = configs;
        self
    }

    /// Starts the holder of `server` unless it is running.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn ensure_mcp_holder(
        &self,
        server: &str,
        run_dir: &Path,
        launch: LaunchContext,
    ) -> Result<(), String> {
        let mut holders = self.mcp_holders.borrow_mut();
        if holders.running.get_mut(server).is_some_and(|holder| !holder.has_ended()) {
            return Ok(());
        }
        let Some(config) = holders.configs.iter().find(|config| config.spec.name == server) else {
            return Ok(());
        };
        let dir = run_dir.join(HOLDER_DIR);
        if !durable::is_dir_no_follow(&dir) {
            // The records of tasks in it have to survive a power failure.
            durable::create_private_dir_synced(&dir).map_err(|error| error.to_string())?;
        }
        let argv = ["delta", "mcp", "hold", server].map(str::to_owned);
        let mut line = serde_json::to_string(config).map_err(|error| error.to_string())?;
        line.push('\n');
        let mut holder = ServiceProcess::start(&argv, Some(&own_program()), &launch)?;
        if let Err(error) = hand_over_config(&mut holder, line.as_bytes(), &self.cancel) {
            holder.end(&self.cancel);
            return Err(error.to_string());
        }
        holders.running.insert(server.to_owned(), holder);
        Ok(())
    }

    /// Ends everything that the run has started and that ends with it, the MCP servers first, in an orderly way.
    pub(super) fn end_started_processes(&self, cancel: &CancelToken) {
        let running = std::mem::take(&mut self.mcp_holders.borrow_mut().running);
        for (_, mut holder) in running {
            holder.end_after(HOLDER_GRACE, cancel);
        }
        self.environment.processes().end_all(cancel);
    }
}

/// How long a holder may take: it ends its server meanwhile, which has 5 seconds.
const HOLDER_GRACE: Duration = Duration::from_secs(7);

/// Writes the configuration and waits for the line that reports the socket.
fn hand_over_config(
    holder: &mut ServiceProcess,
    config: &[u8],
    cancel: &CancelToken,
) -> std::io::Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    let mut unwritten = config;
    let mut answer = Vec::new();
    while answer != READY_LINE.as_bytes() {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() || cancel.is_requested() {
            return Err(std::io::Error::new(ErrorKind::TimedOut, "it did not become ready"));
        }
        let mut fds = vec![
            PollFd::new(&holder.stdout, PollFlags::IN),
            PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN),
        ];
        if let Some(stdin) = holder.stdin.as_ref().filter(|_| !unwritten.is_empty()) {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        let _ = poll(&mut fds, Some(&to_timespec(rest)));
        if let Some(stdin) = holder.stdin.as_mut().filter(|_| !unwritten.is_empty()) {
            match stdin.write(unwritten) {
                Ok(count) => unwritten = &unwritten[count..],
                Err(error) if is_pipe_busy(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let mut buffer = [0; 64];
        match holder.stdout.read(&mut buffer) {
            Ok(0) => return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "it has ended")),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if is_pipe_busy(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_pipe_busy(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}
