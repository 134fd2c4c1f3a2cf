//! Tokens for servers over HTTP, from a scripted issuer: logins, refreshes, and what a run may see of them.

use super::{DELTA, turn};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use test_support::effort::cases;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, Gate, RecordedRequest, ScriptedServer};
use test_support::wait::until;

/// What the issuer and the server know.
#[derive(Default)]
struct Access {
    /// The address of the server, once it is known.
    server: String,
    /// The issuers that the server names.
    issuers: Vec<String>,
    /// The resource that the server claims to be, if not itself.
    claimed_resource: Option<String>,
    /// The codes that are good once.
    codes: BTreeSet<String>,
    /// The access tokens that the server accepts, each with its scopes.
    valid: BTreeMap<String, String>,
    /// The refresh token that is good; the others are used up.
    refresh_token: String,
    /// How many tokens were given.
    given: usize,
    expires_in: Option<u64>,
    /// What the token endpoint does instead of answering.
    stall: Option<Stall>,
    /// The scopes that a call needs besides those of everything.
    call_scope: Option<String>,
    /// What the metadata of the issuer has besides the usual.
    more_metadata: Value,
    has_no_registration: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Stall {
    /// Before it has done anything.
    Before,
    /// After the old refresh token has ended.
    After,
}

impl Access {
    fn give_tokens(&mut self, scopes: &str) -> Value {
        self.given += 1;
        let token = format!("access-token-{}", self.given);
        self.refresh_token = format!("refresh-token-{}", self.given);
        self.valid.insert(token.clone(), scopes.to_owned());
        let mut answer = json!({"access_token": token, "token_type": "Bearer", "refresh_token": self.refresh_token});
        if let Some(seconds) = self.expires_in {
            answer["expires_in"] = seconds.into();
        }
        answer
    }
}

/// A server that wants tokens, its issuer, and an agent that uses the server.
struct Guarded {
    sandbox: Sandbox,
    server: ScriptedServer,
    issuer: ScriptedServer,
    access: Arc<Mutex<Access>>,
}

fn answer_json(status: u16, body: &Value) -> Answer {
    Answer::raw(status, body.to_string()).header("Content-Type", "application/json")
}

fn form(request: &RecordedRequest) -> BTreeMap<String, String> {
    members(&String::from_utf8_lossy(&request.bytes))
}

/// The members of a form or a query. Its values need no more than this.
fn members(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            });
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = text.split('&').filter_map(|member| member.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn answer_of_issuer(request: &RecordedRequest, access: &mut Access, url: &str) -> Answer {
    match request.path() {
        "GET /.well-known/oauth-authorization-server" => {
            let mut metadata = json!({"issuer": url, "authorization_endpoint": format!("{url}/authorize"),
                "token_endpoint": format!("{url}/token"), "code_challenge_methods_supported": ["S256"]});
            if !access.has_no_registration {
                metadata["registration_endpoint"] = format!("{url}/register").into();
            }
            for (key, value) in access.more_metadata.as_object().into_iter().flatten() {
                metadata[key] = value.clone();
            }
            answer_json(200, &metadata)
        }
        "POST /register" => answer_json(201, &json!({"client_id": "registered"})),
        "POST /token" => {
            if access.stall == Some(Stall::Before) {
                return Answer::hang();
            }
            let form = form(request);
            let member = |name: &str| form.get(name).map_or("", String::as_str);
            let grant = member("grant_type");
            let is_good = match grant {
                "authorization_code" => {
                    let has_proof = member("code_verifier").len() >= 43;
                    access.codes.remove(member("code")) && has_proof
                }
                "refresh_token" => {
                    let is_good = member("refresh_token") == access.refresh_token;
                    if !is_good {
                        // It looks stolen, so the whole family ends.
                        access.refresh_token.clear();
                        access.valid.clear();
                    }
                    is_good
                }
                "client_credentials" => request.header("authorization").is_some(),
                _ => false,
            };
            if !is_good || member("resource") != access.server {
                return answer_json(400, &json!({"error": "invalid_grant"}));
            }
            let answer = access.give_tokens("basic");
            if access.stall == Some(Stall::After) {
                return Answer::hang();
            }
            answer_json(200, &answer)
        }
        _ => Answer::raw(404, ""),
    }
}

fn answer_of_server(request: &RecordedRequest, access: &Access) -> Answer {
    let metadata = format!(
        "{}/.well-known/oauth-protected-resource/mcp",
        access.server.trim_end_matches("/mcp")
    );
    if request.path() == "GET /.well-known/oauth-protected-resource/mcp" {
        let resource = access.claimed_resource.as_ref().unwrap_or(&access.server);
        return answer_json(
            200,
            &json!({"resource": resource, "authorization_servers": access.issuers}),
        );
    }
    if request.path() != "POST /mcp" {
        return Answer::raw(404, "");
    }
    let header = request.header("authorization");
    let token = header.and_then(|header| header.strip_prefix("Bearer "));
    let Some(scopes) = token.and_then(|token| access.valid.get(token)) else {
        let challenge = format!("Bearer resource_metadata=\"{metadata}\", scope=\"basic\"");
        return Answer::raw(401, "no").header("WWW-Authenticate", &challenge);
    };
    let method = request.body["method"].as_str().unwrap_or_default();
    if let Some(scope) = access
        .call_scope
        .as_ref()
        .filter(|scope| method == "tools/call" && !scopes.contains(*scope))
    {
        let challenge = format!(
            "Bearer error=\"insufficient_scope\", scope=\"{scope}\", resource_metadata=\"{metadata}\""
        );
        return Answer::raw(403, "no").header("WWW-Authenticate", &challenge);
    }
    let result = match method {
        "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}),
        "tools/list" => {
            let tools = ["echo", "count"]
                .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            json!({"tools": tools})
        }
        // A server that repeats what it got.
        _ => {
            json!({"content": [{"type": "text", "text": format!("got {}", header.unwrap_or_default())}]})
        }
    };
    answer_json(200, &json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result}))
}

