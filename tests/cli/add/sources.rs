//! Where agents come from.

use super::*;

#[test]
fn c_36_15_a_directory_an_archive_and_a_repository_give_one_tree() {
    if !needs::programs(&["git", "tar"]) {
        return;
    }
    let sandbox = with_agent();
    let tree = named_tree(&add(&sandbox, &["reviewer"]).expect_code(3));
    tar(&sandbox, &["czf", "flat.tgz", "-C", "reviewer", "."]);
    // As a package registry, with long headers.
    tar(&sandbox, &["czf", "top.tar.gz", "--format=pax", "--exclude=.env", "reviewer"]);
    write_agent(&sandbox, "many/agents/reviewer");
    sandbox.write("many/README.md", "Agents.\n");
    let many = repository(&sandbox, "many");
    // As a git host: with a global header that names the commit.
    git(&sandbox, "many", &["archive", "--prefix=many-1.0/", "-o", "../host.tar.gz", "HEAD"]);
    let host = start_file_server(sandbox.path(""));
    let redirecting = start_server(move |mut stream: TcpStream| {
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{host}/flat.tgz\r\nContent-Length: 0\r\n\r\n"
        );
        let _ = stream.write_all(answer.as_bytes());
    });
    let address = |port: u16, file: &str| format!("http://127.0.0.1:{port}/{file}");
    let repository = repository(&sandbox, "reviewer");
    for source in [
        "flat.tgz",
        "top.tar.gz",
        "host.tar.gz//agents/reviewer",
        &address(host, "top.tar.gz"),
        &address(host, "host.tar.gz//agents/reviewer"),
        &address(redirecting, "v1.tar.gz"),
        &repository,
        &format!("{many}//agents/reviewer"),
        &format!("{many}//agents/reviewer@trunk"),
    ] {
        let ran = add(&sandbox, &[source]).expect_code(3);
        assert_eq!(named_tree(&ran), tree, "{source}");
    }
    let ran = add(&sandbox, &["host.tar.gz"]).expect_code(126);
    assert!(ran.stderr.contains("name one of its agents: //agents/reviewer"), "{ran:?}");
    let ran = add(&sandbox, &[&many]).expect_code(126);
    assert!(ran.stderr.contains("name one of its agents: //agents/reviewer"), "{ran:?}");
    add(&sandbox, &[&format!("{many}//agents/other")]).expect_code(126);
    add(&sandbox, &[&address(host, "missing.tar.gz")]).expect_code(126);
}

#[test]
fn c_36_15_a_ref_is_a_branch_a_tag_or_a_commit() {
    if !needs::programs(&["git"]) {
        return;
    }
    let sandbox = with_agent();
    let url = repository(&sandbox, "reviewer");
    let first = git(&sandbox, "reviewer", &["rev-parse", "HEAD"]);
    git(&sandbox, "reviewer", &["tag", "light"]);
    git(&sandbox, "reviewer", &["tag", "-a", "-m", "a tag", "pkg@1.0"]);
    git(&sandbox, "reviewer", &["branch", "feature/one"]);
    sandbox.write("reviewer/system_prompt.md", "Review again.\n");
    let second = commit(&sandbox, "reviewer");
    git(&sandbox, "reviewer", &["update-server-info"]);
    // A server of files gives no part of a history, and no commit by its id.
    let port = start_file_server(sandbox.path("reviewer"));
    let dumb = format!("http://127.0.0.1:{port}/.git");
    for url in [&*url, &*dumb] {
        for (reference, expected) in [
            ("", &second),
            ("@trunk", &second),
            ("@light", &first),
            ("@pkg@1.0", &first),
            ("@feature/one", &first),
            ("@refs/heads/feature/one", &first),
            (&format!("@{first}"), &first),
        ] {
            let ran = add(&sandbox, &[&format!("{url}{reference}")]).expect_code(3);
            assert!(
                ran.stderr.contains(&format!("commit {}", &expected[..7])),
                "{reference}: {ran:?}"
            );
        }
    }
    let ran = add(&sandbox, &[&format!("{url}@{}", &first[..7])]).expect_code(126);
    assert!(ran.stderr.contains("write all 40 digits"), "{ran:?}");
    let ran = add(&sandbox, &[&format!("{url}@missing")]).expect_code(126);
    assert!(ran.stderr.contains("missing"), "{ran:?}");
    let ran = add(&sandbox, &["file:///nowhere/tree/main/agents/one"]).expect_code(126);
    assert!(ran.stderr.contains("write file:///nowhere//agents/one@main"), "{ran:?}");

    let tree = install(&sandbox, &[&format!("{url}@light")]);
    let entry = &lock(&sandbox)["agents"]["reviewer"];
    assert_eq!(entry["source"], *url);
    assert_eq!([&entry["ref"], &entry["commit"], &entry["tree"]], ["light", &*first, &*tree]);
    // The tag moves.
    git(&sandbox, "reviewer", &["tag", "-f", "light"]);
    add(&sandbox, &["--update"]).expect_code(0);
    assert_eq!(lock(&sandbox)["agents"]["reviewer"]["commit"], *second);
}

#[test]
fn c_36_14_what_does_not_load_is_named_by_its_source() {
    if !needs::programs(&["git"]) {
        return;
    }
    let sandbox = with_agent();
    std::fs::remove_file(sandbox.path("reviewer/context.yaml")).unwrap();
    let url = repository(&sandbox, "reviewer");
    let ran = add(&sandbox, &[&url]).expect_code(126);
    let expected = format!("error: context.yaml not found in {url}\n  --> {url}/context.yaml\n");
    assert!(ran.stderr.starts_with(&expected), "{ran:?}");
}

#[test]
fn c_36_14_only_addresses_that_are_safe_are_fetched() {
    let sandbox = with_agent();
    for source in
        ["ext::touch started", "http://192.0.2.1/x", "https://me:pw@192.0.2.1/x", "git://h/x"]
    {
        let ran = add(&sandbox, &[source]).expect_code(2);
        assert!(!ran.stderr.contains("pw"), "{ran:?}");
    }
    assert!(!sandbox.path("started").exists());
    let ran = add(&sandbox, &["github.com/x/agents//reviewer"]).expect_code(126);
    assert!(ran.stderr.contains("https://github.com/x/agents//reviewer"), "{ran:?}");
    // A redirect is as safe as the address.
    let port = start_server(|mut stream: TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/x.tar.gz\r\nContent-Length: 0\r\n\r\n");
    });
    let ran = add(&sandbox, &[&format!("http://127.0.0.1:{port}/x.tar.gz")]).expect_code(126);
    assert!(ran.stderr.contains("use https"), "{ran:?}");
}
