//! Filters of system calls: for what namespaces do not cover, and for the network where there are none.
#![cfg(target_os = "linux")]

use delta_process::FilterInstruction;

/// Operations of the kernel's filters.
mod operation {
    pub(super) const LOAD: u16 = 0x20;
    pub(super) const JUMP_IF_EQUAL: u16 = 0x15;
    pub(super) const JUMP_IF_AT_LEAST: u16 = 0x35;
    pub(super) const RETURN: u16 = 0x06;
}

/// Offsets in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
/// The low halves of the first two arguments.
const FIRST_ARGUMENT_OFFSET: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };
const SECOND_ARGUMENT_OFFSET: u32 = FIRST_ARGUMENT_OFFSET + 8;
/// `SECCOMP_RET_ALLOW`, and `SECCOMP_RET_ERRNO` with an error.
const ALLOW: u32 = 0x7fff_0000;
const ERROR: u32 = 0x0005_0000;
/// System calls of the x32 interface have this bit.
const X32_BIT: u32 = 0x4000_0000;

/// The number of this architecture in filters; `None` for one that this program has no filter for.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else {
    None
};

/// System calls whose first argument is a process, with 0 for the caller: limits and scheduling. The processors are not
/// among them, because a thread sets the processors of another.
const PROCESS_CALLS: [libc::c_long; 4] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];
/// System calls of priorities: the first argument is the kind of the second, which is 0 for the caller; with the kind that
/// means all processes of the user.
const PRIORITY_CALLS: [(libc::c_long, u32); 2] =
    [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)];

/// A filter for what namespaces and Landlock leave open: the limits and priorities of other processes, and, with `has_own_network`, sockets to
/// the host of a virtual machine, which belong to no network namespace; `None` on an architecture without one.
pub(crate) fn outside_filter(has_own_network: bool) -> Option<Vec<FilterInstruction>> {
    let unsupported = ERROR | u32::try_from(libc::EAFNOSUPPORT).ok()?;
    let missing = ERROR | u32::try_from(libc::ENOSYS).ok()?;
    let socket = u32::try_from(libc::SYS_socket).ok()?;
    let ring = u32::try_from(libc::SYS_io_uring_setup).ok()?;
    let host = u32::try_from(libc::AF_VSOCK).ok()?;
    let mut filter = common_rules()?;
    if has_own_network {
        filter.extend([
            jump(operation::JUMP_IF_EQUAL, ring, 0, 1),
            give(missing),
            jump(operation::JUMP_IF_EQUAL, socket, 0, 3),
            load_field(FIRST_ARGUMENT_OFFSET),
            jump(operation::JUMP_IF_EQUAL, host, 0, 1),
            give(unsupported),
        ]);
    }
    filter.push(give(ALLOW));
    Some(filter)
}

/// The beginning of a filter: system calls of this architecture only, and no limits and priorities of other processes. The
/// number of the call is loaded afterwards.
fn common_rules() -> Option<Vec<FilterInstruction>> {
    let missing = ERROR | u32::try_from(libc::ENOSYS).ok()?;
    let denied = ERROR | u32::try_from(libc::EPERM).ok()?;
    let mut filter = vec![
        load_field(ARCHITECTURE_OFFSET),
        // Programs for another one have other numbers.
        jump(operation::JUMP_IF_EQUAL, ARCHITECTURE?, 1, 0),
        give(missing),
        load_field(NUMBER_OFFSET),
        jump(operation::JUMP_IF_AT_LEAST, X32_BIT, 0, 1),
        give(missing),
    ];
    for call in PROCESS_CALLS {
        filter.extend([
            jump(operation::JUMP_IF_EQUAL, u32::try_from(call).ok()?, 0, 4),
            load_field(FIRST_ARGUMENT_OFFSET),
            jump(operation::JUMP_IF_EQUAL, 0, 0, 1),
            give(ALLOW),
            give(denied),
        ]);
    }
    for (call, all_of_user) in PRIORITY_CALLS {
        filter.extend([
            jump(operation::JUMP_IF_EQUAL, u32::try_from(call).ok()?, 0, 6),
            load_field(SECOND_ARGUMENT_OFFSET),
            jump(operation::JUMP_IF_EQUAL, 0, 0, 3),
            load_field(FIRST_ARGUMENT_OFFSET),
            jump(operation::JUMP_IF_EQUAL, all_of_user, 1, 0),
            give(ALLOW),
            give(denied),
        ]);
    }
    Some(filter)
}

/// A filter under which `socket` makes only Unix sockets; `None` on an architecture without one.
pub(crate) fn unix_sockets_only() -> Option<Vec<FilterInstruction>> {
    let denied = ERROR | u32::try_from(libc::EACCES).ok()?;
    let missing = ERROR | u32::try_from(libc::ENOSYS).ok()?;
    let socket = u32::try_from(libc::SYS_socket).ok()?;
    // A ring of requests creates sockets too.
    let ring = u32::try_from(libc::SYS_io_uring_setup).ok()?;
    let unix = u32::try_from(libc::AF_UNIX).ok()?;
    let mut filter = common_rules()?;
    filter.extend([
        jump(operation::JUMP_IF_EQUAL, ring, 0, 1),
        give(missing),
        jump(operation::JUMP_IF_EQUAL, socket, 1, 0),
        give(ALLOW),
        load_field(FIRST_ARGUMENT_OFFSET),
        jump(operation::JUMP_IF_EQUAL, unix, 0, 1),
        give(ALLOW),
        give(denied),
    ]);
    Some(filter)
}

/// The filter in front of which the keys of the user cannot be reached: without a user namespace, they are shared.
pub(crate) fn without_keyrings(filter: Vec<FilterInstruction>) -> Vec<FilterInstruction> {
    let calls = [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key];
    let numbers = calls.into_iter().filter_map(|call| u32::try_from(call).ok());
    let mut guarded = vec![load_field(NUMBER_OFFSET)];
    for number in numbers {
        guarded.push(jump(operation::JUMP_IF_EQUAL, number, 0, 1));
        guarded.push(give(ERROR | libc::ENOSYS.cast_unsigned()));
    }
    guarded.extend(filter);
    guarded
}

fn load_field(offset: u32) -> FilterInstruction {
    FilterInstruction { code: operation::LOAD, jump_true: 0, jump_false: 0, operand: offset }
}

fn jump(code: u16, operand: u32, jump_true: u8, jump_false: u8) -> FilterInstruction {
    FilterInstruction { code, jump_true, jump_false, operand }
}

fn give(value: u32) -> FilterInstruction {
    FilterInstruction { code: operation::RETURN, jump_true: 0, jump_false: 0, operand: value }
}
