//! The wire forms of endpoints: what differs between them before a request is translated.

use delta_base::api_key_names::{
    ANTHROPIC_KEY_VARIABLES, ANTHROPIC_TOKEN_VARIABLE, API_KEY_VARIABLES, GEMINI_KEY_VARIABLES,
};

/// The form in which an endpoint expects requests and sends responses. A vendor is an address and a key; the form is what
/// its endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireForm {
    /// OpenAI's Chat Completions, which most local servers and gateways speak too.
    OpenAi,
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Responses.
    Responses,
    /// Gemini's `generateContent`.
    Gemini,
}

impl WireForm {
    /// All forms.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Responses, Self::Gemini];

    /// The name of the provider in agent.yaml and in `--model PROVIDER:NAME`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    /// The form of the provider `name`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }

    /// The address of the vendor that defined the form.
    pub const fn default_address(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Responses => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com",
        }
    }

    /// The variables for the address, in order of precedence.
    pub const fn address_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::Responses => &["DELTA_BASE_URL", "OPENAI_BASE_URL"],
            Self::Anthropic => &["ANTHROPIC_BASE_URL"],
            Self::Gemini => &["GOOGLE_GEMINI_BASE_URL"],
        }
    }

    /// The variables for the key, in order of precedence. A key of one vendor never reaches an endpoint of another.
    pub const fn key_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi | Self::Responses => &API_KEY_VARIABLES,
            Self::Anthropic => &ANTHROPIC_KEY_VARIABLES,
            Self::Gemini => &GEMINI_KEY_VARIABLES,
        }
    }

    /// How the form sends a key that is from `key_variable`, unless `llm.auth` says otherwise.
    pub fn default_auth(self, key_variable: Option<&str>) -> AuthScheme {
        match self {
            Self::Anthropic if key_variable != Some(ANTHROPIC_TOKEN_VARIABLE) => {
                AuthScheme::XApiKey
            }
            Self::Gemini => AuthScheme::XGoogApiKey,
            Self::OpenAi | Self::Responses | Self::Anthropic => AuthScheme::Bearer,
        }
    }

    /// The members of a request body that delta writes, and agent.yaml must not.
    pub const fn engine_keys(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi => &["messages", "tools", "stream_options"],
            Self::Anthropic => &["messages", "tools", "stream_options", "system"],
            Self::Responses => &[
                "messages",
                "tools",
                "stream_options",
                "input",
                "instructions",
                "store",
                "include",
                "previous_response_id",
                "conversation",
            ],
            Self::Gemini => {
                &["messages", "tools", "stream_options", "contents", "systemInstruction"]
            }
        }
    }

    /// The member of a response that holds the arguments of a call.
    pub const fn arguments_member(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Responses => "arguments",
            Self::Anthropic => "input",
            Self::Gemini => "args",
        }
    }

    /// The version of the form that is requested unless `llm.api_version` says otherwise.
    pub const fn default_api_version(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::Responses => None,
            Self::Anthropic => Some("2026-10-21"),
            // It takes tools from every model, and has the names that end in `-latest`; `v1` does not.
            Self::Gemini => Some("v1beta"),
        }
    }
}

/// The length of answers that `anthropic` requests unless agent.yaml has `max_tokens`, which this form requires.
pub const ANTHROPIC_MAX_TOKENS: u64 = 32_000;

/// Keys of Gemini's `generationConfig` that would lengthen an answer beyond what limits of a run count, each with what to
/// write instead.
pub const GEMINI_LENGTH_KEYS: [(&str, &str); 2] = [
    ("maxOutputTokens", "write `max_tokens: N` in `llm`, which limits of a run count"),
    ("candidateCount", "remove the key: delta reads one candidate"),
];

/// The header that contains the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthScheme {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// `x-api-key: KEY`.
    XApiKey,
    /// `x-goog-api-key: KEY`.
    XGoogApiKey,
    /// `api-key: KEY`.
    ApiKey,
}

impl AuthScheme {
    /// The values of `llm.auth`.
    pub const NAMES: [&str; 4] = ["bearer", "x-api-key", "x-goog-api-key", "api-key"];

    /// The scheme with this name in agent.yaml.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "bearer" => Some(Self::Bearer),
            "x-api-key" => Some(Self::XApiKey),
            "x-goog-api-key" => Some(Self::XGoogApiKey),
            "api-key" => Some(Self::ApiKey),
            _ => None,
        }
    }

    /// The name of the header, in lower case.
    pub fn header_name(self) -> &'static str {
        match self {
            Self::Bearer => "authorization",
            Self::XApiKey => "x-api-key",
            Self::XGoogApiKey => "x-goog-api-key",
            Self::ApiKey => "api-key",
        }
    }
}
