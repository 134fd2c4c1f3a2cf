//! Programs that know no proxy reach the hosts of the list, and nothing else.

use crate::namespace::Namespace;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use test_support::file_server::{start_file_server, start_server};
use test_support::needs;

const HOSTS: &str = "127.0.0.1 files.example a.wild.example\n";

#[test]
fn c_22_4_curl_reaches_a_listed_name_and_its_bytes_are_counted() {
    if !needs::programs(&["curl"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("page"), "hello").unwrap();
    let port = start_file_server(directory.path().to_owned());
    let rules = [format!("files.example {port}"), format!("*.wild.example {port}")];
    let Some(mut namespace) = Namespace::new(&rules, HOSTS) else { return };
    for host in ["files.example", "FILES.example.", "a.wild.example"] {
        let output = namespace.run(&["curl", "-sS", &format!("http://{host}:{port}/page")]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{output:?}");
    }
    let report = namespace.report();
    assert!(report.refused.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!(report.reached.len(), 2);
    let traffic = report.reached[&format!("files.example:{port}")];
    assert_eq!(traffic.connections, 2);
    assert!(traffic.received > 10 && traffic.sent > 100, "{traffic:?}");
    assert_eq!(namespace.report().reached.len(), 0);
}

#[test]
fn c_22_4_git_clones_from_a_listed_host_alone() {
    let directory = tempfile::tempdir().unwrap();
    let bare = directory.path().join("project.git");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(arguments);
        assert!(command.current_dir(directory.path()).status().unwrap().success());
    };
    git(&["init", "-q", "work"]);
    git(&["-C", "work", "commit", "-q", "--allow-empty", "-m", "first"]);
    git(&["clone", "-q", "--bare", "work", bare.to_str().unwrap()]);
    git(&["-C", bare.to_str().unwrap(), "update-server-info"]);
    let port = start_file_server(directory.path().to_owned());
    let rules = [format!("files.example {port}")];
    let Some(mut namespace) = Namespace::new(&rules, HOSTS) else { return };
    let url = format!("http://files.example:{port}/project.git");
    let clone = directory.path().join("clone");
    let output = namespace.run(&["git", "clone", "-q", &url, clone.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert!(clone.join(".git/HEAD").is_file());

    let other = directory.path().join("other");
    let url = format!("http://other.example:{port}/project.git");
    let output = namespace.run(&["git", "clone", "-q", &url, other.to_str().unwrap()]);
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("Could not resolve host: other.example"), "{error}");
    assert_eq!(namespace.refusals(), ["other.example 1"]);
}

#[test]
fn c_22_4_pip_installs_from_a_listed_registry() {
    let directory = tempfile::tempdir().unwrap();
    let simple = directory.path().join("simple/tiny");
    std::fs::create_dir_all(&simple).unwrap();
    let wheel = simple.join("tiny-1.0-py3-none-any.whl");
    let script = format!(
        "import zipfile\nz = zipfile.ZipFile({wheel:?}, 'w')\nz.writestr('tiny.py', 'X = 1')\n\
         z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
         z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         z.writestr('tiny-1.0.dist-info/RECORD', '')\nz.close()\n"
    );
    let pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !pip.is_ok_and(|output| output.status.success()) {
        needs::skip("needs `python3 -m pip`");
        return;
    }
    assert!(Command::new("python3").args(["-c", &script]).status().unwrap().success());
    let index = "<a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>";
    std::fs::write(simple.join("index.html"), index).unwrap();
    let port = start_file_server(directory.path().to_owned());
    let Some(mut namespace) = Namespace::new(&[format!("files.example {port}")], HOSTS) else {
        return;
    };
    let target = directory.path().join("target");
    let output = namespace.run(&[
        "python3",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--index-url",
        &format!("http://files.example:{port}/simple"),
        "--trusted-host",
        "files.example",
        "--target",
        target.to_str().unwrap(),
        "tiny",
    ]);
    assert!(output.status.success(), "{output:?}");
    assert!(target.join("tiny.py").is_file());
    assert!(namespace.refusals().is_empty());
}

#[test]
fn c_22_4_npm_installs_from_a_listed_registry() {
    if !needs::programs(&["npm"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let package = directory.path().join("package");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(package.join("package.json"), r#"{"name": "tiny", "version": "1.0.0"}"#)
        .unwrap();
    let packed = Command::new("tar")
        .args(["czf", "tiny.tgz", "package"])
        .current_dir(directory.path())
        .status();
    assert!(packed.unwrap().success());
    let port = start_file_server(directory.path().to_owned());
    let registry = format!("http://files.example:{port}");
    let document = format!(
        r#"{{"name": "tiny", "dist-tags": {{"latest": "1.0.0"}}, "versions": {{"1.0.0": {{"name": "tiny",
        "version": "1.0.0", "dist": {{"tarball": "{registry}/tiny.tgz"}}}}}}}}"#
    );
    std::fs::write(directory.path().join("tiny"), document).unwrap();
    let Some(mut namespace) = Namespace::new(&[format!("files.example {port}")], HOSTS) else {
        return;
    };
    let project = directory.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let script = format!(
        "cd {} && exec npm install --no-audit --no-fund --update-notifier=false --cache ./cache --registry {registry} \
         tiny",
        project.display()
    );
    let output = namespace.run(&["sh", "-c", &script]);
    assert!(output.status.success(), "{output:?}");
    assert!(project.join("node_modules/tiny/package.json").is_file());
    assert!(namespace.refusals().is_empty());
}

