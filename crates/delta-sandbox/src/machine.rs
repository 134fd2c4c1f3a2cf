//! What the kernel of this machine can enforce.

use crate::kernel::landlock::landlock_version;
use crate::plan::helper_client::ask_helper;
use crate::plan::refusal::{NamespaceRefusal, explain_refusal};
use crate::plan::{HelperPlan, HelperReply};
use std::path::Path;

/// What this machine can enforce, for `delta sandbox check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxMachine {
    /// The release of the kernel: `6.18.0`.
    pub kernel: String,
    /// The version of Landlock; `None` if the kernel has none.
    pub landlock: Option<u32>,
    /// Whether this user can create namespaces, or why not.
    pub namespaces: Result<(), NamespaceRefusal>,
}

/// Finds out what this machine can enforce. `program` is the program `delta`.
pub fn probe(program: &Path) -> SandboxMachine {
    let namespaces = match ask_helper(program, &HelperPlan::Probe).map(|answer| answer.reply) {
        Ok(HelperReply::Done) => Ok(()),
        Ok(HelperReply::Refused { step, error }) => Err(explain_refusal(&step, &error)),
        Ok(reply) => Err(explain_refusal("helper", &format!("{reply:?}"))),
        Err(error) => Err(explain_refusal("helper", &error.to_string())),
    };
    SandboxMachine {
        kernel: kernel_release(),
        landlock: Some(landlock_version()).filter(|version| *version > 0),
        namespaces,
    }
}

/// The release of the kernel.
pub(crate) fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
