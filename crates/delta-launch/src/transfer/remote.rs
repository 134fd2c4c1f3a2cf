//! `delta receive` on another host, started over ssh or what `DELTA_RSH` names: its standard input gets the archive, its standard
//! output has its replies, a line each.

use delta_base::shell_quote::shell_quote;
use delta_operator::environment;
use delta_operator::failure::CommandFailure;
use delta_process::PipedProcess;
use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdin, ChildStdout};

/// The variable with the program that starts a command on another host.
const RSH_VARIABLE: &str = "DELTA_RSH";
/// The longest reply: the names of all members.
const MAX_REPLY_BYTES: u64 = 64 * 1024 * 1024;
/// The variables that ssh may need. It gets no key of an endpoint.
const PASSED: [&str; 12] = [
    "DISPLAY",
    "HOME",
    "KRB5CCNAME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SSH_AGENT_PID",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "TERM",
    "TMPDIR",
    "USER",
];

/// A workspace on another host: `HOST:DIR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePlace {
    host: String,
    dir: String,
}

impl RemotePlace {
    /// Parses `HOST` or `HOST:DIR`; `default_dir` is the directory otherwise.
    ///
    /// # Errors
    /// The host is not a name for ssh; the message says what is expected.
    pub fn parse(text: &str, default_dir: &str) -> Result<Self, CommandFailure> {
        // A colon in brackets belongs to an address.
        let end = text.find(']').unwrap_or(0);
        let colon = text[end..].find(':').map(|at| at + end);
        let (host, dir) = colon.map_or((text, default_dir), |at| (&text[..at], &text[at + 1..]));
        let is_host = !host.is_empty() && !host.starts_with('-') && !host.contains('/');
        if is_host && !dir.is_empty() && !dir.contains(char::is_control) {
            return Ok(Self { host: host.to_owned(), dir: dir.to_owned() });
        }
        let message = format!("`{text}` is not a host");
        Err(CommandFailure::usage(message, "write HOST or HOST:DIR; `-o FILE` writes a file"))
    }
}

impl std::fmt::Display for RemotePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.dir)
    }
}

/// A `delta receive` that has started.
pub struct RemoteReceiver {
    process: PipedProcess,
    replies: BufReader<ChildStdout>,
    target: RemotePlace,
}

impl RemoteReceiver {
    /// Starts it for an archive; returns also where the archive goes.
    pub fn receive(target: &RemotePlace) -> Result<(Self, ChildStdin), CommandFailure> {
        Self::start(target, &format!("delta receive --replies -w {}", shell_quote(&target.dir)))
    }

    /// Has the transfer `nonce` refused. Returns whether it is: otherwise it has arrived.
    pub fn refuse(target: &RemotePlace, nonce: &str) -> Result<bool, CommandFailure> {
        let (mut receiver, input) = Self::start(
            target,
            &format!("delta receive --cancel {nonce} -w {}", shell_quote(&target.dir)),
        )?;
        drop(input);
        let reply = receiver.reply("refused");
        reply.map(|reply| reply["refused"] == true).ok_or_else(|| receiver.broken_off())
    }

    fn start(target: &RemotePlace, command: &str) -> Result<(Self, ChildStdin), CommandFailure> {
        let rsh = environment::variable(RSH_VARIABLE).unwrap_or_else(|| "ssh".to_owned());
        let words = rsh.split_whitespace().map(str::to_owned);
        let argv: Vec<String> = words.chain([target.host.clone(), command.to_owned()]).collect();
        let mut variables = environment::variables().clone();
        variables.retain(|name, _| {
            name.to_str().is_some_and(|name| PASSED.contains(&name) || name.starts_with("LC_"))
        });
        let (process, input, output) = PipedProcess::start(&argv, &variables).map_err(|error| {
            let message = format!("could not start `{}`: {error}", argv[0]);
            CommandFailure::config(
                message,
                format!("install it, or name another program in {RSH_VARIABLE}"),
            )
        })?;
        let replies = BufReader::new(output);
        Ok((Self { process, replies, target: target.clone() }, input))
    }

    /// The next reply, which has the member `key`, or `received`; `None` if the connection has broken off.
    pub fn reply(&mut self, key: &str) -> Option<Json> {
        let mut line = Vec::new();
        (&mut self.replies).take(MAX_REPLY_BYTES).read_until(b'\n', &mut line).ok()?;
        let reply: Json = serde_json::from_slice(&line).ok()?;
        let is_reply = reply.get(key).is_some() || reply.get("received").is_some();
        is_reply.then_some(reply)
    }

    /// Why nothing more comes from there; its input must be closed. What the other end has printed is on stderr.
    pub fn broken_off(mut self) -> CommandFailure {
        // It may still wait to print.
        drop(self.replies);
        let code = match self.process.wait() {
            Ok(Some(code)) => format!(" (exit code {code})"),
            _ => String::new(),
        };
        let message = format!("{} did not receive the run{code}", self.target);
        let hint = "the same command again continues with what is missing";
        CommandFailure::not_delivered(message, hint)
    }
}
