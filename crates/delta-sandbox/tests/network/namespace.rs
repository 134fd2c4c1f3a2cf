//! A network namespace with its service, and programs in it.

use delta_sandbox::{
    HostPolicy, HostRule, HostService, HostServiceControl, HostSockets, MachineNames,
    NetworkReport, ProxySettings,
};
use rustix::thread::UnshareFlags;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use test_support::needs;

/// A namespace that reaches the hosts of a list.
pub struct Namespace {
    control: HostServiceControl,
    commands: mpsc::Sender<NamespaceCommand>,
}

/// A command to start, and where its child is sent to.
type NamespaceCommand = (Command, mpsc::Sender<Child>);

/// Programs of a tool have no capabilities, as in a sandbox.
const WITHOUT_CAPABILITIES: [&str; 4] =
    ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"];

impl Namespace {
    /// A namespace for `name port` rules and a table like /etc/hosts; `None`, with a line about it, where this user cannot
    /// create one in a process with threads.
    pub fn new(rules: &[String], hosts: &str) -> Option<Self> {
        Self::with_proxies(rules, hosts, &[])
    }

    pub fn with_proxies(rules: &[String], hosts: &str, proxies: &[(&str, String)]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            needs::skip("needs root; the tests of the built program create the namespace instead");
            return None;
        }
        let rules: Vec<_> = rules
            .iter()
            .map(|rule| {
                let (host, port) = rule.rsplit_once(' ').unwrap();
                HostRule { host: host.to_owned(), port: port.parse().unwrap() }
            })
            .collect();
        // Programs read the file of this machine; the stub of systemd and IPv6 are tested on any.
        let resolver = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        let resolver = format!("nameserver 127.0.0.53\nnameserver 2001:db8::53\n{resolver}");
        let policy = HostPolicy::new(&rules, MachineNames::parse(hosts, &resolver));
        let proxies = ProxySettings::parse(|name| {
            let setting = proxies.iter().find(|(variable, _)| *variable == name);
            setting.map(|(_, value)| value.clone())
        });

        let (inside, outside) = UnixStream::pair().unwrap();
        let (commands, requests) = mpsc::channel::<NamespaceCommand>();
        let inside_policy = policy.clone();
        thread::spawn(move || {
            enter_network_namespace();
            HostSockets::create(&inside_policy).unwrap().send(inside.as_fd()).unwrap();
            // A child is in the namespace of the thread that starts it.
            for (mut command, reply) in requests {
                reply.send(command.spawn().unwrap()).unwrap();
            }
        });
        let sockets = HostSockets::receive(outside.as_fd()).unwrap();
        let service = HostService::new(sockets, policy, proxies.unwrap()).unwrap();
        let (engine, service_end) = UnixStream::pair().unwrap();
        thread::spawn(move || service.serve(service_end.into()).unwrap());
        let control = HostServiceControl::new(engine.into()).unwrap();
        Some(Self { control, commands })
    }

    /// Starts a program in the namespace, with pipes.
    pub fn spawn(&self, argv: &[&str]) -> Child {
        let mut command = Command::new(WITHOUT_CAPABILITIES[0]);
        command.args(&WITHOUT_CAPABILITIES[1..]).args(argv);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for variable in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(variable).env_remove(variable.to_uppercase());
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
        let (reply, child) = mpsc::channel();
        self.commands.send((command, reply)).unwrap();
        child.recv().unwrap()
    }

    /// Runs a program in the namespace.
    pub fn run(&self, argv: &[&str]) -> Output {
        self.spawn(argv).wait_with_output().unwrap()
    }

    /// Runs a Python script in the namespace, which must succeed; returns what it printed.
    pub fn python(&self, script: &str) -> String {
        let mut child = self.spawn(&["/usr/bin/python3", "-"]);
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub fn report(&mut self) -> NetworkReport {
        self.control.take_counts().unwrap()
    }

    /// The refusals of the report as `name times`.
    pub fn refusals(&mut self) -> Vec<String> {
        let refused = self.report().refused;
        refused.iter().map(|(name, times)| format!("{name} {times}")).collect()
    }
}

#[expect(unsafe_code, reason = "a thread leaves the namespace of its process")]
fn enter_network_namespace() {
    // SAFETY: only the network namespace of this thread changes; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
}
