//! A place with a workspace, a home directory and a secret, and commands that run in a sandbox there.

use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_process::{LaunchContext, ProcessCommand, ProcessEnd, run_process};
use delta_sandbox::{
    EnvAccess, Guarantee, HomeAccess, NetAccess, PrepareContext, PreparedSandbox, ProxySettings,
    ReadAccess, SandboxError, SandboxGrade, SandboxLimits, SandboxProfile, SandboxScratch, prepare,
    probe,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use test_support::needs;
use test_support::sandbox::temp_dir_not_in_memory;

/// The built program.
pub(crate) const DELTA: &str = env!("CARGO_BIN_EXE_delta");

pub(crate) struct Place {
    pub(crate) root: PathBuf,
    pub(crate) workspace: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) scratch: SandboxScratch,
    /// Removed last.
    dir: Option<tempfile::TempDir>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) end: ProcessEnd,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in(temp_dir_not_in_memory()).unwrap();
        let mut place = Self::in_directory(dir.path());
        place.dir = Some(dir);
        place
    }

    /// A place in a directory that the caller removes.
    pub(crate) fn in_directory(dir: &Path) -> Self {
        let root = dir.canonicalize().unwrap();
        let workspace = root.join("workspace");
        let home = root.join("home");
        fs::create_dir_all(workspace.join(".delta/run")).unwrap();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::write(workspace.join(".delta/run/journal.jsonl"), "{}\n").unwrap();
        fs::write(home.join(".ssh/id"), "the key").unwrap();
        fs::write(home.join(".netrc"), "the password").unwrap();
        fs::write(home.join(".bashrc"), "true\n").unwrap();
        fs::write(root.join("outside"), "as it was").unwrap();
        let scratch = SandboxScratch::create(&root, "key").unwrap();
        Self { dir: None, root, workspace, home, scratch }
    }

    /// The profile `workspace`.
    pub(crate) fn profile(&self) -> SandboxProfile {
        SandboxProfile {
            write: vec![self.workspace.clone()],
            keep: vec![self.workspace.join(".delta")],
            read: ReadAccess::All,
            hide: vec![self.home.join(".ssh"), self.home.join(".netrc")],
            home: HomeAccess::Copy,
            net: NetAccess::None,
            env: EnvAccess::Safe,
            sockets: Vec::new(),
            limits: SandboxLimits::default(),
            runs: false,
        }
    }

    fn try_prepare(
        &self,
        program: &Path,
        profile: &SandboxProfile,
        waived: &[Guarantee],
    ) -> Result<PreparedSandbox, SandboxError> {
        let run_dir = self.workspace.join(".delta/run");
        prepare(
            profile,
            &PrepareContext {
                program,
                workspace: &self.workspace,
                run_dir: Some(&run_dir),
                home: Some(&self.home),
                scratch: &self.scratch,
                visible: std::slice::from_ref(&self.root),
                proxies: &ProxySettings::default(),
                waived,
                required: &[],
                absent: &[],
                stage: None,
            },
        )
    }

    /// Runs a script in `sandbox`, in the workspace.
    pub(crate) fn run(&self, sandbox: &PreparedSandbox, script: &str) -> Outcome {
        let mut env = BTreeMap::new();
        env.insert("PATH".into(), std::env::var_os("PATH").unwrap_or_default());
        env.insert("HOME".into(), self.home.clone().into());
        let temp_dir = sandbox.temp_dir.as_deref().unwrap_or(Path::new("/tmp"));
        env.insert("TMPDIR".into(), temp_dir.as_os_str().to_owned());
        let launch = LaunchContext {
            cwd: self.workspace.clone(),
            env: env.into(),
            secrets: Secrets::default(),
            containment: None,
            sandbox: Some(sandbox.entry.clone()),
        };
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        let command = ProcessCommand::new(&argv, &launch, Duration::from_secs(60), 100_000);
        let result = run_process(&command, &CancelToken::manual().unwrap());
        Outcome {
            end: result.end,
            stdout: String::from_utf8_lossy(&result.stdout.whole.unwrap_or_default()).into_owned(),
            stderr: String::from_utf8_lossy(&result.stderr.whole.unwrap_or_default()).into_owned(),
        }
    }

    /// Runs a script that must succeed; returns what it printed.
    pub(crate) fn succeed(&self, sandbox: &PreparedSandbox, script: &str) -> String {
        let outcome = self.run(sandbox, script);
        assert_eq!(outcome.end, ProcessEnd::Exited(0), "{script}\n{outcome:?}");
        outcome.stdout
    }

    /// Runs a script that must fail, and not because a program is missing.
    pub(crate) fn fail(&self, sandbox: &PreparedSandbox, script: &str) -> Outcome {
        let outcome = self.run(sandbox, script);
        assert!(matches!(outcome.end, ProcessEnd::Exited(1..=125)), "{script}\n{outcome:?}");
        outcome
    }
}

