//! The block of memory in which the kernel gave this process its environment, and which it shows as /proc/PID/environ.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// The largest block that is searched; Linux allows a quarter of the stack for arguments and environment.
const MAX_BLOCK_BYTES: u64 = 8 << 20;

/// The environment block of this process.
#[derive(Debug)]
pub struct EnvironmentBlock {
    memory: File,
    start: u64,
    length: u64,
}

impl EnvironmentBlock {
    /// Opens the block. Only Linux has it in this form.
    ///
    /// # Errors
    /// The kernel does not show the process its own memory, or does not say where the block is.
    pub fn open() -> io::Result<Self> {
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
        let stat = fs::read_to_string("/proc/self/stat")?;
        let (start, end) = parse_bounds(&stat)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no environment block"))?;
        Ok(Self { memory, start, length: end.saturating_sub(start).min(MAX_BLOCK_BYTES) })
    }

    /// Overwrites the values of these variables with zeros; their names stay.
    ///
    /// Call this while the process has one thread: another one may read its environment.
    ///
    /// # Errors
    /// The memory could not be read or written.
    pub fn overwrite_values(&self, names: &[String]) -> io::Result<()> {
        let mut block = vec![0; usize::try_from(self.length).unwrap_or_default()];
        self.memory.read_exact_at(&mut block, self.start)?;
        for (offset, length) in find_values(&block, names) {
            self.memory.write_all_at(&vec![0; length], self.start + offset as u64)?;
        }
        Ok(())
    }
}

/// The start and the end of the block: the fields 50 and 51 of /proc/PID/stat, see proc(5).
fn parse_bounds(stat: &str) -> Option<(u64, u64)> {
    // The second field is the name of the program, which may contain blanks and parentheses.
    let mut rest = stat.rsplit_once(") ")?.1.split_ascii_whitespace().skip(47);
    let start: u64 = rest.next()?.parse().ok()?;
    let end = rest.next()?.parse().ok()?;
    (start > 0 && start < end).then_some((start, end))
}

/// The offset and length of the value of each variable in `names`, wherever it is set.
fn find_values(block: &[u8], names: &[String]) -> Vec<(usize, usize)> {
    let mut values = Vec::new();
    let mut offset = 0;
    for entry in block.split(|byte| *byte == 0) {
        let equals = entry.iter().position(|byte| *byte == b'=');
        if let Some(equals) = equals
            && names.iter().any(|name| name.as_bytes() == &entry[..equals])
            && entry.len() > equals + 1
        {
            values.push((offset + equals + 1, entry.len() - equals - 1));
        }
        offset += entry.len() + 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_20_3_the_values_of_the_keys_are_found_in_a_block() {
        let block = b"PATH=/bin\0KEY=abc\0XKEY=no\0KEY=\0KEY=d=e\0KEYS=x\0\0";
        let names = ["KEY".to_owned(), "OTHER".to_owned()];
        let values: Vec<&[u8]> = find_values(block, &names)
            .into_iter()
            .map(|(offset, length)| &block[offset..offset + length])
            .collect();
        assert_eq!(values, [&b"abc"[..], b"d=e"]);
        assert_eq!(find_values(b"", &names), []);
    }

    #[test]
    fn c_20_3_the_bounds_are_found_whatever_the_program_is_called() {
        let mut stat = "7 (a) b) S".to_owned();
        (4..=52).for_each(|field| stat.push_str(&format!(" {field}")));
        assert_eq!(parse_bounds(&stat), Some((50, 51)));
        assert_eq!(parse_bounds("7 (a) S 1 2"), None);
    }
}
