//! What an author or the operator writes about a sandbox: names of profiles and maps of keys, read from YAML and written
//! back. Paths and hosts are checked here as texts; `resolution` looks at the machine.

use crate::profile::host_text::parse_host_rule;
use crate::profile::{EnvAccess, HomeAccess, HostRule, NetAccess, SandboxLimits};
use delta_base::engine_variables::{find_unknown_variable, is_identifier, unknown_variable_help};
use delta_base::quantity::{parse_bytes, parse_time_ms};
use delta_base::suggest;
use delta_yaml::diagnostic::Diagnostic;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{
    MappingFields, MappingSchema, YamlDocument, YamlNode, YamlValue, quote_yaml,
};
use std::collections::BTreeMap;

/// No sandbox.
pub const OFF_PROFILE: &str = "off";
/// The profile under every map.
pub const WORKSPACE_PROFILE: &str = "workspace";
/// The profile that changes nothing.
pub const READER_PROFILE: &str = "reader";
/// The entry of `write` that means the git directory of the workspace.
pub const GIT_ENTRY: &str = "git";

/// The shape of `sandbox:`.
pub const SANDBOX_SHAPE: ValueShape =
    ValueShape::OneOf(&[ValueShape::Text, ValueShape::Mapping(&PROFILE_MAPPING)]);

/// The keys of a profile.
pub static PROFILE_MAPPING: MappingSchema = MappingSchema::new(
    "a sandbox",
    "What the processes of a tool may do; a missing key is the one of the profile below it.",
    &PROFILE_KEYS,
);

const PROFILE_KEYS: [KeySchema; 15] = [
    KeySchema::optional(
        "write",
        ValueShape::List(&ValueShape::Text),
        "The files and directories that can be changed: paths in the workspace, absolute or with `~`, and `git` for the git directory of the workspace. A path that ends in `?` may be missing. Default: `[\"${CWD}\", git]`.",
    )
    .with_help(write_help),
    KeySchema::optional(
        "read",
        ValueShape::OneOf(&[ValueShape::Choice(&["all"]), ValueShape::List(&ValueShape::Text)]),
        "`all` (the default), or the paths that can be read besides the directories of the system and `write`.",
    ),
    KeySchema::optional(
        "hide",
        ValueShape::List(&ValueShape::Text),
        "Paths that cannot be read, besides the usual ones that hold keys, tokens and cookies. A path that ends in `?` may be missing.",
    ),
    KeySchema::optional(
        "show",
        ValueShape::List(&ValueShape::Text),
        "Paths that can be read although they are among the ones that are hidden by default.",
    ),
    KeySchema::optional(
        "home",
        ValueShape::Choice(&["hidden", "read", "copy", "write"]),
        "The home directory: `copy` (the default) can be changed, and the changes are thrown away; `read`, `write`, `hidden`.",
    ),
    KeySchema::optional(
        "net",
        ValueShape::OneOf(&[
            ValueShape::Choice(&["none", "all"]),
            ValueShape::List(&ValueShape::Text),
        ]),
        "The network: `none` (the default), `all`, or hosts: `name[:port]` (443), `*.name`, an address, `localhost:PORT`.",
    ),
    KeySchema::optional(
        "env",
        ValueShape::OneOf(&[
            ValueShape::Choice(&["safe", "all"]),
            ValueShape::List(&ValueShape::Text),
        ]),
        "The environment variables that are inherited: `safe` (the default) leaves out names that look like secrets; `all`, or names.",
    ),
    KeySchema::optional(
        "sockets",
        ValueShape::List(&ValueShape::Text),
        "Unix sockets that can be reached: paths, or names of variables that hold one, which are passed.",
    ),
    KeySchema::optional(
        "limits",
        ValueShape::Mapping(&SANDBOX_LIMITS_MAPPING),
        "The resources of the processes; unlimited by default.",
    ),
    KeySchema::optional(
        "runs",
        ValueShape::Boolean,
        "Whether the tool starts runs of delta in the workspace. Default: false.",
    ),
    // Keys of other programs, and other words for the ones of a profile.
    KeySchema::misplaced("network", "the key is `net`"),
    KeySchema::misplaced("allow_network", "write `net: all`, or list hosts in `net`"),
    KeySchema::misplaced("deny", "the key is `hide`"),
    KeySchema::misplaced("writable", "the key is `write`"),
    KeySchema::misplaced("profile", "write the name in place of the mapping: `sandbox: reader`"),
];

