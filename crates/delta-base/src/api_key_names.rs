//! The environment variables that hold an API key.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

/// The variables that hold a key by convention.
pub const API_KEY_VARIABLES: [&str; 2] = ["DELTA_API_KEY", "OPENAI_API_KEY"];
/// The variables with a key for Anthropic.
pub const ANTHROPIC_KEY_VARIABLES: [&str; 2] = ["ANTHROPIC_API_KEY", ANTHROPIC_TOKEN_VARIABLE];
/// The variable of Anthropic's own clients for an OAuth token.
pub const ANTHROPIC_TOKEN_VARIABLE: &str = "ANTHROPIC_AUTH_TOKEN";
/// The variables with a key for Gemini.
pub const GEMINI_KEY_VARIABLES: [&str; 2] = ["GOOGLE_API_KEY", "GEMINI_API_KEY"];
/// The variables in which the clients of one of the vendors look for their key. They hold keys whichever vendor an agent uses.
pub const VENDOR_KEY_VARIABLES: [&str; 6] = [
    API_KEY_VARIABLES[0],
    API_KEY_VARIABLES[1],
    ANTHROPIC_KEY_VARIABLES[0],
    ANTHROPIC_KEY_VARIABLES[1],
    GEMINI_KEY_VARIABLES[0],
    GEMINI_KEY_VARIABLES[1],
];
/// The variable with the path of a file that holds the key.
pub const KEY_FILE_VARIABLE: &str = "DELTA_API_KEY_FILE";
/// The variable with the number of an open descriptor from which the key is read.
pub const KEY_FD_VARIABLE: &str = "DELTA_API_KEY_FD";
/// The variable with a command that prints the key.
pub const KEY_COMMAND_VARIABLE: &str = "DELTA_API_KEY_COMMAND";
/// Where the operator has the key if no variable holds it.
pub const KEY_SOURCE_VARIABLES: [&str; 3] =
    [KEY_FILE_VARIABLE, KEY_FD_VARIABLE, KEY_COMMAND_VARIABLE];
/// The variable that lists for a child which of its other variables hold a key: their names, separated by blanks.
pub const KEY_NAMES_VARIABLE: &str = "DELTA_KEY_NAMES";

/// The names of all variables that may hold a key in `env`: [`VENDOR_KEY_VARIABLES`], `configured`, and those listed in
/// [`KEY_NAMES_VARIABLE`], each once.
pub fn api_key_variables(env: &BTreeMap<OsString, OsString>, configured: &[&str]) -> Vec<String> {
    let listed = env.get(OsStr::new(KEY_NAMES_VARIABLE)).and_then(|names| names.to_str());
    let mut names: Vec<String> = VENDOR_KEY_VARIABLES
        .into_iter()
        .chain(configured.iter().copied())
        .chain(listed.into_iter().flat_map(str::split_whitespace))
        .map(str::to_owned)
        .collect();
    let mut unique = BTreeSet::new();
    names.retain(|name| unique.insert(name.clone()));
    names
}

/// Whether the name says that the variable holds a key, of whatever service.
pub fn is_key_name(name: &str) -> bool {
    name.ends_with("API_KEY") || VENDOR_KEY_VARIABLES.contains(&name)
}

/// The names of all variables that a program without any key must not get: [`api_key_variables`], [`KEY_SOURCE_VARIABLES`], and
/// each variable in `env` whose name says that it holds a key.
pub fn withheld_variables(
    env: &BTreeMap<OsString, OsString>,
    configured: &[&str],
) -> BTreeSet<String> {
    let named = env.keys().filter_map(|name| name.to_str()).filter(|name| is_key_name(name));
    let sources = KEY_SOURCE_VARIABLES.into_iter();
    let mut names: BTreeSet<String> = named.chain(sources).map(str::to_owned).collect();
    names.extend(api_key_variables(env, configured));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_keys_gets_none_of_any_service() {
        let env = ["API_KEY", "API_KEY_ID", "FOO_API_KEY", "GITHUB_TOKEN", "LISTED", "OWN", "PATH"];
        let mut env: BTreeMap<OsString, OsString> =
            env.into_iter().map(|name| (name.into(), "x".into())).collect();
        env.insert(KEY_NAMES_VARIABLE.into(), "LISTED".into());
        let names = withheld_variables(&env, &["OWN"]);
        let rest = env.keys().filter_map(|name| name.to_str());
        let rest: Vec<&str> = rest.filter(|name| !names.contains(*name)).collect();
        assert_eq!(rest, ["API_KEY_ID", KEY_NAMES_VARIABLE, "GITHUB_TOKEN", "PATH"]);
        assert!(
            VENDOR_KEY_VARIABLES.iter().chain(&KEY_SOURCE_VARIABLES).all(|it| names.contains(*it))
        );
        assert!(VENDOR_KEY_VARIABLES.into_iter().all(is_key_name));
    }
}
