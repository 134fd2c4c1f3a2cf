//! A model of senders, owners and a disk, in which every interleaving is tried: owners die or are replaced while they work, the
//! power fails, and a listing may be old.

use super::*;
use delta_base::time::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The messages, which are numbered.
type Names = BTreeSet<u8>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sender {
    Ready,
    /// It has seen a run that has not ended.
    Checked,
    Renamed,
    Accepted,
    Refused,
    /// It is dead, or does not know.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Looks,
    Commits { receives: Vec<u8>, removes: Vec<u8> },
    Removes(Vec<u8>),
    Closes,
    Ends,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    phase: Phase,
    /// The messages in its journal.
    journal: Vec<u8>,
    is_replaced: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    /// The mailbox, and the part that a power failure leaves.
    seen: Option<Names>,
    durable: Option<Names>,
    /// The journal that counts.
    journal: Vec<u8>,
    is_completed: bool,
    senders: [Sender; 2],
    owners: Vec<Owner>,
    faults_left: u8,
}

fn file(name: u8) -> WaitingFile {
    let source = MessageSource {
        id: name.to_string(),
        by: "command".to_owned(),
        uid: 0,
        host: "h".to_owned(),
        sent_at: Timestamp::from_millis(0),
        when: MessageTime::Next,
    };
    let run_id = RunId::parse("r").unwrap();
    let message = Some(MailboxMessage::new(source, run_id, Some("text".to_owned())));
    WaitingFile { path: PathBuf::new(), is_dir: false, message }
}

impl World {
    fn owner(&self) -> Owner {
        Owner { phase: Phase::Looks, journal: self.journal.clone(), is_replaced: false }
    }

    /// Every state that can follow.
    fn successors(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for at in 0..self.senders.len() {
            self.step_sender(at, &mut next);
        }
        for at in 0..self.owners.len() {
            self.step_owner(at, &mut next);
        }
        if self.owners.is_empty() && !self.is_completed {
            let mut world = self.clone();
            world.owners = vec![self.owner()];
            next.push(world);
        }
        if self.faults_left > 0 {
            self.fail(&mut next);
        }
        for world in &mut next {
            world.owners.retain(|owner| owner.phase != Phase::Gone);
        }
        next
    }

