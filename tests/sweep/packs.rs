//! Settled runs in packs: read, continued, and never done again.

use super::{DELTA, acting_sandbox, effects, planned, result_lines, status, sweep, write_sweep};
use delta_run::sweep::packed::zip_archive::{ZipWriter, read_directory};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

/// The path of the workspace of a run.
fn workspace(id: &str) -> String {
    format!("s/runs/{}/{id}", &id.rsplit('.').next().unwrap()[..2])
}

fn delta(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(args.iter().copied()).output()
}

/// A sweep of runs that have ended; each workspace has a file, a program, a directory, links, and a name that is long.
fn settled(runs: usize) -> Sandbox {
    let sandbox = acting_sandbox();
    let script = sandbox.read("act.sh")
        + "echo text > file.txt; ln file.txt hard; ln -s file.txt soft; mkdir -p empty deep/er\n\
           printf '#!/bin/sh\\n' > deep/er/run.sh; chmod 750 deep/er/run.sh\n\
           printf x > \"deep/$(printf 'n%.0s' $(seq 150))\"\n";
    sandbox.write_program("act.sh", &script);
    write_sweep(&sandbox, runs, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    sandbox.unverified("packed runs have no directory");
    sandbox
}

/// The files of a workspace with their kinds, permissions and contents.
fn listing(root: &Path) -> String {
    let script = "find . -path '*/lock' -o -printf '%P %y %m %l %n %T@\\n' | sed 's/ \\([dl]\\) \\(.*\\) [^ ]* [^ ]*$/ \\1 \\2/; s/\\.[0-9]*$//' | sort; \
                  find . -type f ! -path '*/lock' -exec sha256sum {} + | sort";
    let output = Command::new("sh").args(["-c", script]).current_dir(root).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn packed_runs_are_graded_and_have_pages() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 3, 1, "grade: [{name: has, command: [test, -f, effect.txt]}]\n");
    let script = sandbox.read("act.sh") + "echo text > effect.txt\n";
    sandbox.write_program("act.sh", &script);
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    sandbox.unverified("packed runs have no directory");
    sweep(&sandbox, &["pack", "s"]).expect_code(0);
    let page = |name: &str| {
        sweep(&sandbox, &["view", "s", "--pages", "all", "-o", &format!("{name}.html")])
            .expect_code(0);
        sandbox.files(&format!("{name}.runs"))
    };
    let ids = planned(&sandbox);
    let mut pages: Vec<String> = ids.iter().map(|id| format!("{id}.html")).collect();
    pages.sort();
    assert_eq!(page("packed"), pages);
    assert_eq!(sandbox.files("s/runs"), Vec::<String>::new(), "reading unpacks nothing");
    let graded = sweep(&sandbox, &["grade", "s", "--only", &format!("id={}", ids[1])]);
    assert_eq!(graded.expect_code(0).stdout, "graded 1 run: has 1 passed\n");
    assert!(sandbox.path(&workspace(&ids[1])).is_dir());
    assert!(!sandbox.path(&workspace(&ids[0])).exists());
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(0);
    assert_eq!(graded.stdout, "graded 2 runs: has 2 passed\n");
    assert_eq!(page("unpacked"), pages);
    // Without its files, a run has no score, and not a bad one.
    write_sweep(&sandbox, 3, 1, "grade: [{name: other, command: [test, '!', -e, effect.txt]}]\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["pack", "s", "--keep", "none"]).expect_code(0);
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(1);
    assert!(graded.stdout.starts_with("graded 0 runs; 3 ungraded:\n"), "{graded:?}");
    assert!(graded.stdout.contains("its workspace was removed by `delta sweep pack --keep`"));
    sweep(&sandbox, &["pack", "s"]).expect_code(0);
    sweep(&sandbox, &["grade", "s", "--retry-ungraded"]).expect_code(1);
    assert_eq!(effects(&sandbox).len(), 3);
}

#[test]
fn c_26_10_packed_runs_are_read_by_their_ids_and_not_done_again() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = settled(6);
    let ids = planned(&sandbox);
    let shown: Vec<String> = ids
        .iter()
        .map(|id| delta(&sandbox, &["show", id, "-w", &workspace(id)]).expect_code(0).stdout)
        .collect();
    let before: Vec<String> = ids.iter().map(|id| listing(&sandbox.path(&workspace(id)))).collect();
    let lines = result_lines(&sandbox);
    let packed = sweep(&sandbox, &["pack", "s"]).expect_code(0).stdout;
    assert!(packed.starts_with("packed 6 runs in "), "{packed}");
    assert_eq!(sandbox.files("s/runs"), Vec::<String>::new());
    assert_eq!(sweep(&sandbox, &["pack", "s"]).expect_code(0).stdout, "nothing to pack\n");
    for (id, shown) in ids.iter().zip(&shown) {
        // By the workspace that was, by its sweep, and by the path of its directory.
        let gone = workspace(id);
        for args in [vec!["show", id, "-w", &gone], vec!["show", id, "-w", "s"]] {
            let ran = delta(&sandbox, &args).expect_code(0);
            assert_eq!(ran.stdout.lines().next(), shown.lines().next());
        }
        let path = format!("{gone}/.delta/{id}");
        delta(&sandbox, &["export", &path, "--to", "openai"]).expect_code(0);
        delta(&sandbox, &["replay", id, "-w", "s"]).expect_code(0);
        delta(&sandbox, &["view", id, "-w", "s", "-o", "page.html"]).expect_code(0);
    }
    delta(&sandbox, &["show", "i0.0123456789abcdef", "-w", "s"]).expect_code(1);
    assert_eq!(sandbox.files("s/runs"), Vec::<String>::new(), "reading unpacks nothing");
    // Other programs read them.
    let names = sandbox.files("s/pack");
    let script = format!(
        "import zipfile,tarfile,io,sys\nz=zipfile.ZipFile('s/pack/{}')\nassert z.testzip() is None\n\
         for m in z.namelist():\n  t=tarfile.open(fileobj=io.BytesIO(z.read(m)))\n  \
         assert t.extractfile('file.txt').read()==b'text\\n'\n  print(len(t.getnames()))",
        names[0]
    );
    let mut python = Command::new("python3");
    let python = python.args(["-c", &script]).current_dir(sandbox.path("")).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    sweep(&sandbox, &["collect", "s"]).expect_code(0);
    // Without result lines, the packs say what became of the runs.
    fs::remove_dir_all(sandbox.path("s/results")).unwrap();
    assert_eq!(
        sweep(&sandbox, &["collect", "s", "-o", "-"]).expect_code(0).stdout.lines().count(),
        6
    );
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    assert_eq!(result_lines(&sandbox).len(), lines.len());
    assert!(effects(&sandbox).values().all(|count| *count == 1), "{:?}", effects(&sandbox));
    // `continue` puts its run back as it was, unless it is refused.
    let id = &ids[2];
    for place in ["s", &workspace(id)] {
        let refused = delta(&sandbox, &["continue", id, "-w", place]).expect_code(1);
        let next = format!("help: delta continue --run-id {id} -w ");
        assert!(refused.stderr.contains(&next), "{}", refused.stderr);
        assert!(refused.stderr.contains(&workspace(id)), "{}", refused.stderr);
        let is_empty = delta(&sandbox, &["continue", id, "-w", place, "-m", ""]);
        assert!(is_empty.expect_code(1).stderr.contains("the message is empty"));
    }
    assert_eq!(sandbox.files("s/runs"), Vec::<String>::new(), "a refusal unpacks nothing");
    let told = ["continue", id, "-w", &workspace(id), "-m", "more"];
    delta(&sandbox, &told).expect_code(1);
    let root = sandbox.path(&workspace(id));
    let after = listing(&root);
    for line in before[2].lines().filter(|line| !line.contains(".delta")) {
        assert!(after.contains(line), "{line} is missing in\n{after}");
    }
    assert_eq!(
        sandbox
            .read(&format!("{}/.delta/{id}/journal.jsonl", workspace(id)))
            .matches("\"USER_MESSAGE\"")
            .count(),
        2
    );
    // It is packed again, and the newer pack counts.
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    assert_eq!(status(&sandbox)["settled"], 6);
    let again = sweep(&sandbox, &["pack", "s"]).expect_code(0).stdout;
    assert_eq!(again, "packed 1 run in 1 new file\n");
    let json = delta(&sandbox, &["show", id, "-w", "s", "--format", "json"]).expect_code(0).stdout;
    assert!(json.contains("more"), "{json}");
}

