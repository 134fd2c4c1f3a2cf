//! The network of a sandbox that reaches a list of hosts: sockets that are made inside of its network namespace and
//! served by one process outside, which resolves names, connects and counts.
//!
//! Inside, every address is local. The programs of a tool need no proxy variable: their DNS queries and connections
//! arrive at the sockets, whatever name server or address they use.

mod count_keeper;
mod dns_message;
mod dns_stream;
mod host_policy;
mod host_relay;
mod host_service;
mod host_service_control;
mod host_sockets;
mod loopback_routes;
mod machine_names;
pub(crate) mod network_counters;
mod network_report;
mod outside_connection;
mod proxy_settings;
mod refusal_tap;

pub use host_policy::HostPolicy;
#[cfg(target_os = "linux")]
pub use host_service::HostService;
pub use host_service_control::HostServiceControl;
#[cfg(target_os = "linux")]
pub use host_sockets::HostSockets;
#[cfg(target_os = "linux")]
pub use loopback_routes::bring_up_loopback;
pub use machine_names::MachineNames;
pub use network_report::{ConnectFailure, HostTraffic, NetworkReport};
pub use proxy_settings::ProxySettings;
