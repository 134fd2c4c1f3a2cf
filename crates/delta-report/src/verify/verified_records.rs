//! The records that the events name, and the copies of the configuration.

use super::{RunCheck, VerifiedJournal};
use delta_base::checksum::{self, LineChecksum};
use delta_base::hex::sha256_hex;
use delta_run::event::Payload;
use delta_run::record::{self, RecordedStream};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The streams of a process that a record names by their files.
#[derive(Deserialize)]
struct RecordedStreams {
    stdin: Option<RecordedStream>,
    stdout: Option<RecordedStream>,
    stderr: Option<RecordedStream>,
}

impl VerifiedJournal<'_> {
    /// Compares the records with the hashes in the events that name them, and large outputs with their records.
    pub(super) fn check_records(&self) -> RunCheck {
        let hashes = self.events.iter().filter_map(|(line, event)| {
            Some((event.payload.record_sha256()?, (*line, event.payload.record_file()?)))
        });
        let owners: BTreeMap<&str, (usize, &str)> = hashes.collect();
        let mut findings = Vec::new();
        let mut checked = BTreeSet::new();
        let mut unhashed = 0;
        for (line, event) in &self.events {
            // The record of a request is written later; its result names it too.
            let is_request = matches!(event.payload, Payload::ActionRequest(_));
            let Some(name) = event.payload.record_file().filter(|_| !is_request) else { continue };
            let finding = match event.payload.record_sha256() {
                Some(hash) => self.compare_record(name, hash, *line, &owners),
                None => {
                    unhashed += 1;
                    self.check_older_record(name)
                }
            };
            checked.insert(name.to_owned());
            findings.extend(finding);
            findings.extend(self.check_streams(name, &mut checked));
        }
        for (line, event) in &self.events {
            for image in event.payload.images() {
                let bytes = record::read_record_bytes(self.run_dir, &image.file);
                findings.extend(match bytes {
                    Ok(bytes) if sha256_hex(&bytes) == image.sha256 => None,
                    Ok(_) => Some(format!("{} was changed, an image of line {line}", image.file)),
                    Err(error) => Some(format!(
                        "could not read {}, an image of line {line}: {error}",
                        image.file
                    )),
                });
                checked.insert(image.file.clone());
            }
        }
        let mut detail = count_files(checked.len());
        if unhashed > 0 {
            detail.push_str(&format!(", {unhashed} of them by check values only"));
        }
        RunCheck::new("records", detail, findings)
    }

    fn compare_record(
        &self,
        name: &str,
        hash: &str,
        line: usize,
        owners: &BTreeMap<&str, (usize, &str)>,
    ) -> Option<String> {
        let bytes = match record::read_record_bytes(self.run_dir, name) {
            Ok(bytes) if bytes.is_empty() => {
                return Some(format!("{name} is empty, the record of line {line}"));
            }
            Ok(bytes) => bytes,
            Err(error) => {
                return Some(format!("could not read {name}, the record of line {line}: {error}"));
            }
        };
        let actual = sha256_hex(&bytes);
        if actual == hash {
            return None;
        }
        Some(match owners.get(&*actual) {
            Some((other, _)) => {
                format!("{name} was swapped: it is the record of line {other}, not of line {line}")
            }
            None => format!("{name} was changed, the record of line {line}"),
        })
    }

    /// Checks a record that no hash covers: it ends with a check value.
    fn check_older_record(&self, name: &str) -> Option<String> {
        // An engine that died may have written none.
        let bytes = record::read_record_bytes(self.run_dir, name).ok()?;
        let is_changed =
            matches!(checksum::check_line_checksum(&bytes), LineChecksum::Mismatch { .. });
        is_changed.then(|| format!("{name} was changed"))
    }

    /// Compares the files that a record names with what it says about them.
    fn check_streams(&self, name: &str, checked: &mut BTreeSet<String>) -> Vec<String> {
        let bytes = record::read_record_bytes(self.run_dir, name).unwrap_or_default();
        let streams = serde_json::from_slice::<RecordedStreams>(&bytes).ok();
        let Some(RecordedStreams { stdin, stdout, stderr }) = streams else { return Vec::new() };
        let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
        let mut findings = Vec::new();
        for stream in [stdin, stdout, stderr].into_iter().flatten() {
            let RecordedStream::File { file, .. } = &stream else { continue };
            let path = format!("{dir}/{file}");
            let Ok(bytes) = record::read_record_bytes(self.run_dir, &path) else {
                findings.push(format!("{name} names {path}, which is missing"));
                continue;
            };
            if stream.find_other_hash(&bytes).is_some() {
                findings.push(format!("{name} names {path}, which was changed"));
            }
            checked.insert(path);
        }
        findings
    }

    /// Compares the copies of the agent's files with their hashes in ENGINE_START.
    pub(super) fn check_configuration(&self) -> RunCheck {
        let mut findings = Vec::new();
        let mut files = BTreeSet::new();
        for (line, event) in &self.events {
            let Payload::EngineStart(start) = &event.payload else { continue };
            let Some(copy) = start.config.kept.as_ref().filter(|copy| copy.is_plausible()) else {
                findings.push(format!("line {line} names no copy of the agent"));
                continue;
            };
            for name in copy.file_names() {
                let path = format!("{}/{name}", copy.dir);
                let finding = match copy.read(self.run_dir, name) {
                    Ok(bytes) => copy
                        .find_mismatch(name, &bytes)
                        .map(|_| format!("{path} was changed, the configuration of line {line}")),
                    Err(error) => Some(format!("could not read {path}: {error}")),
                };
                findings.extend(finding.filter(|new| !findings.contains(new)));
                files.insert(path);
            }
        }
        RunCheck::new("configuration", count_files(files.len()), findings)
    }
}

fn count_files(count: usize) -> String {
    format!("{count} {}", if count == 1 { "file" } else { "files" })
}
