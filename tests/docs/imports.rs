//! Which module imports which: no large circles, no full folders, and no import up the table of wings.
//!
//! A circle is among the modules of one folder, each with everything in its own folder: two parts of one module may use each
//! other, and a module its parts.

use super::syntax::is_for_tests;
use super::{root, texts};
use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use syn::visit::{self, Visit};

/// The most modules that may import each other in a circle.
const LARGEST_CIRCLE: usize = 5;
/// The most modules of a folder.
const FULLEST_FOLDER: usize = 20;

/// The folders of a crate, each with those that it imports; the modules outside of folders are "".
type Wings = &'static [(&'static str, &'static [&'static str])];

/// The crates with an order of folders inside. Cargo holds the order of the crates.
const WINGS: [(&str, Wings); 2] = [
    ("crates/delta-operator/src", &[("", &[]), ("arguments", &[""]), ("runs", &[""])]),
    (
        "crates/delta-launch/src",
        &[
            ("prepare", &[]),
            ("install", &["prepare"]),
            ("drive", &["prepare"]),
            ("transfer", &["drive"]),
        ],
    ),
];

/// The crates that link TLS: those that open connections, and those that may start something that does. Nothing that reads
/// or decides is among them, so that it is compiled without ring and rustls.
const TLS_CRATES: [&str; 5] = [
    "delta-agents",
    "delta-agents-endpoint",
    "delta-agents-http-client",
    "delta-agents-launch",
    "delta-agents-mcp-client",
];

/// The path of a module or an item, from the root of its crate.
type ItemPath = Vec<String>;

/// What a module names.
#[derive(Default)]
struct ModuleNames {
    /// The names that `use` brings into it, with their paths as they are written.
    bindings: BTreeMap<String, ItemPath>,
    /// The paths of more than one name, as they are written.
    paths: BTreeSet<ItemPath>,
}

/// The modules of a crate.
#[derive(Default)]
struct CrateModules {
    modules: BTreeMap<ItemPath, ModuleNames>,
}

/// Reads the names of a file into the modules of its crate. Items for tests only are left out.
struct NameReader<'c> {
    crate_modules: &'c mut CrateModules,
    module: ItemPath,
}

impl NameReader<'_> {
    fn names(&mut self) -> &mut ModuleNames {
        self.crate_modules.modules.entry(self.module.clone()).or_default()
    }

    fn add_path(&mut self, path: ItemPath) {
        if path.len() > 1 {
            self.names().paths.insert(path);
        }
    }

    fn add_use(&mut self, mut start: ItemPath, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                start.push(path.ident.to_string());
                self.add_use(start, &path.tree);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(start.clone(), tree));
            }
            syn::UseTree::Glob(_) => self.add_path(start),
            syn::UseTree::Name(name) => self.bind(start, &name.ident, &name.ident),
            syn::UseTree::Rename(rename) => self.bind(start, &rename.ident, &rename.rename),
        }
    }

    fn bind(&mut self, mut path: ItemPath, item: &syn::Ident, name: &syn::Ident) {
        let is_module_itself = item == "self";
        let name = match path.last() {
            Some(last) if is_module_itself && name == item => last.clone(),
            _ => name.to_string(),
        };
        if !is_module_itself {
            path.push(item.to_string());
        }
        self.names().bindings.insert(name, path.clone());
        self.add_path(path);
    }

    /// The paths in the arguments of a macro or an attribute.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: ItemPath = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add_path(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.add_path(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.read_tokens(group.stream());
                    }
                }
            }
        }
        self.add_path(path);
    }
}

impl<'ast> Visit<'ast> for NameReader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        // Another file has the content of one without braces.
        if item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add_path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.read_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.read_tokens(list.tokens.clone());
        }
    }
}

impl CrateModules {
    fn add_file(&mut self, module: ItemPath, text: &str) {
        let file = syn::parse_file(text).expect("the file compiles");
        self.modules.entry(module.clone()).or_default();
        if !is_for_tests(&file.attrs) {
            NameReader { crate_modules: self, module }.visit_file(&file);
        }
    }

    /// The module in which an item is defined that `module` names by this path; `None` if it is not in the crate.
    fn find_module(&self, module: &[String], path: &[String]) -> Option<ItemPath> {
        self.follow(module, path, 0)
    }

