//! The style of the sources, judged on their syntax trees: names that mean one thing, statements that do one thing.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::BTreeMap;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Free functions that several modules may define.
const SHARED_FUNCTIONS: [&str; 2] = ["main", "new"];
/// Names of variables, parameters and functions that say nothing about the thing.
const VAGUE: [&str; 28] = [
    "what", "found", "told", "own", "said", "shown", "made", "but", "given", "around", "above",
    "held", "seen", "asked", "kept", "begun", "ended", "taken", "whole", "wanted", "meant",
    "behind", "perform", "account", "again", "place", "lies", "stands",
];

/// A type or a free function: its name, and where it is defined.
pub struct Definition {
    pub name: String,
    pub kind: &'static str,
    pub line: usize,
    /// The conditions of the item and of the modules around it.
    conditions: Vec<CfgCondition>,
}

/// The predicate of a `cfg` attribute, such as `target_os = "linux"` or its negation.
#[derive(Clone, PartialEq, Eq)]
struct CfgCondition {
    predicate: String,
    is_negated: bool,
}

impl Definition {
    /// Whether `other` defines the same name for another platform, so that no build has both.
    fn is_alternative_to(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.name == other.name
            && self.conditions.iter().any(|condition| {
                let opposite =
                    CfgCondition { is_negated: !condition.is_negated, ..condition.clone() };
                other.conditions.contains(&opposite)
            })
    }
}

/// What one file defines, and what in it is against the style (`LINE: what`).
#[derive(Default)]
pub struct Findings {
    pub definitions: Vec<Definition>,
    pub faults: Vec<(usize, String)>,
    /// The conditions of the item that is visited and of the modules around it.
    conditions: Vec<CfgCondition>,
}

/// Judges the production code of a file: items for tests only are left out.
pub fn judge(text: &str) -> Findings {
    let file = syn::parse_file(text).expect("the file compiles");
    let conditions = cfg_conditions(&file.attrs).collect();
    let mut findings = Findings { conditions, ..Findings::default() };
    for item in &file.items {
        findings.visit_item(item);
    }
    findings
}

pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string();
        attribute.path().is_ident("test")
            || text.contains("cfg (test)")
            || text.contains("cfg (all (test")
    })
}

fn cfg_conditions(attributes: &[syn::Attribute]) -> impl Iterator<Item = CfgCondition> {
    let is_cfg = |attribute: &&syn::Attribute| attribute.path().is_ident("cfg");
    attributes.iter().filter(is_cfg).filter_map(|attribute| {
        let (predicate, is_negated) = match attribute.parse_args::<syn::Meta>().ok()? {
            syn::Meta::List(list) if list.path.is_ident("not") => (list.tokens, true),
            predicate => (predicate.into_token_stream(), false),
        };
        Some(CfgCondition { predicate: predicate.to_string(), is_negated })
    })
}

impl Findings {
    fn fault(&mut self, span: proc_macro2::Span, fault: impl Into<String>) {
        self.faults.push((span.start().line, fault.into()));
    }

    fn define(&mut self, kind: &'static str, name: &syn::Ident) {
        let definition = Definition {
            name: name.to_string(),
            kind,
            line: name.span().start().line,
            conditions: self.conditions.clone(),
        };
        if !self.definitions.iter().any(|other| definition.is_alternative_to(other)) {
            self.definitions.push(definition);
        }
    }

    fn judge_function(&mut self, signature: &syn::Signature) {
        let name = signature.ident.to_string();
        if VAGUE.contains(&name.as_str()) {
            self.fault(
                signature.ident.span(),
                format!("`{name}` does not say what it does to what"),
            );
        }
        for input in &signature.inputs {
            if let syn::FnArg::Typed(parameter) = input
                && let syn::Type::Tuple(tuple) = parameter.ty.as_ref()
                && !tuple.elems.is_empty()
            {
                self.fault(parameter.span(), format!("`{name}` takes a tuple"));
            }
        }
    }

