//! mcp.lock.json: the definitions of tools that the author has accepted. Requests are built from it alone.

use crate::protocol_era::ProtocolEra;
use delta_base::hex::sha256_hex;
use delta_base::text::hidden_text::escape_hidden_in_json;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// The name of the file, in the agent directory and in the copies of a run.
pub const LOCK_FILE: &str = "mcp.lock.json";
/// The version of the format.
const LOCK_VERSION: u64 = 1;
/// The members of a definition that its hash covers.
const DEFINITION_KEYS: [&str; 6] =
    ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// The definitions of all servers of an agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LockFile {
    /// The servers by name.
    pub servers: BTreeMap<String, LockedServer>,
}

/// What a server offered when it was locked.
#[derive(Debug, Clone, PartialEq)]
pub struct LockedServer {
    /// The `command` of agent.yaml, as it is written there.
    pub command: Option<Vec<String>>,
    /// The `url` of agent.yaml.
    pub url: Option<String>,
    /// Who issues the tokens that the server gets, if it gets some from a login.
    pub issuer: Option<String>,
    /// The era that the server speaks.
    pub era: ProtocolEra,
    /// The version of the protocol.
    pub protocol: String,
    /// The name and the version of the server.
    pub server: Json,
    /// What the server says about itself; `Null` without any. No LLM gets it.
    pub instructions: Json,
    /// The tools in the server's order.
    pub tools: Vec<LockedTool>,
}

/// The definition of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct LockedTool {
    /// The server's name for it.
    pub name: String,
    /// The hash of the definition.
    pub sha256: String,
    /// The members that the hash covers.
    pub definition: Map<String, Json>,
}

impl LockedTool {
    /// The definition that a server lists; `None` without a name.
    pub fn from_listed(listed: &Json) -> Option<Self> {
        let name = listed.get("name")?.as_str()?.to_owned();
        let members = DEFINITION_KEYS.iter().filter_map(|key| {
            let value = listed.get(*key).filter(|value| !value.is_null())?;
            Some(((*key).to_owned(), value.clone()))
        });
        let definition: Map<String, Json> = members.collect();
        let sha256 = sha256_hex(sorted_json(Json::Object(definition.clone())));
        Some(Self { name, sha256, definition })
    }

    /// The description; empty without one.
    pub fn description(&self) -> &str {
        self.definition.get("description").and_then(Json::as_str).unwrap_or_default()
    }

    /// The JSON Schema of the arguments.
    pub fn input_schema(&self) -> Json {
        self.definition.get("inputSchema").cloned().unwrap_or_else(|| json!({"type": "object"}))
    }

    fn to_json(&self) -> Json {
        let mut json = Map::new();
        json.insert("name".into(), self.name.as_str().into());
        json.insert("sha256".into(), self.sha256.as_str().into());
        json.extend(self.definition.iter().map(|(key, value)| (key.clone(), value.clone())));
        Json::Object(json)
    }
}

impl LockedServer {
    /// The locked tool called `name`.
    pub fn tool(&self, name: &str) -> Option<&LockedTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The server as mcp.lock.json has it.
    pub fn to_json(&self) -> Json {
        let mut json = Map::new();
        if let Some(command) = &self.command {
            json.insert("command".into(), command.clone().into());
        }
        if let Some(url) = &self.url {
            json.insert("url".into(), url.as_str().into());
        }
        if let Some(issuer) = &self.issuer {
            json.insert("issuer".into(), issuer.as_str().into());
        }
        json.insert("era".into(), self.era.name().into());
        json.insert("protocol".into(), self.protocol.as_str().into());
        json.insert("server".into(), self.server.clone());
        json.insert("instructions".into(), self.instructions.clone());
        let tools: Vec<Json> = self.tools.iter().map(LockedTool::to_json).collect();
        json.insert("tools".into(), tools.into());
        Json::Object(json)
    }

    /// The hash of everything that is locked of the server.
    pub fn sha256(&self) -> String {
        sha256_hex(sorted_json(self.to_json()))
    }

