//! What must fail in a sandbox, in both grades, as root and as an ordinary user.

use crate::place::{Place, SandboxCase, in_every_case};
use delta_sandbox::{HomeAccess, HostRule, NetAccess, SandboxGrade, SandboxProfile};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener};
use test_support::needs;

#[test]
fn c_22_4_nothing_outside_of_the_workspace_can_be_changed() {
    if !needs::programs(&["python3"]) {
        return;
    }
    in_every_case("attacks::c_22_4_nothing_outside_of_the_workspace_can_be_changed", |case| {
        let place = &case.place;
        symlink("../outside", place.workspace.join("link")).unwrap();
        let sandbox = case.prepare(&place.profile());
        for script in [
            "echo x > ../outside",
            "echo x >> ../outside",
            ": > ../outside",
            "truncate -s 0 ../outside",
            "mv ../outside ../moved",
            "mv ../outside taken",
            "rm -f ../outside",
            "mkdir ../directory",
            "ln -s x ../new",
            "echo x > link",
            "ln ../outside hard && echo x > hard",
            "cp /bin/true ../program",
            "echo x > /proc/$$/root$PWD/../outside",
            "cd .. && echo x > /proc/self/cwd/outside",
            "exec 7< ../outside && echo x > /proc/self/fd/7",
            "echo x > ~/../outside",
            "mount --bind . ..",
            "echo core > /proc/sys/kernel/core_pattern",
        ] {
            place.fail(&sandbox, script);
            assert_eq!(
                fs::read_to_string(place.root.join("outside")).unwrap(),
                "as it was",
                "{script}"
            );
        }
        if case.grade == SandboxGrade::Namespaces {
            for script in [
                "chmod 600 ../outside",
                "touch ../outside",
                "touch -d 2001-01-01 ..",
                "python3 -c 'import os; os.setxattr(\"../outside\", \"user.x\", b\"x\")'",
                "umount -l ..",
                "umount -l .delta",
                "mount -o remount,rw,bind ..",
            ] {
                place.fail(&sandbox, script);
            }
        }
        let names = fs::read_dir(&place.root).unwrap().count();
        assert_eq!(names, 4, "outside, workspace, home and the scratch directory");
    });
}

#[test]
fn c_22_4_the_journal_and_what_is_kept_cannot_be_changed() {
    in_every_case("attacks::c_22_4_the_journal_and_what_is_kept_cannot_be_changed", |case| {
        let place = &case.place;
        let git = place.workspace.join(".git");
        fs::create_dir_all(git.join("hooks")).unwrap();
        fs::write(git.join("config"), "[core]\n").unwrap();
        let mut profile = place.profile();
        profile.keep.extend([git.join("config"), git.join("hooks")]);
        if case.grade != SandboxGrade::Namespaces {
            // There, the engine finds a change.
            return;
        }
        let sandbox = case.prepare(&profile);
        for script in [
            "echo x >> .delta/run/journal.jsonl",
            "mv .delta old",
            "rm -rf .delta",
            "touch .delta/new",
            "chmod 700 .delta/run/journal.jsonl",
            "umount .delta",
            "mount -o remount,rw .delta",
            "mv .git old",
            "echo x >> .git/config",
            "touch .git/hooks/pre-commit",
            "mv .git/hooks .git/old",
            "unshare -Urm sh -c 'umount .delta && touch .delta/new'",
            "unshare -Urm sh -c 'mount -o remount,rw,bind .delta && touch .delta/new'",
            "unshare -Urm sh -c 'touch .delta/new'",
        ] {
            place.fail(&sandbox, script);
        }
        place.succeed(&sandbox, "touch .git/index file && mv .git/index .git/other");
        let journal = fs::read_to_string(place.workspace.join(".delta/run/journal.jsonl"));
        assert_eq!(journal.unwrap(), "{}\n");
        assert!(!place.workspace.join(".delta/new").exists());
    });
}

