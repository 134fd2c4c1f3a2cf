//! The environment variables of a child, most of which it has in common with others.

use super::strings::{HoldsNul, Strings};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

/// A complete environment. To copy it, and to give it to a child, costs what is its own.
#[derive(Debug, Clone, Default)]
pub struct Env {
    shared: Arc<Shared>,
    /// Over the shared ones.
    own: BTreeMap<OsString, OsString>,
}

#[derive(Debug, Default)]
struct Shared {
    /// By name.
    variables: Vec<(OsString, OsString)>,
    /// The same in this order, made for the first child.
    strings: OnceLock<Result<Strings, HoldsNul>>,
}

impl Shared {
    /// Where the variable stands, or where it would.
    fn position(&self, name: &OsStr) -> Result<usize, usize> {
        self.variables.binary_search_by(|(known, _)| known.as_os_str().cmp(name))
    }

    fn strings(&self) -> Result<&Strings, HoldsNul> {
        let all = || self.variables.iter().map(|(name, value)| (&**name, &**value));
        self.strings.get_or_init(|| strings(all())).as_ref().map_err(|why| *why)
    }
}

fn strings<'a>(
    variables: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
) -> Result<Strings, HoldsNul> {
    Strings::new(variables.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()]))
}

/// What `execve` takes for an environment.
pub(super) struct Variables {
    /// Ends with null.
    pointers: Vec<*const c_char>,
    // What `pointers` point into.
    _own: Strings,
    _shared: Arc<Shared>,
}

// SAFETY: the pointers lead to memory on the heap that the struct owns a share of and that nothing changes.
unsafe impl Send for Variables {}
// SAFETY: as above.
unsafe impl Sync for Variables {}

impl Variables {
    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

impl Env {
    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let name = OsStr::new(name);
        let shared = || Some(&self.shared.variables[self.shared.position(name).ok()?].1);
        self.own.get(name).or_else(shared).map(OsString::as_os_str)
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.own.insert(name.into(), value.into());
    }

    /// All variables for a child.
    pub(super) fn variables(&self) -> Result<Variables, HoldsNul> {
        let own = strings(self.own.iter().map(|(name, value)| (&**name, &**value)))?;
        let shared = self.shared.strings()?.pointers();
        let mut pointers = Vec::with_capacity(shared.len() + self.own.len() + 1);
        pointers.extend_from_slice(shared);
        for (name, pointer) in self.own.keys().zip(own.pointers()) {
            match self.shared.position(name) {
                Ok(at) => pointers[at] = *pointer,
                Err(_) => pointers.push(*pointer),
            }
        }
        pointers.push(std::ptr::null());
        Ok(Variables { pointers, _own: own, _shared: Arc::clone(&self.shared) })
    }
}

impl From<BTreeMap<OsString, OsString>> for Env {
    fn from(variables: BTreeMap<OsString, OsString>) -> Self {
        let shared = Shared { variables: variables.into_iter().collect(), ..Shared::default() };
        Self { shared: Arc::new(shared), own: BTreeMap::new() }
    }
}

impl FromIterator<(OsString, OsString)> for Env {
    fn from_iter<T: IntoIterator<Item = (OsString, OsString)>>(variables: T) -> Self {
        variables.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn shown(env: &Env) -> Vec<String> {
        let variables = env.variables().unwrap();
        let ends = |pointer: &&*const c_char| !pointer.is_null();
        // SAFETY: every pointer before the null leads to a C string that `variables` keeps.
        let text = |pointer: &*const c_char| unsafe { CStr::from_ptr(*pointer) };
        let texts = variables.pointers.iter().take_while(ends).map(text);
        let mut shown: Vec<_> = texts.map(|text| text.to_str().unwrap().to_owned()).collect();
        assert_eq!(variables.pointers.len(), shown.len() + 1);
        shown.sort();
        shown
    }

    #[test]
    fn what_is_its_own_stands_over_what_is_shared() {
        let shared: Env = [("A", "1"), ("B", "2")]
            .map(|(name, value)| (name.into(), value.into()))
            .into_iter()
            .collect();
        let mut own = shared.clone();
        own.set("B", "3");
        own.set("C", "4");
        own.set("AB", "5");
        assert_eq!(shown(&own), ["A=1", "AB=5", "B=3", "C=4"]);
        assert_eq!(shown(&shared), ["A=1", "B=2"]);
        assert_eq!(own.get("B"), Some(OsStr::new("3")));
        assert_eq!((shared.get("B"), shared.get("C")), (Some(OsStr::new("2")), None));
        assert_eq!(shown(&Env::default()), [""; 0]);
    }

    #[test]
    fn a_nul_byte_is_found_wherever_it_is() {
        let with = |value: &str| Env::from_iter([("A".into(), value.into())]);
        assert!(with("a\0b").variables().is_err());
        let mut own = with("a");
        own.set("B", "\0");
        assert!(own.variables().is_err());
    }
}
