//! What the machine offers: the program, the sandbox, the file systems, the programs that agents start, the terminal.

use super::DoctorCheck;
use crate::sandbox;
use delta_agent::run_sandbox::{RunSandbox, SandboxProblem};
use delta_base::durable::{self, DirectoryRoom};
use delta_base::terminal;
use delta_operator::arguments::run_sandbox;
use delta_operator::failure::CommandFailure;
use delta_operator::sandbox_options::SandboxOptions;
use delta_operator::state::MissingKey;
use delta_operator::{build_info, cancel, config, environment, state};
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use delta_run::event::LeaseKind;
use delta_run::{ownership, workspace};
use delta_sandbox::{DeclaredProfile, SandboxMachine, file_system_type, probe};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// With less free space, a run of ordinary length may fill the disk.
const LOW_SPACE: u64 = 100 << 20;
/// How long a program may take to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything but the terminal, which comes last.
pub(super) fn check_machine(work_dir: &Path) -> Vec<DoctorCheck> {
    let mut checks = vec![DoctorCheck::ok("delta", build_info::describe_build())];
    // The configuration says which sandbox counts; it has a check of its own.
    if config::read().is_ok() {
        checks.push(check_sandbox(work_dir));
    }
    checks.push(check_directory("workspace", work_dir));
    if let Some(runs) = workspace::runs_dir() {
        checks.push(check_directory("runs", runs));
    }
    checks.push(check_state());
    checks.push(check_shell());
    checks.push(check_git());
    checks
}

/// Prepares the sandbox that new agents and the built-in one have, as a run does.
fn check_sandbox(work_dir: &Path) -> DoctorCheck {
    const NAME: &str = "sandbox";
    let setup = sandbox::workspace_vars(Path::new(""), work_dir)
        .and_then(|vars| run_sandbox::sandbox_setup(vars, SandboxOptions::default().policy()?));
    let setup = match setup {
        Ok(setup) => setup,
        Err(failure) => return failed_check(NAME, &failure),
    };
    let machine = probe(&setup.program);
    let kernel = describe_kernel(&machine);
    let label = "an agent with `sandbox: workspace`";
    match RunSandbox::prepare_one(label, Some(DeclaredProfile::workspace()), setup) {
        Ok(_) => match &machine.namespaces {
            Ok(()) => DoctorCheck::ok(NAME, format!("namespaces, {kernel}")),
            Err(refusal) => {
                let finding = format!(
                    "landlock without namespaces, {kernel}: agents that need more do not start\n{}",
                    refusal.reason
                );
                DoctorCheck::warn(NAME, finding, refusal.remedy.clone())
            }
        },
        Err(failure) => {
            let missing: Vec<&str> = match &failure.problem {
                SandboxProblem::Missing(missing) => {
                    missing.iter().map(|one| one.guarantee.name()).collect()
                }
                _ => Vec::new(),
            };
            let failure = run_sandbox::report_failure(failure);
            let without = match missing.as_slice() {
                [] => String::new(),
                names => {
                    format!("; such agents start with `--sandbox-without {}`", names.join(","))
                }
            };
            let finding = format!("{kernel}: {}{without}", failure.message());
            DoctorCheck::fail(NAME, finding, failure.hint().unwrap_or_default())
        }
    }
}

fn describe_kernel(machine: &SandboxMachine) -> String {
    let landlock = machine.landlock.map_or("no landlock".to_owned(), |it| format!("landlock {it}"));
    let is_wsl = machine.kernel.to_lowercase().contains("microsoft");
    let wsl = if is_wsl { ", in WSL" } else { "" };
    format!("{landlock}, kernel {}{wsl}", machine.kernel)
}

/// A directory in which delta creates runs.
fn check_directory(name: &'static str, dir: &Path) -> DoctorCheck {
    // The directory of all runs is created with the first run.
    let existing = dir.ancestors().find(|dir| dir.is_dir());
    let existing = match existing {
        Some(nearest) if name != "workspace" || nearest == dir => nearest,
        _ if dir == Path::new(".") || dir.as_os_str().is_empty() => Path::new("."),
        _ => {
            let finding = format!("{} is not a directory", dir.display());
            return DoctorCheck::fail(name, finding, "name another workspace with `-w DIR`");
        }
    };
    let path = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let path = path.display();
    let room = match durable::inspect_room(existing) {
        Ok(room) => room,
        Err(error) => {
            let finding = format!("could not open {path}: {error}");
            return DoctorCheck::fail(name, finding, "work in another directory");
        }
    };
    let file_system = existing.canonicalize().ok().and_then(|path| file_system_type(&path));
    let file_system = file_system.unwrap_or_else(|| "a file system of unknown type".to_owned());
    let DirectoryRoom { is_writable, free_bytes } = room;
    let free = free_bytes >> 20;
    if !is_writable {
        let finding = format!("{path} on {file_system}: this user cannot create files there");
        let help = "work in another directory, or keep the runs elsewhere: DELTA_RUNS_DIR=DIR";
        // With the runs elsewhere, an agent may only read its workspace.
        if name == "workspace" && workspace::runs_dir().is_some() {
            return DoctorCheck::ok(name, finding);
        }
        return DoctorCheck::fail(name, finding, help);
    }
    let finding = format!(
        "{path} on {file_system}, {free} MiB free; runs are kept to one process {}",
        lease_words(existing)
    );
    if free_bytes < LOW_SPACE {
        return DoctorCheck::warn(
            name,
            finding,
            "free some space: every event is written to the disk",
        );
    }
    if matches!(file_system.as_str(), "9p" | "drvfs") {
        let help =
            "directories of Windows are slow in WSL: work below your home directory in Linux";
        return DoctorCheck::warn(name, finding, help);
    }
    DoctorCheck::ok(name, finding)
}