static SANDBOX_LIMITS_MAPPING: MappingSchema = MappingSchema::new(
    "`limits` of a sandbox",
    "The resources of the processes of a call.",
    &[
        KeySchema::optional(
            "memory",
            ValueShape::Pattern("[0-9]+ ?[KMGT](iB)?"),
            "The memory, such as 512M or 4 GiB.",
        ),
        KeySchema::optional(
            "processes",
            ValueShape::Integer(1..(1 << 22)),
            "The processes and threads at one time.",
        ),
        KeySchema::optional(
            "cpu",
            ValueShape::Pattern("[0-9].*[a-z]"),
            "The processor time of each process, such as 90s or 10m.",
        ),
        KeySchema::optional(
            "file",
            ValueShape::Pattern("[0-9]+ ?[KMGT](iB)?"),
            "The size of the largest file, such as 100M.",
        ),
        KeySchema::optional(
            "open_files",
            ValueShape::Integer(8..(1 << 20)),
            "The open files of each process.",
        ),
    ],
);

/// The operator's file: a profile, and the guarantees that no option waives.
pub static POLICY_MAPPING: MappingSchema =
    MappingSchema::new("a sandbox file", "The most that any tool may do.", &POLICY_KEYS);

const REQUIRE_KEY: KeySchema = KeySchema::optional(
    "require",
    ValueShape::List(&ValueShape::Text),
    "The guarantees that `--sandbox-without` cannot waive: files, metadata, journal, secrets, home, net, sockets, processes.",
);

const POLICY_KEYS: [KeySchema; 11] = {
    let [write, read, hide, show, home, net, env, sockets, limits, runs, ..] = PROFILE_KEYS;
    [write, read, hide, show, home, net, env, sockets, limits, runs, REQUIRE_KEY]
};

/// A value of `sandbox:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxSetting {
    /// `off`.
    Off,
    /// The name of a profile, and where it is written.
    Name(String, Box<Diagnostic>),
    /// Keys.
    Keys(Box<ProfileKeys>),
}

/// Which files a profile lets read, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadKey {
    /// Everything that is not hidden.
    All,
    /// The directories of the system, and these paths.
    Only(Vec<String>),
}

/// The keys that a map has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileKeys {
    /// Paths.
    pub write: Option<Vec<String>>,
    /// What can be read.
    pub read: Option<ReadKey>,
    /// Paths.
    pub hide: Option<Vec<String>>,
    /// Paths.
    pub show: Option<Vec<String>>,
    /// The home directory.
    pub home: Option<HomeAccess>,
    /// The network.
    pub net: Option<NetAccess>,
    /// The environment.
    pub env: Option<EnvAccess>,
    /// Paths, or names of variables.
    pub sockets: Option<Vec<String>>,
    /// Resources.
    pub limits: Option<SandboxLimits>,
    /// Whether the tool starts runs.
    pub runs: Option<bool>,
}

/// A profile with all of its keys, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredProfile {
    /// Paths.
    pub write: Vec<String>,
    /// What can be read.
    pub read: ReadKey,
    /// Paths, besides the ones that are hidden by default.
    pub hide: Vec<String>,
    /// Paths that are not hidden.
    pub show: Vec<String>,
    /// The home directory.
    pub home: HomeAccess,
    /// The network.
    pub net: NetAccess,
    /// The environment.
    pub env: EnvAccess,
    /// Paths, or names of variables.
    pub sockets: Vec<String>,
    /// Resources.
    pub limits: SandboxLimits,
    /// Whether the tool starts runs.
    pub runs: bool,
}

