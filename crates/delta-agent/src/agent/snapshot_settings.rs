//! The `snapshots:` section of agent.yaml.

use delta_snapshot::{ExcludePatterns, WorkspaceLimit};
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};

/// The long form of `snapshots:`.
pub(super) static SNAPSHOTS_SCHEMA: MappingSchema = MappingSchema::new(
    "`snapshots`",
    "The snapshots of the workspace after each iteration.",
    &[
        KeySchema::optional(
            "exclude",
            ValueShape::List(&ValueShape::Text),
            "Glob patterns of names (or of paths, with a slash) that snapshots omit and restores do not change.",
        ),
        KeySchema::optional(
            "max_files",
            ValueShape::Integer(1..u64::MAX),
            "A run takes no snapshots of a workspace that has more files and directories than this at its start.",
        ),
        KeySchema::optional(
            "max_bytes",
            ValueShape::Integer(1..u64::MAX),
            "A run takes no snapshots of a workspace whose files have more bytes than this at its start.",
        ),
    ],
);

/// The snapshots that an agent takes.
#[derive(Debug, Clone, Default)]
pub struct SnapshotSettings {
    /// What each snapshot of the workspace leaves out.
    pub exclude: ExcludePatterns,
    /// The size of a workspace up to which a run takes snapshots.
    pub limit: Option<WorkspaceLimit>,
}

impl SnapshotSettings {
    /// Reads `snapshots:`; `None` when snapshots are disabled, or after an error. In the copy of a run, a pattern that matches no
    /// path is as it was then.
    pub(super) fn read(doc: &YamlDocument, node: &YamlNode, is_copy: bool) -> Option<Self> {
        if node.scalar().is_some() {
            return doc.expect_boolean(node, "`snapshots`")?.then(Self::default);
        }
        let fields = doc.fields(node, &SNAPSHOTS_SCHEMA)?;
        let items = fields.list("exclude");
        let mut patterns = Vec::new();
        for item in items {
            match ExcludePatterns::parse(item.scalar()) {
                Ok(_) => patterns.extend(item.scalar()),
                Err(_) if is_copy => {}
                Err(problem) => doc.report(item, problem.reason, problem.help),
            }
        }
        let exclude = ExcludePatterns::parse(patterns).ok()?;
        let max_files = fields.integer("max_files");
        let max_bytes = fields.integer("max_bytes");
        let limit = (max_files.is_some() || max_bytes.is_some()).then(|| WorkspaceLimit {
            max_files: max_files.unwrap_or(u64::MAX),
            max_bytes: max_bytes.unwrap_or(u64::MAX),
        });
        Some(Self { exclude, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_yaml::diagnostic::DiagnosticReport;

    #[test]
    fn c_16_1_a_pattern_of_an_earlier_run_that_matches_no_path_is_none() {
        let read = |is_copy: bool| {
            let doc = YamlDocument::parse("agent.yaml", "exclude: ['!x', y]").unwrap();
            let settings = SnapshotSettings::read(&doc, &doc.root, is_copy).unwrap();
            let mut report = DiagnosticReport::default();
            doc.drain_diagnostics(&mut report);
            (settings.exclude, report.is_empty())
        };
        let only_y = ExcludePatterns::parse(["y"]).unwrap();
        assert_eq!(read(true), (only_y.clone(), true));
        assert_eq!(read(false), (only_y, false));
    }
}