    fn follow(&self, module: &[String], path: &[String], depth: usize) -> Option<ItemPath> {
        // `use name::{self}` names itself.
        if depth > 16 {
            return None;
        }
        let mut rest = path.iter();
        let mut current = module.to_vec();
        let first = path.first()?;
        match first.as_str() {
            "crate" => {
                rest.next();
                current.clear();
            }
            "self" => {
                rest.next();
            }
            "super" => {}
            name if self.child(module, name).is_some() => {}
            name => {
                let mut bound = self.modules.get(module)?.bindings.get(name)?.clone();
                bound.extend_from_slice(&path[1..]);
                return self.follow(module, &bound, depth + 1);
            }
        }
        while let Some(name) = rest.next() {
            if name == "super" {
                current.pop();
            } else if let Some(child) = self.child(&current, name) {
                current = child;
            } else if let Some(bound) =
                self.modules.get(&current).and_then(|it| it.bindings.get(name))
            {
                let bound: ItemPath = bound.iter().chain(rest).cloned().collect();
                // What is bound to a name of another crate is defined here as far as this crate goes.
                return Some(self.follow(&current, &bound, depth + 1).unwrap_or(current));
            } else {
                break;
            }
        }
        Some(current)
    }

    fn child(&self, module: &[String], name: &str) -> Option<ItemPath> {
        let child: ItemPath = module.iter().cloned().chain([name.to_owned()]).collect();
        self.modules.contains_key(&child).then_some(child)
    }

    /// The imports from one module to another, each once.
    fn imports(&self) -> BTreeSet<(ItemPath, ItemPath)> {
        let mut imports = BTreeSet::new();
        for (module, names) in &self.modules {
            for path in &names.paths {
                if let Some(target) = self.find_module(module, path).filter(|it| it != module) {
                    imports.insert((module.clone(), target));
                }
            }
        }
        imports
    }

    /// The circles of modules in one folder, by the path of the folder.
    fn circles(&self) -> Vec<(ItemPath, BTreeSet<String>)> {
        let mut folders: BTreeMap<ItemPath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (module, target) in self.imports() {
            let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
            // One of the two may be a part of the other.
            if let (Some(one), Some(other)) = (module.get(common), target.get(common)) {
                let imports = folders.entry(module[..common].to_vec()).or_default();
                imports.entry(one.clone()).or_default().insert(other.clone());
            }
        }
        let mut circles = Vec::new();
        for (folder, imports) in &folders {
            let mut known: BTreeSet<&str> = BTreeSet::new();
            for module in imports.keys() {
                let reached = reachable(imports, module);
                let circle: BTreeSet<String> = reached
                    .into_iter()
                    .filter(|other| reachable(imports, other).contains(module.as_str()))
                    .map(str::to_owned)
                    .collect();
                if circle.len() > 1 && !known.contains(module.as_str()) {
                    known.extend(
                        imports.keys().map(String::as_str).filter(|it| circle.contains(*it)),
                    );
                    circles.push((folder.clone(), circle));
                }
            }
        }
        circles
    }

    /// The imports that the table of wings does not allow, as `module -> module`.
    fn imports_up(&self, wings: Wings) -> Vec<String> {
        let wing_of = |module: &ItemPath| {
            let first = module.first().map_or("", String::as_str);
            wings.iter().find(|(wing, _)| *wing == first).map_or("", |(wing, _)| *wing)
        };
        let imports = self.imports().into_iter().filter(|(module, target)| {
            let (wing, other) = (wing_of(module), wing_of(target));
            let below = wings.iter().find(|(name, _)| *name == wing).map(|(_, below)| *below);
            below.is_some_and(|below| wing != other && !below.contains(&other))
        });
        imports.map(|(module, target)| format!("{} -> {}", show(&module), show(&target))).collect()
    }
}

fn show(path: &[String]) -> String {
    if path.is_empty() { "main".to_owned() } else { path.join("::") }
}

