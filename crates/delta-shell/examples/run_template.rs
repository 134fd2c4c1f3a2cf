//! Runs a `shell:` template with values: the values are arguments of `sh`, and nothing in them is executed.
//!
//! ```sh
//! cargo run -p delta-agents-shell --example run_template -- 'printf "%s\n" ${x} | wc -c' x='$(id)'
//! ```
#![expect(clippy::print_stderr, reason = "the example reports to a person")]
#![expect(clippy::disallowed_methods, reason = "the example starts the shell itself")]

use delta_shell::ShellScript;
use std::collections::HashMap;
use std::process::{Command, ExitCode};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let template = arguments.next().ok_or("expected TEMPLATE NAME=VALUE...")?;
    let values: HashMap<String, String> = arguments
        .filter_map(|argument| {
            let (name, value) = argument.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect();

    let script = match ShellScript::from_template(&template) {
        Ok(script) => script,
        Err(error) => {
            eprintln!("error: {error}\nhelp: {}", error.help);
            return Ok(ExitCode::FAILURE);
        }
    };
    eprintln!("script: {}", script.text);

    let mut command = Command::new("sh");
    command.args(["-c", &script.text, "--"]);
    for name in &script.parameters {
        // An absent value is an empty argument: the other parameters keep their positions.
        command.arg(values.get(name).map_or("", String::as_str));
    }
    let status = command.status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
