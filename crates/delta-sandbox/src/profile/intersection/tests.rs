use crate::profile::declaration::{DeclaredProfile, ProfileKeys, ReadKey};
use crate::profile::env_filter::EnvAccess;
use crate::profile::host_text::parse_host_rule;
use crate::profile::{HomeAccess, NetAccess, ReadAccess, SandboxLimits, SandboxProfile};
use delta_yaml::yaml::YamlDocument;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// Directories of three levels, so that random lists contain each other.
fn all_paths() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for one in ["a", "b"] {
        paths.push(PathBuf::from(format!("/{one}")));
        for two in ["c", "d"] {
            paths.push(PathBuf::from(format!("/{one}/{two}")));
            paths.push(PathBuf::from(format!("/{one}/{two}/e")));
        }
    }
    paths
}

fn paths() -> impl Strategy<Value = Vec<PathBuf>> {
    prop::collection::vec(prop::sample::select(all_paths()), 0..5)
}

fn nets() -> impl Strategy<Value = NetAccess> {
    let hosts = ["a.x", "b.a.x", "*.x", "*.a.x", "a.x:80", "*.x:80", "localhost:1"];
    let rules = prop::collection::vec(
        prop::sample::select(hosts.to_vec()).prop_map(|text| parse_host_rule(text).unwrap()),
        1..4,
    );
    prop_oneof![Just(NetAccess::None), Just(NetAccess::All), rules.prop_map(NetAccess::Hosts)]
}

fn envs() -> impl Strategy<Value = EnvAccess> {
    let names = prop::sample::subsequence(vec!["A", "A_KEY", "PATH"], 0..4);
    let only =
        names.prop_map(|names| EnvAccess::Only(names.into_iter().map(str::to_owned).collect()));
    prop_oneof![Just(EnvAccess::Safe), Just(EnvAccess::All), only]
}

fn homes() -> impl Strategy<Value = HomeAccess> {
    prop::sample::select(vec![
        HomeAccess::Hidden,
        HomeAccess::Read,
        HomeAccess::Copy,
        HomeAccess::Write,
    ])
}

prop_compose! {
    fn limits()(
        memory in prop::option::of(1..9u64), processes in prop::option::of(1..9u64), cpu in prop::option::of(1..9u64),
        file in prop::option::of(1..9u64), open_files in prop::option::of(8..19u64),
    ) -> SandboxLimits {
        let memory = memory.map(|size| size << 20);
        SandboxLimits { memory, processes, cpu, file: file.map(|size| size << 20), open_files }
    }
}

prop_compose! {
    fn profiles()(
        write in paths(), keep in paths(), read in prop::option::of(paths()), hide in paths(), home in homes(),
        net in nets(), env in envs(), sockets in paths(), limits in limits(), runs in any::<bool>(),
    ) -> SandboxProfile {
        let read = read.map_or(ReadAccess::All, ReadAccess::Only);
        let sockets = super::sorted(sockets);
        SandboxProfile { write, keep, read, hide, home, net, env, sockets, limits, runs }.normalized()
    }
}

fn reaches(net: &NetAccess, host: &str) -> bool {
    match net {
        NetAccess::None => false,
        NetAccess::All => true,
        NetAccess::Hosts(rules) => {
            let rule = parse_host_rule(host).unwrap();
            rules.iter().any(|wider| wider.covers(&rule))
        }
    }
}