    /// A closure that has a name and is used once.
    fn judge_closures(&mut self, block: &syn::Block) {
        for (at, statement) in block.stmts.iter().enumerate() {
            let syn::Stmt::Local(local) = statement else { continue };
            let (syn::Pat::Ident(name), Some(init)) = (&local.pat, &local.init) else { continue };
            if !matches!(init.expr.as_ref(), syn::Expr::Closure(_)) {
                continue;
            }
            let uses: usize = block.stmts[at + 1..]
                .iter()
                .map(|rest| count_uses(rest.to_token_stream(), &name.ident.to_string()))
                .sum();
            if uses == 1 {
                self.fault(local.span(), format!("closure `{}` is used once", name.ident));
            }
        }
    }
}

/// How often an identifier occurs, inside of macros and format strings too.
fn count_uses(tokens: TokenStream, name: &str) -> usize {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(ident) => usize::from(ident == name),
            TokenTree::Group(group) => count_uses(group.stream(), name),
            TokenTree::Literal(literal) => {
                literal.to_string().matches(&format!("{{{name}")).count()
            }
            TokenTree::Punct(_) => 0,
        })
        .sum()
}

fn is_bool(pattern: &syn::Pat) -> bool {
    matches!(pattern, syn::Pat::Lit(literal) if matches!(literal.lit, syn::Lit::Bool(_)))
}

impl<'ast> Visit<'ast> for Findings {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            syn::Item::Type(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if is_for_tests(attributes) {
            return;
        }
        let outer_conditions = self.conditions.len();
        self.conditions.extend(cfg_conditions(attributes));
        match item {
            syn::Item::Struct(item) => self.define("type", &item.ident),
            syn::Item::Enum(item) => self.define("type", &item.ident),
            syn::Item::Trait(item) => self.define("type", &item.ident),
            syn::Item::Type(item) => self.define("type", &item.ident),
            syn::Item::Fn(item) => {
                if !SHARED_FUNCTIONS.contains(&item.sig.ident.to_string().as_str()) {
                    self.define("function", &item.sig.ident);
                }
                self.judge_function(&item.sig);
            }
            _ => {}
        }
        visit::visit_item(self, item);
        self.conditions.truncate(outer_conditions);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if is_for_tests(&function.attrs) {
            return;
        }
        self.judge_function(&function.sig);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let (syn::Pat::Tuple(_), Some(init)) = (&local.pat, &local.init)
            && matches!(init.expr.as_ref(), syn::Expr::Tuple(_))
        {
            self.fault(local.span(), "two statements in one `let`");
        }
        visit::visit_local(self, local);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = pattern.ident.to_string();
        if VAGUE.contains(&name.as_str()) {
            self.fault(pattern.span(), format!("variable `{name}` does not say what it holds"));
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        if expression.arms.iter().any(|arm| is_bool(&arm.pat)) {
            self.fault(expression.span(), "`match` on a bool");
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.judge_closures(block);
        visit::visit_block(self, block);
    }
}

/// Names that several files define, each with the places. Files for different platforms may define the same ones.
pub fn shared_names(files: &BTreeMap<String, Findings>) -> Vec<String> {
    let mut places: BTreeMap<(&str, &str), Vec<(&Definition, String)>> = BTreeMap::new();
    for (file, findings) in files {
        for definition in &findings.definitions {
            let named = places.entry((definition.kind, definition.name.as_str())).or_default();
            if !named.iter().any(|(other, _)| definition.is_alternative_to(other)) {
                named.push((definition, format!("{file}:{}", definition.line)));
            }
        }
    }
    places.retain(|_, named| named.len() > 1);
    places
        .into_iter()
        .map(|((kind, name), named)| {
            let places: Vec<String> = named.into_iter().map(|(_, place)| place).collect();
            format!("{kind} `{name}` has {} definitions: {}", places.len(), places.join(" "))
        })
        .collect()
}