/// How a new run in the directory would be kept to one process.
fn lease_words(dir: &Path) -> &'static str {
    match ownership::lease_of_new_runs(dir) {
        LeaseKind::Flock => "by a file lock (flock)",
        LeaseKind::SharedFlock => "by a file lock (flock) that other hosts cannot see",
        LeaseKind::Turns => "by leases, also across hosts (turns)",
    }
}

/// The directory for what delta remembers outside of workspaces.
fn check_state() -> DoctorCheck {
    const NAME: &str = "state";
    let dir = match state::own_state_dir() {
        Ok(dir) => dir,
        Err(missing) => return state_warning(missing.reason()),
    };
    let existing = dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    if !matches!(durable::inspect_room(existing), Ok(DirectoryRoom { is_writable: true, .. })) {
        return state_warning(format!("this user cannot create files in {}", existing.display()));
    }
    match state::find_seal_key() {
        Ok(_) => DoctorCheck::ok(NAME, dir.display().to_string()),
        Err(MissingKey::Nowhere(reason)) => state_warning(reason),
        Err(MissingKey::Required(error)) => {
            let help = "no run begins without the key: correct the file, or move it away for a new one, which makes the \
                        runs that it has sealed foreign";
            DoctorCheck::fail(NAME, error.to_string(), help)
        }
    }
}

fn state_warning(reason: String) -> DoctorCheck {
    let help = "set DELTA_STATE_DIR to a directory of this user: without it, runs are not sealed, and the built-in \
                agent and `delta trust` do not work";
    DoctorCheck::warn("state", reason, help)
}

/// A program in PATH.
fn find_in_path(name: &str) -> Option<(PathBuf, LaunchContext)> {
    let env = environment::variables_without_keys(&[]);
    let launch = LaunchContext::new(environment::home_or_root(), env);
    let path = process::find_program(name, &launch).ok()?;
    Some((path, launch))
}

fn check_shell() -> DoctorCheck {
    const NAME: &str = "sh";
    match find_in_path(NAME) {
        Some((path, _)) => DoctorCheck::ok(NAME, path.display().to_string()),
        None => DoctorCheck::fail(
            NAME,
            "not found in PATH",
            "add the directory of `sh` to PATH: tools with `shell:`, hooks and key commands start it",
        ),
    }
}

fn check_git() -> DoctorCheck {
    const NAME: &str = "git";
    let Some((path, launch)) = find_in_path(NAME) else {
        let help = "install git: the coding agent searches with it, and leaves out what it ignores";
        return DoctorCheck::warn(NAME, "not found in PATH", help);
    };
    let path = path.display();
    match read_version(NAME, &launch) {
        Some(version) => DoctorCheck::ok(NAME, format!("{version} ({path})")),
        None => DoctorCheck::warn(
            NAME,
            format!("`{path} --version` failed"),
            "install git again: the coding agent uses it",
        ),
    }
}

/// The first line of `PROGRAM --version`, without the name of the program.
fn read_version(program: &str, launch: &LaunchContext) -> Option<String> {
    let argv = [program.to_owned(), "--version".to_owned()];
    let command = ProcessCommand::new(&argv, launch, VERSION_TIMEOUT, 200);
    let finished = process::run_process(&command, &cancel::install_cancel().ok()?);
    if finished.end != ProcessEnd::Exited(0) {
        return None;
    }
    let output = String::from_utf8_lossy(&finished.stdout.head).into_owned();
    let line = output.lines().next().unwrap_or_default();
    Some(line.trim_start_matches("git version ").to_owned())
}

/// Whether delta can show progress and ask.
pub(super) fn check_terminal() -> DoctorCheck {
    const NAME: &str = "terminal";
    let term = environment::variable("TERM").unwrap_or_else(|| "TERM is not set".to_owned());
    match (terminal::can_prompt_person(), terminal::stderr_width()) {
        (true, Some(_)) => {
            let size = terminal::stderr_size();
            let finding = format!("{} columns, {} lines, {term}", size.columns, size.lines);
            DoctorCheck::ok(NAME, finding)
        }
        (true, None) => DoctorCheck::ok(NAME, format!("of unknown size, {term}")),
        (false, _) => {
            DoctorCheck::ok(NAME, "none: at a question, a run waits and its process exits with 101")
        }
    }
}

/// A check that ended with the failure that every run would end with.
pub(super) fn failed_check(name: &'static str, failure: &CommandFailure) -> DoctorCheck {
    DoctorCheck::fail(name, failure.message(), failure.hint().unwrap_or_default())
}