proptest! {
    #[test]
    fn c_22_4_an_intersection_is_commutative_and_associative(
        one in profiles(), other in profiles(), third in profiles(),
    ) {
        prop_assert_eq!(one.intersection(&one), one.clone());
        prop_assert_eq!(one.intersection(&other), other.intersection(&one));
        prop_assert_eq!(
            one.intersection(&other).intersection(&third),
            one.intersection(&other.intersection(&third))
        );
    }

    #[test]
    fn c_22_4_an_intersection_allows_what_both_allow(one in profiles(), other in profiles()) {
        let both = one.intersection(&other);
        for path in all_paths().iter().map(|path| path.join("file")).chain(all_paths()) {
            let can_write = one.allows_write(&path) && other.allows_write(&path);
            prop_assert_eq!(both.allows_write(&path), can_write, "{}", path.display());
            let can_read = one.allows_read(&path) && other.allows_read(&path);
            prop_assert_eq!(both.allows_read(&path), can_read, "{}", path.display());
        }
        for host in ["a.x", "b.a.x", "c.x", "c.b.a.x", "a.x:80", "c.x:80", "localhost:1", "y"] {
            let is_reached = reaches(&one.net, host) && reaches(&other.net, host);
            prop_assert_eq!(reaches(&both.net, host), is_reached, "{}", host);
        }
        prop_assert_eq!(both.home, one.home.min(other.home));
        prop_assert!(both.sockets.iter().all(|path| one.sockets.contains(path) && other.sockets.contains(path)));
        prop_assert_eq!(both.runs, one.runs && other.runs);
        for (least, limits) in [(both.limits, one.limits), (both.limits, other.limits)] {
            let is_tighter = |least: Option<u64>, limit: Option<u64>| {
                limit.is_none_or(|limit| least.is_some_and(|least| least <= limit))
            };
            prop_assert!(is_tighter(least.memory, limits.memory) && is_tighter(least.cpu, limits.cpu));
            prop_assert!(is_tighter(least.processes, limits.processes) && is_tighter(least.file, limits.file));
            prop_assert!(is_tighter(least.open_files, limits.open_files));
        }
    }

    #[test]
    fn c_22_4_a_profile_prints_back_as_yaml(
        write in prop::collection::vec("[a-z./~${}'\"\\\\ :#é-]{1,12}", 0..3), profile in profiles(),
        show in prop::collection::vec("~/[a-z.]{1,5}", 0..2), read_all in any::<bool>(),
    ) {
        let texts = |paths: &[PathBuf]| {
            paths.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<String>>()
        };
        let write: Vec<String> = write.iter().map(|text| format!("x{}", text.replace("${", "$-{").replace("/$", "/-"))).collect();
        let declared = DeclaredProfile {
            read: if read_all { ReadKey::All } else { ReadKey::Only(write.clone()) },
            write,
            hide: texts(&profile.hide),
            show,
            home: profile.home,
            net: profile.net,
            env: profile.env,
            sockets: texts(&profile.sockets),
            limits: profile.limits,
            runs: profile.runs,
        };
        let doc = YamlDocument::parse("p", declared.to_yaml()).unwrap();
        let keys = ProfileKeys::read(&doc, &doc.root).unwrap();
        let mut report = delta_yaml::diagnostic::DiagnosticReport::default();
        doc.drain_diagnostics(&mut report);
        prop_assert!(report.is_empty(), "{}", report);
        // Whatever the profile below, all keys are written.
        prop_assert_eq!(&DeclaredProfile::workspace().with_keys(&keys), &declared);
        prop_assert_eq!(&DeclaredProfile::reader().with_keys(&keys), &declared);
    }
}

#[test]
fn c_22_4_the_deepest_path_decides_and_keep_wins() {
    let workspace = DeclaredProfile::workspace();
    let profile = SandboxProfile {
        write: vec!["/w".into(), "/w/agent/data".into()],
        keep: vec!["/w/.delta".into(), "/w/agent".into(), "/elsewhere".into()],
        read: ReadAccess::All,
        hide: vec!["/w/secret".into(), "/w/secret/inner".into()],
        home: workspace.home,
        net: workspace.net,
        env: workspace.env,
        sockets: Vec::new(),
        limits: workspace.limits,
        runs: false,
    }
    .normalized();
    assert_eq!(profile.keep, [Path::new("/w/.delta"), Path::new("/w/agent")]);
    assert_eq!(profile.hide, [Path::new("/w/secret")]);
    assert!(
        profile.allows_write(Path::new("/w/x"))
            && profile.allows_write(Path::new("/w/agent/data/x"))
    );
    assert!(
        !profile.allows_write(Path::new("/w/.delta/x"))
            && !profile.allows_write(Path::new("/w/agent/x"))
    );
}