#[test]
fn c_22_4_secrets_cannot_be_read() {
    in_every_case("attacks::c_22_4_secrets_cannot_be_read", |case| {
        let place = &case.place;
        let sandbox = case.prepare(&place.profile());
        for script in [
            "cat ~/.ssh/id",
            "test \"$(cat ~/.netrc)\"",
            "test \"$(ls -A ~/.ssh)\"",
            "cat /proc/$$/root/$HOME/.ssh/id",
            "cp ~/.ssh/id .",
            "ln ~/.ssh/id id && cat id",
            "cat /proc/$PPID/environ",
            "cat /proc/$PPID/mem",
            "ls /proc/$PPID/root/",
            "readlink /proc/$PPID/fd/0",
            "cat /proc/$PPID/maps",
            "for device in /dev/*; do test -b $device && head -c 100000 $device; done | grep -qa .",
            "exec 3</dev/kvm",
            "exec 3</dev/loop-control",
            "exec 3<>/dev/tty1",
            "exec 3<>/dev/ttyS0",
            "exec 3</dev/kmsg",
        ] {
            place.fail(&sandbox, script);
        }
        place.succeed(&sandbox, "cat ~/.bashrc");
        place.succeed(
            &sandbox,
            "head -c 9 /dev/urandom > /dev/null && ls /dev && echo x > /dev/fd/1",
        );
        place.succeed(&sandbox, "echo x > /dev/shm/$$ && rm /dev/shm/$$ && cat < /dev/stdin");
        // Landlock cannot hide a part of a writable directory.
        if case.grade == SandboxGrade::Namespaces {
            fs::create_dir_all(place.workspace.join("conf/deep")).unwrap();
            fs::write(place.workspace.join("conf/deep/key"), "secret").unwrap();
            let mut profile = place.profile();
            profile.hide.push(place.workspace.join("conf/deep/key"));
            let sandbox = case.prepare(&profile);
            place.fail(&sandbox, "grep secret conf/deep/key");
            // Under another name, the next sandbox would not find it.
            place.fail(&sandbox, "mv conf other");
            place.fail(&sandbox, "mv conf/deep conf/other");
            place.succeed(&sandbox, "touch conf/new conf/deep/new");
        }
    });
}

#[test]
fn c_22_4_what_has_to_be_visible_in_a_hidden_directory_is_visible_alone() {
    in_every_case(
        "attacks::c_22_4_what_has_to_be_visible_in_a_hidden_directory_is_visible_alone",
        |case| {
            let place = &case.place;
            // The workspace has to be visible, and so does the program.
            let profile = SandboxProfile {
                write: Vec::new(),
                hide: vec![place.root.clone()],
                home: HomeAccess::Read,
                ..place.profile()
            };
            fs::write(place.workspace.join("file"), "in the workspace").unwrap();
            let sandbox = case.prepare(&profile);
            assert_eq!(place.succeed(&sandbox, "cat file"), "in the workspace");
            place.fail(&sandbox, "cat ../outside");
            place.fail(&sandbox, "echo x > ../new");
            place.fail(&sandbox, "ls .. | grep outside");
        },
    );
}

