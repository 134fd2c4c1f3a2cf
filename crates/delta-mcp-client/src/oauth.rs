//! OAuth for servers over HTTP: the file with a login, the tokens of a connection, and the login itself.

pub(crate) mod discovery;
pub mod login;
pub mod login_file;
mod oauth_http;
mod redirect_listener;
pub(crate) mod token_source;