impl Guarded {
    /// `oauth` is what agent.yaml says.
    fn new(oauth: &str, turns: &str) -> Self {
        let access = Arc::new(Mutex::new(Access::default()));
        let own_url = Arc::new(Mutex::new(String::new()));
        let issuer = ScriptedServer::for_anything({
            let (access, own_url) = (Arc::clone(&access), Arc::clone(&own_url));
            move |request: &RecordedRequest| {
                answer_of_issuer(request, &mut access.lock().unwrap(), &own_url.lock().unwrap())
            }
        });
        *own_url.lock().unwrap() = issuer.root_url();
        let server = ScriptedServer::for_anything({
            let access = Arc::clone(&access);
            move |request: &RecordedRequest| answer_of_server(request, &access.lock().unwrap())
        });
        let url = format!("{}/mcp", server.root_url());
        access.lock().unwrap().server.clone_from(&url);
        access.lock().unwrap().issuers = vec![issuer.root_url()];
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("work/.keep", "");
        sandbox.write("agent/script.yaml", format!("turns:\n{turns}\n- say: done\n"));
        sandbox.write(
            "agent/agent.yaml",
            format!(
                "name: test-agent\nllm: {{provider: script, model: script.yaml}}\nmcp:\n  s:\n    url: {url}\n    oauth: {oauth}\ntools:\n  - {{name: look, shell: 'env'}}\n"
            ),
        );
        Self { sandbox, server, issuer, access }
    }

    /// The same with a login and a lock.
    fn ready(turns: &str) -> Self {
        let guarded = Self::new("true", turns);
        guarded.log_in(&[]).expect_code(0);
        guarded.delta(&["mcp", "lock", "--agent", "agent", "--write"]).expect_code(0);
        guarded
    }

    fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap()
    }

    fn delta(&self, arguments: &[&str]) -> Ran {
        self.sandbox.delta(arguments.iter().copied()).output()
    }

    fn call(&self) -> Ran {
        self.delta(&["mcp", "call", "--agent", "agent", "s", "echo"])
    }

    /// Starts a login, up to the address for the browser.
    fn start_login(&self, more: &[&str]) -> Login {
        let arguments = ["mcp", "login", "s", "--agent", "agent"].iter().chain(more).copied();
        let mut delta = self.sandbox.delta(arguments);
        let command = delta.command().stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut printed = String::new();
        let mut url = None;
        while url.is_none() && stderr.read_line(&mut printed).unwrap() > 0 {
            url = printed.lines().find(|line| line.starts_with("http")).map(str::to_owned);
        }
        Login { child, stderr, printed, url }
    }

    /// Logs in with a person who agrees.
    fn log_in(&self, more: &[&str]) -> Ran {
        let login = self.start_login(more);
        let answer = self.agree(&login);
        login.browse(&answer);
        login.end()
    }

    /// What the browser gets when the person agrees: the query of the redirect.
    fn agree(&self, login: &Login) -> String {
        let request = login.request();
        let mut access = self.access();
        let code = format!("code-{}", access.given + access.codes.len());
        assert_eq!(request["code_challenge_method"], "S256");
        access.codes.insert(code.clone());
        format!("code={code}&state={}", request["state"])
    }

    /// The requests to the token endpoint.
    fn token_requests(&self) -> Vec<BTreeMap<String, String>> {
        let requests = self.issuer.requests();
        requests.iter().filter(|request| request.target == "POST /token").map(form).collect()
    }

    fn refreshes(&self) -> usize {
        self.token_requests().iter().filter(|form| form["grant_type"] == "refresh_token").count()
    }

    /// The paths and contents of the files with logins.
    fn login_files(&self) -> Vec<(String, String)> {
        let dir = "home/.local/state/delta/mcp-tokens";
        let files = self.sandbox.files(dir).into_iter().filter(|name| name.ends_with(".json"));
        files
            .map(|name| format!("{dir}/{name}"))
            .map(|path| (path.clone(), self.sandbox.read(&path)))
            .collect()
    }
}

/// A login that waits for a person.
struct Login {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    printed: String,
    url: Option<String>,
}

impl Login {
    /// What the issuer is asked for.
    fn request(&self) -> BTreeMap<String, String> {
        let url = self.url.as_ref().unwrap_or_else(|| panic!("no address: {}", self.printed));
        members(url.split_once('?').unwrap().1)
    }

    /// Goes to the redirect with this query; returns the status.
    fn browse(&self, query: &str) -> String {
        let uri = self.request()["redirect_uri"].clone();
        let host = uri.trim_start_matches("http://").trim_end_matches("/callback");
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET /callback?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page.lines().next().unwrap_or_default().to_owned()
    }

    fn end(mut self) -> Ran {
        self.stderr.read_to_string(&mut self.printed).unwrap();
        Ran::of(self.child.wait().unwrap(), b"", self.printed.as_bytes())
    }
}

#[test]
fn c_36_21_a_login_gives_a_token_to_its_server_alone() {
    let guarded = Guarded::new("true", &turn(&[("echo", "")]));
    let ran = guarded.log_in(&[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains(&format!("logged in at s by {}", guarded.issuer.root_url())),
        "{}",
        ran.stderr
    );
    let files = guarded.login_files();
    let [(path, text)] = &files[..] else { panic!("{files:?}") };
    assert!(text.contains("access-token-1") && text.contains("refresh-token-1"), "{text}");
    let mode = std::fs::metadata(guarded.sandbox.path(path)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    guarded.delta(&["mcp", "lock", "--agent", "agent", "--write"]).expect_code(0);
    let lock: Value = serde_json::from_str(&guarded.sandbox.read("agent/mcp.lock.json")).unwrap();
    assert_eq!(lock["servers"]["s"]["issuer"], guarded.issuer.root_url());
    guarded.sandbox.write(
        "agent/script.yaml",
        format!("turns:\n{}\n- call: [{{tool: look}}]\n- say: done\n", turn(&[("echo", "")])),
    );
    guarded.sandbox.run("go", &[]).expect_code(0);
    let observations = guarded.sandbox.observations();
    assert_eq!(observations[0], "got Bearer [redacted]\n");
    for secret in ["access-token", "refresh-token"] {
        assert!(!observations[1].contains(secret), "a tool got it: {}", observations[1]);
        for file in guarded.sandbox.files("work") {
            let bytes = std::fs::read(guarded.sandbox.path("work").join(&file)).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{file} has it");
        }
    }
    // The issuer gets no access token, and the server nothing else.
    for request in guarded.issuer.requests() {
        assert!(!String::from_utf8_lossy(&request.bytes).contains("access-token"));
    }
    for request in guarded.server.requests() {
        assert!(!format!("{request:?}").contains("refresh-token"));
    }
    // A URL has its own login, which is that of no other one.
    let url = guarded.access().server.clone();
    assert_eq!(guarded.delta(&["mcp", "list", &url]).code, 0);
    let ran = guarded.delta(&["mcp", "list", &format!("{url}?x")]);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("run `delta mcp login '{url}?x'`")), "{}", ran.stderr);
}