#[test]
fn c_22_4_no_process_outside_can_be_signalled_or_traced() {
    if !needs::programs(&["python3"]) {
        return;
    }
    in_every_case("attacks::c_22_4_no_process_outside_can_be_signalled_or_traced", |case| {
        let place = &case.place;
        let sandbox = case.prepare(&place.profile());
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = other.id();
        for script in [
            format!("kill -9 {pid}"),
            format!("kill -0 {pid}"),
            "kill -0 $PPID".to_owned(),
            format!("head -c 1 /proc/{pid}/maps | grep ."),
            format!("cat /proc/{pid}/environ"),
            format!("prlimit --pid {pid} --nofile=3:3"),
            "prlimit --pid $PPID --cpu=1:1".to_owned(),
            format!("renice -n 19 -p {pid}"),
            format!("ionice -c 3 -p {pid}"),
            format!("chrt --idle -p 0 {pid}"),
            "python3 -c 'import os; os.setpriority(os.PRIO_USER, 0, 19)'".to_owned(),
        ] {
            place.fail(&sandbox, &script);
        }
        if case.is_root() {
            place.fail(&sandbox, &format!("echo 1000 > /proc/{pid}/oom_score_adj"));
            place.fail(&sandbox, "echo 1000 > /proc/$PPID/oom_score_adj");
        }
        // The network as it is opens none of that.
        let online = case.prepare(&SandboxProfile { net: NetAccess::All, ..place.profile() });
        place.fail(&online, &format!("prlimit --pid {pid} --nofile=3:3"));
        place.fail(&sandbox, &python_call(&format!("ptrace(16, {pid}, 0, 0)")));
        // What one call has left running, another cannot end.
        let left = place.succeed(&sandbox, "sleep 60 > /dev/null 2>&1 & echo $!");
        place.fail(&sandbox, &format!("kill -9 {left}"));
        let left = rustix::process::Pid::from_raw(left.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        place.succeed(&sandbox, "sleep 60 & kill $!");
        place.succeed(&sandbox, "nice -n 5 ionice -c 3 chrt --idle 0 true");
        place.succeed(&sandbox, "ulimit -n 64 && ulimit -n | grep 64");
    });
}

/// A command that fails if a function of the C library does.
fn python_call(call: &str) -> String {
    format!("python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).{call} != 0)'")
}

#[test]
fn c_22_4_there_is_no_network_and_no_socket_outside() {
    if !needs::programs(&["python3"]) {
        return;
    }
    in_every_case("attacks::c_22_4_there_is_no_network_and_no_socket_outside", |case| {
        let place = &case.place;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = format!("delta-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let socket = place.workspace.join("fake-docker.sock");
        let _docker = UnixListener::bind(&socket).unwrap();
        let mut profile = place.profile();
        if case.grade != SandboxGrade::Namespaces {
            profile.sockets.push(socket);
        }
        let mut sandbox = case.prepare(&profile);
        let connect = |family: &str, address: &str| {
            format!(
                "python3 -c 'import socket; s = socket.socket(socket.{family}); s.connect({address})'"
            )
        };
        let mut scripts = vec![
            connect("AF_INET", &format!("(\"127.0.0.1\", {port})")),
            connect("AF_INET", "(\"192.0.2.1\", 80)"),
            connect("AF_INET6", "(\"2001:db8::1\", 80)"),
            connect("AF_UNIX", &format!("\"\\0{name}\"")),
            "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"192.0.2.1\", 53))'".to_owned(),
            "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'".to_owned(),
            "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'".to_owned(),
            "python3 -c 'import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)'".to_owned(),
        ];
        if case.grade == SandboxGrade::Namespaces {
            scripts.push(connect("AF_UNIX", "\"fake-docker.sock\""));
        }
        for script in scripts {
            place.fail(&sandbox, &script);
        }
        if case.grade == SandboxGrade::Namespaces {
            let attempts = sandbox.take_network_report().attempts;
            assert!(attempts >= 3, "{attempts} attempts");
            assert_eq!(sandbox.take_network_report().attempts, 0);
            place.succeed(
                &sandbox,
                "python3 -c 'import socket; l = socket.create_server((\"127.0.0.1\", 0)); \
                 socket.create_connection(l.getsockname())'",
            );
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nothing has arrived");
    });
}

/// The kernel knows a socket by the path that it was bound by, which may not be where it is.
#[test]
fn c_22_4_sockets_of_other_names_cannot_be_reached() {
    if !needs::programs(&["python3"]) {
        return;
    }
    in_every_case("attacks::c_22_4_sockets_of_other_names_cannot_be_reached", |case| {
        if case.grade != SandboxGrade::Namespaces {
            return;
        }
        let place = &case.place;
        fs::create_dir(place.workspace.join("sub")).unwrap();
        let mut server = std::process::Command::new("python3")
            .args(["-c", SERVER_OF_SOCKETS])
            .current_dir(&place.workspace)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        server.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        let connect = |path: &str| {
            format!("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{path}\")'")
        };
        let sandbox = case.prepare(&place.profile());
        for path in ["relative.sock", "sub/relative.sock", "renamed.sock"] {
            place.fail(&sandbox, &connect(path));
        }
        place.succeed(
            &sandbox,
            "python3 -c 'import socket; l = socket.socket(socket.AF_UNIX); l.bind(\"mine.sock\"); \
             l.listen(); socket.socket(socket.AF_UNIX).connect(\"mine.sock\")'",
        );
        server.kill().unwrap();
        server.wait().unwrap();
    });
}

const SERVER_OF_SOCKETS: &str = "
import os, socket, time
kept = []
for name in ['relative.sock', 'sub/relative.sock', os.getcwd() + '/first.sock']:
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(name)
    kept[-1].listen()
os.rename('first.sock', 'renamed.sock')
print('ready', flush=True)
time.sleep(60)
";

#[test]
fn c_22_4_a_tool_has_no_terminal_no_descriptor_and_no_privileges() {
    in_every_case(
        "attacks::c_22_4_a_tool_has_no_terminal_no_descriptor_and_no_privileges",
        |case| {
            let place = &case.place;
            let secret = fs::File::open(place.root.join("outside")).unwrap();
            rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
            let sandbox = case.prepare(&place.profile());
            for script in [
                "exec 3</dev/tty",
                "ls /proc/self/fd | grep -v '^[0123]$'",
                "grep -v 0000000000000000 /proc/self/status | grep -E 'Cap(Eff|Prm|Inh|Amb)'",
                "grep -q 'NoNewPrivs:.*0' /proc/self/status",
            ] {
                place.fail(&sandbox, script);
            }
            let limits = place.succeed(&sandbox, "ulimit -c");
            assert_eq!(limits.trim(), "0");
            let mut secret = secret;
            let mut text = String::new();
            secret.read_to_string(&mut text).unwrap();
        },
    );
}

#[test]
fn c_22_4_a_replaced_root_is_noticed_and_not_followed() {
    in_every_case("attacks::c_22_4_a_replaced_root_is_noticed_and_not_followed", |case| {
        let place = &case.place;
        let output = place.workspace.join("output");
        fs::create_dir(&output).unwrap();
        let mut profile = place.profile();
        profile.write = vec![output.clone()];
        let sandbox = case.prepare(&profile);
        assert!(!sandbox.has_changed_roots());
        fs::remove_dir(&output).unwrap();
        symlink("/", &output).unwrap();
        assert!(sandbox.has_changed_roots());
        let error = case.try_prepare(&profile).unwrap_err().to_string();
        assert!(error.contains("symlink"), "{error}");
    });
}

#[test]
fn c_22_4_limits_hold() {
    if !needs::programs(&["python3"]) {
        return;
    }
    in_every_case("attacks::c_22_4_limits_hold", |case| {
        let place: &Place = &case.place;
        let mut profile = place.profile();
        profile.limits.memory = Some(300 << 20);
        profile.limits.file = Some(1 << 20);
        profile.limits.open_files = Some(20);
        profile.limits.processes = Some(20);
        let sandbox = case.prepare(&profile);
        for script in [
            "python3 -c 'bytearray(400 << 20)'",
            "python3 -c 'open(\"large\", \"w\").write(\"x\" * 2000000)'",
            "python3 -c 'x = [open(\"/dev/null\") for _ in range(40)]'",
        ] {
            place.fail(&sandbox, script);
        }
        let counts = sandbox.warnings.is_empty();
        assert_eq!(counts, case.grade == SandboxGrade::Namespaces && !case.is_root());
        let fork = "for i in $(seq 40); do sleep 0.2 & done; wait";
        let outcome = place.run(&sandbox, fork);
        assert_eq!(outcome.stderr.to_lowercase().contains("fork"), counts, "{outcome:?}");
    });
}

#[test]
fn c_22_4_a_list_of_hosts_reaches_them_alone() {
    if !needs::programs(&["python3"]) {
        return;
    }
    in_every_case("attacks::c_22_4_a_list_of_hosts_reaches_them_alone", |case| {
        let place = &case.place;
        let listed = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let [port, other_port] = [&listed, &other].map(|one| one.local_addr().unwrap().port());
        let mut profile = place.profile();
        profile.net = NetAccess::Hosts(vec![HostRule { host: "localhost".to_owned(), port }]);
        if case.grade != SandboxGrade::Namespaces {
            let error = case.try_prepare(&profile).unwrap_err();
            assert_eq!(error.to_string(), "the sandbox cannot be enforced here: net");
            return;
        }
        let mut sandbox = case.prepare(&profile);
        let connect = |name: &str, port: u16| {
            format!(
                "python3 -c 'import socket; s = socket.create_connection((\"{name}\", {port})); \
                 s.sendall(b\"hello\"); s.shutdown(1); s.recv(1)'"
            )
        };
        let answering = std::thread::spawn(move || {
            let (mut connection, _) = listed.accept().unwrap();
            let mut text = String::new();
            connection.read_to_string(&mut text).unwrap();
            text
        });
        place.succeed(&sandbox, &connect("localhost", port));
        assert_eq!(answering.join().unwrap(), "hello");
        place.fail(&sandbox, &connect("localhost", other_port));
        place.fail(&sandbox, &connect("example.com", 443));
        let report = sandbox.take_network_report();
        assert_eq!(report.reached[&format!("localhost:{port}")].sent, 5, "{report:?}");
        assert!(report.refused.keys().any(|name| name.starts_with("example.com")), "{report:?}");
        other.set_nonblocking(true).unwrap();
        assert!(other.accept().is_err());
    });
}

/// A case is what it says: without this, the tests above could test one grade twice.
#[test]
fn c_22_4_the_grade_is_the_best_that_the_machine_has() {
    in_every_case(
        "attacks::c_22_4_the_grade_is_the_best_that_the_machine_has",
        |case: &SandboxCase| {
            assert_eq!(case.prepare(&case.place.profile()).grade, case.grade);
        },
    );
}

#[test]
fn c_22_4_the_keys_and_terminals_of_the_user_cannot_be_reached() {
    if !needs::programs(&["python3"]) {
        return;
    }
    in_every_case("attacks::c_22_4_the_keys_and_terminals_of_the_user_cannot_be_reached", |case| {
        let place = &case.place;
        let terminal = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).unwrap();
        rustix::pty::grantpt(&terminal).unwrap();
        rustix::pty::unlockpt(&terminal).unwrap();
        let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let sandbox = case.prepare(&place.profile());
        place.fail(&sandbox, &format!("exec 3<{name}"));
        place.fail(&sandbox, &format!("exec 3>{name}"));
        // The key is in the keyring that all processes of the user share.
        let keyring = "import ctypes, sys; libc = ctypes.CDLL(None); ";
        let name = format!("delta-test-{}", std::process::id());
        let add = format!(
            "{keyring}sys.exit(libc.syscall(248, b'user', b'{name}', b'secret', 6, -4) < 0)"
        );
        let find =
            format!("{keyring}sys.exit(libc.syscall(250, 10, -4, b'user', b'{name}', 0) < 0)");
        let outside = std::process::Command::new("python3").args(["-c", &add]).status().unwrap();
        if !cfg!(target_arch = "x86_64") || !outside.success() {
            return needs::skip("needs keyrings");
        }
        place.fail(&sandbox, &format!("python3 -c \"{find}\""));
    });
}