impl DeclaredProfile {
    /// The same profile, with which these hosts are reached too.
    #[must_use]
    pub fn with_hosts(mut self, hosts: &[HostRule]) -> Self {
        self.net = match self.net {
            NetAccess::None if !hosts.is_empty() => NetAccess::Hosts(hosts.to_vec()),
            NetAccess::Hosts(rules) => NetAccess::Hosts([&rules, hosts].concat()),
            net => net,
        };
        self
    }

    /// The profile `workspace`.
    pub fn workspace() -> Self {
        Self {
            write: vec!["${CWD}".to_owned(), GIT_ENTRY.to_owned()],
            read: ReadKey::All,
            hide: Vec::new(),
            show: Vec::new(),
            home: HomeAccess::Copy,
            net: NetAccess::None,
            env: EnvAccess::Safe,
            sockets: Vec::new(),
            limits: SandboxLimits::default(),
            runs: false,
        }
    }

    /// The profile `reader`.
    pub fn reader() -> Self {
        Self { write: Vec::new(), home: HomeAccess::Read, ..Self::workspace() }
    }

    /// The profile of a name that delta defines.
    pub fn builtin(name: &str) -> Option<Self> {
        match name {
            WORKSPACE_PROFILE => Some(Self::workspace()),
            READER_PROFILE => Some(Self::reader()),
            _ => None,
        }
    }

    /// The profile with the keys of a map in place of its own.
    #[must_use]
    pub fn with_keys(&self, keys: &ProfileKeys) -> Self {
        let keys = keys.clone();
        let base = self.clone();
        Self {
            write: keys.write.unwrap_or(base.write),
            read: keys.read.unwrap_or(base.read),
            hide: keys.hide.unwrap_or(base.hide),
            show: keys.show.unwrap_or(base.show),
            home: keys.home.unwrap_or(base.home),
            net: keys.net.unwrap_or(base.net),
            env: keys.env.unwrap_or(base.env),
            sockets: keys.sockets.unwrap_or(base.sockets),
            limits: keys.limits.unwrap_or(base.limits),
            runs: keys.runs.unwrap_or(base.runs),
        }
    }

