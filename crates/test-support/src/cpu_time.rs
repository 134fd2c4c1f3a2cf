//! The CPU time that commands take, which depends less on what else the machine does than the time that passes.

/// The CPU time of the children of this process that have ended, in hundredths of a second. A test that measures it needs a
/// process of its own: see [`crate::alone`].
pub fn children_cpu_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the process has a stat file");
    let fields = stat.rsplit(") ").next().expect("fields after the name").split(' ');
    fields.skip(13).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
}