#[test]
fn c_22_4_node_and_wget_resolve_names_in_their_ways() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("page"), "hello").unwrap();
    let port = start_file_server(directory.path().to_owned());
    let Some(mut namespace) = Namespace::new(&[format!("files.example {port}")], HOSTS) else {
        return;
    };
    let url = format!("http://files.example:{port}/page");
    if Command::new("wget").arg("--version").output().is_ok() {
        let output = namespace.run(&["wget", "-qO-", &url]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{output:?}");
    }
    if Command::new("node").arg("--version").output().is_ok() {
        // c-ares, which reads resolv.conf itself.
        let script = "require('dns').resolve4('files.example', (error, all) => console.log(error ?? all[0]))";
        let output = namespace.run(&["node", "-e", script]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "198.18.0.2\n", "{output:?}");
    }
    assert!(namespace.refusals().is_empty());
}

/// A proxy that answers CONNECT and connects to a port of this machine.
fn serve_proxy(mut stream: TcpStream, to: u16, request_line: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() <= 2 {
            break;
        }
        head.push(line);
    }
    let is_expected = head[0].trim_end() == request_line
        && head.iter().any(|line| line.trim_end() == "Proxy-Authorization: Basic dTpw");
    if !is_expected {
        let _ = stream.write_all(b"HTTP/1.1 403 Not for you\r\n\r\n");
        return;
    }
    stream.write_all(b"HTTP/1.1 200 Yes\r\n\r\n").unwrap();
    let mut host = TcpStream::connect(("127.0.0.1", to)).unwrap();
    let mut host_reader = host.try_clone().unwrap();
    let mut back = stream.try_clone().unwrap();
    let copy = std::thread::spawn(move || std::io::copy(&mut host_reader, &mut back));
    std::io::copy(&mut reader, &mut host).unwrap();
    host.shutdown(std::net::Shutdown::Write).unwrap();
    copy.join().unwrap().unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

#[test]
fn c_22_4_connections_are_made_through_the_proxy_of_the_operator() {
    if !needs::programs(&["curl"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("page"), "hello").unwrap();
    let server = start_file_server(directory.path().to_owned());
    let proxy = start_server(move |stream| {
        serve_proxy(stream, server, "CONNECT far.example:8443 HTTP/1.1")
    });
    let variables = [("https_proxy", format!("http://u:p@127.0.0.1:{proxy}"))];
    let rules = ["far.example 8443".to_owned(), "refused.example 8443".to_owned()];
    let Some(mut namespace) = Namespace::with_proxies(&rules, "", &variables) else { return };
    let output = namespace.run(&["curl", "-sS", "http://far.example:8443/page"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{output:?}");
    let output = namespace.run(&["curl", "-sS", "http://refused.example:8443/page"]);
    assert!(!output.status.success());
    let report = namespace.report();
    assert_eq!(report.reached.keys().collect::<Vec<_>>(), ["far.example:8443"]);
    let expected = format!("the proxy 127.0.0.1:{proxy}: it answered `HTTP/1.1 403 Not for you`");
    assert_eq!(report.failed["refused.example:8443"].error, expected);
}