#[test]
fn c_36_22_a_run_without_a_login_names_the_command_and_waits_for_nobody() {
    let guarded = Guarded::new("true", &turn(&[("echo", "")]));
    let agent = guarded.sandbox.path("agent").canonicalize().unwrap();
    let command = format!("run `delta mcp login s --agent {}`", agent.display());
    let ran = guarded.delta(&["mcp", "lock", "--agent", "agent"]);
    assert!(ran.code == 7 && ran.stderr.contains(&command), "{ran:?}");
    assert!(!guarded.sandbox.path("home/.local").exists(), "nothing is created");
    guarded.log_in(&[]).expect_code(0);
    guarded.delta(&["mcp", "lock", "--agent", "agent", "--write"]).expect_code(0);
    let (path, _) = guarded.login_files().remove(0);
    std::fs::remove_file(guarded.sandbox.path(&path)).unwrap();
    let asked = guarded.issuer.requests().len();
    let ran = guarded.sandbox.run("go", &[]);
    assert!(ran.code == 126 && ran.stderr.contains(&command), "{ran:?}");
    assert!(!guarded.sandbox.path("work/.delta").exists(), "nothing is created");
    let ran = guarded.call();
    assert!(ran.code == 7 && ran.stderr.contains(&command), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert_eq!(guarded.issuer.requests().len(), asked);
    // Not even a tool that tries can start one.
    let mut delta = guarded.sandbox.delta(["mcp", "login", "s", "--agent", "agent"]);
    delta.command().env("RUN_DIR", guarded.sandbox.path("work"));
    let ran = delta.output();
    assert!(ran.code == 126 && ran.stderr.contains("is for a person, not for a run"), "{ran:?}");
}

#[test]
fn c_36_22_a_login_works_without_a_browser() {
    let guarded = Guarded::new("true", "");
    let mut login = guarded.start_login(&[]);
    assert!(login.printed.contains("paste here the address"), "{}", login.printed);
    let address = format!("{}?{}", login.request()["redirect_uri"], guarded.agree(&login));
    let mut input = login.child.stdin.take().unwrap();
    writeln!(input, "\nsomething else\n{address}").unwrap();
    let ran = login.end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("expected the `state` of this login"), "{}", ran.stderr);
    // Nobody is there.
    let ran = guarded.delta(&["mcp", "login", "s", "--agent", "agent"]);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stderr.contains("no browser could be opened"), "{}", ran.stderr);
}