    fn step_sender(&self, at: usize, next: &mut Vec<Self>) {
        let name = u8::try_from(at).unwrap();
        let mut push = |sender: Sender, change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            world.senders[at] = sender;
            change(&mut world);
            next.push(world);
        };
        match self.senders[at] {
            Sender::Ready if self.is_completed => push(Sender::Refused, &|_| ()),
            Sender::Ready => push(Sender::Checked, &|_| ()),
            Sender::Checked if self.seen.is_none() => {
                push(Sender::Ready, &|_| ());
                push(Sender::Refused, &|_| ());
            }
            Sender::Checked => push(Sender::Renamed, &|world| {
                world.seen.as_mut().unwrap().insert(name);
            }),
            Sender::Renamed if self.seen.is_some() => {
                push(Sender::Accepted, &|world| world.durable.clone_from(&world.seen));
            }
            // It is in the journal then, which the sender reads.
            Sender::Renamed if self.journal.contains(&name) => push(Sender::Accepted, &|_| ()),
            Sender::Renamed => push(Sender::Gone, &|_| ()),
            Sender::Accepted | Sender::Refused | Sender::Gone => {}
        }
    }

    fn step_owner(&self, at: usize, next: &mut Vec<Self>) {
        let owner = &self.owners[at];
        let mut push = |phase: Phase, change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            world.owners[at].phase = phase;
            change(&mut world);
            next.push(world);
        };
        match &owner.phase {
            // It creates the mailbox only after a turn.
            Phase::Looks if owner.is_replaced && self.seen.is_none() => push(Phase::Gone, &|_| ()),
            Phase::Looks => {
                let seen = self.seen.clone().unwrap_or_default();
                let old = seen.iter().copied().take(seen.len().saturating_sub(1)).collect();
                for listed in [seen, old] {
                    let names: Vec<u8> = listed.into_iter().collect();
                    let files: Vec<WaitingFile> = names.iter().copied().map(file).collect();
                    let knows = |id: &str| owner.journal.contains(&id.parse().unwrap());
                    let fates = decide_fates(&files, Selection::All, knows);
                    let with = |wanted: &[FileFate]| -> Vec<u8> {
                        let named = names.iter().zip(&fates);
                        named
                            .filter(|(_, fate)| wanted.contains(fate))
                            .map(|(name, _)| *name)
                            .collect()
                    };
                    let receives = with(&[FileFate::Receive]);
                    let removes = with(&[FileFate::Receive, FileFate::Known]);
                    let phase = if removes.is_empty() {
                        Phase::Closes
                    } else {
                        Phase::Commits { receives, removes }
                    };
                    push(phase, &|world| {
                        world.seen.get_or_insert_default();
                    });
                }
            }
            Phase::Commits { .. } if owner.is_replaced => push(Phase::Gone, &|_| ()),
            Phase::Commits { receives, removes } => {
                push(Phase::Removes(removes.clone()), &|world| {
                    world.owners[at].journal.extend(receives);
                    world.journal.clone_from(&world.owners[at].journal);
                });
            }
            Phase::Removes(removes) => match removes.split_first() {
                None => push(Phase::Looks, &|_| ()),
                Some((first, rest)) => push(Phase::Removes(rest.to_vec()), &|world| {
                    world.seen.as_mut().map(|names| names.remove(first));
                }),
            },
            Phase::Closes => match &self.seen {
                Some(names) if !names.is_empty() => push(Phase::Looks, &|_| ()),
                _ => push(Phase::Ends, &|world| world.seen = None),
            },
            Phase::Ends if owner.is_replaced => push(Phase::Gone, &|_| ()),
            Phase::Ends => push(Phase::Gone, &|world| world.is_completed = true),
            Phase::Gone => {}
        }
    }

    /// An owner dies or is replaced, or the power fails.
    fn fail(&self, next: &mut Vec<Self>) {
        for at in 0..self.owners.len() {
            let mut dead = Self { faults_left: self.faults_left - 1, ..self.clone() };
            dead.owners[at].phase = Phase::Gone;
            next.push(dead);
        }
        if !self.owners.is_empty() && !self.is_completed {
            let mut replaced = Self { faults_left: self.faults_left - 1, ..self.clone() };
            replaced.owners.iter_mut().for_each(|owner| owner.is_replaced = true);
            replaced.owners.push(self.owner());
            next.push(replaced);
        }
        let mut cut = Self { faults_left: self.faults_left - 1, ..self.clone() };
        cut.seen.clone_from(&self.durable);
        cut.owners.clear();
        for sender in &mut cut.senders {
            if matches!(sender, Sender::Ready | Sender::Checked | Sender::Renamed) {
                *sender = Sender::Gone;
            }
        }
        next.push(cut);
    }

    fn check(&self) {
        let waits = |name: &u8| self.seen.as_ref().is_some_and(|names| names.contains(name));
        for (sender, name) in self.senders.iter().zip(0..) {
            let times = self.journal.iter().filter(|known| **known == name).count();
            assert!(times <= 1, "received twice: {self:?}");
            match sender {
                Sender::Accepted if times == 0 => {
                    assert!(waits(&name) && !self.is_completed, "lost: {self:?}");
                }
                Sender::Refused => assert!(times == 0 && !waits(&name), "not refused: {self:?}"),
                _ => {}
            }
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the environment asks for long tests")]
fn c_33_1_every_interleaving_receives_each_accepted_message_once() {
    let is_long = std::env::var_os("DELTA_LONG_TESTS").is_some();
    let first = World {
        seen: None,
        durable: None,
        journal: Vec::new(),
        is_completed: false,
        senders: [Sender::Ready; 2],
        owners: Vec::new(),
        faults_left: if is_long { 2 } else { 1 },
    };
    let mut known: HashSet<World> = HashSet::from([first.clone()]);
    let mut queue = vec![first];
    let mut ended = 0;
    while let Some(world) = queue.pop() {
        world.check();
        let next = world.successors();
        ended += usize::from(next.is_empty());
        queue.extend(next.into_iter().filter(|next| known.insert(next.clone())));
    }
    assert!(known.len() > 1000 && ended > 0, "{} states, {ended} ends", known.len());
}

fn seal(key: &str) -> MessageSeal {
    let key = SealKey::from_derived(key).unwrap();
    MessageSeal { key, run_id: RunId::parse("r").ok(), created_at: [1; 8] }
}

proptest! {
    #[test]
    fn c_33_8_a_changed_file_is_no_message(content in "\\PC*", at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let own = seal("00112233445566778899aabbccddeeff");
        let mut message = file(1).message.unwrap();
        message.content = Some(content);
        let mut line = own.to_line(&message);
        prop_assert_eq!(own.parse_line(&line), Some(message));
        let others = [
            seal("ff112233445566778899aabbccddeeff"),
            MessageSeal { created_at: [2; 8], ..own.clone() },
            MessageSeal { run_id: RunId::parse("s").ok(), ..own.clone() },
        ];
        for other in others {
            prop_assert_eq!(other.parse_line(&line), None);
        }
        let at = at.index(line.len());
        if line[at] != byte {
            line[at] = byte;
            prop_assert_eq!(own.parse_line(&line), None);
        }
    }
}

#[test]
fn c_33_2_files_are_read_in_the_order_of_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::new(dir.path(), Some(seal("00112233445566778899aabbccddeeff")));
    assert!(matches!(mailbox.send(&file(1).message.unwrap()), Ok(Sent::Closed)));
    mailbox.create().unwrap();
    for name in [7, 3, 9] {
        assert!(matches!(mailbox.send(&file(name).message.unwrap()), Ok(Sent::Durable)));
    }
    assert!(!mailbox.close().unwrap(), "messages wait");
    let files = mailbox.read_waiting().unwrap().unwrap();
    let ids: Vec<&str> =
        files.iter().map(|file| &*file.message.as_ref().unwrap().source.id).collect();
    assert_eq!(ids, ["7", "3", "9"]);
    assert_eq!(count_waiting(dir.path()), 3);
    assert!(mailbox.find("3").unwrap().is_some() && mailbox.find("8").unwrap().is_none());
    files.iter().for_each(|file| file.remove().unwrap());
    assert!(mailbox.close().unwrap() && mailbox.close().unwrap());
}
