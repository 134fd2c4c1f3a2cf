//! The pages that delta writes: they replace no other file, and a browser opens them.

use crate::failure::CommandFailure;
use crate::{cancel, environment};
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The programs that open a file with the default application.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// The variable with the operator's browser.
const BROWSER_VARIABLE: &str = "BROWSER";

/// The time limit for the shell to start one of them.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Refuses to replace a file that is not a page that begins with `mark`, unless the user named it.
pub fn check_page_file(file: &Path, is_named: bool, mark: &str) -> Result<(), CommandFailure> {
    let Ok(metadata) = file.metadata() else { return Ok(()) };
    let path = file.display();
    if !metadata.is_file() {
        let hint = "name another with `-o FILE`";
        return Err(CommandFailure::already_exists(format!("{path} is not a regular file"), hint));
    }
    if is_named || is_page(file, mark).unwrap_or(false) {
        return Ok(());
    }
    let message = format!("{path} already exists and was not written by `delta view`");
    let hint = format!("replace it with `-o {path}`, or name another file");
    Err(CommandFailure::already_exists(message, hint))
}

fn is_page(file: &Path, mark: &str) -> io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(file)?.take(mark.len() as u64).read_to_end(&mut start)?;
    Ok(start == mark.as_bytes())
}

/// Where a program that opens a page is started.
fn opener_context() -> LaunchContext {
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    LaunchContext::new(cwd, environment::variables_without_keys(&[]))
}

/// The command that opens a page: the operator's own, or the one of the desktop.
///
/// # Errors
/// The reason why no browser can be opened here.
pub fn find_opener() -> Result<String, String> {
    let context = opener_context();
    // A list, or a place for the address, is for the opener of the desktop.
    let chosen =
        environment::variable(BROWSER_VARIABLE).filter(|command| !command.contains([':', '%']));
    let program = chosen.as_deref().and_then(|command| command.split_whitespace().next());
    if let (Some(command), Some(program)) = (&chosen, program)
        && process::find_program(program, &context).is_ok()
    {
        return Ok(command.clone());
    }
    let opener = OPENERS.iter().find(|name| process::find_program(name, &context).is_ok());
    let opener = opener.ok_or_else(|| format!("could not find {}", OPENERS.join(" or ")))?;
    let names = ["DISPLAY", "WAYLAND_DISPLAY", BROWSER_VARIABLE];
    let has_desktop = names.iter().any(|name| environment::variable(name).is_some());
    // Without one, the opener starts nothing, or a browser for a terminal, which it does not have.
    if cfg!(target_os = "linux") && !has_desktop {
        return Err(format!("none of {} is set", names.join(", ")));
    }
    Ok((*opener).to_owned())
}

/// Opens the page, a file or an address, with the default application.
pub fn open_in_browser(page: &str) -> Result<(), CommandFailure> {
    let hint = || Some(format!("open {page} yourself"));
    let opener = find_opener().map_err(|reason| {
        CommandFailure::config(format!("could not open a browser: {reason}"), hint())
    })?;
    let launch = opener_context();
    // An opener may be the browser itself, which outlives this process.
    // The command of the operator may have options.
    let script = "$1 \"$2\" </dev/null >/dev/null 2>&1 &";
    let argv = ["sh", "-c", script, "sh", &opener, page].map(str::to_owned);
    let command = ProcessCommand::new(&argv, &launch, OPEN_TIMEOUT, 4096);
    let finished = process::run_process(&command, &cancel::install_cancel()?);
    match finished.end {
        ProcessEnd::Exited(0) => Ok(()),
        end => {
            let reason = delta_run::record::describe_process_end(&end)
                .unwrap_or_else(|| "it failed".to_owned());
            Err(CommandFailure::config(format!("{opener} did not open the page: {reason}"), hint()))
        }
    }
}