#[test]
fn c_36_22_a_login_opens_the_browser_of_the_operator() {
    let guarded = Guarded::new("true", "");
    guarded.sandbox.write_program("bin/browser", "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$HOME/opened.new\"\nmv \"$HOME/opened.new\" \"$HOME/opened\"\n");
    let browser = format!("{} --new-tab", guarded.sandbox.path("bin/browser").display());
    let mut delta = guarded
        .sandbox
        .delta(["mcp", "login", "s", "--agent", "agent", "--port", "0"])
        .env("BROWSER", browser);
    // Its stdin has ended, as that of a desktop's launcher.
    let mut child = delta.command().stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let opened = guarded.sandbox.path("home/opened");
    let opened = until("the browser", || std::fs::read_to_string(&opened).ok());
    let (option, url) = opened.trim_end().split_once('\n').unwrap();
    assert_eq!(option, "--new-tab");
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let login = Login { child, stderr, printed: String::new(), url: Some(url.to_owned()) };
    let answer = guarded.agree(&login);
    assert_eq!(login.browse(&answer), "HTTP/1.1 200 OK");
    let ran = login.end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn c_36_21_an_answer_that_is_not_of_the_login_is_not_used() {
    let guarded = Guarded::new("true", "");
    let login = guarded.start_login(&[]);
    let answer = guarded.agree(&login);
    let code = answer.split('&').next().unwrap();
    for foreign in
        [format!("{code}&state=other"), code.to_owned(), "error=access_denied".to_owned()]
    {
        assert_eq!(login.browse(&foreign), "HTTP/1.1 400 Bad Request", "{foreign}");
    }
    assert_eq!(guarded.token_requests().len(), 0);
    // A browser opens connections in advance, and asks for its icon.
    let uri = login.request()["redirect_uri"].clone();
    let host = uri.trim_start_matches("http://").trim_end_matches("/callback").to_owned();
    let _idle = TcpStream::connect(&host).unwrap();
    let mut icon = TcpStream::connect(&host).unwrap();
    icon.write_all(b"GET /favicon.ico HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    icon.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 404"), "{page}");
    assert_eq!(login.browse(&answer), "HTTP/1.1 200 OK");
    let ran = login.end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("warning: an answer was not used").count(), 3, "{}", ran.stderr);
    // The person says no.
    let login = guarded.start_login(&[]);
    let state = login.request()["state"].clone();
    login.browse(&format!("error=access_denied&error_description=not%20today&state={state}"));
    let ran = login.end();
    assert!(
        ran.code == 7 && ran.stderr.contains("refused the login: access_denied: not today"),
        "{ran:?}"
    );
}

#[test]
fn c_36_21_an_answer_of_another_issuer_is_not_used() {
    for (more_metadata, issuer) in [
        (json!({}), "&iss=https%3A%2F%2Fevil.example"),
        (json!({"authorization_response_iss_parameter_supported": true}), ""),
    ] {
        let guarded = Guarded::new("true", "");
        guarded.access().more_metadata = more_metadata;
        let login = guarded.start_login(&[]);
        let answer = format!("{}{issuer}", guarded.agree(&login));
        assert_eq!(login.browse(&answer), "HTTP/1.1 400 Bad Request");
        let ran = login.end();
        assert!(ran.code == 7 && ran.stderr.contains("its code was not used"), "{ran:?}");
        assert_eq!(guarded.token_requests().len(), 0);
        assert_eq!(guarded.login_files(), []);
    }
}

#[test]
fn c_36_21_metadata_that_cannot_be_believed_ends_a_login() {
    type Change = fn(&mut Access);
    let changes: [(Change, i32, &str); 5] = [
        (
            |access| access.claimed_resource = Some("https://evil.example/mcp".into()),
            3,
            "is for the resource `https://evil.example/mcp`",
        ),
        (
            |access| access.more_metadata = json!({"issuer": "https://evil.example"}),
            3,
            "describes the issuer `https://evil.example`",
        ),
        (
            |access| access.more_metadata = json!({"token_endpoint": "http://evil.example/"}),
            3,
            "`token_endpoint`",
        ),
        (
            |access| access.more_metadata = json!({"code_challenge_methods_supported": ["plain"]}),
            3,
            "PKCE",
        ),
        (|access| access.has_no_registration = true, 7, "`oauth: {client_id_env: NAME}`"),
    ];
    for (change, code, reason) in changes {
        let guarded = Guarded::new("true", "");
        change(&mut guarded.access());
        let ran = guarded.start_login(&[]).end();
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
        assert!(!ran.stderr.contains("/authorize"), "{}", ran.stderr);
        assert!(guarded.issuer.requests().iter().all(|request| request.target.starts_with("GET ")));
    }
}

