//! Tools made from templates, run by a real dash and by a real bash under the name `sh`.

use delta_agent::tool::{Tool, invocation::ToolInvocation, read_tool_file};
use delta_base::engine_variables::EngineVars;
use delta_words::CallArguments;
use delta_yaml::yaml::{YamlDocument, quote_yaml};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub const SHELLS: [&str; 2] = ["/bin/dash", "/bin/bash"];

pub fn vars() -> EngineVars {
    EngineVars { agent_home: "/agent home".into(), cwd: "/work $x".into(), run_dir: "/run".into() }
}

/// The first tool of a file, or what is wrong with it.
pub fn load(text: &str) -> Result<Tool, String> {
    let doc =
        YamlDocument::parse("agent.yaml", text).map_err(|diagnostic| diagnostic.to_string())?;
    let mut report = delta_yaml::diagnostic::DiagnosticReport::default();
    let mut tools = read_tool_file(&doc, &mut report);
    if !report.is_empty() {
        return Err(report.to_string());
    }
    Ok(tools.swap_remove(0))
}

/// A tool with this template under `key`.
pub fn tool(key: &str, template: &str) -> Result<Tool, String> {
    load(&format!("tools:\n  - name: t\n    {key}: {}\n", quote_yaml(template)))
}

/// The command line of `tool` when its parameter `pN` has the value `values[N]`.
pub fn invocation(tool: &Tool, values: &[String]) -> ToolInvocation {
    let value = |name: &str| values[name[1..].parse::<usize>().unwrap()].clone();
    let given: serde_json::Map<String, serde_json::Value> =
        tool.parameters.iter().map(|p| (p.name.clone(), value(&p.name).into())).collect();
    let arguments = tool
        .check_arguments(&CallArguments::new(serde_json::Value::Object(given).to_string()))
        .unwrap();
    tool.invocation(&arguments, &vars())
}

/// Starts the command line, which begins with `sh`, with `shell` in the place of it.
fn start<'a>(
    shell: &str,
    argv: &[String],
    directory: &Path,
    env: impl Iterator<Item = (&'a str, &'a str)>,
) -> Child {
    Command::new(shell)
        .arg0(&argv[0])
        .args(&argv[1..])
        .current_dir(directory)
        .env_clear()
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What both shells make of the command line, side by side in directories and environments of their own.
pub fn run_each<const N: usize>(
    argv: &[String],
    directories: &[PathBuf; 2],
    env: &[[(&str, String); N]; 2],
) -> [Output; 2] {
    let mut children = Vec::new();
    for ((shell, directory), env) in SHELLS.iter().zip(directories).zip(env) {
        children.push(start(
            shell,
            argv,
            directory,
            env.iter().map(|(name, value)| (*name, value.as_str())),
        ));
    }
    let outputs: Vec<Output> =
        children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    outputs.try_into().unwrap()
}

/// As [`run_each`], with one environment for both.
pub fn run<const N: usize>(
    argv: &[String],
    directories: &[PathBuf; 2],
    env: [(&str, &str); N],
) -> [Output; 2] {
    let env = env.map(|(name, value)| (name, value.to_owned()));
    run_each(argv, directories, &[env.clone(), env])
}

/// Two directories in `parent`, one for each shell.
pub fn directories(parent: &Path) -> [PathBuf; 2] {
    ["dash", "bash"].map(|name| {
        let directory = parent.join(name);
        std::fs::create_dir(&directory).unwrap();
        directory
    })
}
