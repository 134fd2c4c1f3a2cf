//! Which of the expected calls finds one of its own among those that were made. Pure.

/// For each of `wanted` things, whether it can have one of `made` things that `fits` it and that no other has; as many as
/// possible do, by augmenting paths (H. W. Kuhn, 1955).
pub(super) fn assign(wanted: usize, made: usize, fits: impl Fn(usize, usize) -> bool) -> Vec<bool> {
    let mut owners: Vec<Option<usize>> = vec![None; made];
    let place = |one: usize, owners: &mut Vec<Option<usize>>| {
        let mut tried = vec![false; made];
        find(one, owners, &mut tried, &fits)
    };
    (0..wanted).map(|one| place(one, &mut owners)).collect()
}

/// Gives `one` a place, for which others may have to move.
fn find(
    one: usize,
    owners: &mut Vec<Option<usize>>,
    tried: &mut [bool],
    fits: &impl Fn(usize, usize) -> bool,
) -> bool {
    for place in 0..tried.len() {
        if tried[place] || !fits(one, place) {
            continue;
        }
        tried[place] = true;
        let is_free = owners[place].is_none_or(|other| find(other, owners, tried, fits));
        if is_free {
            owners[place] = Some(one);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_twice_gives_way_to_what_fits_once() {
        let fits = |pairs: &'static [(usize, usize)]| {
            move |one: usize, place: usize| pairs.contains(&(one, place))
        };
        assert_eq!(assign(2, 2, fits(&[(0, 0), (0, 1), (1, 0)])), [true, true]);
        assert_eq!(assign(2, 1, fits(&[(0, 0), (1, 0)])), [true, false]);
        assert_eq!(assign(1, 0, fits(&[])), [false]);
    }
}
