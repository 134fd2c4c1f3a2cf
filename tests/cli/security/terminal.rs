//! What a run starts has no terminal, and no descriptor of the program that started the engine (C-4.1).

use crate::DELTA;
use std::process::{Command, Stdio};
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

/// Writes what it can reach of its surroundings to the file in its first argument.
const PROBE: &str = "\
#!/usr/bin/env python3
import errno, fcntl, os, sys, termios
found = []
try:
    os.open('/dev/tty', os.O_RDWR)
    found.append('a terminal')
except OSError as error:
    found.append(errno.errorcode[error.errno])
for descriptor in range(3):
    try:
        fcntl.ioctl(descriptor, termios.TIOCSTI, b'x')
        found.append('typed')
    except OSError:
        pass
descriptors = sorted(int(name) for name in os.listdir('/proc/self/fd'))
# The last one reads the directory.
found.append('descriptors ' + ' '.join(map(str, descriptors[:-1])))
own = os.getsid(0) in (os.getpid(), os.getppid())
found.append('its own session' if own else 'the session of the engine')
open(sys.argv[1], 'w').write(', '.join(found))
";

const CONFINED: &str = "ENXIO, descriptors 0 1 2, its own session";

/// An agent whose tool, hook, generator and LLM are the probe.
fn probing() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write_program("probe", PROBE);
    sandbox.write_program(
        "agent/llm.sh",
        "#!/bin/sh\n\"$AGENT_HOME/../probe\" llm\ncase $(cat) in\n\
         *tool_call_id*) echo '{\"choices\": [{\"message\": {\"content\": \"done\"}}]}' ;;\n\
         *) echo '{\"choices\": [{\"message\": {\"tool_calls\": [{\"id\": \"c\", \"function\": {\"name\": \"t\", \"arguments\": \"{}\"}}]}}]}' ;;\n\
         esac\n",
    );
    let llm = "provider: command\n  model: m\n  command: ['${AGENT_HOME}/llm.sh']";
    sandbox.agent(llm, "  - name: t\n    exec: ${AGENT_HOME}/../probe tool\n");
    sandbox.write(
        "agent/hooks.yaml",
        "on_iteration_start: {command: ['${AGENT_HOME}/../probe', hook]}\n",
    );
    sandbox.write(
        "agent/context.yaml",
        "sources:\n  - type: computed_file\n    generator: {command: ['${AGENT_HOME}/../probe', generator]}\n    output_path: '${CWD}/generator'\n  - type: journal\n",
    );
    sandbox
}

#[track_caller]
fn expect_confined(sandbox: &Sandbox) {
    for child in ["tool", "hook", "generator", "llm"] {
        assert_eq!(sandbox.read(&format!("work/{child}")), CONFINED, "{child}");
    }
}

#[test]
fn c_4_1_nothing_that_a_run_starts_reaches_the_terminal() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = probing();
    let ran = sandbox.run_command("hello", &[]).wholly_at_terminal().end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    expect_confined(&sandbox);
}

#[test]
fn c_4_1_nothing_that_a_run_starts_inherits_a_descriptor() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = probing();
    sandbox.write("secret", "sk-of-the-operator");
    let script = "exec 3<secret 7<secret 200<secret; exec \"$0\" run --agent agent -w work --run-id r -m hello";
    let mut command = Command::new("bash");
    command
        .args(["-c", script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"))
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr).expect_code(0);
    expect_confined(&sandbox);
}

/// A hook that asked at the terminal was stopped by SIGTTIN until its timeout.
#[test]
fn c_4_1_a_hook_that_asks_at_the_terminal_fails_at_once() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
    sandbox.write("agent/hooks.yaml", "pre_llm_request: {command: [sh, -c, 'read a </dev/tty']}\n");
    let ran = sandbox.run_command("hello", &[]).wholly_at_terminal().end();
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("/dev/tty"), "{}", ran.stderr);
}
