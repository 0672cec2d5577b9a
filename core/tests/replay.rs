//! The window of nonces against a map that forgets nothing it must keep.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use std::collections::HashMap;

use proptest::prelude::*;
use triwire::signed::{
    self, Claimed, Entry, Full, Genuine, Key, KeyId, MAX_HEADER_LENGTH, MAX_TIME, Nonce, Presented,
    Refusal, ReplayWindow, STORE_CLOCK_SLACK_MS, Target, Window,
};
use triwire::time::UnixMillis;

const START: u64 = 1_800_000_000;

const fn ms(millis: u64) -> UnixMillis {
    UnixMillis::new(millis)
}

/// A genuine request of a key and a nonce, signed in second `t`.
fn genuine(id: &str, nonce: &str, t: u64, window: u32) -> Genuine {
    let (id, key) = (KeyId::parse(id).unwrap(), Key::new(&[7; 32]).unwrap());
    let target = Target::new("GET", "a", "/").unwrap();
    let now = ms(t * 1_000);
    let mut out = [0; MAX_HEADER_LENGTH];
    let header =
        signed::sign(now, id, &key, target, Nonce::parse(nonce).unwrap(), b"", &mut out).unwrap();
    let window = Window::seconds(window).unwrap();
    let timely = Presented::parse([header.as_bytes()]).unwrap().check(now, window).unwrap();
    timely.with(target, &key).finish(now).unwrap()
}

fn fresh(nonce: &str, t: u64) -> Genuine {
    genuine("a", nonce, t, 300)
}

// rule: SIGN-12
#[test]
fn forgets_a_minute_past_the_expiry() {
    let request = fresh("n", START);
    let last = START * 1_000 + 300_000 + STORE_CLOCK_SLACK_MS;
    for now in [START * 1_000, START * 1_000 + 300_000, last] {
        let mut seen = ReplayWindow::new([Entry::EMPTY; 1]);
        assert_eq!(seen.claim(ms(START * 1_000), request.claim()), Ok(Claimed::Fresh));
        assert_eq!(seen.claim(ms(now), request.claim()), Ok(Claimed::Replayed));
        assert_eq!(seen.claim(ms(now), fresh("m", START + 300).claim()), Err(Full::NoRoom));
        assert_eq!(seen.claim(ms(last + 1), fresh("m", START + 300).claim()), Ok(Claimed::Fresh));
    }
}

// rule: SIGN-13
#[test]
fn a_nonce_under_two_keys_is_two_claims() {
    let mut seen = ReplayWindow::new([Entry::EMPTY; 8]);
    let now = ms(START * 1_000);
    for (id, nonce) in [("a", "b"), ("b", "a"), ("ab", "c"), ("a", "bc"), ("a.b", "c")] {
        let request = genuine(id, nonce, START, 300);
        assert_eq!(seen.claim(now, request.claim()), Ok(Claimed::Fresh), "{id} {nonce}");
        assert_eq!(seen.claim(now, request.claim()), Ok(Claimed::Replayed), "{id} {nonce}");
    }
}

// rule: SIGN-14
#[test]
fn holds_as_many_as_it_has_entries() {
    let now = ms(START * 1_000);
    for capacity in [0, 1, 2, 3, 7, 64, 1_000] {
        let mut seen = ReplayWindow::new(vec![Entry::EMPTY; capacity].into_boxed_slice());
        assert_eq!(seen.capacity(), capacity);
        let requests: Vec<_> = (0..capacity).map(|n| fresh(&format!("n{n}"), START)).collect();
        for request in &requests {
            assert_eq!(seen.claim(now, request.claim()), Ok(Claimed::Fresh));
        }
        for n in 0..100 {
            let more = fresh(&format!("m{n}"), START);
            assert_eq!(seen.claim(now, more.claim()), Err(Full::NoRoom));
        }
        for request in &requests {
            assert_eq!(seen.claim(now, request.claim()), Ok(Claimed::Replayed));
        }
        // All of them make room, in any order.
        let later = ms((START + 361) * 1_000);
        for n in (0..capacity).rev() {
            let next = fresh(&format!("n{n}"), START + 100);
            assert_eq!(seen.claim(later, next.claim()), Ok(Claimed::Fresh));
        }
        assert_eq!(seen.claim(later, fresh("last", START + 100).claim()), Err(Full::NoRoom));
    }
    assert_eq!(Refusal::from(Full::NoRoom), Refusal::NoncesUnavailable);
    assert_eq!(size_of::<Entry>(), 16);
}

// rule: SIGN-23
#[test]
fn refuses_after_a_restart_what_may_be_known() {
    let boot = ms(START * 1_000 + 500);
    let mut seen = ReplayWindow::new([Entry::EMPTY; 4]);
    seen.after_boot(boot, Window::default());
    for (t, outcome) in [
        (START - 300, Err(Full::AfterBoot)),
        (START, Err(Full::AfterBoot)),
        (START + 300, Err(Full::AfterBoot)),
        (START + 301, Ok(Claimed::Fresh)),
    ] {
        assert_eq!(seen.claim(boot, fresh("n", t).claim()), outcome, "{t}");
        assert_eq!(outcome.is_ok(), seen.claim(boot, fresh("n", t).claim()).is_ok());
    }
    // An earlier moment takes nothing back.
    seen.after_boot(ms(0), Window::default());
    assert_eq!(seen.claim(boot, fresh("m", START + 300).claim()), Err(Full::AfterBoot));
}