/// What a module imports, also through others; itself only if it is in a circle.
fn reachable<'a>(
    imports: &'a BTreeMap<String, BTreeSet<String>>,
    module: &str,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut queue: Vec<&str> =
        imports.get(module).into_iter().flatten().map(String::as_str).collect();
    while let Some(next) = queue.pop() {
        if reached.insert(next) {
            queue.extend(imports.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

/// The sources of each crate: the directory of its root, `src` for the program, with its files.
fn sources() -> BTreeMap<String, Vec<(ItemPath, String)>> {
    let mut crates: BTreeMap<String, Vec<(ItemPath, String)>> = BTreeMap::new();
    for (file, text) in texts(&[".rs"]) {
        let name = file.to_string_lossy().into_owned();
        let Some(root) = name.find("src/").map(|start| &name[..start + "src".len()]) else {
            continue;
        };
        if root != "src" && (!root.starts_with("crates/") || root.contains("test-support")) {
            continue;
        }
        let inside = Path::new(&name).strip_prefix(root).expect("it is inside").with_extension("");
        let mut module: ItemPath =
            inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.first().is_some_and(|part| part == "bin") {
            continue;
        }
        module.retain(|part| !["lib", "main", "mod"].contains(&part.as_str()));
        crates.entry(root.to_owned()).or_default().push((module, text));
    }
    assert!(crates.len() > 10, "only {} crates found", crates.len());
    crates
}

fn read_crate(files: Vec<(ItemPath, String)>) -> CrateModules {
    let mut modules = CrateModules::default();
    files.into_iter().for_each(|(module, text)| modules.add_file(module, &text));
    modules
}

/// The number of modules in each folder, tests apart.
fn folder_sizes(root: &str, modules: impl Iterator<Item = ItemPath>) -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for module in modules {
        let Some((name, folder)) = module.split_last() else { continue };
        if name != "tests" {
            let folder: Vec<&str> =
                [root].into_iter().chain(folder.iter().map(String::as_str)).collect();
            *sizes.entry(folder.join("/")).or_default() += 1;
        }
    }
    sizes
}

/// What is over the limit.
fn judge_sizes(sizes: &BTreeMap<String, usize>, limit: usize) -> Vec<String> {
    let larger = sizes.iter().filter(|(_, size)| **size > limit);
    larger.map(|(name, size)| format!("{name}: {size}, and at most {limit} are allowed")).collect()
}

#[test]
fn no_circle_of_imports_is_large() {
    let mut sizes = BTreeMap::new();
    let mut text = String::new();
    for (root, files) in sources() {
        for (folder, circle) in read_crate(files).circles() {
            let folder = [root.clone()].into_iter().chain(folder).collect::<Vec<_>>().join("/");
            text.push_str(&format!("{folder}: {circle:?}\n"));
            let size = sizes.entry(folder).or_insert(0);
            *size = circle.len().max(*size);
        }
    }
    let faults = judge_sizes(&sizes, LARGEST_CIRCLE);
    assert!(faults.is_empty(), "{}\nall circles:\n{text}", faults.join("\n"));
}

#[test]
fn no_folder_is_full() {
    let mut sizes = BTreeMap::new();
    for (root, files) in sources() {
        sizes.extend(folder_sizes(&root, files.into_iter().map(|(module, _)| module)));
    }
    let faults = judge_sizes(&sizes, FULLEST_FOLDER);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_wing_imports_one_above_it() {
    for (root, wings) in WINGS {
        let files = sources().remove(root).expect("the crate has sources");
        let modules = read_crate(files);
        let faults = modules.imports_up(wings);
        assert!(faults.is_empty(), "{root}:\n{}", faults.join("\n"));
        let parts = modules.modules.keys().filter(|module| module.len() > 1);
        let found: BTreeSet<&str> = parts.map(|module| module[0].as_str()).collect();
        let named = wings.iter().map(|(wing, _)| *wing).filter(|wing| !wing.is_empty()).collect();
        assert_eq!(found, named, "{root}: left: its folders, right: the table of wings");
    }
}

/// What each package links, tests and build scripts apart, by the ids of cargo; with the packages of this repository.
fn linked_packages() -> (BTreeMap<String, BTreeSet<String>>, BTreeSet<String>) {
    // A build fetches no dependency of other platforms, and a test uses no network.
    let platform = format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH);
    let args = ["metadata", "--format-version=1", "--offline", "--locked", &platform];
    let output = Command::new(env!("CARGO")).args(args).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let list = |value: &Value| value.as_array().expect("it is a list").clone();
    let mut linked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let normal = list(&node["deps"])
            .into_iter()
            .filter(|it| list(&it["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()));
        linked.insert(text(&node["id"]), normal.map(|it| text(&it["pkg"])).collect());
    }
    (linked, list(&metadata["workspace_members"]).iter().map(text).collect())
}

/// The name of the package with this id of cargo, whose last part is `NAME@VERSION`, or `VERSION` after the name of a
/// directory.
fn package_name(id: &str) -> &str {
    let (path, last) = id.rsplit_once('#').expect("an id has a version");
    last.split_once('@').map_or(path.rsplit('/').next().unwrap_or_default(), |(name, _)| name)
}

#[test]
fn only_what_opens_connections_links_tls() {
    let (linked, members) = linked_packages();
    let links_tls = |id: &&String| {
        let libraries = reachable(&linked, id);
        libraries.into_iter().any(|library| package_name(library) == "rustls")
    };
    let found: Vec<&str> = members.iter().filter(links_tls).map(|id| package_name(id)).collect();
    let found: BTreeSet<&str> = found.into_iter().collect();
    assert_eq!(found, BTreeSet::from(TLS_CRATES), "left: what links TLS, right: what may");
}

fn crate_of(files: &[(&str, &str)]) -> CrateModules {
    let mut modules = CrateModules::default();
    for (module, text) in files {
        let path = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        modules.add_file(path, text);
    }
    modules
}

#[test]
fn a_circle_is_found_through_each_kind_of_path() {
    let modules = crate_of(&[
        ("", "mod a; mod b; mod c; mod d; mod e; mod f; pub use b::Thing;"),
        ("a", "use crate::Thing; mod part; #[cfg(test)] mod tests { use crate::g::X; }"),
        ("a::part", "use super::x; fn y() {}"),
        ("b", "use super::c::{self, C as D};"),
        ("c", "fn x() { crate::d::y(); }"),
        ("d", "fn y() { println!(\"{}\", crate::e::z()); }"),
        ("e", "#[derive(Args)] struct E { #[arg(value_parser = crate::f::parse)] e: u8 }"),
        ("f", "use crate::a; fn parse() { a::part::y(); }"),
        ("g", "use crate::a::X;"),
    ]);
    let names: BTreeSet<String> = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).into();
    assert_eq!(modules.circles(), [(Vec::new(), names)]);
}

#[test]
fn parts_of_a_module_are_a_folder_of_their_own() {
    let modules = crate_of(&[
        ("", "mod a;"),
        ("a", "mod b; mod c; use b::B;"),
        ("a::b", "use super::c::C; use super::A;"),
        ("a::c", "use super::B;"),
    ]);
    let names: BTreeSet<String> = ["b", "c"].map(str::to_owned).into();
    assert_eq!(modules.circles(), [(vec!["a".to_owned()], names)]);
}

#[test]
fn an_import_up_the_wings_is_found() {
    let wings: Wings = &[("prepare", &[]), ("drive", &["prepare"])];
    let files = [
        ("", "pub mod failure; pub mod prepare; pub mod drive; pub struct Shared;"),
        ("failure", "use crate::drive::run;"),
        ("prepare", "pub mod options;"),
        ("prepare::options", "fn x() { crate::Shared::new(); super::super::drive::y(); }"),
        ("drive", "pub mod run;"),
        ("drive::run", "use crate::failure::X; use crate::prepare::options;"),
    ];
    let up = ["drive::run -> failure", "prepare::options -> main", "prepare::options -> drive"];
    assert_eq!(crate_of(&files).imports_up(wings), up);
    let wings: Wings = &[("", &[]), ("prepare", &[""]), ("drive", &["", "prepare"])];
    let up = ["failure -> drive::run", "prepare::options -> drive"];
    assert_eq!(crate_of(&files).imports_up(wings), up);
}

#[test]
fn a_size_over_the_limit_is_found() {
    let module = |number: u32| vec!["folder".to_owned(), format!("m{number}")];
    let sizes = folder_sizes("src", (0..21).map(module));
    assert_eq!(judge_sizes(&sizes, FULLEST_FOLDER), ["src/folder: 21, and at most 20 are allowed"]);
    assert!(judge_sizes(&sizes, 21).is_empty());
}
