//! What must keep working in a sandbox: ordinary programs, in both grades, as root and as an ordinary user.

use crate::place::{SandboxCase, in_every_case};
use delta_sandbox::{HomeAccess, ReadAccess, SandboxGrade};
use std::fs;
use std::path::Path;
use test_support::needs;

/// A program that a machine may have, a script that needs it, and whether it works with Landlock too.
const SCRIPTS: [(&str, &str, bool); 19] = [
    (
        "git",
        "git init -q r && cd r && git config --file .git/config user.email a@b && \
         git config user.name a && echo x > f && git add f && git commit -qm one && \
         git worktree add -q ../tree && cd ../tree && echo y > g && git add g && \
         git commit -qm two && git gc -q",
        true,
    ),
    ("gcc", "echo 'int main() { return 7; }' > c.c && gcc c.c -o c && { ./c; test $? = 7; }", true),
    ("python3", "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'", true),
    (
        "sqlite3",
        "sqlite3 d.db 'pragma journal_mode=wal; create table t(a); insert into t values (1)' && \
         sqlite3 d.db 'select * from t'",
        true,
    ),
    (
        "python3",
        "python3 -c 'import multiprocessing as m\nwith m.get_context(\"fork\").Pool(2) as p: \
         print(p.map(abs, [-1, 2]))\nm.Lock()'",
        true,
    ),
    (
        "python3",
        "python3 -c 'import pty, os; m, s = pty.openpty(); os.write(s, b\"x\"); os.read(m, 1)'",
        // Without namespaces, only where the user has no terminal.
        false,
    ),
    (
        "python3",
        "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"s.sock\"); s.listen(); \
         socket.socket(socket.AF_UNIX).connect(\"s.sock\")'",
        true,
    ),
    ("python3", "python3 -c 'import tempfile; tempfile.NamedTemporaryFile().write(b\"x\")'", true),
    ("python3", "python3 -c 'import pwd, os; print(pwd.getpwuid(os.getuid()).pw_name)'", true),
    (
        "node",
        "node -e 'const {Worker} = require(\"worker_threads\"); \
         new Worker(\"console.log(1)\", {eval: true})'",
        true,
    ),
    ("npm", "mkdir n && cd n && npm init -y --offline", false),
    ("strace", "strace -o trace true", true),
    (
        "javac",
        "echo 'class A { public static void main(String[] a) { System.out.println(7); } }' > A.java && \
         javac A.java && java A | grep 7",
        true,
    ),
    (
        "mvn",
        "printf '<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>a</artifactId>\
         <version>1</version><packaging>pom</packaging></project>' > pom.xml && \
         mvn -o -q -B -Dmaven.repo.local=$PWD/m2 validate",
        true,
    ),
    (
        "git",
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a && \
         git init -q lib && git -C lib commit -q --allow-empty -m one && git init -q outer && cd outer && \
         git -c protocol.file.allow=always submodule --quiet add \"$PWD/../lib\" sub && \
         cd sub && echo x > f && git add f && git commit -qm two && cd .. && git commit -qam three",
        true,
    ),
    (
        "chromium",
        "chromium --headless --no-sandbox --disable-gpu --dump-dom 'data:text/html,<p>seven</p>' | \
         grep seven",
        false,
    ),
    (
        "bwrap",
        // Root has no capabilities in a sandbox, not even in a namespace of its own.
        "test $(id -u) = 0 || bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp true",
        false,
    ),
    ("mkfifo", "mkfifo p && { echo x > p & cat p; }", true),
    ("bash", "bash -c 'cat <(echo x) <<< y; echo z > /dev/null; test -w /dev/stdout'", true),
];

#[test]
fn c_22_4_ordinary_programs_work() {
    let mut names = SCRIPTS.map(|(program, ..)| program).to_vec();
    names.dedup();
    needs::programs_for_part(&names);
    let missing = needs::missing_programs(&names);
    in_every_case("programs::c_22_4_ordinary_programs_work", |case| {
        let sandbox = case.prepare(&case.place.profile());
        for (index, (program, script, has_both)) in SCRIPTS.into_iter().enumerate() {
            let is_run = has_both || case.grade == SandboxGrade::Namespaces;
            if is_run && !missing.contains(&program) {
                let script = format!("mkdir d{index} && cd d{index} && {{ {script}; }}");
                case.place.succeed(&sandbox, &script);
            }
        }
    });
}