    /// Reads the part of a server.
    ///
    /// # Errors
    /// What is missing or does not fit, as a fragment.
    pub fn from_json(json: &Json) -> Result<Self, String> {
        let text = |key: &str| json.get(key).and_then(Json::as_str);
        let era = text("era").and_then(ProtocolEra::from_name);
        let command = json.get("command").and_then(Json::as_array).map(|words| {
            words.iter().map(|word| word.as_str().unwrap_or_default().to_owned()).collect()
        });
        let listed = json.get("tools").and_then(Json::as_array).ok_or("expected a list `tools`")?;
        let mut tools = Vec::new();
        for entry in listed {
            let tool = LockedTool::from_listed(entry).ok_or("expected a tool with a `name`")?;
            if entry.get("sha256").and_then(Json::as_str) != Some(&tool.sha256) {
                return Err(format!(
                    "the definition of `{}` does not match its `sha256`, so the file was edited",
                    tool.name
                ));
            }
            tools.push(tool);
        }
        Ok(Self {
            command,
            url: text("url").map(str::to_owned),
            issuer: text("issuer").map(str::to_owned),
            era: era.ok_or("expected `era`: `modern` or `legacy`")?,
            protocol: text("protocol").ok_or("expected a text `protocol`")?.to_owned(),
            server: json.get("server").cloned().unwrap_or_default(),
            instructions: json.get("instructions").cloned().unwrap_or_default(),
            tools,
        })
    }
}

impl LockFile {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it, as a fragment.
    pub fn parse(text: &str) -> Result<Self, String> {
        let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if json.get("lock").and_then(Json::as_u64) != Some(LOCK_VERSION) {
            return Err(format!("expected `\"lock\": {LOCK_VERSION}`"));
        }
        let servers = json.get("servers").and_then(Json::as_object).ok_or("expected `servers`")?;
        let servers = servers.iter().map(|(name, part)| {
            let server = LockedServer::from_json(part);
            Ok((name.clone(), server.map_err(|problem| format!("server `{name}`: {problem}"))?))
        });
        Ok(Self { servers: servers.collect::<Result<_, String>>()? })
    }

    /// The text of the file. Hidden characters are visible in it.
    pub fn to_text(&self) -> String {
        let servers: Map<String, Json> =
            self.servers.iter().map(|(name, server)| (name.clone(), server.to_json())).collect();
        let json = json!({"lock": LOCK_VERSION, "servers": servers});
        format!("{}\n", escape_hidden_in_json(&format!("{json:#}")))
    }
}

/// JSON without blanks, with the keys of every object sorted.
fn sorted_json(mut value: Json) -> String {
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> LockedServer {
        let listed = json!({"name": "t", "inputSchema": {"b": 1, "a": [true]}, "description": "d\u{200b}",
            "icons": [], "title": null});
        LockedServer {
            command: Some(vec!["p".into()]),
            url: None,
            issuer: Some("https://i.example".into()),
            era: ProtocolEra::Legacy,
            protocol: "2025-11-25".into(),
            server: json!({"name": "s"}),
            instructions: Json::Null,
            tools: vec![LockedTool::from_listed(&listed).unwrap()],
        }
    }

    #[test]
    fn a_lock_file_survives_writing_and_reading() {
        let lock = LockFile { servers: [("s".to_owned(), server())].into() };
        let text = lock.to_text();
        assert!(text.contains("d\\u200b") && !text.contains("icons"), "{text}");
        assert_eq!(LockFile::parse(&text), Ok(lock));
        let edited = LockFile::parse(&text.replace("true", "false")).unwrap_err();
        assert!(edited.contains("`t` does not match its `sha256`"), "{edited}");
    }

    #[test]
    fn a_hash_depends_on_values_and_not_on_the_order_of_keys() {
        let hash = |listed: Json| LockedTool::from_listed(&listed).unwrap().sha256;
        let first = hash(json!({"name": "t", "inputSchema": {"a": 1, "b": {"c": 2, "d": 3}}}));
        assert_eq!(
            first,
            hash(json!({"inputSchema": {"b": {"d": 3, "c": 2}, "a": 1}, "name": "t"}))
        );
        assert_ne!(
            first,
            hash(json!({"name": "t", "inputSchema": {"a": 1, "b": {"c": 2, "d": 4}}}))
        );
        assert_ne!(first, hash(json!({"name": "t", "inputSchema": {"a": 1}, "annotations": {}})));
        assert_eq!(LockedTool::from_listed(&json!({"name": 5})), None);
    }

    #[test]
    fn what_is_no_lock_file_is_explained() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"lock":2,"servers":{}}"#,
            r#"{"lock":1}"#,
            r#"{"lock":1,"servers":{"s":{}}}"#,
            r#"{"lock":1,"servers":{"s":{"tools":[{}]}}}"#,
        ] {
            assert!(LockFile::parse(text).is_err(), "{text}");
        }
    }
}
