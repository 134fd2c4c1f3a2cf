//! Who owns a run across hosts: the decisions, without a file or a clock.
//!
//! An owner takes a *turn* before each act, by an exclusive link of its token to the next number. What holds:
//!
//! 1. Numbers are dense, made once, and stay. The claim that turn N names has it, whatever the link returned.
//! 2. Before turn N is taken, the event TURN with N is durable in the journal of the token. Who does not find it there, has
//!    an old view of the directory, and looks again.
//! 3. An event that TURN covers counts when that turn was taken.
//! 4. Each act has a turn: a process that was replaced cannot take the next one, and starts nothing.
//!
//! [`TakingTurn`] and [`Claiming`] say what to do next and take what came of it. The model in the tests drives them
//! through every interleaving of processes with old views, lost replies and crashes.

#[cfg(test)]
mod tests;

/// A claim of a run, as its token has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenClaim {
    /// A number that no other claim has.
    pub nonce: u64,
    /// The turn with which the run was claimed.
    pub first_turn: u64,
    /// The events that its journal had at that time.
    pub event_count: u64,
}

/// An event, as far as turns are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventMark {
    /// TURN: the claim `nonce` is about to take a turn, for the events from `from` on.
    Turn {
        /// The claim.
        nonce: u64,
        /// The turn.
        turn: u64,
        /// The number of the first event that counts only with it.
        from: u64,
    },
    /// The request of an act, which counts only with a turn.
    Act,
    /// ENGINE_END, which is an act too.
    End,
    /// Any other event.
    Other,
}

/// What the journal of a token shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct JournalView {
    /// The events that count.
    pub event_count: u64,
    /// The last turn that its owner has prepared and taken; 0 if it has none after the first.
    last_turn: u64,
    /// Whether its owner has exited.
    pub has_left: bool,
}

impl JournalView {
    /// Reads the events of the journal of `token`, as far as turns up to `newest` make them count.
    pub fn from_events(
        events: impl IntoIterator<Item = EventMark>,
        token: &TokenClaim,
        newest: u64,
    ) -> Self {
        let mut view = Self::default();
        let mut is_after_end = false;
        let mut uncovered = 0;
        for event in events {
            let is_act = matches!(event, EventMark::Act | EventMark::End);
            uncovered =
                if is_act && view.event_count >= token.event_count { uncovered + 1 } else { 0 };
            match event {
                EventMark::Turn { nonce, turn, from } if nonce == token.nonce => {
                    if turn > newest {
                        view.event_count = view.event_count.min(from.saturating_sub(1));
                        return Self { has_left: false, ..view };
                    }
                    view.last_turn = turn;
                    view.has_left = is_after_end;
                }
                _ => view.has_left = false,
            }
            is_after_end = event == EventMark::End;
            view.event_count += 1;
        }
        // The view ends before the TURN of an act: it does not show whether the turn was taken.
        view.event_count -= uncovered;
        view
    }

    /// Whether the view is as new as turn `newest`, which `token` has (rule 2).
    pub fn is_current(&self, token: &TokenClaim, newest: u64) -> bool {
        if newest == token.first_turn {
            self.event_count >= token.event_count
        } else {
            self.last_turn == newest
        }
    }
}

/// How often a turn is tried whose name cannot be read after a failed link.
const MAX_TURN_TRIES: u8 = 5;

/// Takes one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TakingTurn {
    turn: u64,
    nonce: u64,
    tries: u8,
    state: TakingState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TakingState {
    Linking,
    ReadingBack,
    Ended(TurnOutcome),
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnOutcome {
    /// It belongs to this claim.
    Taken,
    /// Another claim has it, the one with this number.
    Lost(u64),
    /// The directory did not say who has it. The link may still be made.
    Unknown,
}

/// The next operation of [`TakingTurn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnStep {
    /// Link the token to this turn, then call [`TakingTurn::linked`].
    Link(u64),
    /// Read the token at this turn, then call [`TakingTurn::named`].
    ReadBack(u64),
    /// Nothing.
    Done(TurnOutcome),
}

impl TakingTurn {
    /// Takes `turn` for the claim `nonce`.
    pub fn new(turn: u64, nonce: u64) -> Self {
        Self { turn, nonce, tries: 0, state: TakingState::Linking }
    }

    /// What to do next.
    pub fn step(&self) -> TurnStep {
        match self.state {
            TakingState::Linking => TurnStep::Link(self.turn),
            TakingState::ReadingBack => TurnStep::ReadBack(self.turn),
            TakingState::Ended(outcome) => TurnStep::Done(outcome),
        }
    }

