//! The loop of a server on standard input and output: it reads messages, looks after its runs, and writes messages.

use delta_base::signal::CancelToken;
use delta_mcp::json_rpc::{INVALID_REQUEST, RpcError, RpcMessage};
use delta_mcp::line_framing::{FramedLine, MAX_LINE_BYTES};
use delta_mcp::peer_input::{PeerEvent, PeerInput};
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use std::io;
use std::time::Duration;

/// How often runs are looked at while a client waits for one; the end of a process is noticed at once.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A server of one client.
pub trait PeerServer {
    /// Handles a message of the client.
    fn receive(&mut self, message: RpcMessage);

    /// Looks at the runs, and answers what can be answered.
    fn look_at_runs(&mut self);

    /// Whether the client waits for a run.
    fn has_waiting_client(&self) -> bool;

    /// The messages to send.
    fn take_messages(&mut self) -> Vec<RpcMessage>;
}

/// Serves the client until it closes the stream or a signal comes.
pub fn serve_peer(
    server: &mut impl PeerServer,
    cancel: &CancelToken,
) -> Result<(), CommandFailure> {
    cancel.wake_on_child().map_err(|error| {
        CommandFailure::config(format!("could not install the handler of SIGCHLD: {error}"), None)
    })?;
    let mut input = PeerInput::new(io::stdin());
    while !cancel.is_requested() {
        let limit = server.has_waiting_client().then_some(LOOK_INTERVAL);
        let event = input.next(cancel, limit).map_err(|error| {
            CommandFailure::config(format!("could not read from stdin: {error}"), None)
        })?;
        let mut refusal = None;
        match event {
            PeerEvent::Line(line) => match parse_line(line) {
                Ok(message) => server.receive(message),
                Err(error) => {
                    refusal = Some(RpcMessage::Response { id: None, outcome: Err(error) })
                }
            },
            PeerEvent::Closed => return Ok(()),
            PeerEvent::Quiet => {}
        }
        server.look_at_runs();
        for message in refusal.into_iter().chain(server.take_messages()) {
            if !stdio::print_json(&message.to_line()) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn parse_line(line: FramedLine) -> Result<RpcMessage, RpcError> {
    match line {
        FramedLine::Text(bytes) => RpcMessage::parse(&bytes),
        FramedLine::Overlong => {
            let message = format!("expected at most {} MiB on one line", MAX_LINE_BYTES >> 20);
            Err(RpcError::new(INVALID_REQUEST, message))
        }
    }
}