    /// The profile as a map on one line, which reads back as the same profile.
    pub fn to_yaml(&self) -> String {
        let read = match &self.read {
            ReadKey::All => "all".to_owned(),
            ReadKey::Only(paths) => yaml_texts(paths),
        };
        let net = match &self.net {
            NetAccess::None => "none".to_owned(),
            NetAccess::All => "all".to_owned(),
            NetAccess::Hosts(rules) => {
                yaml_texts(&rules.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
        };
        let env = match &self.env {
            EnvAccess::Safe => "safe".to_owned(),
            EnvAccess::All => "all".to_owned(),
            EnvAccess::Only(names) => yaml_texts(names),
        };
        let mut entries = vec![
            format!("write: {}", yaml_texts(&self.write)),
            format!("read: {read}"),
            format!("hide: {}", yaml_texts(&self.hide)),
            format!("show: {}", yaml_texts(&self.show)),
            format!("home: {}", self.home.name()),
            format!("net: {net}"),
            format!("env: {env}"),
            format!("sockets: {}", yaml_texts(&self.sockets)),
        ];
        let limits = limit_entries(&self.limits);
        if !limits.is_empty() {
            entries.push(format!("limits: {{{}}}", limits.join(", ")));
        }
        entries.push(format!("runs: {}", self.runs));
        format!("{{{}}}", entries.join(", "))
    }
}

fn yaml_texts(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote_yaml(text)).collect();
    format!("[{}]", quoted.join(", "))
}

/// The limits as `key: value`. An amount of bytes that is not a multiple of KiB cannot be written, so none is read.
fn limit_entries(limits: &SandboxLimits) -> Vec<String> {
    let bytes = |bytes: u64| format!("{}K", bytes >> 10);
    [
        limits.memory.map(|memory| format!("memory: {}", bytes(memory))),
        limits.processes.map(|count| format!("processes: {count}")),
        limits.cpu.map(|seconds| format!("cpu: {seconds}s")),
        limits.file.map(|file| format!("file: {}", bytes(file))),
        limits.open_files.map(|count| format!("open_files: {count}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl SandboxSetting {
    /// Reads a value of `sandbox:`.
    pub fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        match node.scalar() {
            Some("") => {
                doc.report(node, "`sandbox` is empty", SETTING_HELP);
                None
            }
            Some(OFF_PROFILE) => Some(Self::Off),
            Some("false" | "no" | "none") => {
                doc.report(node, SETTING_MESSAGE, "write `sandbox: off`");
                Some(Self::Off)
            }
            Some("true" | "yes" | "on" | "default") => {
                doc.report(node, SETTING_MESSAGE, "write `sandbox: workspace`");
                None
            }
            Some(name) => {
                let position = doc.diagnostic_at(node, String::new(), None);
                Some(Self::Name(name.to_owned(), Box::new(position)))
            }
            None if matches!(node.value, YamlValue::Mapping(_)) && node.entries().is_empty() => {
                let help = "write `sandbox: workspace`, which has the default of every key";
                doc.report(node, "the mapping under `sandbox` is empty", help);
                None
            }
            None if node.entries().is_empty() => {
                let message = format!("{SETTING_MESSAGE}, not {}", node.kind());
                doc.report(node, message, SETTING_HELP);
                None
            }
            None => ProfileKeys::read(doc, node).map(|keys| Self::Keys(Box::new(keys))),
        }
    }

    /// The profile, over `base` for a map; `None` for no sandbox.
    ///
    /// # Errors
    /// No profile has the name.
    pub fn profile(
        &self,
        base: &DeclaredProfile,
        profiles: &NamedProfiles,
    ) -> Result<Option<DeclaredProfile>, Diagnostic> {
        match self {
            Self::Off => Ok(None),
            Self::Keys(keys) => Ok(Some(base.with_keys(keys))),
            Self::Name(name, position) => match profiles.get(name) {
                Some(profile) => Ok(Some(profile)),
                None => Err(Diagnostic {
                    message: format!("there is no sandbox `{name}`"),
                    help: Some(suggest::did_you_mean(name, profiles.names())),
                    ..Diagnostic::clone(position)
                }),
            },
        }
    }
}

const SETTING_MESSAGE: &str = "`sandbox` must be the name of a profile, `off` or a mapping";
const SETTING_HELP: &str =
    "write `sandbox: workspace`, `sandbox: off`, or a mapping such as `{net: [crates.io]}`";

/// The help for a profile that is not a mapping.
const SANDBOX_HELP: &str = "write its keys, such as `{net: [crates.io]}`";

/// The profiles in `sandboxes:` of an agent, and the ones of delta.
#[derive(Debug, Clone, Default)]
pub struct NamedProfiles {
    profiles: BTreeMap<String, DeclaredProfile>,
}

impl NamedProfiles {
    /// Reads `sandboxes:`.
    pub fn read(doc: &YamlDocument, node: &YamlNode) -> Self {
        let mut named = Self::default();
        for (key, value) in doc.expect_mapping(node, "`sandboxes`").unwrap_or_default() {
            let name = key.scalar().unwrap_or_default();
            if name == OFF_PROFILE || DeclaredProfile::builtin(name).is_some() {
                doc.report(key, format!("`{name}` is a sandbox of delta"), "choose another name");
            } else if !is_profile_name(name) {
                let message = format!("`{name}` is not the name of a sandbox");
                doc.report(key, message, "use letters, digits, `_` and `-`");
            } else if doc
                .expect_mapping_or(value, "a sandbox", || SANDBOX_HELP.to_owned())
                .is_none()
            {
                // Otherwise the places that name the sandbox would be errors too.
                named.profiles.insert(name.to_owned(), DeclaredProfile::workspace());
            } else if let Some(keys) = ProfileKeys::read(doc, value) {
                let profile = DeclaredProfile::workspace().with_keys(&keys);
                named.profiles.insert(name.to_owned(), profile);
            }
        }
        named
    }

    fn get(&self, name: &str) -> Option<DeclaredProfile> {
        self.profiles.get(name).cloned().or_else(|| DeclaredProfile::builtin(name))
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let builtin = [WORKSPACE_PROFILE, READER_PROFILE, OFF_PROFILE];
        self.profiles.keys().map(String::as_str).chain(builtin)
    }
}

/// Whether `name` can be the name of a profile.
pub fn is_profile_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

impl ProfileKeys {
    /// Reads a map; problems are added to the report of `doc`.
    pub fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        Some(Self::from_fields(doc, doc.fields(node, &PROFILE_MAPPING)?))
    }

    /// Reads the keys of a mapping that was checked against a schema with the keys of a profile.
    pub fn from_fields(doc: &YamlDocument, fields: MappingFields<'_>) -> Self {
        let paths = |key: &str| fields.non_null(key).map(|node| read_paths(doc, node, key));
        Self {
            write: paths("write"),
            read: fields.non_null("read").map(|node| {
                match word_or_list(doc, node, "read", &["all"]) {
                    Some(_) => ReadKey::All,
                    None => ReadKey::Only(read_paths(doc, node, "read")),
                }
            }),
            hide: paths("hide"),
            show: paths("show"),
            home: fields.text("home").and_then(HomeAccess::parse),
            net: fields.non_null("net").map(|node| {
                match word_or_list(doc, node, "net", &["none", "all"]) {
                    Some("all") => NetAccess::All,
                    Some(_) => NetAccess::None,
                    None => read_hosts(doc, node),
                }
            }),
            env: fields.non_null("env").map(|node| {
                match word_or_list(doc, node, "env", &["safe", "all"]) {
                    Some("all") => EnvAccess::All,
                    Some(_) => EnvAccess::Safe,
                    None => EnvAccess::Only(read_names(doc, node)),
                }
            }),
            sockets: paths("sockets"),
            limits: fields.non_null("limits").and_then(|node| read_sandbox_limits(doc, node)),
            runs: fields.non_null("runs").map(|_| fields.boolean("runs")),
        }
    }
}

/// A word in place of the paths of `write`.
fn write_help(node: &YamlNode) -> Option<String> {
    match node.scalar()? {
        "none" | "false" | "no" | "off" => Some("write `write: []`".to_owned()),
        "workspace" | "true" | "yes" | "on" => Some(
            "leave it out, for the workspace and its git directory, or write `write: [\"${CWD}\"]`"
                .to_owned(),
        ),
        "all" | "*" => Some("write `write: [/]`, or `sandbox: off` for no sandbox".to_owned()),
        _ => None,
    }
}

/// The word, if the value is one of `words`; reports any other scalar. A list has no word.
fn word_or_list<'a>(
    doc: &YamlDocument,
    node: &'a YamlNode,
    key: &str,
    words: &[&'a str],
) -> Option<&'a str> {
    let Some(text) = node.scalar() else {
        doc.expect_list(node, &format!("`{key}`"))?;
        return None;
    };
    if !words.contains(&text) {
        let names: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        let message = format!("`{key}` must be {} or a list, not `{text}`", names.join(", "));
        let all_or_none = match text {
            "true" | "yes" | "on" | "any" | "*" | "full" => {
                words.iter().find(|word| **word == "all")
            }
            "false" | "no" | "off" => words.iter().find(|word| **word == "none"),
            _ => None,
        };
        let help = match all_or_none {
            Some(word) => format!("write `{key}: {word}`"),
            None if text == "none" => format!("write `{key}: []`"),
            None => format!("write `{key}: [{text}]` or `{key}: {}`", words[0]),
        };
        doc.report(node, message, help);
    }
    Some(words.iter().copied().find(|word| *word == text).unwrap_or(words[0]))
}

fn read_paths(doc: &YamlDocument, node: &YamlNode, key: &str) -> Vec<String> {
    let label = format!("an entry of `{key}`");
    let mut paths = Vec::new();
    for item in node.items() {
        let Some(text) = doc.expect_text(item, &label) else { continue };
        let (problem, help) = if text.trim_end_matches('?').is_empty() || text.contains('\0') {
            ("is not a path", "write `.` for the workspace".to_owned())
        } else if let Some(name) = find_unknown_variable(text) {
            ("has an unknown variable", unknown_variable_help(name, "a sandbox"))
        } else if text.starts_with('~')
            && !text.starts_with("~/")
            && text.trim_end_matches('?') != "~"
        {
            ("names the home directory of another user", "write its absolute path".to_owned())
        } else if let Some(name) = find_shell_variable(text) {
            let help = match text.strip_prefix("$HOME") {
                Some(rest) if name == "HOME" => format!("write `~{rest}`"),
                _ => format!("write the value of {name}"),
            };
            ("has a variable of a shell, which delta does not replace", help)
        } else if text.contains(['*', '[']) {
            ("is a pattern, not a path", "name the directory that holds the files".to_owned())
        } else {
            paths.push(text.to_owned());
            continue;
        };
        doc.report(item, format!("`{text}` in `{key}` {problem}"), help);
    }
    paths
}

/// The name of a variable of a shell that is a component of a path.
fn find_shell_variable(text: &str) -> Option<&str> {
    let mut names = text.trim_end_matches('?').split('/').filter_map(|part| part.strip_prefix('$'));
    names.find(|name| is_identifier(name))
}

fn read_hosts(doc: &YamlDocument, node: &YamlNode) -> NetAccess {
    let mut rules = Vec::new();
    for item in node.items() {
        let Some(text) = doc.expect_text(item, "an entry of `net`") else { continue };
        match parse_host_rule(text) {
            Ok(rule) => rules.push(rule),
            Err(help) => {
                doc.report(item, format!("`{text}` in `net` is not a host"), help);
            }
        }
    }
    rules.sort();
    rules.dedup();
    if rules.is_empty() { NetAccess::None } else { NetAccess::Hosts(rules) }
}

fn read_names(doc: &YamlDocument, node: &YamlNode) -> Vec<String> {
    let mut names = Vec::new();
    for item in node.items() {
        let Some(text) = doc.expect_text(item, "an entry of `env`") else { continue };
        if is_identifier(text) {
            names.push(text.to_owned());
        } else {
            let message = format!("`{text}` is not the name of a variable");
            doc.report(item, message, "letters, digits and `_`, not beginning with a digit");
        }
    }
    names.sort();
    names.dedup();
    names
}

fn read_sandbox_limits(doc: &YamlDocument, node: &YamlNode) -> Option<SandboxLimits> {
    let fields = doc.fields(node, &SANDBOX_LIMITS_MAPPING)?;
    let bytes = |key: &str| {
        let node = fields.non_null(key)?;
        let bytes = parse_bytes(node.scalar()?);
        if bytes.is_none() {
            let message = format!("`{key}`: expected an amount with a unit");
            doc.report(node, message, format!("write `{key}: 512M` or `{key}: 4 GiB`"));
        }
        bytes
    };
    let cpu = fields.non_null("cpu").and_then(|node| {
        let seconds = parse_time_ms(node.scalar()?).map(|ms| ms.div_ceil(1000).max(1));
        if seconds.is_none() {
            let help = "write `cpu: 90s` or `cpu: 10m`";
            doc.report(node, "`cpu`: expected a time with its unit", help);
        }
        seconds
    });
    Some(SandboxLimits {
        memory: bytes("memory"),
        processes: fields.integer("processes"),
        cpu,
        file: bytes("file"),
        open_files: fields.integer("open_files"),
    })
}
