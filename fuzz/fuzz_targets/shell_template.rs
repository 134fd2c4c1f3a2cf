//! `shell:` templates: the script contains the positional parameter of each parameter.
#![no_main]

use delta_shell::ShellScript;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|template: &str| {
    let Ok(script) = ShellScript::from_template(template) else { return };
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
