//! What seals the journal of a run, and the note about a run without a seal.

use delta_base::id::RunId;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::state::{
    MissingKey, SEAL_KEY_VARIABLE, STATE_DIR_VARIABLE, seal_key, seal_keys,
};
use delta_run::journal::seal::Sealer;

/// What seals the journal of the run `id`; if no key can be kept nothing does, and a note says what that means.
pub fn new_sealer(id: &RunId, options: &RunOptions) -> Result<Option<Sealer>, CommandFailure> {
    match seal_key() {
        Ok(_) => Ok(Some(Sealer::new(seal_keys(), id.clone()))),
        Err(MissingKey::Required(error)) => Err(error.into()),
        Err(MissingKey::Nowhere(reason)) => {
            print_unsealed_note(options, &reason);
            Ok(None)
        }
    }
}

/// Prints what it means that a run is not sealed.
pub fn print_unsealed_note(options: &RunOptions, reason: &str) {
    options.print_notes(&[format!(
        "Note: this run is not sealed ({reason}): `delta continue` will need --agent, and `delta run --ensure` will not \
         take its result; set {STATE_DIR_VARIABLE} or {SEAL_KEY_VARIABLE}"
    )]);
}