/// The pack is of the version that wrote packs without the crates `tar` and `rawzip`.
#[test]
fn c_26_10_a_pack_of_an_earlier_version_is_read_and_unpacked() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.unverified("a packed run has no directory");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus-runs");
    fs::create_dir_all(sandbox.path("s/pack")).unwrap();
    for (from, to) in [("plan.jsonl", "plan.jsonl"), ("aa-0001.zip", "pack/aa-0001.zip")] {
        fs::copy(corpus.join(format!("swept-{from}")), sandbox.path("s").join(to)).unwrap();
    }
    let id = &planned(&sandbox)[0];
    let shown = delta(&sandbox, &["show", id, "-w", "s"]).expect_code(0);
    assert!(shown.stdout.contains("COMPLETED"), "{}", shown.stdout);
    delta(&sandbox, &["unpack", id, "-w", "s"]).expect_code(0);
    let root = sandbox.path(&workspace(id));
    let script = "find . -path ./.delta -prune -o -printf '%P %y %m %l %n\\n' | sort | cat -v";
    let mut find = Command::new("sh");
    let listed = find.args(["-c", script]).env("LC_ALL", "C.UTF-8").current_dir(&root).output();
    let expected = fs::read_to_string(corpus.join("swept.list")).unwrap();
    assert_eq!(String::from_utf8(listed.unwrap().stdout).unwrap(), expected);
    assert_eq!(fs::read_to_string(root.join("hard")).unwrap(), "text\n");
    assert_eq!(root.join("file").metadata().unwrap().mtime(), 1_700_000_000);
    delta(&sandbox, &["verify", id, "-w", &workspace(id), "--no-seal"]).expect_code(0);
}

