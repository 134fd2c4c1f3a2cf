//! The model: processes that want one run, on a file system with old views, lost and late replies. A process may stop for
//! ever, or for a while, before each of its steps, because every interleaving of the steps is visited.

use super::*;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The acts of the run.
const ACTS: usize = 4;

/// The rules that hold in a world.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// A number is made once.
    turns_are_exclusive: bool,
    /// Who has an old view looks again.
    views_are_checked: bool,
    /// Each act has a turn.
    acts_take_turns: bool,
}

const ALL_RULES: Rules =
    Rules { turns_are_exclusive: true, views_are_checked: true, acts_take_turns: true };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ModelEvent {
    Request(usize),
    Result(usize),
    End,
    Turn { nonce: u64, turn: u64, from: u64 },
}

impl ModelEvent {
    fn mark(self) -> EventMark {
        match self {
            Self::Turn { nonce, turn, from } => EventMark::Turn { nonce, turn, from },
            Self::End => EventMark::End,
            Self::Request(_) => EventMark::Act,
            Self::Result(_) => EventMark::Other,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Looks at the directory; has read the events that count, of the journal of a claim.
    Claiming(Claiming, Vec<ModelEvent>, u64),
    /// Has written a journal and a token, and takes its first turn; the claim before it, and the newest turn then.
    Entering(TakingTurn, u64, u64),
    /// Owns the run, as far as it knows, with the newest turn.
    Owning(u64),
    /// Has recorded an act, or its end, and takes the turn for it.
    Gating(TakingTurn, Option<usize>),
    /// Has the turn, and is about to act.
    Acting(u64, usize),
    Stopped,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Process {
    /// Its present claim.
    nonce: u64,
    phase: Phase,
    /// How often it may claim the run again.
    claims_left: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    /// The claim of each turn, from turn 1 on.
    turns: Vec<u64>,
    tokens: Vec<TokenClaim>,
    journals: Vec<Vec<ModelEvent>>,
    /// How often each act was done.
    effects: [u8; ACTS],
    processes: Vec<Process>,
    /// Links whose reply was lost and that the server may still make.
    late_links: Vec<(u64, u64)>,
    /// How many replies may still be lost.
    faults_left: u8,
}

impl World {
    fn new(claims: &[u8], faults_left: u8) -> Self {
        let process = |claims_left: &u8| Process {
            nonce: 0,
            phase: Phase::Claiming(Claiming::new(true), Vec::new(), 0),
            claims_left: *claims_left,
        };
        Self {
            turns: Vec::new(),
            tokens: Vec::new(),
            journals: Vec::new(),
            effects: [0; ACTS],
            processes: claims.iter().map(process).collect(),
            late_links: Vec::new(),
            faults_left,
        }
    }

    fn with_phase(&self, index: usize, phase: Phase) -> Self {
        let mut world = self.clone();
        world.processes[index].phase = phase;
        world
    }

    fn view(&self, nonce: u64, length: usize, newest: u64) -> (JournalView, Vec<ModelEvent>) {
        let events = &self.journals[nonce as usize - 1][..length];
        let token = &self.tokens[nonce as usize - 1];
        let marks = events.iter().map(|event| event.mark());
        let view = JournalView::from_events(marks, token, newest);
        (view, events[..view.event_count as usize].to_vec())
    }

    /// The events that count, for a reader whose view is new.
    fn history(&self) -> Vec<ModelEvent> {
        let Some(nonce) = self.turns.last() else { return Vec::new() };
        let length = self.journals[*nonce as usize - 1].len();
        self.view(*nonce, length, self.turns.len() as u64).1
    }

    /// Every world that one step of one process, or of the server, leads to.
    fn next(&self, rules: Rules) -> Vec<Self> {
        let mut worlds = Vec::new();
        for (at, (nonce, turn)) in self.late_links.iter().enumerate() {
            let mut world = self.clone();
            world.late_links.remove(at);
            if self.turns.len() as u64 + 1 == *turn {
                world.turns.push(*nonce);
            }
            worlds.push(world);
        }
        for index in 0..self.processes.len() {
            match &self.processes[index].phase {
                Phase::Claiming(claiming, copied, from) => {
                    self.claim(index, claiming, copied, *from, rules, &mut worlds);
                }
                Phase::Entering(taking, before, newest) => {
                    for (world, taking) in self.take_turn(index, *taking, rules) {
                        let phase = Phase::Entering(taking, *before, *newest);
                        worlds.extend(world.entered(index, phase, taking, *before, *newest));
                    }
                }
                Phase::Owning(newest) => worlds.push(self.work(index, *newest, rules)),
                Phase::Gating(taking, act) => {
                    for (world, taking) in self.take_turn(index, *taking, rules) {
                        worlds.push(world.gated(index, taking, *act));
                    }
                }
                Phase::Acting(newest, act) => {
                    let mut world = self.with_phase(index, Phase::Owning(*newest));
                    world.effects[*act] += 1;
                    let nonce = world.processes[index].nonce as usize;
                    world.journals[nonce - 1].push(ModelEvent::Result(*act));
                    worlds.push(world);
                }
                Phase::Stopped => {}
            }
        }
        worlds
    }

    fn claim(
        &self,
        index: usize,
        claiming: &Claiming,
        copied: &[ModelEvent],
        from: u64,
        rules: Rules,
        worlds: &mut Vec<Self>,
    ) {
        let mut next = *claiming;
        match claiming.step() {
            ClaimStep::List => {
                // The list may be of any time.
                for newest in 0..=self.turns.len() as u64 {
                    let mut next = *claiming;
                    next.listed(newest);
                    worlds.push(self.with_phase(index, Phase::Claiming(next, Vec::new(), 0)));
                }
            }
            ClaimStep::Read(newest) => {
                let nonce = self.turns[newest as usize - 1];
                let token = self.tokens[nonce as usize - 1];
                // So may the journal.
                for length in 0..=self.journals[nonce as usize - 1].len() {
                    let mut next = *claiming;
                    let (mut view, events) = self.view(nonce, length, newest);
                    if !rules.views_are_checked {
                        view.last_turn = newest;
                        view.event_count = view.event_count.max(token.event_count);
                    }
                    next.read(Some((token, view)));
                    let phase = match next.step() {
                        ClaimStep::Take(_) if events.contains(&ModelEvent::End) => Phase::Stopped,
                        _ => Phase::Claiming(next, events, nonce),
                    };
                    worlds.push(self.with_phase(index, phase));
                }
            }
            ClaimStep::Pause(_) => {
                next.look_again();
                worlds.push(self.with_phase(index, Phase::Claiming(next, Vec::new(), 0)));
            }
            ClaimStep::Take(turn) => {
                let mut world = self.clone();
                let nonce = world.tokens.len() as u64 + 1;
                let event_count = copied.len() as u64;
                world.tokens.push(TokenClaim { nonce, first_turn: turn, event_count });
                world.journals.push(copied.to_vec());
                world.processes[index].nonce = nonce;
                let taking = TakingTurn::new(turn, nonce);
                world.processes[index].phase = Phase::Entering(taking, from, turn - 1);
                worlds.push(world);
            }
            ClaimStep::Judge | ClaimStep::Refuse => unreachable!("every claim is forced"),
        }
    }

    /// One operation of taking a turn, with everything that may come of it.
    fn take_turn(&self, index: usize, taking: TakingTurn, rules: Rules) -> Vec<(Self, TakingTurn)> {
        let nonce = self.processes[index].nonce;
        let after = |world: Self, change: &dyn Fn(&mut TakingTurn)| {
            let mut next = taking;
            change(&mut next);
            (world, next)
        };
        match taking.step() {
            TurnStep::Link(turn) => {
                let is_free = self.turns.len() as u64 + 1 == turn;
                let mut made = self.clone();
                if is_free {
                    made.turns.push(nonce);
                } else if !rules.turns_are_exclusive {
                    made.turns[turn as usize - 1] = nonce;
                } else {
                    return vec![after(self.clone(), &|next| next.linked(false))];
                }
                let mut worlds = vec![after(made.clone(), &|next| next.linked(true))];
                if self.faults_left > 0 {
                    made.faults_left -= 1;
                    let mut late = self.clone();
                    late.faults_left -= 1;
                    late.late_links.push((nonce, turn));
                    worlds.push(after(made, &|next| next.linked(false)));
                    worlds.push(after(late, &|next| next.linked(false)));
                }
                worlds
            }
            TurnStep::ReadBack(turn) => {
                let named = self.turns.get(turn as usize - 1).copied();
                let mut worlds = vec![after(self.clone(), &|next| next.named(named))];
                if named.is_some() && self.faults_left > 0 {
                    let mut missing = self.clone();
                    missing.faults_left -= 1;
                    worlds.push(after(missing, &|next| next.named(None)));
                }
                worlds
            }
            TurnStep::Done(_) => unreachable!("its process has changed its phase"),
        }
    }

    fn entered(
        self,
        index: usize,
        phase: Phase,
        taking: TakingTurn,
        before: u64,
        newest: u64,
    ) -> Vec<Self> {
        let TurnStep::Done(outcome) = taking.step() else {
            return vec![self.with_phase(index, phase)];
        };
        if outcome != TurnOutcome::Taken {
            return vec![self.replaced(index, outcome, true)];
        }
        let world = self.with_phase(index, Phase::Owning(newest + 1));
        if before == 0 {
            return vec![world];
        }
        // It takes in what the owner before it has recorded meanwhile, as far as it sees that.
        let nonce = world.processes[index].nonce as usize;
        let known = world.journals[nonce - 1].len();
        let length = world.journals[before as usize - 1].len();
        let mut worlds = vec![world.clone()];
        for length in known..=length {
            let (_, events) = world.view(before, length, newest);
            if events.len() > known {
                let mut late = world.clone();
                late.journals[nonce - 1].extend(&events[known..]);
                worlds.push(late);
            }
        }
        worlds
    }

    /// The next thing that an owner does.
    fn work(&self, index: usize, newest: u64, rules: Rules) -> Self {
        let nonce = self.processes[index].nonce;
        let mut world = self.clone();
        let journal = &mut world.journals[nonce as usize - 1];
        let open = (0..ACTS).find(|act| {
            journal.contains(&ModelEvent::Request(*act))
                && !journal.contains(&ModelEvent::Result(*act))
        });
        if let Some(act) = open {
            // At most once: what came of it is unknown.
            journal.push(ModelEvent::Result(act));
            return world;
        }
        let act = (0..ACTS).find(|act| !journal.contains(&ModelEvent::Request(*act)));
        journal.push(act.map_or(ModelEvent::End, ModelEvent::Request));
        let turn = newest + 1;
        let from = journal.len() as u64;
        journal.push(ModelEvent::Turn { nonce, turn, from });
        let taking = TakingTurn::new(turn, nonce);
        world.processes[index].phase = match act {
            Some(act) if !rules.acts_take_turns => Phase::Acting(newest, act),
            act => Phase::Gating(taking, act),
        };
        world
    }

    fn gated(self, index: usize, taking: TakingTurn, act: Option<usize>) -> Self {
        let TurnStep::Done(outcome) = taking.step() else {
            return self.with_phase(index, Phase::Gating(taking, act));
        };
        match (outcome, act) {
            (TurnOutcome::Taken, Some(act)) => {
                let newest = taking.turn;
                self.with_phase(index, Phase::Acting(newest, act))
            }
            (TurnOutcome::Taken, None) => self.with_phase(index, Phase::Stopped),
            (outcome, _) => self.replaced(index, outcome, false),
        }
    }

    /// Another process has the run, or may have it.
    fn replaced(mut self, index: usize, outcome: TurnOutcome, is_new: bool) -> Self {
        let process = &mut self.processes[index];
        if let (TurnOutcome::Lost(_), true) = (outcome, is_new) {
            // It removes its journal, which nothing names.
            self.journals[process.nonce as usize - 1].clear();
        }
        process.phase = if process.claims_left == 0 || outcome == TurnOutcome::Unknown {
            Phase::Stopped
        } else {
            process.claims_left -= 1;
            Phase::Claiming(Claiming::new(true), Vec::new(), 0)
        };
        self
    }

    /// What must hold in every world.
    fn check(&self) -> Result<(), &'static str> {
        if self.effects.iter().any(|count| *count > 1) {
            return Err("an act was done twice");
        }
        let history = self.history();
        for act in 0..ACTS {
            let requests = history.iter().filter(|event| **event == ModelEvent::Request(act));
            match (requests.count(), self.effects[act]) {
                (0, 1) => return Err("an act that was done is not in the journal"),
                (0 | 1, _) => {}
                _ => return Err("an act is in the journal twice"),
            }
        }
        if history.iter().filter(|event| **event == ModelEvent::End).count() > 1 {
            return Err("the run ended twice");
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Visit {
    worlds: usize,
    /// Worlds in which the run has ended.
    ends: usize,
    /// Worlds in which it has ended and had three owners.
    handovers: usize,
    violation: Option<&'static str>,
}

fn visit(start: World, rules: Rules) -> Visit {
    let hash_of = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let mut visit = Visit::default();
    let mut seen = HashSet::from([hash_of(&start)]);
    let mut rest = vec![start];
    while let Some(world) = rest.pop() {
        visit.worlds += 1;
        if let Err(violation) = world.check() {
            visit.violation = Some(violation);
            return visit;
        }
        if world.history().contains(&ModelEvent::End) {
            visit.ends += 1;
            let owners: HashSet<&u64> = world.turns.iter().collect();
            visit.handovers += usize::from(owners.len() > 2);
        }
        rest.extend(world.next(rules).into_iter().filter(|world| seen.insert(hash_of(world))));
    }
    visit
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the environment asks for long tests")]
fn c_26_1_no_interleaving_does_an_act_twice() {
    // One fault more, and the model has 3,858,237 worlds, which take minutes.
    let is_long = std::env::var_os("DELTA_LONG_TESTS").is_some();
    let more = u8::from(is_long);
    for (claims, faults) in [(&[1, 0][..], 1 + more), (&[0, 0, 0][..], more)] {
        let visit = visit(World::new(claims, faults), ALL_RULES);
        assert_eq!(visit.violation, None);
        assert!(visit.ends > 0 && visit.worlds > 10_000, "{visit:?}");
        assert_eq!(visit.handovers > 0, claims.len() + usize::from(claims[0]) > 2, "{visit:?}");
    }
}

#[test]
fn c_26_1_without_one_of_the_rules_the_model_finds_an_act_that_was_done_twice() {
    let without = [
        Rules { turns_are_exclusive: false, ..ALL_RULES },
        Rules { views_are_checked: false, ..ALL_RULES },
        Rules { acts_take_turns: false, ..ALL_RULES },
    ];
    for rules in without {
        let visit = visit(World::new(&[0, 0], 0), rules);
        assert!(visit.violation.is_some(), "{rules:?}: {visit:?}");
    }
}

#[test]
fn an_owner_is_silent_after_seven_looks_that_find_the_same() {
    let token = TokenClaim { nonce: 1, first_turn: 1, event_count: 0 };
    let look = |claiming: &mut Claiming, newest: u64, sign: OwnerSign| {
        claiming.listed(newest);
        let mut events = vec![EventMark::Other];
        events.extend((newest > 1).then_some(EventMark::Turn { nonce: 1, turn: newest, from: 1 }));
        claiming.read(Some((token, JournalView::from_events(events, &token, newest))));
        assert_eq!(claiming.step(), ClaimStep::Judge);
        claiming.judged(sign);
        claiming.step()
    };
    let mut claiming = Claiming::new(false);
    for _ in 1..SILENT_LOOKS {
        let step = look(&mut claiming, 3, OwnerSign::Beat(5));
        assert_eq!(step, ClaimStep::Pause(PauseReason::Silent));
        claiming.look_again();
    }
    let silent = claiming;
    assert_eq!(look(&mut claiming, 3, OwnerSign::Beat(5)), ClaimStep::Take(4));
    // A beat, or a turn, is a sign of life.
    assert_eq!(look(&mut silent.clone(), 3, OwnerSign::Beat(6)), ClaimStep::Refuse);
    assert_eq!(look(&mut silent.clone(), 4, OwnerSign::Beat(5)), ClaimStep::Refuse);
    assert_eq!(look(&mut silent.clone(), 3, OwnerSign::Gone), ClaimStep::Take(4));
    assert_eq!(look(&mut Claiming::new(false), 3, OwnerSign::Alive), ClaimStep::Refuse);
}

#[test]
fn an_old_view_is_recognized() {
    let token = TokenClaim { nonce: 1, first_turn: 4, event_count: 2 };
    let turn = |turn, from| EventMark::Turn { nonce: 1, turn, from };
    let view = |events: &[EventMark], newest| {
        JournalView::from_events(events.iter().copied(), &token, newest)
    };
    let copied = [EventMark::Other, EventMark::Turn { nonce: 9, turn: 8, from: 1 }];
    assert!(!view(&copied[..1], 4).is_current(&token, 4));
    assert!(view(&copied, 4).is_current(&token, 4), "turns of other claims are copied");
    let events = [copied[0], copied[1], EventMark::Other, turn(5, 3), EventMark::End, turn(6, 5)];
    assert_eq!(view(&events, 5).event_count, 4, "turn 6 was not taken");
    assert!(view(&events, 5).is_current(&token, 5) && !view(&events, 5).has_left);
    assert!(!view(&events[..5], 6).is_current(&token, 6));
    assert!(view(&events, 6).has_left && view(&events, 6).is_current(&token, 6));
}
