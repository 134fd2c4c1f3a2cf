//! The processes that hold connections to MCP servers for this process: one for each server, from its first call on.

use super::Engine;
use delta_agent::run_sandbox::ActiveSandbox;
use delta_base::durable;
use delta_base::signal::{CancelToken, to_timespec};
use delta_mcp::holder_config::{HOLDER_DIR, HolderConfig, READY_LINE};
use delta_mcp::server_sandbox::ServerSandbox;
use delta_process::{LaunchContext, SandboxEntry, ServiceProcess, own_program};
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
    running: BTreeMap<String, RunningHolder>,
}

/// A holder, and the sandbox that it puts its server into.
#[derive(Debug)]
struct RunningHolder {
    process: ServiceProcess,
    sandbox: Option<SandboxEntry>,
}

impl RunningHolder {
    /// Whether calls reach it. A process that dies closes its standard output before it is a child that has ended, but after
    /// the connections of its callers: a call that comes between finds no holder.
    fn is_reachable(&mut self) -> bool {
        let mut fds = [PollFd::new(&self.process.stdout, PollFlags::empty())];
        let is_closed = poll(&mut fds, Some(&to_timespec(Duration::ZERO)))
            .is_ok_and(|_| fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR));
        !is_closed && !self.process.has_ended()
    }

    /// Whether the server is in this sandbox, and not in one that was prepared before.
    fn is_in(&self, sandbox: Option<&SandboxEntry>) -> bool {
        match (&self.sandbox, sandbox) {
            (Some(current), Some(expected)) => current.is_clone_of(expected),
            (None, None) => true,
            _ => false,
        }
    }
}

impl<'a> Engine<'a> {
    /// Gives the engine the MCP servers of the agent. None is started before the first call of one of its tools.
    pub fn with_mcp_servers(self, configs: Vec<HolderConfig>) -> Self {
        self.mcp_holders.borrow_mut().configs = configs;
        self
    }

    /// Starts the holder of `server` unless it is running, in the sandbox as it is now.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn ensure_mcp_holder(
        &self,
        server: &str,
        run_dir: &Path,
        launch: LaunchContext,
        sandbox: Option<ActiveSandbox<'_>>,
    ) -> Result<(), String> {
        let mut holders = self.mcp_holders.borrow_mut();
        let entry = sandbox.map(|sandbox| sandbox.entry());
        if let Some(holder) = holders.running.get_mut(server) {
            // Otherwise what the run refers to was replaced, and the network of the old sandbox has ended.
            if holder.is_reachable() && holder.is_in(entry.as_ref()) {
                return Ok(());
            }
            holder.process.end_after(HOLDER_GRACE, &self.cancel);
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
        let config = in_sandbox(config.clone(), sandbox, entry.as_ref());
        let mut line = serde_json::to_string(&config).map_err(|error| error.to_string())?;
        line.push('\n');
        let mut process =
            ServiceProcess::start(&argv, Some(&own_program()), &launch, entry.as_ref())?;
        if let Err(error) =
            hand_over_config(&mut process, line.as_bytes(), READY_LINE, &self.cancel)
        {
            process.end(&self.cancel);
            return Err(error.to_string());
        }
        holders.running.insert(server.to_owned(), RunningHolder { process, sandbox: entry });
        Ok(())
    }

    /// Ends everything that the run has started and that ends with it, the MCP servers first, in an orderly way.
    pub(super) fn end_started_processes(&self, cancel: &CancelToken) {
        let running = std::mem::take(&mut self.mcp_holders.borrow_mut().running);
        for (_, mut holder) in running {
            holder.process.end_after(HOLDER_GRACE, cancel);
        }
        self.environment.processes().end_all(cancel);
    }
}

/// How long a holder may take: it ends its server meanwhile, which has 5 seconds.
const HOLDER_GRACE: Duration = Duration::from_secs(7);

/// The configuration of a server that is in a sandbox.
fn in_sandbox(
    mut config: HolderConfig,
    sandbox: Option<ActiveSandbox<'_>>,
    entry: Option<&SandboxEntry>,
) -> HolderConfig {
    if let Some(sandbox) = sandbox {
        // The directory of the operator cannot be written in the sandbox, which has a /tmp of its own.
        config.spec.env.remove("TMPDIR");
        let temp_dir = sandbox.temp_dir();
        let temp_dir = temp_dir.map(|dir| ("TMPDIR".to_owned(), dir.display().to_string()));
        config.spec.env.extend(temp_dir);
    }
    config.sandbox = entry.map(ServerSandbox::from_entry);
    config
}

/// Writes the configuration and waits for the line `ready`, which reports that the holder works.
pub(super) fn hand_over_config(
    holder: &mut ServiceProcess,
    config: &[u8],
    ready: &str,
    cancel: &CancelToken,
) -> std::io::Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    let mut unwritten = config;
    let mut answer = Vec::new();
    while answer != ready.as_bytes() {
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
