//! The programs that tools use most: which of their options take a value, and how they mark the end of the options.

/// What marks the end of a program's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionTerminator {
    /// `--`
    DoubleDash,
    /// `--` before a path, `--end-of-options` before a revision
    Git,
    /// Nothing: a path must not begin with `-`.
    None,
}

/// The options of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownProgram {
    pub name: &'static str,
    /// The letters of the short options that take the next word as their value.
    pub value_options: &'static str,
    pub terminator: OptionTerminator,
}

const fn with_double_dash(name: &'static str, value_options: &'static str) -> KnownProgram {
    KnownProgram { name, value_options, terminator: OptionTerminator::DoubleDash }
}

const KNOWN_PROGRAMS: [KnownProgram; 59] = [
    with_double_dash("cat", ""),
    with_double_dash("chgrp", ""),
    with_double_dash("chmod", ""),
    with_double_dash("chown", ""),
    with_double_dash("cksum", ""),
    with_double_dash("cmp", "in"),
    with_double_dash("comm", ""),
    with_double_dash("cp", "tS"),
    with_double_dash("csplit", "bfn"),
    with_double_dash("curl", "AbcCdDeEFhHKmoPQrtTuUwxXyYz"),
    with_double_dash("cut", "bcdf"),
    with_double_dash("diff", "UCLxXIFW"),
    with_double_dash("du", "Bdtx"),
    with_double_dash("egrep", "efmABCdD"),
    with_double_dash("fgrep", "efmABCdD"),
    with_double_dash("fmt", "wgp"),
    with_double_dash("fold", "w"),
    with_double_dash("grep", "efmABCdD"),
    with_double_dash("gunzip", "S"),
    with_double_dash("gzip", "S"),
    with_double_dash("head", "nc"),
    with_double_dash("iconv", "fto"),
    with_double_dash("less", "bhjkoOpPtTxyz"),
    with_double_dash("ln", "tS"),
    with_double_dash("ls", "ITw"),
    with_double_dash("make", "CfIjloW"),
    with_double_dash("md5sum", ""),
    with_double_dash("mkdir", "m"),
    with_double_dash("mv", "tS"),
    with_double_dash("nl", "bdfhilnsvw"),
    with_double_dash("od", "AjNtSw"),
    with_double_dash("patch", "bBdDFgioprVxYz"),
    with_double_dash("rg", "efgtTmABCjrMEd"),
    with_double_dash("rm", ""),
    with_double_dash("rmdir", ""),
    with_double_dash("rsync", "efBTM"),
    with_double_dash("scp", "cFiJloPSX"),
    with_double_dash("sed", "efl"),
    with_double_dash("sha1sum", ""),
    with_double_dash("sha256sum", ""),
    with_double_dash("shred", "ns"),
    with_double_dash("sort", "kotST"),
    with_double_dash("split", "abClnt"),
    with_double_dash("ssh", "BbcDEeFIiJLlmOopQRSWw"),
    with_double_dash("stat", "cf"),
    with_double_dash("tac", "s"),
    with_double_dash("tail", "ncs"),
    with_double_dash("tar", "fCTXbgHIKLNVF"),
    with_double_dash("tee", ""),
    with_double_dash("touch", "drt"),
    with_double_dash("tr", ""),
    with_double_dash("truncate", "sr"),
    with_double_dash("uniq", "fsw"),
    with_double_dash("unzip", "dxP"),
    with_double_dash("wc", ""),
    with_double_dash("wget", "aAbBDeGiIlnoOPQRStTUwX"),
    with_double_dash("zip", "bnPtxi"),
    KnownProgram { name: "find", value_options: "", terminator: OptionTerminator::None },
    KnownProgram { name: "git", value_options: "CcmbBuFnSGtLO", terminator: OptionTerminator::Git },
];

pub(super) fn find_known_program(name: &str) -> Option<KnownProgram> {
    KNOWN_PROGRAMS.into_iter().find(|program| program.name == name)
}

/// Programs with so many long options that lint treats each as one that takes a value.
pub(super) const PROGRAMS_WITH_MANY_OPTIONS: [&str; 5] = ["curl", "wget", "rsync", "make", "rg"];

/// The long options of the other programs that take the next word as their value.
pub(super) const LONG_VALUE_OPTIONS: [&str; 40] = [
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

/// Programs that have no harmful options, and shell built-ins that have few options.
pub(super) const HARMLESS_PROGRAMS: [&str; 26] = [
    "echo", "printf", "test", "[", "true", "false", ":", "cd", "exit", "return", "read", "export",
    "readonly", "local", "unset", "set", "shift", "expr", "sleep", "seq", "basename", "dirname",
    "yes", "getopts", "umask", "break",
];

/// The commands that a POSIX shell has built in.
pub(super) const SHELL_BUILTINS: [&str; 41] = [
    ".", ":", "[", "alias", "bg", "break", "cd", "command", "continue", "echo", "eval", "exec",
    "exit", "export", "false", "fc", "fg", "getopts", "hash", "jobs", "kill", "local", "printf",
    "pwd", "read", "readonly", "return", "set", "shift", "test", "times", "trap", "true", "type",
    "ulimit", "umask", "unalias", "unset", "wait", "until", "time",
];
