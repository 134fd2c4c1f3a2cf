//! What is known of the programs that tools use most: which options take the next word as their value, and how the end
//! of the options is said.

/// How a program is told that what follows is no option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By `--`.
    Dashes,
    /// By `--` before a path, and by `--end-of-options` before a revision.
    Git,
    /// Not at all: a path must not begin with `-`.
    Path,
}

/// What is known of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub name: &'static str,
    /// The letters of its short options that take the next word as their value.
    pub values: &'static str,
    pub end: End,
}

const fn program(name: &'static str, values: &'static str) -> Program {
    Program { name, values, end: End::Dashes }
}

const PROGRAMS: [Program; 59] = [
    program("cat", ""),
    program("chgrp", ""),
    program("chmod", ""),
    program("chown", ""),
    program("cksum", ""),
    program("cmp", "in"),
    program("comm", ""),
    program("cp", "tS"),
    program("csplit", "bfn"),
    program("curl", "AbcCdDeEFhHKmoPQrtTuUwxXyYz"),
    program("cut", "bcdf"),
    program("diff", "UCLxXIFW"),
    program("du", "Bdtx"),
    program("egrep", "efmABCdD"),
    program("fgrep", "efmABCdD"),
    program("fmt", "wgp"),
    program("fold", "w"),
    program("grep", "efmABCdD"),
    program("gunzip", "S"),
    program("gzip", "S"),
    program("head", "nc"),
    program("iconv", "fto"),
    program("less", "bhjkoOpPtTxyz"),
    program("ln", "tS"),
    program("ls", "ITw"),
    program("make", "CfIjloW"),
    program("md5sum", ""),
    program("mkdir", "m"),
    program("mv", "tS"),
    program("nl", "bdfhilnsvw"),
    program("od", "AjNtSw"),
    program("patch", "bBdDFgioprVxYz"),
    program("rg", "efgtTmABCjrMEd"),
    program("rm", ""),
    program("rmdir", ""),
    program("rsync", "efBTM"),
    program("scp", "cFiJloPSX"),
    program("sed", "efl"),
    program("sha1sum", ""),
    program("sha256sum", ""),
    program("shred", "ns"),
    program("sort", "kotST"),
    program("split", "abClnt"),
    program("ssh", "BbcDEeFIiJLlmOopQRSWw"),
    program("stat", "cf"),
    program("tac", "s"),
    program("tail", "ncs"),
    program("tar", "fCTXbgHIKLNVF"),
    program("tee", ""),
    program("touch", "drt"),
    program("tr", ""),
    program("truncate", "sr"),
    program("uniq", "fsw"),
    program("unzip", "dxP"),
    program("wc", ""),
    program("wget", "aAbBDeGiIlnoOPQRStTUwX"),
    program("zip", "bnPtxi"),
    Program { name: "find", values: "", end: End::Path },
    Program { name: "git", values: "CcmbBuFnSGtLO", end: End::Git },
];

/// What is known of the program of that name.
pub(super) fn known(name: &str) -> Option<Program> {
    PROGRAMS.into_iter().find(|program| program.name == name)
}

/// Programs with so many long options that each is taken for one with a value.
pub(super) const MANY_OPTIONS: [&str; 5] = ["curl", "wget", "rsync", "make", "rg"];

/// Long options of the other programs that take the next word as their value.
pub(super) const LONG_VALUES: [&str; 40] = [
    "--regexp",
    "--file",
    "--max-count",
    "--include",
    "--exclude",
    "--exclude-dir",
    "--context",
    "--after-context",
    "--before-context",
    "--directory",
    "--format",
    "--date",
    "--author",
    "--committer",
    "--grep",
    "--since",
    "--until",
    "--before",
    "--after",
    "--branch",
    "--message",
    "--key",
    "--field-separator",
    "--output",
    "--lines",
    "--bytes",
    "--width",
    "--target-directory",
    "--suffix",
    "--max-depth",
    "--delimiter",
    "--fields",
    "--characters",
    "--mode",
    "--reference",
    "--size",
    "--expression",
    "--line-length",
    "--unified",
    "--work-tree",
];

/// Programs that take nothing for an option that could do harm, and builtins of the shell whose options are few.
pub(super) const HARMLESS: [&str; 26] = [
    "echo", "printf", "test", "[", "true", "false", ":", "cd", "exit", "return", "read", "export",
    "readonly", "local", "unset", "set", "shift", "expr", "sleep", "seq", "basename", "dirname",
    "yes", "getopts", "umask", "break",
];

/// What a POSIX shell does itself, without a program.
pub(super) const BUILTINS: [&str; 41] = [
    ".", ":", "[", "alias", "bg", "break", "cd", "command", "continue", "echo", "eval", "exec",
    "exit", "export", "false", "fc", "fg", "getopts", "hash", "jobs", "kill", "local", "printf",
    "pwd", "read", "readonly", "return", "set", "shift", "test", "times", "trap", "true", "type",
    "ulimit", "umask", "unalias", "unset", "wait", "until", "time",
];

/// Programs that run the command that follows.
pub(super) const WRAPPERS: [&str; 12] = [
    "env", "exec", "nohup", "nice", "ionice", "setsid", "stdbuf", "sudo", "doas", "timeout",
    "xargs", "time",
];

/// Options of a wrapper that take the next word as their value.
pub(super) fn wrapper_values(name: &str) -> &'static str {
    match name {
        "env" => "uSC",
        "nice" => "n",
        "ionice" => "cnp",
        "stdbuf" => "ioe",
        "sudo" => "ugpCDhRrTt",
        "timeout" => "ks",
        "xargs" => "aEdILnPs",
        _ => "",
    }
}
