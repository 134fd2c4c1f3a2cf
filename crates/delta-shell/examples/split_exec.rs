//! Prints the words of an `exec:` template, one a line, with the parameters in angle brackets.
//!
//! ```sh
//! cargo run -p delta-agents-shell --example split_exec -- 'grep -n "a b" --file=${path}'
//! ```
#![expect(clippy::print_stdout, reason = "the example prints its result")]
#![expect(clippy::print_stderr, reason = "the example reports to a person")]

use delta_shell::{TemplatePart, split_exec_template};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(template) = std::env::args().nth(1) else {
        eprintln!("error: expected TEMPLATE");
        return ExitCode::FAILURE;
    };
    match split_exec_template(&template) {
        Ok(words) => {
            for word in words {
                for part in word {
                    match part {
                        TemplatePart::Text(text) => print!("{text}"),
                        TemplatePart::Placeholder(placeholder) => {
                            print!("<{}>", placeholder.to_source())
                        }
                    }
                }
                println!();
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}\nhelp: {}", error.help);
            ExitCode::FAILURE
        }
    }
}
