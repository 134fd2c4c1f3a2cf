//! The counters of a network namespace without routes: they tell how often a network was tried, and how often its own
//! loopback refused a connection.

use rustix::io::pread;
use std::os::fd::OwnedFd;

/// The size of a table of counters.
const MAX_TABLE_BYTES: usize = 64 * 1024;

/// The tables of a network namespace. They were opened in it, and can be read from everywhere.
#[derive(Debug)]
pub(crate) struct NetworkCounters {
    version_4: OwnedFd,
    version_6: OwnedFd,
    /// The attempts that have been taken.
    taken: u64,
    /// The refusals that have been taken.
    taken_refusals: u64,
}

impl NetworkCounters {
    /// The counters in `net/snmp` and `net/snmp6`.
    pub(crate) fn new(version_4: OwnedFd, version_6: OwnedFd) -> Self {
        let mut counters = Self { version_4, version_6, taken: 0, taken_refusals: 0 };
        // Making the namespaces has tried the network too.
        counters.take_attempts();
        counters.take_refusals();
        counters
    }

    /// How often a packet had no route since the last call.
    pub(crate) fn take_attempts(&mut self) -> u64 {
        let total = read_counter(&self.version_4, find_version_4)
            + read_counter(&self.version_6, find_version_6);
        let attempts = total.saturating_sub(self.taken);
        self.taken = total;
        attempts
    }

    /// How many TCP connections were refused since the last call.
    pub(crate) fn take_refusals(&mut self) -> u64 {
        let total = read_counter(&self.version_4, find_refusals);
        let refusals = total.saturating_sub(self.taken_refusals);
        self.taken_refusals = total;
        refusals
    }
}

fn read_counter(table: &OwnedFd, find: fn(&str) -> Option<u64>) -> u64 {
    let mut buffer = vec![0; MAX_TABLE_BYTES];
    let length = pread(table, &mut buffer, 0).unwrap_or(0);
    std::str::from_utf8(&buffer[..length]).ok().and_then(find).unwrap_or(0)
}

fn find_version_4(table: &str) -> Option<u64> {
    find_counter(table, "Ip: ", "OutNoRoutes")
}

/// The counter is for both versions of IP.
fn find_refusals(table: &str) -> Option<u64> {
    find_counter(table, "Tcp: ", "AttemptFails")
}

/// The table has a line of names and a line of values for each protocol.
fn find_counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(protocol));
    let position = lines.next()?.split(' ').position(|column| column == name)?;
    lines.next()?.split(' ').nth(position)?.parse().ok()
}

fn find_version_6(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("Ip6OutNoRoutes"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_22_4_the_counters_of_attempts_are_found() {
        let table = "Ip: Forwarding OutDiscards OutNoRoutes\nIp: 1 2 3\nIcmp: InMsgs\nIcmp: 7\n";
        assert_eq!(find_version_4(table), Some(3));
        let table = "Ip: OutNoRoutes\nIp: 3\nTcp: MaxConn ActiveOpens AttemptFails\nTcp: -1 7 5\n";
        assert_eq!(find_refusals(table), Some(5));
        let table = "Ip6OutDiscards                  \t1\nIp6OutNoRoutes                  \t4\n";
        assert_eq!(find_version_6(table), Some(4));
        assert_eq!((find_version_4(""), find_version_6("")), (None, None));
    }
}
