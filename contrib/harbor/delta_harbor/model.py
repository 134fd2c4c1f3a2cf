"""How delta reaches the model that Harbor was given."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from harbor.agents.agent_auth_resolution import ResolvedModelConnection
from harbor.models.model_api_format import ModelApiFormat

# delta's providers, by the form that Harbor selected.
PROVIDERS_BY_FORMAT = {
    ModelApiFormat.OPENAI_CHAT_COMPLETIONS: "openai",
    ModelApiFormat.OPENAI_RESPONSES: "responses",
    ModelApiFormat.ANTHROPIC_MESSAGES: "anthropic",
    ModelApiFormat.GOOGLE_GENERATE_CONTENT: "gemini",
}

# And without one: any other vendor implements Chat Completions.
PROVIDERS = {
    "anthropic": "anthropic",
    "gemini": "gemini",
    "google": "gemini",
    "openai-responses": "responses",
}

# Delta's only variable for a key that no provider has as its own.
KEY_VARIABLE = "DELTA_API_KEY"


@dataclass(frozen=True)
class ModelArguments:
    """Options of `delta run` and variables of its process."""

    options: tuple[str, ...]
    env: Mapping[str, str]


def model_arguments(model: str | None, connection: ResolvedModelConnection, default_address: str | None) -> ModelArguments:
    """The model of `--model`, with its key and address; nothing if Harbor was given no model."""
    if model is None:
        return ModelArguments((), {})
    form = connection.model_api_format
    if form is not None and form not in PROVIDERS_BY_FORMAT:
        raise ValueError(f"delta speaks {', '.join(PROVIDERS_BY_FORMAT)}, not `{form}`")
    provider = PROVIDERS_BY_FORMAT[form] if form else PROVIDERS.get(connection.provider or "", "openai")
    options = ["--model", f"{provider}:{connection.model_id or model}"]
    env = {}
    address = connection.execution_base_url or default_address
    if address:
        options += ["--llm", f"base_url={address}"]
        # The operator of this run chose the address on Harbor's command line, so the key may go there.
        env["DELTA_TRUST_ENDPOINT"] = urlsplit(address).hostname or ""
    if connection.api_key:
        options += ["--llm", f"api_key_env={KEY_VARIABLE}"]
        env[KEY_VARIABLE] = connection.api_key
    return ModelArguments(tuple(options), env)
