//! Random bytes from the kernel, for new names.

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes; at most 32, which the kernel returns at once and without interruption.
///
/// # Panics
/// The kernel has no random numbers. The hash maps of the standard library would panic too.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    const { assert!(N <= 32) };
    let mut bytes = [0; N];
    getrandom(&mut bytes, GetRandomFlags::empty()).expect("the kernel gives random bytes");
    bytes
}
