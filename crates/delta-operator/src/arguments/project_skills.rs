//! The skills of a workspace, which only the operator can allow.

use crate::failure::CommandFailure;
use crate::{command_line, config};
use delta_agent::agent::Agent;
use std::path::Path;

/// Offers the skills of the workspace to the LLM if the operator allows that: `is_allowed`, by an option, or in config.yaml.
/// Returns notes for the operator.
///
/// # Errors
/// The configuration has a mistake.
pub fn offer_project_skills(
    agent: &mut Agent,
    workspace: Option<&Path>,
    is_allowed: bool,
) -> Result<Vec<String>, CommandFailure> {
    let Some(workspace) = workspace.filter(|_| !agent.project_skill_roots.is_empty()) else {
        return Ok(Vec::new());
    };
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let (skills, mut warnings) = agent.read_project_skills(&workspace);
    if is_allowed || config::allows_project_skills(&workspace)? {
        warnings.append(&mut agent.add_skills(skills));
        return Ok(warnings);
    }
    Ok(if skills.is_empty() {
        Vec::new()
    } else {
        let count = command_line::pluralize(skills.len(), "skill");
        let path = workspace.display();
        vec![format!(
            "Note: {count} of the workspace, not offered to the LLM: `--project-skills` offers them, and `project_skills: [{path}]` in config.yaml always does"
        )]
    })
}
