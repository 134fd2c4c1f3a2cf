//! `delta skill ...`: shows the skills of an agent, and decides whether the skills of a workspace are offered.

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_agent::agent::Agent;
use delta_agent::skill::{self, Skill};
use delta_base::engine_variables::EngineVars;
use delta_llm::llm::ModelSelection;
use delta_operator::arguments::project_skills::offer_project_skills;
use delta_operator::arguments::{agent_choice, completion_candidates};
use delta_operator::failure::CommandFailure;
use delta_operator::trust;
use delta_program::stdio;
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Show the skills of an agent
#[derive(Debug, Subcommand)]
#[command(about = "Show the skills of an agent", defer = true)]
pub enum SkillCommand {
    /// List the skills that the LLM is offered
    List(SkillListArgs),
    /// Print the instructions of a skill, and the list of its files
    Show(SkillShowArgs),
}

/// The agent and the workspace whose skills are meant.
#[derive(Debug, Args)]
struct SkillPlace {
    /// Agent directory
    #[arg(long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: PathBuf,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Include the skills of the workspace that `skills` in agent.yaml names
    #[arg(long)]
    project_skills: bool,
}

/// List the skills that the LLM is offered
///
/// Lists skills of the workspace if the operator allows them, with `--project-skills` or in config.yaml.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta skill list --agent ./my-agent
  delta skill list --agent ./my-agent --format json | jq -r '.[].name'")]
pub struct SkillListArgs {
    #[command(flatten)]
    place: SkillPlace,
    /// Output format
    #[arg(long, value_enum, default_value_t = SkillListFormat::Text)]
    format: SkillListFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SkillListFormat {
    /// A block of lines for each skill
    Text,
    /// One JSON array
    Json,
}

/// Print the instructions of a skill, and the list of its files
///
/// This is what the LLM sees when it calls the tool `skill`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta skill show --agent ./my-agent release-notes
  delta skill show --in ~/.agents/skills release-notes

Exit codes: 0 shown, 1 no such skill, 2 usage error, 126 the agent does not load")]
pub struct SkillShowArgs {
    /// Name of the skill
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(completion_candidates::skill_candidates))]
    name: String,
    /// Look in this directory of skills, not in an agent; repeatable, the first one with the skill is used
    #[arg(long = "in", value_name = "DIR", conflicts_with_all = ["agent", "work_dir", "project_skills"])]
    roots: Vec<PathBuf>,
    #[command(flatten)]
    place: SkillPlace,
}

/// Runs a subcommand.
pub fn skill_command(command: &SkillCommand) -> Result<(), CommandFailure> {
    let printed = match command {
        SkillCommand::List(args) => list_skills(args),
        SkillCommand::Show(args) => show_skill(args),
    };
    stdio::print_text(&printed?);
    Ok(())
}

fn list_skills(args: &SkillListArgs) -> Result<String, CommandFailure> {
    let (agent, vars) = args.place.load_agent()?;
    let skills = agent.skills.iter();
    Ok(match args.format {
        SkillListFormat::Text => skills.map(|skill| render_skill(skill, &vars)).collect(),
        SkillListFormat::Json => {
            let list: Vec<Json> = skills
                .map(|skill| {
                    let location = skill.location(&vars);
                    json!({"name": skill.name, "description": skill.description, "location": location})
                })
                .collect();
            format!("{:#}\n", Json::from(list))
        }
    })
}

fn render_skill(skill: &Skill, vars: &EngineVars) -> String {
    let description = skill.description.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}\n  {description}\n  {}\n", skill.name, skill.location(vars).display())
}

fn show_skill(args: &SkillShowArgs) -> Result<String, CommandFailure> {
    let (roots, names) = if args.roots.is_empty() {
        let (agent, vars) = args.place.load_agent()?;
        let names = agent.skills.iter().map(|skill| skill.name.clone()).collect();
        (agent.skill_roots(&vars.cwd), names)
    } else {
        (args.roots.clone(), Vec::new())
    };
    skill::read_skill(&roots, &args.name).map_err(|problem| {
        let hint = match names.as_slice() {
            [] => "`delta skill list` lists the skills of an agent".to_owned(),
            names => format!("the agent has {}", names.join(", ")),
        };
        CommandFailure::nothing_found(problem, hint)
    })
}

impl SkillPlace {
    /// The agent with all of its skills. Warnings are printed.
    fn load_agent(&self) -> Result<(Agent, EngineVars), CommandFailure> {
        let home = agent_choice::find_existing_agent(&self.agent)?;
        let models = ModelSelection::without_llm();
        let mut agent = Agent::load(&home, &models, &trust::read_import_path())?;
        let cwd = self.work_dir.canonicalize().map_err(|error| {
            let message = format!("could not open {}: {error}", self.work_dir.display());
            CommandFailure::config(message, "name a workspace with `-w DIR`")
        })?;
        let notes = offer_project_skills(&mut agent, Some(&cwd), self.project_skills)?;
        notes.iter().for_each(|note| stdio::print_error_line(note));
        let agent_home = agent.home.clone();
        Ok((agent, EngineVars { agent_home, cwd, run_dir: PathBuf::new() }))
    }
}