// rule: SIGN-24
#[test]
fn a_clock_set_back_opens_nothing() {
    let (one, other) = (fresh("one", START), fresh("other", START + 400));
    let mut seen = ReplayWindow::new([Entry::EMPTY; 1]);
    assert_eq!(seen.claim(ms(START * 1_000), one.claim()), Ok(Claimed::Fresh));
    assert_eq!(seen.claim(ms((START + 361) * 1_000), other.claim()), Ok(Claimed::Fresh));
    // The first is forgotten, and the clock says that it must not be.
    let back = ms((START + 300) * 1_000);
    assert_eq!(seen.claim(back, one.claim()), Err(Full::ClockSetBack));
    assert_eq!(seen.claim(back, other.claim()), Ok(Claimed::Replayed));
    // A leap forwards and back: it recovers as soon as nothing forgotten could be meant.
    let mut seen = ReplayWindow::new([Entry::EMPTY; 1]);
    assert_eq!(seen.claim(ms(START * 1_000), one.claim()), Ok(Claimed::Fresh));
    let far = START + 1_000_000_000;
    assert_eq!(seen.claim(ms(far * 1_000), fresh("far", far).claim()), Ok(Claimed::Fresh));
    assert_eq!(seen.claim(back, one.claim()), Err(Full::ClockSetBack));
}

#[test]
fn times_at_both_ends_are_judged() {
    for t in [0, 1, 300, START, u64::from(u32::MAX), MAX_TIME] {
        let mut seen = ReplayWindow::new([Entry::EMPTY; 2]);
        let request = fresh("n", t);
        assert_eq!(seen.claim(ms(t * 1_000), request.claim()), Ok(Claimed::Fresh), "{t}");
        assert_eq!(seen.claim(ms(t * 1_000), request.claim()), Ok(Claimed::Replayed), "{t}");
    }
    let mut seen = ReplayWindow::new([Entry::EMPTY; 2]);
    assert_eq!(seen.claim(ms(0), fresh("n", MAX_TIME).claim()), Err(Full::TooFar));
    assert_eq!(seen.claim(ms(u64::MAX), fresh("n", 0).claim()), Ok(Claimed::Fresh));
}

/// What a store must do, without a bound on memory and with names in full.
#[derive(Default)]
struct Model {
    /// Name, and the last ms at which it must be remembered.
    known: HashMap<String, u64>,
    capacity: usize,
}

impl Model {
    fn claim(&mut self, now: u64, genuine: &Genuine) -> Result<Claimed, Full> {
        let claim = genuine.claim();
        let live = self.known.values().filter(|until| **until >= now).count();
        match self.known.get(&claim.to_string()) {
            Some(until) if *until >= now => Ok(Claimed::Replayed),
            _ if live >= self.capacity => Err(Full::NoRoom),
            _ => {
                self.known.insert(claim.to_string(), claim.forget_after().get());
                Ok(Claimed::Fresh)
            }
        }
    }
}

proptest! {
    /// While the clock goes forwards the window is the model.
    // rule: SIGN-14
    #[test]
    fn is_the_model(
        capacity in 0_usize..12,
        steps in prop::collection::vec((0_u64..120_000, 0_u8..20, 0_u64..600, 0_u32..400), 1..120),
    ) {
        let mut seen = ReplayWindow::new(vec![Entry::EMPTY; capacity]);
        let mut model = Model { capacity, ..Model::default() };
        let mut now = START * 1_000;
        for (pass, nonce, ahead, window) in steps {
            now += pass;
            let t = (now / 1_000 + ahead).saturating_sub(300);
            let request = genuine("a", &format!("n{nonce}"), t, window);
            let outcome = seen.claim(ms(now), request.claim());
            prop_assert_eq!(outcome, model.claim(now, &request));
        }
    }

    /// Whatever the clock does, nothing that a verifier would let through is granted twice.
    // rule: SIGN-24
    #[test]
    fn grants_nothing_twice(
        capacity in 1_usize..6,
        steps in prop::collection::vec((0_u64..1_500, 0_u8..9, 0_u64..600), 1..120),
    ) {
        let mut seen = ReplayWindow::new(vec![Entry::EMPTY; capacity]);
        let mut granted: HashMap<(u8, u64), u64> = HashMap::new();
        for (second, nonce, ahead) in steps {
            let now = START + second;
            // Few times, so that requests come again.
            let t = (now + ahead - 300) / 200 * 200;
            let timely = now.abs_diff(t) <= 300;
            let request = fresh(&format!("n{nonce}x{t}"), t);
            if timely && seen.claim(ms(now * 1_000), request.claim()) == Ok(Claimed::Fresh) {
                prop_assert_eq!(granted.insert((nonce, t), now), None);
            }
        }
    }

    /// Nearly full and quite full, for long: what is live is known, in whatever place it stands.
    #[test]
    fn stays_exact_when_full(capacity in 1_usize..40, seed: u16, lives in prop::collection::vec(0_u32..300, 80)) {
        let mut seen = ReplayWindow::new(vec![Entry::EMPTY; capacity]);
        let mut model = Model { capacity, ..Model::default() };
        let mut all = Vec::new();
        for (n, life) in lives.into_iter().enumerate() {
            let now = START + 7 * n as u64;
            let request = genuine("a", &format!("s{seed}n{n}"), now, life);
            prop_assert_eq!(seen.claim(ms(now * 1_000), request.claim()), model.claim(now * 1_000, &request));
            all.push(request);
            for request in &all {
                if request.claim().forget_after() >= ms(now * 1_000) {
                    let model = model.claim(now * 1_000, request);
                    prop_assert_eq!(seen.claim(ms(now * 1_000), request.claim()), model);
                }
            }
        }
    }
}
