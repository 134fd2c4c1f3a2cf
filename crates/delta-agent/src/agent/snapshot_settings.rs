//! The `snapshots:` section of agent.yaml.

use delta_snapshot::ExcludePatterns;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};

/// The long form of `snapshots:`.
pub(super) static SNAPSHOTS_SCHEMA: MappingSchema = MappingSchema::new(
    "`snapshots`",
    "The snapshots of the workspace after each iteration.",
    &[KeySchema::optional(
        "exclude",
        ValueShape::List(&ValueShape::Text),
        "Glob patterns of names (or of paths, with a slash) that snapshots omit and restores do not change.",
    )],
);

/// Reads `snapshots:`; `None` when snapshots are disabled, or after an error.
pub(super) fn read_snapshot_excludes(
    doc: &YamlDocument,
    node: &YamlNode,
) -> Option<ExcludePatterns> {
    if node.scalar().is_some() {
        return doc.expect_boolean(node, "`snapshots`")?.then(ExcludePatterns::default);
    }
    let items = doc.fields(node, &SNAPSHOTS_SCHEMA)?.list("exclude");
    for item in items {
        if let Err(reason) = ExcludePatterns::parse(item.scalar()) {
            let help = "`*` matches any part of a name, `**` any directories, `[ab]` one of these characters";
            doc.report(item, reason, Some(help.to_owned()));
        }
    }
    ExcludePatterns::parse(items.iter().filter_map(YamlNode::scalar)).ok()
}
