//! `exec:` templates: whatever is read can be filled, and the program comes first.
#![no_main]

use delta::tool::placeholder::{Hole, Part};
use delta::tool::words::split;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|template: &str| {
    let Ok(words) = split(template) else { return };
    let program = words.first().expect("an empty command was taken");
    assert!(!program.iter().any(|part| matches!(part, Part::Hole(Hole::Parameter { .. }))));
    for part in words.iter().flatten() {
        match part {
            Part::Text(text) => assert!(!text.is_empty()),
            Part::Hole(hole) => assert!(!hole.is_raw()),
        }
    }
});
