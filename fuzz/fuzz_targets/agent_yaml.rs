//! agent.yaml: it loads or says where it is wrong, and what loads pleases an editor.
#![no_main]

use delta_fuzz::Fuzzed;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static FUZZED: LazyLock<Fuzzed> = LazyLock::new(|| Fuzzed::new("agent.yaml", &delta_agent::agent::AGENT_MAPPING));

fuzz_target!(|text: &str| FUZZED.check(text));
