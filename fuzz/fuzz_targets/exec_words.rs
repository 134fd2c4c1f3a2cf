//! `exec:` templates: no word has an empty text or `:raw`, and the program is not a parameter.
#![no_main]

use delta_shell::{TemplatePart, split_exec_template};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|template: &str| {
    let Ok(words) = split_exec_template(template) else { return };
    let program = words.first().expect("a command has at least one word");
    for part in program {
        assert!(!matches!(part, TemplatePart::Placeholder(program) if program.is_parameter()));
    }
    for part in words.iter().flatten() {
        match part {
            TemplatePart::Text(text) => assert!(!text.is_empty()),
            TemplatePart::Placeholder(placeholder) => assert!(!placeholder.is_raw()),
        }
    }
});
