//! Runs that draw on one ledger at the same time, and damaged ledgers.

use super::*;
use crate::limits::Limits;
use delta_base::id::RunId;
use proptest::prelude::*;

fn head(run_id: &str, max_tokens: u64, above: Option<&Path>) -> LedgerHead {
    let limits = Limits { max_tokens: Some(max_tokens), ..Limits::default() };
    let above = above.map(|path| path.to_string_lossy().into_owned());
    let (run_id, given) = (RunId::parse(run_id).unwrap(), Limits::default());
    LedgerHead { run_id, limits, given, deadline_unix: None, above, grants: None }
}

fn make(dir: &Path, head: LedgerHead) -> Ledger {
    std::fs::create_dir(dir).unwrap();
    let cancel = CancelToken::manual().unwrap();
    let ownership = Ownership::claim(&head.run_id, dir).unwrap();
    Ledger::open_for_owner(dir, &ownership, head, BudgetAmount::default(), &cancel).unwrap()
}

/// Makes calls until a limit is reached. Returns the tokens that they used, which depend on `seed`.
fn draw(leaf: &str, chain: Vec<Ledger>, mut seed: u64) -> u64 {
    let cancel = CancelToken::manual().unwrap();
    let mut budget = Budget::new(leaf, None, chain, true);
    let mut took = 0;
    loop {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let worst = CallUpperBound {
            input_tokens: 50 + (seed >> 40) % 100,
            output_tokens: 50,
            cost: Default::default(),
        };
        match budget.reserve(worst, None, &cancel, &mut || {}) {
            Ok(()) => {}
            Err(LedgerError::LimitReached { .. } | LedgerError::SharedLimitReached(_)) => {
                return took;
            }
            Err(error) => panic!("{error}"),
        }
        let tokens = (seed >> 33) % (worst.amount().tokens + 1);
        budget.settle(BudgetAmount { tokens, ..BudgetAmount::default() }, &cancel).unwrap();
        took += tokens;
    }
}

#[test]
fn c_33_11_a_run_inside_reserves_by_the_limits_that_the_run_around_it_has_now() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancelToken::manual().unwrap();
    let outer = dir.path().join("outer");
    let ledger = make(&outer, LedgerHead { deadline_unix: Some(5), ..head("outer", 100, None) });
    let inside = Ledger::open_chain(ledger.path()).unwrap();
    let mut inside = Budget::new("inside", None, inside, false);
    let mut outside = Budget::new("outer", Some(ledger), Vec::new(), true);
    let bound = CallUpperBound { input_tokens: 100, output_tokens: 50, cost: Default::default() };
    let mut reserve = || inside.reserve(bound, None, &cancel, &mut || {});
    assert!(matches!(reserve(), Err(LedgerError::LimitReached { .. })));
    let limits =
        Limits { max_tokens: Some(1000), max_duration_ms: Some(60_000), ..Limits::default() };
    let ownership = Ownership::claim(&RunId::parse("outer").unwrap(), &outer).unwrap();
    let spent = BudgetAmount::default();
    outside.change_limits(&outer, &ownership, limits, spent, 0, &cancel).unwrap();
    reserve().unwrap();
    assert_eq!((outside.own_deadline(), inside.outer_deadline()), (Some(60_000), Some(5)));
}

#[test]
fn c_12_9_fifty_that_draw_through_three_levels_keep_every_limit() {
    for seed in 1..=3 {
        let dir = tempfile::tempdir().unwrap();
        let root = make(&dir.path().join("root"), head("root", 6_000, None));
        let middle = |n: u64| {
            let dir = dir.path().join(n.to_string());
            make(&dir, head("middle", 1_000 + 300 * n, Some(root.path())))
        };
        let middles: Vec<Ledger> = (0..5).map(middle).collect();
        let leaf = |n: u64| {
            let chain = Ledger::open_chain(middles[n as usize % 5].path()).unwrap();
            std::thread::spawn(move || draw(&n.to_string(), chain, seed * 1000 + n))
        };
        let threads: Vec<_> = (0..50).map(leaf).collect();
        let took: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let accounts = middles.iter().chain([&root]).map(|ledger| {
            let text = std::fs::read_to_string(ledger.path()).unwrap();
            let mut account = None;
            for line in text.split_inclusive('\n') {
                apply_ledger_line(&mut account, line.as_bytes()).unwrap();
                let account = account.as_ref().unwrap();
                let most = account.used.saturating_add(account.reserved()).tokens;
                assert!(Some(most) <= account.head.limits.max_tokens, "{most} at {line}");
            }
            account.unwrap()
        });
        let used: Vec<u64> = accounts.map(|account| account.used.tokens).collect();
        assert_eq!((used[5], used[..5].iter().sum::<u64>()), (took, took), "seed {seed}");
        assert!(took > 5_000, "{took} of 6000: what is free is given");
    }
}

fn outcome(bytes: &[u8]) -> std::result::Result<(u64, u64), String> {
    let contents = parse_ledger(bytes, Path::new("b")).map_err(|error| error.to_string())?;
    Ok((contents.account.map_or(0, |account| account.next_line() - 1), contents.length))
}

