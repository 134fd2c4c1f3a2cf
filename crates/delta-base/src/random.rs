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

/// A random UUID (RFC 9562, version 4).
pub fn random_uuid() -> String {
    let mut bytes = random_bytes::<16>();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = crate::hex::encode_hex(&bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    #[test]
    fn a_uuid_has_its_version_and_variant() {
        let form = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";
        let form = Regex::new(form).unwrap();
        for _ in 0..100 {
            let uuid = random_uuid();
            assert!(form.is_match(&uuid), "{uuid}");
            assert_ne!(uuid, random_uuid());
        }
    }
}
