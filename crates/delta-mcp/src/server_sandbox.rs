//! The sandbox of a server, handed over from the engine, which has prepared it, to the process that holds the server.
//!
//! The descriptors are inherited; the rest is text.

use delta_process::{EntrySteps, FilterInstruction, SandboxEntry, copy_inherited_descriptor};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// A sandbox whose descriptors the receiver inherits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerSandbox {
    namespaces: Vec<RawFd>,
    ruleset: Option<RawFd>,
    limits: Vec<(u32, u64)>,
    /// The fields of each instruction.
    filter: Vec<(u16, u8, u8, u32)>,
}

impl ServerSandbox {
    /// What describes `entry` to a child that inherits its descriptors.
    pub fn from_entry(entry: &SandboxEntry) -> Self {
        let steps = entry.steps();
        let filter = steps.filter.iter().map(|instruction| {
            let FilterInstruction { code, jump_true, jump_false, operand } = *instruction;
            (code, jump_true, jump_false, operand)
        });
        Self {
            namespaces: steps.namespaces.iter().map(AsRawFd::as_raw_fd).collect(),
            ruleset: steps.ruleset.as_ref().map(AsRawFd::as_raw_fd),
            limits: steps.limits.clone(),
            filter: filter.collect(),
        }
    }

    /// The entry in the process that has inherited the descriptors.
    ///
    /// # Errors
    /// They were not inherited.
    pub fn to_entry(&self) -> io::Result<SandboxEntry> {
        let namespaces = self.namespaces.iter().map(|number| copy_inherited_descriptor(*number));
        let filter =
            self.filter.iter().map(|(code, jump_true, jump_false, operand)| FilterInstruction {
                code: *code,
                jump_true: *jump_true,
                jump_false: *jump_false,
                operand: *operand,
            });
        Ok(SandboxEntry::new(EntrySteps {
            namespaces: namespaces.collect::<io::Result<_>>()?,
            ruleset: self.ruleset.map(copy_inherited_descriptor).transpose()?,
            limits: self.limits.clone(),
            filter: filter.collect(),
        }))
    }
}
