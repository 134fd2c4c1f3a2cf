//! `stage` and `survive`, whose calls last longer than their commands or their engine, and what these keys exclude.

use delta_process::Background;
use delta_yaml::yaml::{MappingFields, YamlDocument, YamlNode};

/// Reads `stage`. The calls of such a tool run alone and leave nothing running, so that a person decides about all of what
/// one call has changed.
pub(super) fn read_is_staged(
    doc: &YamlDocument,
    node: &YamlNode,
    fields: MappingFields<'_>,
    background: Background,
) -> bool {
    let is_staged = fields.text("stage").is_some();
    if is_staged && background != Background::End {
        let help = "leave out `background`, so that processes end with the call";
        let message = "a tool with `stage` cannot leave processes running";
        doc.report(node, message.to_owned(), help);
    }
    if is_staged && fields.boolean("parallel") {
        let help =
            "leave out `parallel`: such a call runs alone, because a person is asked about it";
        let message = "a tool with `stage` cannot be `parallel`";
        doc.report(node, message.to_owned(), help);
    }
    is_staged
}

/// Reports what a tool with `survive` cannot have: what ends or applies what its calls leave may be gone by then.
pub(super) fn check_survive(
    doc: &YamlDocument,
    node: &YamlNode,
    fields: MappingFields<'_>,
    background: Background,
) {
    if !fields.boolean("survive") {
        return;
    }
    let rules = [
        (
            fields.text("stage").is_some(),
            "`stage`",
            "leave out one of them: a layer does not outlive the engine",
        ),
        (
            background != Background::End,
            "`background`",
            "leave out `background`: what a call leaves running ends with the call",
        ),
    ];
    for (_, key, help) in rules.iter().filter(|(is_wrong, ..)| *is_wrong) {
        let message = format!("a tool cannot have both `survive` and {key}");
        doc.report(node, message, (*help).to_owned());
    }
}