#[test]
fn c_12_9_a_ledger_cut_at_any_byte_holds_its_whole_lines() {
    let entries = [
        LedgerEntry::Limits(Box::new(head("r", 9, None))),
        LedgerEntry::Release { call: 7 },
        LedgerEntry::Use { run_id: "r".to_owned(), amount: BudgetAmount::default() },
    ];
    let text: String = entries.iter().map(ledger_line).collect();
    for cut in 0..=text.len() {
        let whole = &text[..text[..cut].rfind('\n').map_or(0, |at| at + 1)];
        let expected = (whole.lines().count() as u64, whole.len() as u64);
        assert_eq!(outcome(&text.as_bytes()[..cut]), Ok(expected), "cut at {cut}");
    }
    let begin = ledger_line(&entries[0]);
    assert_eq!(
        outcome(format!("{begin}nothing\n{text}").as_bytes()),
        Err("the budget b is damaged at line 2: not JSON".to_owned())
    );
    assert_eq!(
        outcome(&text.as_bytes()[begin.len()..]),
        Err("the budget b is damaged at line 1: expected limits in the first line".to_owned())
    );
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = outcome(&bytes);
    }
}

/// The head of the ledger of a host that shares `total` tokens.
fn shared_head(dir: &Path, holder: &str, total: u64) -> LedgerHead {
    let source = crate::budget::budget_grant::GrantSource {
        dir: dir.to_string_lossy().into_owned(),
        holder: holder.to_owned(),
        total: Limits { max_tokens: Some(total), ..Limits::default() },
    };
    LedgerHead { grants: Some(Box::new(source)), ..head("sweep", 0, None) }
}

#[test]
fn c_26_8_hosts_with_many_calls_share_a_budget_and_their_ledgers_stay_short() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancelToken::manual().unwrap();
    let hosts = ["h1", "h2", "h3"].map(|host| dir.path().join(format!("{host}.jsonl")));
    for (path, host) in hosts.iter().zip(["h1", "h2", "h3"]) {
        open_shared_ledger(path, shared_head(dir.path(), host, 60_000), &cancel).unwrap();
    }
    let draw_at = |number: usize| {
        let chain = Ledger::open_chain(&hosts[number % 3]).unwrap();
        std::thread::spawn(move || draw(&number.to_string(), chain, number as u64))
    };
    let threads: Vec<_> = (0..9).map(draw_at).collect();
    let took: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!((50_000..=60_000).contains(&took), "{took}");
    let mut used = 0;
    for path in &hosts {
        return_grants(path, &cancel).unwrap();
        let account = Ledger::read_account_at(path).unwrap().unwrap();
        assert!(account.open_calls.is_empty());
        used += account.used.tokens;
        let lines = std::fs::read_to_string(path).unwrap().lines().count();
        assert!(lines < 300, "{lines}");
    }
    assert_eq!(used, took);
    let book = crate::budget::budget_grant::GrantFiles::new(dir.path()).read().unwrap();
    assert_eq!(book.granted().tokens, took, "what was not used is given back");
}

#[test]
fn c_26_8_a_call_whose_process_died_counts_as_what_it_may_have_used() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancelToken::manual().unwrap();
    let path = dir.path().join("h.jsonl");
    open_shared_ledger(&path, shared_head(dir.path(), "h", 1000), &cancel).unwrap();
    let worst = CallUpperBound { input_tokens: 300, output_tokens: 0, cost: Default::default() };
    let mut budget = Budget::new("r", None, Ledger::open_chain(&path).unwrap(), true);
    budget.reserve(worst, None, &cancel, &mut || {}).unwrap();
    // As if its process had died.
    let text = std::fs::read_to_string(&path).unwrap();
    let dead = format!("\"pid\":{}", 0x7fff_fff0);
    std::fs::write(&path, text.replace(&format!("\"pid\":{}", std::process::id()), &dead)).unwrap();
    return_grants(&path, &cancel).unwrap();
    let account = Ledger::read_account_at(&path).unwrap().unwrap();
    assert_eq!((account.used.tokens, account.open_calls.len()), (300, 0));
}

#[test]
fn c_26_8_what_a_call_used_beyond_its_reservation_is_granted_to_no_other_host() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancelToken::manual().unwrap();
    let worst = CallUpperBound { input_tokens: 300, output_tokens: 0, cost: Default::default() };
    let budget_of = |host: &str| {
        let path = dir.path().join(format!("{host}.jsonl"));
        open_shared_ledger(&path, shared_head(dir.path(), host, 1000), &cancel).unwrap();
        Budget::new(host, None, Ledger::open_chain(&path).unwrap(), true)
    };
    let mut first = budget_of("h");
    first.reserve(worst, None, &cancel, &mut || {}).unwrap();
    let amount = BudgetAmount { tokens: 900, ..BudgetAmount::default() };
    first.settle(amount, &cancel).unwrap();
    let refusal = budget_of("g").reserve(worst, None, &cancel, &mut || {}).unwrap_err().to_string();
    assert!(refusal.contains("100 are left"), "{refusal}");
    first
        .reserve(CallUpperBound { input_tokens: 100, ..worst }, None, &cancel, &mut || {})
        .unwrap();
    // More than the whole budget.
    first.settle(amount, &cancel).unwrap();
    let refusal = first.reserve(worst, None, &cancel, &mut || {}).unwrap_err().to_string();
    assert!(refusal.contains(" 0 are left"), "{refusal}");
}
