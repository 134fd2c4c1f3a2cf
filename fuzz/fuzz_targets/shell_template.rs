//! `shell:` templates: no placeholder is left in the script, and each parameter has its positional one.
#![no_main]

use delta::tool::quoting::script;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|template: &str| {
    let Ok(script) = script(template) else { return };
    for number in 1..=script.parameters.len() {
        let forms = [format!("${number}"), format!("${{{number}}}")];
        assert!(
            forms.iter().any(|form| script.text.contains(form)),
            "{template:?} became {script:?}"
        );
    }
    if script.parameters.is_empty() && !template.contains("${") {
        assert_eq!(script.text, template);
    }
});
