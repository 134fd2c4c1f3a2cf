//! An agents.lock.json, which `--locked` takes from anywhere: it is read or refused, and what is read can be shown and written.
#![no_main]

use delta_agent::agent::agents_lock::{AgentsLock, is_agent_name};
use delta_base::text::hidden_text::has_hidden_character;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(lock) = AgentsLock::parse(bytes) else { return };
    for (name, agent) in &lock.agents {
        assert!(is_agent_name(name));
        assert!(!has_hidden_character(&agent.source) && agent.rights.lines().len() <= 5);
        assert!(agent.rights.beyond(&agent.rights).is_empty());
    }
    assert_eq!(AgentsLock::parse(lock.to_text().as_bytes()), Ok(lock));
});