#[test]
fn c_36_21_a_token_that_expires_in_a_run_is_replaced() {
    let guarded = Guarded::ready(&format!("{}\n{}", turn(&[("echo", "")]), turn(&[("count", "")])));
    // Refused in the middle of the run, and then known to be short.
    guarded.access().valid.clear();
    guarded.access().expires_in = Some(1);
    guarded.sandbox.run("go", &[]).expect_code(0);
    assert_eq!(
        guarded.sandbox.observations(),
        ["got Bearer [redacted]\n", "got Bearer [redacted]\n"]
    );
    let refreshes = guarded.refreshes();
    assert!(refreshes >= 3, "a token that is about to end is not sent: {refreshes}");
    for file in guarded.sandbox.files("work") {
        let bytes = std::fs::read(guarded.sandbox.path("work").join(&file)).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("-token-"), "{file} has a token");
    }
    let calls =
        guarded.server.requests().iter().filter(|it| it.body["method"] == "tools/call").count();
    assert_eq!(calls, 2);
}

#[test]
fn c_36_21_processes_that_refresh_at_once_lose_no_token() {
    let guarded = Guarded::ready("");
    guarded.access().valid.clear();
    let calls: Vec<Child> = (0..4)
        .map(|_| guarded.sandbox.delta(["mcp", "call", "--agent", "agent", "s", "echo"]).spawn())
        .collect();
    for call in calls {
        let output = call.wait_with_output().unwrap();
        let ran = Ran::of(output.status, &output.stdout, &output.stderr);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (0, "got Bearer [redacted]\n"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(guarded.refreshes(), 1);
}

#[test]
fn c_36_21_runs_that_refresh_all_the_time_lose_no_token() {
    let turns = cases(1, 25);
    let calls = 20 * turns;
    let guarded = Guarded::ready(&vec![turn(&[("echo", ""); 20]); turns].join("\n"));
    // Every token is about to end when it comes.
    guarded.access().valid.clear();
    guarded.access().expires_in = Some(1);
    let runs = ["r", "q"].map(|id| {
        let place = format!("work-{id}");
        guarded.sandbox.write(&format!("{place}/.keep"), "");
        let words = ["run", "--agent", "agent", "-w", &place, "--run-id", id, "-m", "go"];
        guarded.sandbox.delta(words).spawn()
    });
    for run in runs {
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let forms = guarded.token_requests();
    let sent: Vec<&String> = forms.iter().filter_map(|form| form.get("refresh_token")).collect();
    let distinct: BTreeSet<&String> = sent.iter().copied().collect();
    assert_eq!(distinct.len(), sent.len(), "a token was sent twice");
    assert!(sent.len() >= 2 * calls, "{}", sent.len());
    for id in ["r", "q"] {
        let journal = guarded.sandbox.read(&format!("work-{id}/.delta/{id}/journal.jsonl"));
        assert_eq!(journal.matches("got Bearer [redacted]").count(), calls, "{journal}");
    }
}

#[test]
fn c_36_21_a_process_that_is_killed_in_a_refresh_costs_a_login_at_most() {
    for stall in [Stall::Before, Stall::After] {
        let guarded = Guarded::ready("");
        guarded.access().valid.clear();
        guarded.access().stall = Some(stall);
        let mut call =
            guarded.sandbox.delta(["mcp", "call", "--agent", "agent", "s", "echo"]).spawn();
        until("the refresh", || (guarded.refreshes() == 1).then_some(()));
        call.kill().unwrap();
        call.wait().unwrap();
        guarded.access().stall = None;
        let ran = guarded.call();
        if stall == Stall::Before {
            assert_eq!((ran.code, guarded.refreshes()), (0, 2), "{}", ran.stderr);
            continue;
        }
        // The only good token was in the answer that nobody got.
        assert!(ran.code == 7 && ran.stderr.contains("run `delta mcp login s --agent"), "{ran:?}");
        assert_eq!(guarded.refreshes(), 2);
        let ran = guarded.call();
        assert_eq!(
            (ran.code, guarded.refreshes()),
            (7, 2),
            "a token that has ended is sent once: {}",
            ran.stderr
        );
        guarded.log_in(&[]).expect_code(0);
        guarded.call().expect_code(0);
    }
}

#[test]
fn c_36_21_a_caller_that_goes_away_does_not_lose_a_refresh_token() {
    let guarded = Guarded::ready("");
    let gate = Gate::new();
    let url = guarded.issuer.root_url();
    // An issuer between, whose answer comes when it may.
    let slow = ScriptedServer::for_anything({
        let (access, gate) = (Arc::clone(&guarded.access), gate.clone());
        move |request: &RecordedRequest| {
            answer_of_issuer(request, &mut access.lock().unwrap(), &url).after(&gate)
        }
    });
    let (path, text) = guarded.login_files().remove(0);
    let text = text.replace(
        &format!("{}/token", guarded.issuer.root_url()),
        &format!("{}/token", slow.root_url()),
    );
    guarded.sandbox.write(&path, text);
    guarded.access().valid.clear();
    let call = guarded.sandbox.delta(["mcp", "call", "--agent", "agent", "s", "echo"]).spawn();
    until("the refresh", || (slow.requests().len() == 1).then_some(()));
    assert!(test_support::running::send_signal("INT", call.id()));
    gate.open();
    let output = call.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(guarded.login_files()[0].1.contains("refresh-token-2"));
    guarded.call().expect_code(0);
}

#[test]
fn c_36_21_a_login_that_is_killed_changes_nothing() {
    let guarded = Guarded::ready("");
    let before = guarded.login_files();
    let mut login = guarded.start_login(&[]);
    login.child.kill().unwrap();
    login.child.wait().unwrap();
    // Also when it has the code and waits for the tokens.
    guarded.access().stall = Some(Stall::Before);
    let mut login = guarded.start_login(&[]);
    let answer = guarded.agree(&login);
    login.browse(&answer);
    until("the request", || (guarded.token_requests().len() == 2).then_some(()));
    login.child.kill().unwrap();
    login.child.wait().unwrap();
    guarded.access().stall = None;
    assert_eq!(guarded.login_files(), before);
    guarded.call().expect_code(0);
    guarded.log_in(&[]).expect_code(0);
    guarded.call().expect_code(0);
}

#[test]
fn c_36_21_a_server_with_another_issuer_than_locked_gets_no_token() {
    let guarded = Guarded::ready("");
    let lock = guarded.sandbox.read("agent/mcp.lock.json");
    let other = ScriptedServer::for_anything({
        let access = Arc::clone(&guarded.access);
        let url = Arc::new(Mutex::new(String::new()));
        move |request: &RecordedRequest| {
            let host = request.header("host").unwrap_or_default();
            *url.lock().unwrap() = format!("http://{host}");
            answer_of_issuer(request, &mut access.lock().unwrap(), &url.lock().unwrap())
        }
    });
    let (old, new) = (guarded.issuer.root_url(), other.root_url());
    guarded.access().issuers = vec![new.clone()];
    let ran = guarded.start_login(&[]).end();
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    let reason = format!(
        "names the issuer `{new}`, and `{old}` is expected: add `--issuer {new}` if you trust it"
    );
    assert!(ran.stderr.contains(&reason), "{}", ran.stderr);
    assert!(other.requests().is_empty());
    // The operator trusts it; what the author has locked still decides for runs.
    guarded.log_in(&["--issuer", &new]).expect_code(0);
    assert!(
        other.requests().iter().any(|request| request.target == "POST /register"),
        "its own client"
    );
    let calls = guarded.server.requests().len();
    let ran = guarded.call();
    assert!(
        ran.code == 7
            && ran
                .stderr
                .contains(&format!("of the issuer `{new}`, and mcp.lock.json has `{old}`")),
        "{ran:?}"
    );
    let ran = guarded.sandbox.run("go", &[]);
    assert!(ran.code == 126 && ran.stderr.contains("mcp.lock.json has"), "{ran:?}");
    assert_eq!(guarded.server.requests().len(), calls, "it got nothing");
    let ran = guarded.delta(&["mcp", "lock", "--agent", "agent", "--write"]);
    assert!(ran.stdout.contains(&format!("+      \"issuer\": \"{new}\"")), "{}", ran.stdout);
    guarded.call().expect_code(0);
    // A lock from before `oauth` has no issuer.
    let bare =
        lock.lines().filter(|line| !line.contains("\"issuer\"")).collect::<Vec<_>>().join("\n");
    guarded.sandbox.write("agent/mcp.lock.json", bare);
    let ran = guarded.sandbox.run("go", &[]);
    assert!(
        ran.code == 126 && ran.stderr.contains("locked without the issuer of its tokens"),
        "{ran:?}"
    );
}

#[test]
fn c_36_21_more_scopes_are_for_a_person_to_give() {
    let guarded = Guarded::ready(&turn(&[("echo", "")]));
    guarded.access().call_scope = Some("write".into());
    guarded.sandbox.run("go", &[]).expect_code(0);
    let observation = guarded.sandbox.observations().remove(0);
    assert!(
        observation.contains("[exit code: 7]")
            && observation.contains("needs a login with more scopes"),
        "{observation}"
    );
    let ran = guarded.call();
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    let command = ran.stderr.split('`').nth(3).unwrap().to_owned();
    assert!(
        command.starts_with("delta mcp login s --agent ") && command.ends_with(" --scope write"),
        "{command}"
    );
    assert_eq!(guarded.refreshes(), 0, "the token is good");
    let login = guarded.start_login(&["--scope", "write"]);
    assert_eq!(login.request()["scope"], "basic write");
    let answer = guarded.agree(&login);
    login.browse(&answer);
    login.end().expect_code(0);
    guarded.access().valid.values_mut().for_each(|scopes| scopes.push_str(" write"));
    guarded.call().expect_code(0);
    // The next login keeps what this one had.
    assert_eq!(guarded.start_login(&[]).request()["scope"], "basic write");
}

#[test]
fn c_36_22_a_client_with_its_own_access_needs_no_login() {
    let oauth = "{client_id_env: CLIENT_ID, client_secret_env: CLIENT_SECRET, grant: client_credentials, scopes: [a, b]}";
    let guarded = Guarded::new(oauth, &turn(&[("echo", "")]));
    let with_client = |delta: test_support::sandbox::Delta| {
        delta.env("CLIENT_ID", "the-client").env("CLIENT_SECRET", "client-s3cret").output()
    };
    let ran = guarded.delta(&["mcp", "lock", "--agent", "agent"]);
    assert!(ran.code == 126 && ran.stderr.contains("`CLIENT_ID` is not set"), "{ran:?}");
    with_client(guarded.sandbox.delta(["mcp", "lock", "--agent", "agent", "--write"]))
        .expect_code(0);
    guarded.access().valid.clear();
    with_client(guarded.sandbox.run_command("go", &[])).expect_code(0);
    assert_eq!(guarded.sandbox.observations(), ["got Bearer [redacted]\n"]);
    let forms = guarded.token_requests();
    assert!(
        forms
            .iter()
            .any(|form| form["scope"] == "a b" && form["grant_type"] == "client_credentials"),
        "{forms:?}"
    );
    for file in guarded.sandbox.files("work") {
        let bytes = std::fs::read(guarded.sandbox.path("work").join(&file)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("client-s3cret") && !text.contains("access-token"), "{file}");
    }
    assert!(!guarded.login_files()[0].1.contains("client-s3cret"));
    let ran = with_client(guarded.sandbox.delta(["mcp", "login", "s", "--agent", "agent"]));
    assert!(ran.code == 126 && ran.stderr.contains("needs no login"), "{ran:?}");
}

#[test]
fn c_36_21_a_login_outside_of_an_agent_says_what_to_write() {
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["mcp", "login", "tracker"]).output().expect_code(126);
    assert!(ran.stderr.contains("there is no agent.yaml in the current directory"), "{ran:?}");
    assert!(ran.stderr.contains("`--agent DIR`") && ran.stderr.contains("https://"), "{ran:?}");
}

#[test]
fn c_36_21_a_mistake_in_oauth_says_what_to_write() {
    for (oauth, problem) in [
        ("yes please", "`oauth` must be `true` or `false`"),
        ("{grant: client_credentials}", "`client_id_env: NAME`"),
        ("{client_secret_env: X}", "`client_id_env: NAME`"),
        ("{scope: a}", "did you mean `scopes`?"),
        ("true\n    token_env: T", "`token_env` and `oauth` exclude each other"),
    ] {
        let guarded = Guarded::new(oauth, "");
        let ran = guarded.delta(&["mcp", "lock", "--agent", "agent"]);
        assert!(ran.code == 126 && ran.stderr.contains(problem), "{oauth}: {}", ran.stderr);
    }
}
