//! Recorded runs as inputs: a run of the sweep begins with the first iterations of another one, and with its files as they were.

use delta_base::id::{RunId, SnapshotId};
use delta_run::event::{ActionRequest, Event, NO_SANDBOX, Payload, SandboxRecord};
use delta_run::sweep::sweep_dir::HASH_DIGITS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The key of a line in the directory of a sweep that has a [`RecordedInput`].
pub const RECORDED_KEY: &str = "recorded_run";
/// The most paths of a snapshot that are named because it leaves them out.
const MAX_LEFT_OUT: usize = 5;

/// A recorded run up to an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedInput {
    /// The name of the copy of the run: the chain value of its last line.
    pub copy: String,
    /// The id of the run.
    pub run: RunId,
    /// The last of its iterations; 0 is the task alone.
    pub at: u32,
    /// The chain value of its journal after that iteration.
    pub chain: String,
    /// The snapshot of its files then; absent if the input has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotId>,
    /// State that is not restored, such as `mcp:db`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
}

/// After which iterations of a recorded run the runs of a sweep begin: `at` of sweep.yaml.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IterationChoice {
    /// After each one.
    Each,
    /// After the last one.
    Last,
    /// After these.
    Numbers(Vec<u32>),
}

/// The end of a complete iteration of a recorded run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IterationEnd {
    /// Whether the run has its result there, so that nothing is left to do.
    pub has_result: bool,
    /// Whether the files are known as they were.
    pub has_files: bool,
}

impl IterationChoice {
    /// The iterations of a run whose complete ones, from 0 on, are `ends`.
    ///
    /// # Errors
    /// No run can begin after one of them: the message, with the help.
    pub fn choose(&self, run: &RunId, ends: &[IterationEnd]) -> Result<Vec<u32>, (String, String)> {
        let open = (0..).zip(ends).filter(|(_, end)| !end.has_result).map(|(at, _)| at);
        let chosen: Vec<u32> = match self {
            Self::Each => open.clone().collect(),
            Self::Last => open.clone().last().into_iter().collect(),
            Self::Numbers(numbers) => numbers.clone(),
        };
        for at in &chosen {
            let last = open.clone().last().unwrap_or_default();
            let help = if last == 0 { "at: 0".to_owned() } else { format!("at: {last}, or less") };
            match ends.get(*at as usize) {
                None => return Err((format!("run {run} has no complete iteration {at}"), help)),
                Some(end) if end.has_result => {
                    let message = format!(
                        "run {run} has its result after iteration {at}, and nothing is left to do"
                    );
                    return Err((message, help));
                }
                Some(end) if !end.has_files => {
                    let message = format!("run {run} has no snapshot of iteration {at}");
                    return Err((message, "run: {snapshots: true}, or at: 0".to_owned()));
                }
                Some(_) => {}
            }
        }
        Ok(chosen)
    }
}

/// The input of a run of a sweep as its id has it; the id itself of another run.
pub fn input_of_run(run: &RunId) -> &str {
    let divided = run.as_str().rsplit_once('.').filter(|(_, hash)| {
        hash.len() == HASH_DIGITS && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
    });
    divided.map_or(run.as_str(), |(input, _)| input)
}

/// The state outside of the files that the calls of a run may have changed, event by event.
#[derive(Debug, Default)]
pub struct OutsideState<'a> {
    sandbox: Option<&'a SandboxRecord>,
    names: BTreeSet<String>,
}

impl<'a> OutsideState<'a> {
    /// Adds what the next event shows.
    pub fn add(&mut self, event: &'a Event) {
        match &event.payload {
            Payload::EngineStart(start) => self.sandbox = start.config.sandbox.as_ref(),
            Payload::ActionRequest(request) => match request.argv.as_deref() {
                Some([_, mcp, call, server, ..]) if mcp == "mcp" && call == "call" => {
                    self.names.insert(format!("mcp:{server}"));
                }
                Some(_) if self.reaches_network(request) => {
                    self.names.insert(format!("net:{}", request.tool_name));
                }
                _ => {}
            },
            Payload::ActionResult(result) if !result.left_running.is_empty() => {
                self.names.insert(format!("process:{}", result.tool_name));
            }
            _ => {}
        }
    }

    /// Whether nothing shows that the call was kept from the network.
    fn reaches_network(&self, request: &ActionRequest) -> bool {
        let name = request.sandbox.as_deref().filter(|name| *name != NO_SANDBOX);
        let profile = name.zip(self.sandbox).and_then(|(name, record)| record.profiles.get(name));
        profile.is_none_or(|profile| {
            profile.keys.get("net").is_none_or(|net| net != "none")
                || !profile.holds.iter().any(|guarantee| guarantee == "net")
        })
    }

    /// The names so far, and the paths that the snapshot of the files leaves out.
    pub fn names(&self, left_out: &[Vec<u8>]) -> Vec<String> {
        let mut names: Vec<String> = self.names.iter().cloned().collect();
        let paths = left_out.iter().take(MAX_LEFT_OUT);
        names.extend(paths.map(|path| format!("file:{}", String::from_utf8_lossy(path))));
        if let more @ 1.. = left_out.len().saturating_sub(MAX_LEFT_OUT) {
            names.push(format!("file:({more} more)"));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_run_begins_where_nothing_is_left_to_do_or_the_files_are_unknown(
            ends in prop::collection::vec((any::<bool>(), any::<bool>()), 1..9),
            numbers in prop::collection::vec(0..12_u32, 1..4),
        ) {
            let run = RunId::parse("r").unwrap();
            let ends: Vec<IterationEnd> = ends
                .into_iter()
                .map(|(has_result, has_files)| IterationEnd { has_result, has_files })
                .collect();
            for choice in [IterationChoice::Each, IterationChoice::Last, IterationChoice::Numbers(numbers.clone())] {
                let is_usable = |at: &u32| ends.get(*at as usize).is_some_and(|end| !end.has_result && end.has_files);
                match choice.choose(&run, &ends) {
                    Ok(chosen) => prop_assert!(chosen.iter().all(is_usable)),
                    Err((message, _)) => prop_assert!(message.starts_with("run r has ")),
                }
                if choice == IterationChoice::Numbers(numbers.clone()) {
                    prop_assert_eq!(choice.choose(&run, &ends).is_ok(), numbers.iter().all(is_usable));
                }
            }
        }
    }

    #[test]
    fn the_input_of_a_run_is_in_its_id() {
        for (id, input) in [
            ("web.3f9a2c1b7d4e5a60", "web"),
            ("a.b.3f9a2c1b7d4e5a60", "a.b"),
            ("web.3f9a2c1b7d4e5a6", "web.3f9a2c1b7d4e5a6"),
            ("nightly", "nightly"),
        ] {
            assert_eq!(input_of_run(&RunId::parse(id).unwrap()), input);
        }
    }
}
