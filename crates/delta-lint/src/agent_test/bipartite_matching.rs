//! Maximum bipartite matching, which pairs expected calls with different actual calls.

/// Pairs as many of the left vertices as possible with different right vertices by augmenting paths (H. W. Kuhn, 1955).
/// `is_edge(left, right)` says which pairs are allowed. Returns for each left vertex whether it has a partner.
pub(super) fn maximum_matching(
    left_count: usize,
    right_count: usize,
    is_edge: impl Fn(usize, usize) -> bool,
) -> Vec<bool> {
    let mut partners: Vec<Option<usize>> = vec![None; right_count];
    (0..left_count)
        .map(|left| {
            let mut visited = vec![false; right_count];
            find_augmenting_path(left, &mut partners, &mut visited, &is_edge)
        })
        .collect()
}

/// Pairs `left` with a right vertex, which may move the present partner of that vertex to another one.
fn find_augmenting_path(
    left: usize,
    partners: &mut Vec<Option<usize>>,
    visited: &mut [bool],
    is_edge: &impl Fn(usize, usize) -> bool,
) -> bool {
    for right in 0..visited.len() {
        if visited[right] || !is_edge(left, right) {
            continue;
        }
        visited[right] = true;
        let is_free = partners[right]
            .is_none_or(|other| find_augmenting_path(other, partners, visited, is_edge));
        if is_free {
            partners[right] = Some(left);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vertex_with_two_edges_moves_for_a_vertex_with_one() {
        let edges = |pairs: &'static [(usize, usize)]| {
            move |left: usize, right: usize| pairs.contains(&(left, right))
        };
        assert_eq!(maximum_matching(2, 2, edges(&[(0, 0), (0, 1), (1, 0)])), [true, true]);
        assert_eq!(maximum_matching(2, 1, edges(&[(0, 0), (1, 0)])), [true, false]);
        assert_eq!(maximum_matching(1, 0, edges(&[])), [false]);
    }
}