#[test]
fn c_26_10_keep_says_whose_workspaces_are_packed() {
    let sandbox = settled(2);
    let ids = planned(&sandbox);
    sweep(&sandbox, &["pack", "s", "--keep", "failed", "--only", &format!("id={}", ids[0])])
        .expect_code(0);
    assert!(!sandbox.path(&workspace(&ids[0])).exists());
    assert!(sandbox.path(&workspace(&ids[1])).join("file.txt").exists());
    let unpacked = delta(&sandbox, &["unpack", &ids[0], "-w", "s"]).expect_code(0);
    let shard = &ids[0].rsplit('.').next().unwrap()[..2];
    let from = format!("Unpacked run {} from s/pack/{shard}-0001.zip\n", ids[0]);
    assert_eq!(unpacked.stderr, from);
    let again = delta(&sandbox, &["unpack", &ids[0], "-w", "s"]).expect_code(0);
    assert_eq!(again.stderr, format!("Run {} is not packed\n", ids[0]));
    assert_eq!(
        sandbox
            .files(&workspace(&ids[0]))
            .iter()
            .filter(|name| !name.starts_with(".delta"))
            .count(),
        0
    );
    delta(&sandbox, &["show", &ids[0], "-w", "s"]).expect_code(0);
}

#[test]
fn c_26_10_a_run_that_a_process_works_on_or_that_changes_stays() {
    let sandbox = settled(2);
    let ids = planned(&sandbox);
    // What is neither a file nor a directory is not packed.
    let fifo = sandbox.path(&workspace(&ids[0])).join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let ran = sweep(&sandbox, &["pack", "s"]).expect_code(1);
    assert!(ran.stderr.contains("fifo is neither a file nor a directory"), "{}", ran.stderr);
    assert!(fifo.exists());
    assert!(!sandbox.path(&workspace(&ids[1])).exists());
    // A damaged pack is reported, and its run is not started again.
    let shard = &ids[1].rsplit('.').next().unwrap()[..2];
    let pack = sandbox.path(&format!("s/pack/{shard}-0001.zip"));
    let mut bytes = fs::read(&pack).unwrap();
    bytes[100] ^= 0x55;
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, bytes).unwrap();
    fs::remove_dir_all(sandbox.path("s/results")).unwrap();
    let ran = sweep(&sandbox, &["run", "s"]).expect_code(3);
    assert!(ran.stderr.contains("the pack is damaged"), "{}", ran.stderr);
    assert!(effects(&sandbox).values().all(|count| *count == 1), "{:?}", effects(&sandbox));
}

