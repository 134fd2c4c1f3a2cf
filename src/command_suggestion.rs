//! What the error for an unknown command proposes: names that can be typed.

use clap::error::{ContextKind, ContextValue};
use delta_base::suggest;

/// Names of commands in other programs, with what to type for delta.
const COMMAND_ALIASES: [(&str, &str); 67] = [
    ("abort", "delta stop"),
    ("accept", "delta approve"),
    ("allow", "delta approve"),
    ("archive", "delta pack"),
    ("ask", "delta run"),
    ("branch", "delta fork"),
    ("cancel", "delta stop"),
    ("chat", "delta run -i"),
    ("check", "delta tool lint"),
    ("clean", "delta rm"),
    ("clone", "delta fork"),
    ("compare", "delta diff"),
    ("completion", "delta completions"),
    ("compress", "delta pack"),
    ("configure", "delta config"),
    ("create", "delta init"),
    ("delete", "delta rm"),
    ("exec", "delta run"),
    ("expand", "delta tool expand"),
    ("follow", "delta show --follow"),
    ("gc", "delta rm"),
    ("history", "delta list-runs"),
    ("html", "delta view"),
    ("info", "delta show"),
    ("inspect", "delta show"),
    ("interrupt", "delta stop"),
    ("kill", "delta stop"),
    ("lint", "delta tool lint"),
    ("list", "delta list-runs"),
    ("log", "delta show"),
    ("logs", "delta show"),
    ("ls", "delta list-runs"),
    ("manual", "delta man"),
    ("migrate", "delta tool migrate"),
    ("new", "delta init"),
    ("open", "delta view"),
    ("pending", "delta inbox"),
    ("prompt", "delta context show"),
    ("prune", "delta rm"),
    ("ps", "delta list-runs"),
    ("questions", "delta inbox"),
    ("reject", "delta deny"),
    ("remove", "delta rm"),
    ("report", "delta view"),
    ("reset", "delta rollback"),
    ("respond", "delta answer"),
    ("restart", "delta continue"),
    ("restore", "delta rollback"),
    ("resume", "delta continue"),
    ("retry", "delta continue"),
    ("revert", "delta rollback"),
    ("runs", "delta list-runs"),
    ("settings", "delta config"),
    ("start", "delta run"),
    ("status", "delta show"),
    ("tail", "delta show --follow"),
    ("tests", "delta test"),
    ("top", "delta list-runs"),
    ("trace", "delta export"),
    ("undo", "delta rollback"),
    ("validate", "delta tool lint"),
    ("verify", "delta replay"),
    ("version", "delta --version"),
    ("wait", "delta show --follow"),
    ("waiting", "delta inbox"),
    ("watch", "delta show --follow"),
    ("web", "delta view"),
];

/// Adds what to type to the error for an unknown command, and removes what cannot be typed.
pub fn with_command_tip(mut error: clap::Error) -> clap::Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if usage.contains("delta <COMMAND>") => word.clone(),
        _ => String::new(),
    };
    let find_alias = |word: &str| COMMAND_ALIASES.iter().find(|(alias, _)| *alias == word);
    if let Some((_, typed)) = find_alias(&word) {
        return with_tip(error, typed);
    }
    // `tool:lint` and others are hidden old spellings.
    let similar = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    let similar: Vec<String> = similar.into_iter().filter(|name| !name.contains(':')).collect();
    if !similar.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(similar));
        return error;
    }
    let aliases = COMMAND_ALIASES.iter().map(|(alias, _)| *alias);
    let nearest = suggest::nearest_names(&word, aliases);
    // A short word is similar to everything.
    match nearest.first().filter(|_| word.len() > 3).and_then(|alias| find_alias(alias)) {
        Some((_, typed)) => with_tip(error, typed),
        None => error,
    }
}

fn with_tip(mut error: clap::Error, typed: &str) -> clap::Error {
    let tip = format!("use `{typed}`");
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn c_25_12_what_is_proposed_for_another_name_can_be_typed() {
        for (alias, typed) in COMMAND_ALIASES {
            let mut command = crate::DeltaCli::command();
            assert!(command.find_subcommand(alias).is_none(), "{alias} is a command");
            for word in typed.strip_prefix("delta ").unwrap().split(' ') {
                command.build();
                if word.starts_with('-') {
                    let mut options = command.get_arguments();
                    let is_option = options.any(|option| {
                        option.get_long().is_some_and(|long| word == format!("--{long}"))
                            || option.get_short().is_some_and(|short| word == format!("-{short}"))
                    });
                    assert!(is_option, "{typed}");
                } else {
                    command = command.find_subcommand(word).unwrap().clone();
                    assert!(!command.is_hide_set(), "{typed}");
                }
            }
        }
        assert!(COMMAND_ALIASES.is_sorted(), "sort the names");
    }
}
