//! SciPy, an independent implementation that tests compare this crate with.
#![allow(clippy::disallowed_methods, reason = "tests may")]

use std::process::Command;

/// The numbers that a Python script prints, one on each line. None if SciPy is missing, which is reported.
pub(crate) fn scipy_numbers(script: &str) -> Option<Vec<f64>> {
    let python = test_support::needs::python_env("statistics")?.join("python");
    let output = Command::new(python).args(["-B", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.parse().unwrap()).collect())
}

/// Whether two lists of numbers are equal to 1e-6.
#[track_caller]
pub(crate) fn assert_equal(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!((actual - expected).abs() < 1e-6, "number {index}: {actual} is not {expected}");
    }
}