/// What ends an archive.
const TAR_END_BYTES: usize = 1024;

/// Adds entries to the archive of the only packed run, as who can write the pack can.
fn forge_pack(sandbox: &Sandbox, forge: impl FnOnce(&mut tar::Builder<Vec<u8>>)) {
    let path = sandbox.path("s/pack").join(&sandbox.files("s/pack")[0]);
    let open = || fs::File::open(&path).unwrap();
    let members = read_directory(open()).unwrap();
    let [member] = &members[..] else { panic!("one run") };
    let tar = member.read(open()).unwrap();
    let mut forged = tar::Builder::new(Vec::new());
    forge(&mut forged);
    let entries = &tar[..tar.len() - TAR_END_BYTES];
    let archive = [entries, &forged.into_inner().unwrap()].concat();
    let mut writer = ZipWriter::default();
    writer.add(&member.name, &archive);
    fs::write(&path, writer.finish()).unwrap();
}

/// A symlink of an archive led other symlinks of it out of the workspace, already when the run was shown.
#[test]
fn c_20_5_an_archive_writes_nothing_outside_of_its_workspace() {
    let header = |kind| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o6755);
        header
    };
    let sandbox = settled(1);
    sweep(&sandbox, &["pack", "s"]).expect_code(0);
    let id = &planned(&sandbox)[0];
    forge_pack(&sandbox, |archive| {
        let mut header = header(tar::EntryType::Regular);
        header.set_size(1);
        archive.append_data(&mut header, "program", &b"x"[..]).unwrap();
    });
    delta(&sandbox, &["continue", id, "-w", "s", "-m", "more"]).expect_code(1);
    let program = sandbox.path(&workspace(id)).join("program");
    assert_eq!(program.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    fs::remove_dir_all(sandbox.path("s/runs")).unwrap();
    fs::create_dir(sandbox.path("outside")).unwrap();
    let outside = sandbox.path("outside");
    forge_pack(&sandbox, |archive| {
        let mut header = header(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, "out", &outside).unwrap();
        archive.append_link(&mut header, "out/link", "/etc/passwd").unwrap();
    });
    for args in [&["show", id, "-w", "s"][..], &["continue", id, "-w", "s", "-m", "more"]] {
        let ran = delta(&sandbox, args);
        assert!(ran.code != 0, "{}", ran.stdout);
        assert_eq!(sandbox.files("outside"), Vec::<String>::new());
    }
}

/// One pack that could not be read left no run a page.
#[test]
fn c_26_10_an_empty_pack_costs_its_own_runs_their_pages() {
    let sandbox = settled(6);
    sandbox.unverified("packed runs have no directory");
    sweep(&sandbox, &["pack", "s"]).expect_code(0);
    let packs = sandbox.files("s/pack");
    let pages = |name: &str| {
        let ran = sweep(&sandbox, &["view", "s", "--pages", "all", "-o", name]).expect_code(0);
        (sandbox.files(&name.replace(".html", ".runs")).len(), ran.stderr)
    };
    assert_eq!(pages("whole.html"), (6, String::new()));
    sandbox.write(&format!("s/pack/{}", packs[0]), "");
    let (written, warnings) = pages("damaged.html");
    let lost = warnings.lines().filter(|line| line.contains(" has no page: ")).count();
    assert!(lost > 0 && written + lost == 6, "{written} pages; {warnings}");
}
