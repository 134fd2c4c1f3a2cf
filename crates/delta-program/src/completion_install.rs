//! Where each shell looks for completion scripts of programs, and the file that makes it load ours.

use crate::completions::CompletionShell;
use crate::user_directory::{ReadVariable, find_user_directory};
use delta_base::durable;
use delta_base::shell_quote::shell_quote_path;
use std::path::{Path, PathBuf};

/// A completion script that was written.
pub struct InstalledScript {
    /// Its file.
    pub path: PathBuf,
    /// What the shell needs besides, if that cannot be taken for granted.
    pub note: Option<String>,
}

/// Writes `script`, the completion script of the program `name`, to the file from which `shell` loads it.
///
/// # Errors
/// The reason why it could not be written.
pub fn install_script(
    shell: CompletionShell,
    name: &str,
    script: &str,
    read_variable: ReadVariable,
) -> Result<InstalledScript, String> {
    let data = find_user_directory("XDG_DATA_HOME", ".local/share", read_variable);
    let (dir, file_name) = match shell {
        CompletionShell::Bash => {
            (data.map(|data| data.join("bash-completion/completions")), name.to_owned())
        }
        CompletionShell::Zsh => {
            (data.map(|data| data.join("zsh/site-functions")), format!("_{name}"))
        }
        CompletionShell::Fish => {
            let config = find_user_directory("XDG_CONFIG_HOME", ".config", read_variable);
            (config.map(|config| config.join("fish/completions")), format!("{name}.fish"))
        }
    };
    let dir = dir.ok_or("HOME is not set")?;
    let path = dir.join(file_name);
    write_script(&dir, &path, script)?;
    let note = match shell {
        CompletionShell::Bash => {
            Some("bash loads it with the package bash-completion, in new shells".to_owned())
        }
        CompletionShell::Zsh => {
            let dir = shell_quote_path(&dir);
            Some(format!(
                "zsh loads it if ~/.zshrc has this line before compinit: fpath=({dir} $fpath)"
            ))
        }
        CompletionShell::Fish => None,
    };
    Ok(InstalledScript { path, note })
}

fn write_script(dir: &Path, path: &Path, script: &str) -> Result<(), String> {
    durable::ensure_shared_dir(dir).map_err(|error| error.to_string())?;
    let written = if path.exists() {
        durable::replace_shared_synced(path, script.as_bytes())
    } else {
        durable::create_shared_synced(path, script.as_bytes())
    };
    written.map_err(|error| error.to_string())
}

/// The shell of the user, from the variable SHELL.
pub fn users_shell(read_variable: ReadVariable) -> Option<CompletionShell> {
    match Path::new(&read_variable("SHELL")?).file_name()?.to_str()? {
        "bash" => Some(CompletionShell::Bash),
        "zsh" => Some(CompletionShell::Zsh),
        "fish" => Some(CompletionShell::Fish),
        _ => None,
    }
}