#[test]
fn c_22_4_the_home_directory_is_a_copy() {
    in_every_case("programs::c_22_4_the_home_directory_is_a_copy", |case| {
        let place = &case.place;
        fs::create_dir(place.home.join("sub")).unwrap();
        fs::write(place.home.join("sub/file"), "real").unwrap();
        let sandbox = case.prepare(&place.profile());
        if case.grade == SandboxGrade::Namespaces {
            place.succeed(&sandbox, "echo x >> ~/.bashrc && echo y > ~/sub/file && touch ~/new");
            place.succeed(&sandbox, "grep x ~/.bashrc && grep y ~/sub/file && rm ~/new");
            // Its end does not wait for what others have to write to the same disk.
            place.succeed(&sandbox, "grep ^delta-home /proc/self/mounts | grep volatile");
        } else {
            place.fail(&sandbox, "touch ~/new");
        }
        assert_eq!(fs::read_to_string(place.home.join(".bashrc")).unwrap(), "true\n");
        assert_eq!(fs::read_to_string(place.home.join("sub/file")).unwrap(), "real");
        let mut profile = place.profile();
        profile.home = HomeAccess::Read;
        let sandbox = case.prepare(&profile);
        place.succeed(&sandbox, "cat ~/.bashrc");
        place.fail(&sandbox, "touch ~/new");
        profile.home = HomeAccess::Hidden;
        profile.hide.clear();
        let sandbox = case.prepare(&profile);
        place.fail(&sandbox, "cat ~/.bashrc");
        place.fail(&sandbox, "cat ~/.ssh/id");
        profile.home = HomeAccess::Write;
        let sandbox = case.prepare(&profile);
        place.succeed(&sandbox, "touch ~/new");
        assert!(place.home.join("new").exists());
    });
}

#[test]
fn c_22_4_a_home_with_a_mount_in_it_is_copied_by_its_directories() {
    in_every_case(
        "programs::c_22_4_a_home_with_a_mount_in_it_is_copied_by_its_directories",
        |case| {
            let place = &case.place;
            if case.grade != SandboxGrade::Namespaces || !case.is_root() {
                return;
            }
            let mounted = place.home.join("mounted");
            fs::create_dir(&mounted).unwrap();
            fs::create_dir(place.home.join("sub")).unwrap();
            let mount = |arguments: &[&str]| {
                let status =
                    std::process::Command::new(arguments[0]).args(&arguments[1..]).status();
                status.is_ok_and(|status| status.success())
            };
            let path = mounted.to_str().unwrap();
            if !mount(&["mount", "-t", "tmpfs", "none", path]) {
                needs::skip_part("needs a root that may mount");
                return;
            }
            fs::write(mounted.join("file"), "real").unwrap();
            let sandbox = case.try_prepare(&place.profile());
            let outcome = sandbox.map(|sandbox| {
                place.run(
                    &sandbox,
                    "echo x >> ~/.bashrc && touch ~/new ~/sub/new && cat ~/mounted/file && \
                 touch ~/mounted/new && ! cat ~/.ssh/id",
                )
            });
            assert!(!mounted.join("new").exists());
            assert!(mount(&["umount", path]));
            let outcome = outcome.unwrap();
            assert_eq!(outcome.stdout, "real", "{outcome:?}");
            assert_eq!(outcome.end, delta_process::ProcessEnd::Exited(0), "{outcome:?}");
            assert_eq!(fs::read_to_string(place.home.join(".bashrc")).unwrap(), "true\n");
            assert!(!place.home.join("sub/new").exists());
        },
    );
}

#[test]
fn c_22_4_a_list_of_readable_paths_leaves_the_system() {
    in_every_case("programs::c_22_4_a_list_of_readable_paths_leaves_the_system", |case| {
        let place = &case.place;
        let listed = place.home.join("listed");
        fs::create_dir(&listed).unwrap();
        fs::write(listed.join("file"), "x").unwrap();
        let mut profile = place.profile();
        profile.read = ReadAccess::Only(vec![listed.clone()]);
        profile.home = HomeAccess::Hidden;
        let sandbox = case.prepare(&profile);
        place
            .succeed(&sandbox, "ls /usr/bin/ && touch new && cat ~/listed/file && cat /etc/passwd");
        place.fail(&sandbox, "cat ~/.bashrc");
        place.fail(&sandbox, "touch ~/listed/new");
        place.fail(&sandbox, "ls /root/ | grep . || ls /var/lib/ | grep .");
    });
}

#[test]
fn c_22_4_calls_share_their_tmp_and_nothing_of_it_is_left() {
    in_every_case("programs::c_22_4_calls_share_their_tmp_and_nothing_of_it_is_left", shared_tmp);
}

fn shared_tmp(case: &SandboxCase) {
    let place = &case.place;
    let name = format!("delta-test-{}", std::process::id());
    let sandbox = case.prepare(&place.profile());
    place.succeed(&sandbox, &format!("echo x > $TMPDIR/{name}"));
    place.succeed(&sandbox, &format!("grep x $TMPDIR/{name}"));
    assert!(!Path::new("/tmp").join(&name).exists());
    if case.grade == SandboxGrade::Namespaces {
        place.succeed(&sandbox, &format!("echo x > /tmp/{name}2 && grep x /var/tmp/{name}2"));
        assert!(!Path::new("/tmp").join(format!("{name}2")).exists());
    }
    let scratch = place.scratch.path();
    assert!(scratch.join("tmp").join(&name).exists());
}
