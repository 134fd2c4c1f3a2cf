//! Collects the counts between two requests for them, in a bounded memory.
#![cfg(target_os = "linux")]

use super::dns_message::{TYPE_A, TYPE_AAAA};
use super::host_policy::HostPort;
use super::network_report::{ConnectFailure, HostTraffic, NetworkReport};
use std::collections::BTreeMap;

/// At most so many names are listed; a tool can invent more than fit into the memory.
const MAX_NAMES: usize = 500;

/// The counts since they were last taken.
#[derive(Debug, Default)]
pub(super) struct CountKeeper {
    counts: NetworkReport,
    /// Queries for a refused name: for IPv4, IPv6 and other records. A program that looks up a name asks for several of
    /// them, which is one attempt.
    lookups: BTreeMap<String, [u64; 3]>,
}

impl CountKeeper {
    pub fn count_refused_lookup(&mut self, name: &str, record_type: u16) {
        let kind = match record_type {
            TYPE_A => 0,
            TYPE_AAAA => 1,
            _ => 2,
        };
        if let Some(lookup) = self.lookups.get_mut(name) {
            lookup[kind] += 1;
        } else if self.lookups.len() < MAX_NAMES {
            self.lookups.entry(name.to_owned()).or_default()[kind] += 1;
        } else if kind == 0 {
            self.counts.attempts += 1;
        }
    }

    pub fn count_refused_connection(&mut self, to: String) {
        self.counts.attempts += 1;
        if self.counts.refused.len() < MAX_NAMES || self.counts.refused.contains_key(&to) {
            *self.counts.refused.entry(to).or_default() += 1;
        }
    }

    pub fn count_connection(&mut self, to: &HostPort) {
        self.traffic(to).connections += 1;
    }

    /// Counts bytes that the tool and the host sent.
    pub fn count_bytes(&mut self, to: &HostPort, passed: [u64; 2]) {
        if passed != [0, 0] {
            let traffic = self.traffic(to);
            traffic.sent += passed[0];
            traffic.received += passed[1];
        }
    }

    pub fn count_failure(&mut self, to: &HostPort, error: String) {
        let failure = self.counts.failed.entry(to.to_string()).or_default();
        *failure = ConnectFailure { connections: failure.connections + 1, error };
    }

    pub fn take(&mut self) -> NetworkReport {
        let mut counts = std::mem::take(&mut self.counts);
        for (name, lookup) in std::mem::take(&mut self.lookups) {
            let lookups = lookup.into_iter().max().unwrap_or_default();
            counts.attempts += lookups;
            counts.refused.insert(name, lookups);
        }
        counts
    }

    fn traffic(&mut self, to: &HostPort) -> &mut HostTraffic {
        self.counts.reached.entry(to.to_string()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_of_both_address_types_is_one_attempt() {
        let mut keeper = CountKeeper::default();
        for record_type in [TYPE_A, TYPE_AAAA, 65, TYPE_A, TYPE_AAAA] {
            keeper.count_refused_lookup("a.example", record_type);
        }
        keeper.count_refused_lookup("b.example", TYPE_AAAA);
        keeper.count_refused_connection("a.example:80".to_owned());
        let counts = keeper.take();
        let refused: Vec<_> =
            counts.refused.iter().map(|(name, times)| (name.as_str(), *times)).collect();
        assert_eq!(refused, [("a.example", 2), ("a.example:80", 1), ("b.example", 1)]);
        assert_eq!(counts.attempts, 4);
        assert_eq!(keeper.take(), NetworkReport::default());
    }

    #[test]
    fn invented_names_do_not_fill_the_memory() {
        let mut keeper = CountKeeper::default();
        for index in 0..3 * MAX_NAMES {
            keeper.count_refused_lookup(&format!("n{index}.example"), TYPE_A);
            keeper.count_refused_connection(format!("10.0.0.1:{index}"));
        }
        let counts = keeper.take();
        assert_eq!(counts.refused.len(), 2 * MAX_NAMES);
        assert_eq!(counts.attempts, 6 * MAX_NAMES as u64);
    }
}
