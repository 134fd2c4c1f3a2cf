//! What commands have found, for the tables and the page of a sweep: a JSON file each, which is replaced as a whole.

use crate::planning::plan_reader::unreadable_file;
use delta_base::durable;
use delta_base::json::to_json;
use delta_operator::failure::CommandFailure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

/// Replaces a record, also while another process does.
pub fn replace_sweep_record(path: &Path, record: &impl Serialize) -> Result<(), CommandFailure> {
    let tag = std::process::id().to_string();
    let text = to_json(record) + "\n";
    Ok(durable::replace_private_tagged_synced(path, &tag, text.as_bytes())?)
}

/// Reads a record; none if there is none.
pub fn read_sweep_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, CommandFailure> {
    let text = match durable::read_regular_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|source| unreadable_file(path.to_owned(), source))?,
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let hint = "remove the file: the command that wrote it writes it again";
        CommandFailure::config(format!("{}: {error}", path.display()), hint)
    })
}
