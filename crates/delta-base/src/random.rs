//! Random bytes from the kernel, for new names.

use std::io;

/// `N` random bytes; at most 32, which the kernel returns at once and without interruption.
///
/// # Panics
/// The kernel has no random numbers. The hash maps of the standard library would panic too.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    const { assert!(N <= 32) };
    let mut bytes = [0; N];
    fill_with_random(&mut bytes).expect("the kernel gives random bytes");
    bytes
}

#[cfg(target_os = "linux")]
fn fill_with_random(bytes: &mut [u8]) -> io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    getrandom(bytes, GetRandomFlags::empty())?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn fill_with_random(bytes: &mut [u8]) -> io::Result<()> {
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, bytes)
}
