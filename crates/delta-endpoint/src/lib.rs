//! The provider of an HTTP endpoint, and the list of the models that an endpoint offers.

pub mod answer_store;
pub mod endpoint_provider;
pub mod model_list;

use delta_llm::llm::Endpoint;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Adds the headers of a form and the headers of the endpoint, its key last.
fn add_headers(
    headers: &mut HeaderMap,
    form_headers: impl IntoIterator<Item = (&'static str, String)>,
    endpoint: &Endpoint,
) -> Result<(), String> {
    let form_headers = form_headers.into_iter().map(|(name, value)| (name.to_owned(), value));
    for (name, value) in form_headers.chain(endpoint.headers.iter().cloned()) {
        let name = HeaderName::try_from(&name)
            .map_err(|_| format!("`{name}` cannot be the name of an HTTP header"))?;
        let value = HeaderValue::from_str(&value)
            .map_err(|_| format!("`{value}` cannot be the value of an HTTP header"))?;
        headers.insert(name, value);
    }
    if let Some(key) = &endpoint.api_key {
        let name = HeaderName::from_static(endpoint.auth.header_name());
        headers.insert(name, key.header_value(endpoint.auth)?);
    }
    Ok(())
}