    /// The link was made, or failed: then it may have been made, because a reply can be lost.
    pub fn linked(&mut self, is_made: bool) {
        self.state =
            if is_made { TakingState::Ended(TurnOutcome::Taken) } else { TakingState::ReadingBack };
    }

    /// The claim that the turn names, `None` if the name was not found or not read.
    pub fn named(&mut self, claim: Option<u64>) {
        self.tries += 1;
        self.state = match claim {
            Some(nonce) if nonce == self.nonce => TakingState::Ended(TurnOutcome::Taken),
            Some(nonce) => TakingState::Ended(TurnOutcome::Lost(nonce)),
            None if self.tries < MAX_TURN_TRIES => TakingState::Linking,
            None => TakingState::Ended(TurnOutcome::Unknown),
        };
    }
}

/// How many looks in a row must find the same before an owner counts as dead.
pub const SILENT_LOOKS: u8 = 7;

/// What is known of the owner of the newest turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerSign {
    /// Its process has ended, or has given up the run.
    Gone,
    /// Its process is alive on this host.
    Alive,
    /// Its process cannot be seen from here; this is its beat.
    Beat(u64),
}

/// Claims a run that may have an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claiming {
    is_forced: bool,
    state: ClaimState,
    /// The newest turn and the beat of the last look, and how many looks in a row have found them.
    last_look: Option<(u64, u64)>,
    looks: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ClaimState {
    Listing,
    Reading(u64),
    Judging(u64),
    Pausing(PauseReason),
    Preparing(u64),
    Refused,
}

/// Why a claim looks again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseReason {
    /// The owner may be alive.
    Silent,
    /// The view of the directory is older than its turns.
    OldView,
}

/// The next operation of [`Claiming`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimStep {
    /// List the turns, then call [`Claiming::listed`].
    List,
    /// Read the token of this turn and its journal, then call [`Claiming::read`].
    Read(u64),
    /// Look for the owner, then call [`Claiming::judged`].
    Judge,
    /// Wait, then call [`Claiming::look_again`].
    Pause(PauseReason),
    /// Write a journal and a token for this turn, and take it.
    Take(u64),
    /// The owner is alive.
    Refuse,
}

impl Claiming {
    /// With `is_forced` no owner counts as alive.
    pub fn new(is_forced: bool) -> Self {
        Self { is_forced, state: ClaimState::Listing, last_look: None, looks: 0 }
    }

    /// What to do next.
    pub fn step(&self) -> ClaimStep {
        match self.state {
            ClaimState::Listing => ClaimStep::List,
            ClaimState::Reading(newest) => ClaimStep::Read(newest),
            ClaimState::Judging(_) => ClaimStep::Judge,
            ClaimState::Pausing(reason) => ClaimStep::Pause(reason),
            ClaimState::Preparing(turn) => ClaimStep::Take(turn),
            ClaimState::Refused => ClaimStep::Refuse,
        }
    }

    /// The newest turn in the list, 0 if there is none.
    pub fn listed(&mut self, newest: u64) {
        self.state =
            if newest == 0 { ClaimState::Preparing(1) } else { ClaimState::Reading(newest) };
    }

    /// The token of the newest turn and what its journal shows; `None` if one of them was not found.
    pub fn read(&mut self, view: Option<(TokenClaim, JournalView)>) {
        let ClaimState::Reading(newest) = self.state else { return };
        self.state = match view {
            Some((token, journal)) if journal.is_current(&token, newest) => {
                if journal.has_left || self.is_forced {
                    ClaimState::Preparing(newest + 1)
                } else {
                    ClaimState::Judging(newest)
                }
            }
            _ => ClaimState::Pausing(PauseReason::OldView),
        };
    }

    /// What is known of the owner.
    pub fn judged(&mut self, sign: OwnerSign) {
        let ClaimState::Judging(newest) = self.state else { return };
        self.state = match sign {
            OwnerSign::Gone => ClaimState::Preparing(newest + 1),
            OwnerSign::Alive => ClaimState::Refused,
            OwnerSign::Beat(beat) => match self.last_look {
                Some(last) if last != (newest, beat) => ClaimState::Refused,
                _ => {
                    self.last_look = Some((newest, beat));
                    self.looks += 1;
                    if self.looks >= SILENT_LOOKS {
                        ClaimState::Preparing(newest + 1)
                    } else {
                        ClaimState::Pausing(PauseReason::Silent)
                    }
                }
            },
        };
    }

    /// The pause is over, or another claim has taken the turn.
    pub fn look_again(&mut self) {
        self.state = ClaimState::Listing;
    }
}
