//! An archive of `delta send`: nothing is written outside of the run directory, and no file that is not declared.
#![no_main]

use delta_base::hex::sha256_hex;
use delta_base::id::RunId;
use delta_fuzz::directory;
use delta_run::chain::ChainValue;
use delta_run::event::JournalHead;
use delta_run::fork::bundle::{
    BundleError, BundleSink, MANIFEST_NAME, Manifest, Member, new_nonce, read_packed_bundle,
};
use delta_run::journal::seal_key::SealKey;
use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::LazyLock;

static HOME: LazyLock<PathBuf> = LazyLock::new(directory);

struct Files(PathBuf);

impl BundleSink for Files {
    type Error = BundleError;

    fn begin(&mut self, manifest: Manifest) -> Result<Vec<Member>, BundleError> {
        Ok(manifest.members)
    }

    fn store(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), BundleError> {
        member.store(&self.0, content)?;
        assert!(member.is_complete_in(&self.0));
        Ok(())
    }

    fn ready(&mut self) -> Result<(), BundleError> {
        Ok(())
    }
}

/// The first entry, by a sender with a key: what follows is read only after a manifest that is signed.
static FIRST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let key = SealKey::load_or_create(&HOME.join("seal.key")).expect("a key");
    let head = JournalHead { seq: 1, chain: ChainValue::after(None, b"x") };
    let mut manifest = Manifest::new(new_nonce(), RunId::parse("r").expect("an id"), head);
    manifest.members = vec![Member {
        path: "run/journal.jsonl".to_owned(),
        bytes: 3,
        sha256: sha256_hex("{}\n"),
    }];
    let json = manifest.signed(&key).to_json();
    let mut header = tar::Header::new_gnu();
    header.set_size(json.len() as u64);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, MANIFEST_NAME, &*json).expect("an entry");
    let mut entries = archive.into_inner().expect("an archive");
    entries.truncate(entries.len() - 1024);
    entries
});

fuzz_target!(|bytes: &[u8]| {
    let _ = Manifest::parse(bytes);
    let run_dir = HOME.join(".delta/r");
    std::fs::create_dir_all(&run_dir).expect("a directory");
    let mut packed = GzEncoder::new(Vec::new(), Compression::none());
    packed.write_all(&FIRST).and_then(|()| packed.write_all(bytes)).expect("in memory");
    let packed = packed.finish().expect("in memory");
    for archive in [bytes, &packed] {
        let _ = read_packed_bundle(archive, &mut Files(run_dir.clone()));
    }
    let names = std::fs::read_dir(HOME.join(".delta")).expect("a directory").flatten();
    assert!(names.map(|entry| entry.file_name()).all(|name| name == "r"));
});
