//! What every other crate builds on: time, text, ids, durable files, signals and the terminal.

pub mod api_key_names;
pub mod checksum;
pub mod durable;
pub mod engine_variables;
pub mod error_text;
pub mod hex;
pub mod id;
pub mod json;
pub mod json_repair;
pub mod quantity;
pub mod random;
pub mod redact;
pub mod shell_quote;
pub mod signal;
pub mod suggest;
pub mod terminal;
pub mod terminal_text;
pub mod text;
pub mod time;
pub mod url_secrets;

/// Counts the steps of loops over foreign text in tests, which compare the counts for texts of different lengths: a time
/// would depend on the machine.
mod steps {
    #[cfg(test)]
    thread_local! {
        static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// Counts a step; nothing outside of tests.
    pub(crate) fn count_step() {
        #[cfg(test)]
        STEPS.set(STEPS.get() + 1);
    }

    /// How many steps `work` takes.
    #[cfg(test)]
    pub(crate) fn steps_of(work: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        work();
        STEPS.get() - before
    }

    /// Texts that take turns in what a terminal, a secret or a reader might wait for the end of, and the text of `count`
    /// such turns.
    #[cfg(test)]
    pub(crate) fn hostile_text() -> impl proptest::strategy::Strategy<Value = (String, String)> {
        use proptest::{collection::vec, sample::select};
        const PIECES: [&str; 20] = [
            "s",
            "sk-abc",
            "sk-abcdef2",
            "k",
            "1",
            " ",
            "x",
            "\n",
            "\r",
            "\x07",
            "\x1b",
            "\x1b[",
            "\x1b]",
            "\x1bP",
            "\x1b_",
            "\x1b\\",
            "\x1b(",
            "\u{9b}",
            "\u{9c}",
            "\u{202e}",
        ];
        let pieces = |count| {
            proptest::strategy::Strategy::prop_map(vec(select(&PIECES[..]), count), |it| {
                it.concat()
            })
        };
        (pieces(0..4), pieces(1..5))
    }

    /// Checks that four times the turns take less than six times the steps.
    #[cfg(test)]
    pub(crate) fn assert_linear(start: &str, turn: &str, work: impl Fn(&str)) {
        let text = |count: usize| start.to_owned() + &turn.repeat(count);
        let cost = |count| steps_of(|| work(&text(count)));
        let (once, four_times) = (cost(2000), cost(8000));
        assert!(
            four_times < 6 * once.max(1000),
            "{once} and {four_times} steps: {start:?} {turn:?}"
        );
    }
}
