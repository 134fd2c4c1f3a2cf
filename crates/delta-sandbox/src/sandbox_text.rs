//! What the LLM reads about a sandbox: a line in the description of a tool, and the reason of a failure. Pure.

use crate::network::ConnectFailure;
use crate::profile::git_directory::is_interrupted_list;
use crate::profile::{HomeAccess, HostRule, NetAccess, ReadAccess, SandboxProfile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many names of hosts and paths are listed.
const MAX_LISTED: usize = 8;

/// The line about a profile in the description of a tool.
pub fn describe_profile(profile: &SandboxProfile, workspace: &Path) -> String {
    let mut parts = vec![format!("writes only in {}", writable_places(profile, workspace))];
    if let ReadAccess::Only(paths) = &profile.read {
        let names: Vec<String> = paths.iter().map(|path| place_name(path, workspace)).collect();
        let names = join_names(&names);
        parts.push(format!("reads only the system and {names}"));
    }
    parts.push(
        match profile.home {
            HomeAccess::Hidden => "HOME is empty",
            HomeAccess::Read => "HOME is read-only",
            HomeAccess::Copy => "HOME is a copy that is thrown away",
            HomeAccess::Write => "HOME can be written",
        }
        .to_owned(),
    );
    parts.push(match &profile.net {
        NetAccess::None => "no network".to_owned(),
        NetAccess::All => "network: all".to_owned(),
        NetAccess::Hosts(_) => format!("network: {}", host_names(&profile.net)),
    });
    format!("Sandbox: {}.", parts.join("; "))
}

/// The places that can be written, in words.
fn writable_places(profile: &SandboxProfile, workspace: &Path) -> String {
    // What is in `.delta` is for inner runs, not for the tool itself.
    let places = profile.write.iter().filter(|path| !path.iter().any(|part| part == ".delta"));
    let mut names: Vec<String> = places.map(|path| place_name(path, workspace)).collect();
    names.sort_by_key(|name| name != WORKSPACE_NAME);
    names.push("/tmp".to_owned());
    join_names(&names)
}

const WORKSPACE_NAME: &str = "the workspace";

fn place_name(path: &Path, workspace: &Path) -> String {
    match path.strip_prefix(workspace) {
        Ok(rest) if rest.as_os_str().is_empty() => WORKSPACE_NAME.to_owned(),
        Ok(rest) => rest.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

fn host_names(net: &NetAccess) -> String {
    let NetAccess::Hosts(rules) = net else { return String::new() };
    join_names(&rules.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// The paths in one phrase; of many, some and the number of the others.
pub fn join_paths(paths: &[PathBuf]) -> String {
    join_names(&paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
}

/// `a`, `a and b`, `a, b and c`.
fn join_names(names: &[String]) -> String {
    if names.len() > MAX_LISTED {
        let more = names.len() - MAX_LISTED;
        return format!("{} and {more} more", names[..MAX_LISTED].join(", "));
    }
    match names {
        [] => "nothing".to_owned(),
        [name] => name.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// What is known about a call that has ended.
#[derive(Debug)]
pub struct CallFacts<'a> {
    /// Whether the call failed.
    pub has_failed: bool,
    /// The end of what it printed, on both streams.
    pub output: &'a str,
    /// The names that were refused, with their counts.
    pub refused: &'a BTreeMap<String, u64>,
    /// The listed hosts that could not be connected to.
    pub failed: &'a BTreeMap<String, ConnectFailure>,
    /// How often the network was tried where there is none.
    pub attempts: u64,
    /// How many connections the loopback of the sandbox refused.
    pub loopback_refusals: u64,
    /// The program that the engine found and the sandbox hides.
    pub hidden_program: Option<PathBuf>,
    /// What must not appear and has appeared.
    pub appeared: &'a [PathBuf],
}

/// The line in the observation, if the sandbox may be the reason of a failure.
pub fn sandbox_hint(
    profile: &SandboxProfile,
    workspace: &Path,
    facts: &CallFacts<'_>,
) -> Option<String> {
    let text = if let Some(text) = describe_appeared(facts.appeared) {
        text
    } else if let Some(program) = &facts.hidden_program
        && let Some(reason) = hidden_program_reason(profile, workspace, program)
    {
        reason
    } else if !facts.refused.is_empty() {
        let refused: Vec<String> =
            facts.refused.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        let reach = match &profile.net {
            NetAccess::Hosts(_) => format!("the network reaches {}", host_names(&profile.net)),
            _ => "there is no network".to_owned(),
        };
        format!("{reach}; refused: {}", join_names(&refused))
    } else if let Some((host, failure)) = facts.failed.first_key_value() {
        // The tool itself has seen a connection that was reset.
        match host.as_str() {
            "*" => failure.error.clone(),
            host => format!("could not connect to {host}: {}", failure.error),
        }
    } else if facts.attempts > 0 && profile.net == NetAccess::None {
        let times = if facts.attempts == 1 {
            "once".to_owned()
        } else {
            format!("{} times", facts.attempts)
        };
        format!("there is no network; it was tried {times}")
    } else if facts.has_failed
        && let Some(path) = hidden_path(&profile.hide, facts.output)
    {
        format!("{} is hidden here", path.display())
    } else if facts.has_failed && reports_refused_signal(facts.output) {
        "processes outside cannot be signalled".to_owned()
    } else if facts.has_failed
        && let Some(names) = busy_names(profile, workspace, facts.output)
    {
        format!("{names} cannot be replaced, moved or removed here")
    } else if facts.has_failed && has_any(facts.output, &WRITE_ERRORS) {
        format!("only {} can be written", writable_places(profile, workspace))
    } else if facts.has_failed
        && let Some(processes) = profile.limits.processes
        && has_any(facts.output, &PROCESS_ERRORS)
    {
        format!("at most {processes} processes")
    } else if facts.has_failed && facts.loopback_refusals > 0 {
        let refusals = match facts.loopback_refusals {
            1 => "a connection".to_owned(),
            count => format!("{count} connections"),
        };
        let reach = match &profile.net {
            NetAccess::Hosts(_) => format!("the network reaches {}; ", host_names(&profile.net)),
            _ => String::new(),
        };
        let port = match &profile.net {
            NetAccess::Hosts(rules) if rules.iter().any(HostRule::is_loopback_without_port) => {
                "; of the machine, only port 443 is listed"
            }
            _ => "",
        };
        format!("{reach}the sandbox has its own localhost, which refused {refusals}{port}")
    } else {
        return None;
    };
    Some(format!("[sandbox: {text}]"))
}

/// What to do with the paths that must not appear and have appeared; `None` if there are none.
fn describe_appeared(appeared: &[PathBuf]) -> Option<String> {
    let (lists, forbidden): (Vec<_>, Vec<_>) =
        appeared.iter().cloned().partition(|path| is_interrupted_list(path));
    let pronoun = if forbidden.len() == 1 { "it" } else { "them" };
    let order = (!forbidden.is_empty())
        .then(|| format!("{} must not be created; remove {pronoun}", join_paths(&forbidden)));
    // A user or the agent is in a rebase, which would be lost.
    let note =
        (!lists.is_empty()).then(|| format!("git follows {}, which is new", join_paths(&lists)));
    let texts: Vec<String> = order.into_iter().chain(note).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Why a program that exists outside of the sandbox does not exist in it.
fn hidden_program_reason(
    profile: &SandboxProfile,
    workspace: &Path,
    program: &Path,
) -> Option<String> {
    let name = program.display();
    if !profile.allows_read(program) {
        return Some(format!("the program {name} is hidden here"));
    }
    is_in_own_tmp(profile, workspace, program)
        .then(|| format!("/tmp is the sandbox's own, without {name} of the machine"))
}

/// Whether a path is in the /tmp of the machine, in place of which a sandbox with namespaces has its own.
pub fn is_in_own_tmp(profile: &SandboxProfile, workspace: &Path, path: &Path) -> bool {
    let mut visible = profile.write.iter().map(PathBuf::as_path).chain([workspace]);
    ["/tmp", "/var/tmp"].iter().any(|tmp| path.starts_with(tmp))
        && !visible.any(|root| path.starts_with(root))
}

/// EROFS, EACCES and EPERM, as programs print them.
const WRITE_ERRORS: [&str; 6] = [
    "read-only file system",
    "permission denied",
    "operation not permitted",
    "erofs",
    "eacces",
    "eperm",
];
/// EAGAIN of `fork`.
const PROCESS_ERRORS: [&str; 3] = ["resource temporarily unavailable", "cannot fork", "eagain"];

/// EBUSY: what is protected or hidden is a mount point.
const BUSY_ERRORS: [&str; 2] = ["resource busy", "ebusy"];

/// The protected and hidden paths that a line of `output` reports as busy; all of them if it names none.
fn busy_names(profile: &SandboxProfile, workspace: &Path, output: &str) -> Option<String> {
    let lines: Vec<&str> = output.lines().filter(|line| has_any(line, &BUSY_ERRORS)).collect();
    if lines.is_empty() {
        return None;
    }
    let places = profile.keep.iter().chain(&profile.hide).map(|path| place_name(path, workspace));
    let (named, others): (Vec<_>, Vec<_>) =
        places.partition(|name| lines.iter().any(|line| line.contains(name)));
    let names = if named.is_empty() { others } else { named };
    (!names.is_empty()).then(|| join_names(&names))
}

/// ENOENT and EACCES, as programs print them for what is hidden.
const READ_ERRORS: [&str; 4] = ["no such file", "permission denied", "enoent", "eacces"];

/// The hidden path on a line of `output` that reports its absence.
fn hidden_path<'a>(hide: &'a [PathBuf], output: &str) -> Option<&'a PathBuf> {
    let mut lines = output.lines().filter(|line| has_any(line, &READ_ERRORS));
    lines.find_map(|line| hide.iter().find(|path| names_path(line, path)))
}

/// Whether `line` has `path`, or a path in it.
fn names_path(line: &str, path: &Path) -> bool {
    let path = path.to_string_lossy();
    line.match_indices(path.as_ref()).any(|(start, _)| {
        let next = line[start + path.len()..].chars().next();
        !next.is_some_and(|next| next.is_alphanumeric() || matches!(next, '.' | '_' | '-'))
    })
}

/// Whether a line of `output` is about a signal, not about a file.
fn reports_refused_signal(output: &str) -> bool {
    let mut lines = output.lines().map(str::to_ascii_lowercase);
    lines.any(|line| line.contains("kill") && has_any(&line, &["operation not permitted", "eperm"]))
}

fn has_any(output: &str, phrases: &[&str]) -> bool {
    let output = output.to_ascii_lowercase();
    phrases.iter().any(|phrase| output.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::SandboxLimits;
    use crate::profile::env_filter::EnvAccess;
    use crate::profile::host_text::parse_host_rule;

    fn profile() -> SandboxProfile {
        SandboxProfile {
            write: vec!["/repo/.git".into(), "/w".into()],
            keep: Vec::new(),
            read: ReadAccess::All,
            hide: Vec::new(),
            home: HomeAccess::Copy,
            net: NetAccess::Hosts(
                ["index.crates.io", "static.crates.io"]
                    .map(|text| parse_host_rule(text).unwrap())
                    .to_vec(),
            ),
            env: EnvAccess::Safe,
            sockets: Vec::new(),
            limits: SandboxLimits { processes: Some(256), ..SandboxLimits::default() },
            runs: false,
        }
    }

    #[test]
    fn c_22_4_the_description_of_a_tool_names_its_sandbox() {
        let workspace = Path::new("/w");
        assert_eq!(
            describe_profile(&profile(), workspace),
            "Sandbox: writes only in the workspace, /repo/.git and /tmp; HOME is a copy that is thrown away; \
             network: index.crates.io and static.crates.io."
        );
        let reader = SandboxProfile {
            write: Vec::new(),
            read: ReadAccess::Only(vec!["/w/src".into()]),
            home: HomeAccess::Hidden,
            net: NetAccess::None,
            ..profile()
        };
        assert_eq!(
            describe_profile(&reader, workspace),
            "Sandbox: writes only in /tmp; reads only the system and src; HOME is empty; no network."
        );
    }

    #[test]
    fn c_22_4_an_observation_has_the_reason_of_a_failure() {
        let check = |profile: &SandboxProfile, facts: &CallFacts<'_>, expected: Option<&str>| {
            assert_eq!(sandbox_hint(profile, Path::new("/w"), facts).as_deref(), expected);
        };
        let none = BTreeMap::new();
        let nowhere = BTreeMap::new();
        let quiet = || CallFacts {
            has_failed: false,
            output: "",
            refused: &none,
            failed: &nowhere,
            attempts: 0,
            loopback_refusals: 0,
            hidden_program: None,
            appeared: &[],
        };
        check(&profile(), &quiet(), None);
        let refused = BTreeMap::from([("example.com".to_owned(), 2)]);
        check(
            &profile(),
            &CallFacts { refused: &refused, ..quiet() },
            Some(
                "[sandbox: the network reaches index.crates.io and static.crates.io; refused: example.com (2)]",
            ),
        );
        let failure = |error: &str| ConnectFailure { connections: 1, error: error.to_owned() };
        let failed = BTreeMap::from([("crates.io:443".to_owned(), failure("Connection refused"))]);
        check(
            &profile(),
            &CallFacts { failed: &failed, ..quiet() },
            Some("[sandbox: could not connect to crates.io:443: Connection refused]"),
        );
        let dead = BTreeMap::from([("*".to_owned(), failure("the service is dead"))]);
        check(
            &profile(),
            &CallFacts { failed: &dead, ..quiet() },
            Some("[sandbox: the service is dead]"),
        );
        let offline = SandboxProfile { net: NetAccess::None, ..profile() };
        check(
            &offline,
            &CallFacts { attempts: 3, ..quiet() },
            Some("[sandbox: there is no network; it was tried 3 times]"),
        );
        check(
            &offline,
            &CallFacts { attempts: 1, ..quiet() },
            Some("[sandbox: there is no network; it was tried once]"),
        );
        let denied = "touch: cannot touch '/etc/x': Read-only file system";
        check(&offline, &CallFacts { output: denied, ..quiet() }, None);
        check(
            &offline,
            &CallFacts { output: denied, has_failed: true, ..quiet() },
            Some("[sandbox: only the workspace, /repo/.git and /tmp can be written]"),
        );
        let hidden = SandboxProfile { hide: vec!["/home/me/.ssh".into()], ..profile() };
        let missing = "cat: /home/me/.ssh/id: No such file or directory";
        check(
            &hidden,
            &CallFacts { output: missing, has_failed: true, ..quiet() },
            Some("[sandbox: /home/me/.ssh is hidden here]"),
        );
        let kept = SandboxProfile { keep: vec!["/w/.git/config".into()], ..hidden.clone() };
        for (output, names) in [
            (
                "error: could not write config file .git/config: Device or resource busy",
                ".git/config",
            ),
            ("rm: cannot remove 'x': Device or resource busy", ".git/config and /home/me/.ssh"),
            ("Error: EBUSY: resource busy or locked, rename '.git/config'", ".git/config"),
        ] {
            let hint = format!("[sandbox: {names} cannot be replaced, moved or removed here]");
            check(&kept, &CallFacts { output, has_failed: true, ..quiet() }, Some(&hint));
            check(&kept, &CallFacts { output, ..quiet() }, None);
            check(&offline, &CallFacts { output, has_failed: true, ..quiet() }, None);
        }
        let other = "cat: /home/me/.ssh-agent: No such file or directory\n/home/me/.ssh";
        check(&hidden, &CallFacts { output: other, has_failed: true, ..quiet() }, None);
        check(
            &offline,
            &CallFacts {
                output: "sh: 1: kill: Operation not permitted",
                has_failed: true,
                ..quiet()
            },
            Some("[sandbox: processes outside cannot be signalled]"),
        );
        check(
            &offline,
            &CallFacts { output: "sh: 1: Cannot fork", has_failed: true, ..quiet() },
            Some("[sandbox: at most 256 processes]"),
        );
        let refused_here =
            |count| CallFacts { loopback_refusals: count, has_failed: true, ..quiet() };
        check(
            &offline,
            &refused_here(1),
            Some("[sandbox: the sandbox has its own localhost, which refused a connection]"),
        );
        check(
            &profile(),
            &refused_here(3),
            Some(
                "[sandbox: the network reaches index.crates.io and static.crates.io; the sandbox has its own localhost, which refused 3 connections]",
            ),
        );
        check(&offline, &CallFacts { has_failed: false, ..refused_here(3) }, None);
        let program = |path: &str| CallFacts { hidden_program: Some(path.into()), ..quiet() };
        check(
            &hidden,
            &program("/home/me/.ssh/x"),
            Some("[sandbox: the program /home/me/.ssh/x is hidden here]"),
        );
        check(
            &offline,
            &program("/tmp/x"),
            Some("[sandbox: /tmp is the sandbox's own, without /tmp/x of the machine]"),
        );
        check(&offline, &program("/w/x"), None);
    }
}
