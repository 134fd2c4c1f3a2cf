//! Suggests known names for a misspelled one.

use strsim::osa_distance;

/// Up to three of `known` that are similar to `name`, nearest first.
pub fn nearest_names<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).clamp(1, 3);
    let mut candidates: Vec<(usize, &str)> = known
        .into_iter()
        .map(|known| (osa_distance(&name, &known.to_lowercase()), known))
        .filter(|(distance, known)| {
            *distance <= limit
                || (name.len() >= 3 && known.starts_with(&name))
                || (name.len() >= 4 && known.contains(&name))
                || (known.len() >= 4 && name.contains(known))
        })
        .collect();
    candidates.sort();
    candidates.into_iter().take(3).map(|(_, known)| known).collect()
}

/// The `help` line for an unknown name: similar names, or all known ones.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest_names(name, known.clone()).as_slice() {
        [] => {
            let all: Vec<_> = known.into_iter().map(|name| format!("`{name}`")).collect();
            format!("known here: {}", all.join(", "))
        }
        [one] => format!("did you mean `{one}`?"),
        several => {
            let several: Vec<_> = several.iter().map(|name| format!("`{name}`")).collect();
            format!("did you mean {}?", several.join(" or "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_suggested() {
        let known = ["tools", "timeout_ms", "name", "description", "max_iterations"];
        assert_eq!(nearest_names("tolls", known), ["tools"]);
        assert_eq!(nearest_names("timeout", known), ["timeout_ms"]);
        assert_eq!(nearest_names("nmae", known), ["name"]);
        assert_eq!(nearest_names("zzz", known), Vec::<&str>::new());
        assert_eq!(nearest_names("max_duration_ms", ["n", "stop"]), Vec::<&str>::new());
        assert!(did_you_mean("zzz", known).starts_with("known here: `tools`"));
    }
}