/// An ordinary user.
const NOBODY: u32 = 65534;
/// Set in the process that tests as an ordinary user.
const USER_VARIABLE: &str = "DELTA_TEST_AS_USER";

/// A grade of sandboxes, and a place.
pub(crate) struct SandboxCase {
    pub(crate) grade: SandboxGrade,
    pub(crate) place: Place,
    program: PathBuf,
}

impl SandboxCase {
    /// A place with namespaces.
    pub(crate) fn new(place: Place) -> Self {
        Self { grade: SandboxGrade::Namespaces, place, program: DELTA.into() }
    }

    pub(crate) fn try_prepare(
        &self,
        profile: &SandboxProfile,
    ) -> Result<PreparedSandbox, SandboxError> {
        // Whether a machine has sockets that Landlock cannot close is not what is tested.
        let is_weak = self.grade != SandboxGrade::Namespaces;
        let waived: &[Guarantee] = if is_weak { &[Guarantee::Sockets] } else { &[] };
        self.place.try_prepare(&self.program, profile, waived)
    }

    pub(crate) fn prepare(&self, profile: &SandboxProfile) -> PreparedSandbox {
        self.try_prepare(profile).unwrap()
    }

    pub(crate) fn is_root(&self) -> bool {
        rustix::process::getuid().is_root()
    }
}

/// Runs the test `name` in each grade that the machine has, and, if this is root, also as an ordinary user.
pub(crate) fn in_every_case(name: &str, test: impl Fn(&SandboxCase)) {
    if let Err(refusal) = probe(Path::new(DELTA)).namespaces {
        needs::skip_part(format!("needs namespaces: {}", refusal.reason));
    } else {
        test(&SandboxCase::new(Place::new()));
    }
    let place = Place::new();
    match refusing_program(&place.root) {
        Some(program) => test(&SandboxCase { grade: SandboxGrade::Landlock, place, program }),
        None => needs::skip_part("needs namespaces that can be refused"),
    }
    if rustix::process::getuid().is_root() && std::env::var_os(USER_VARIABLE).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env(USER_VARIABLE, "1");
        let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "as an ordinary user:\n{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // The rest of the test has run.
        let reports =
            String::from_utf8_lossy(&output.stderr).replace("skipped: ", "skipped in part: ");
        needs::repeat_skips(reports.as_bytes());
    }
}

/// The built program on a machine that refuses namespaces: its user namespace may have none.
fn refusing_program(root: &Path) -> Option<PathBuf> {
    let path = root.join("home/refusing-delta");
    let script = format!(
        "#!/bin/sh\nexec /usr/bin/unshare -Ur /bin/sh -c \
         'echo 0 > /proc/sys/user/max_user_namespaces && exec {DELTA} __sandbox'\n"
    );
    let source = path.with_extension("source");
    fs::write(&source, script).unwrap();
    // Another process writes the program: see `Sandbox::copy_program`.
    let mut install = std::process::Command::new("install");
    assert!(install.args(["-m", "755"]).args([&source, &path]).status().unwrap().success());
    fs::remove_file(&source).unwrap();
    probe(&path).namespaces.is_err().then_some(path)
}
