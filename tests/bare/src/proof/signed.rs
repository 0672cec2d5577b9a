//! `signed`: both ends, and the window of nonces.

use triwire::signed::{
    self, Claimed, Entry, Genuine, Key, KeyId, Nonce, Presented, ReplayWindow, Signing, Target,
    Window,
};
use triwire::time::UnixMillis;

use crate::{any, bytes, done, judged, shown, text};

pub(crate) fn run() {
    let now = any(UnixMillis::default());
    let Some(key) = judged(Key::new(bytes())) else { return };
    let Some(target) = judged(Target::new(text(), text(), text())) else { return };
    done((target.method(), target.host(), target.path(), any(target) == target));
    sign(now, &key, target);
    if let Some(genuine) = verify(now, &key, target) {
        claim(now, &genuine);
        if let Some(accepted) = judged(genuine.accept(any(Claimed::Fresh))) {
            shown(accepted.key_id);
        }
    }
}

fn sign(now: UnixMillis, key: &Key, target: Target<'_>) {
    let Some(id) = judged(KeyId::parse(text())) else { return };
    done((any(id) == id, any(id) < id, id.as_str()));
    let mut made = [0; signed::MADE_NONCE_LENGTH];
    done(Nonce::make(any([0; 16]), &mut made).as_str());
    done(judged(Nonce::counted(key, any(1), now, any(1), &mut made)).map(|nonce| nonce.as_str()));
    let Some(nonce) = judged(Nonce::parse(text())) else { return };
    let mut signing = Signing::new(now, id, key, target, nonce);
    signing.feed(bytes());
    done(judged(signing.finish().write(any(&mut [0; 64]))));
    done(judged(signed::sign(now, id, key, target, nonce, bytes(), any(&mut [0; 64]))));
    done(judged(signed::lines(now, id, target, nonce, bytes(), any(&mut [0; 64]))));
}

fn verify(now: UnixMillis, key: &Key, target: Target<'_>) -> Option<Genuine> {
    let presented = judged(Presented::parse(any(&[&[][..]; 2][..]).iter().copied()))?;
    let timely = judged(presented.check(now, window()?))?;
    shown(timely.key_id());
    let mut verification = timely.with(target, &any(key.clone()));
    verification.feed(bytes());
    let genuine = judged(verification.finish(any(now)));
    if let Err(refusal) = genuine.as_ref().ok_or(any(signed::Refusal::UnknownKey)) {
        done((refusal.as_str(), refusal.status()));
    }
    genuine
}

fn window() -> Option<Window> {
    judged(Window::seconds(any(1)))
}

fn claim(now: UnixMillis, genuine: &Genuine) {
    let claim = genuine.claim();
    shown(claim);
    shown(genuine.key_id());
    done((claim.key_id(), claim.digest(), claim.signed_at(), claim.forget_after()));
    done(judged(claim.write_name(any(&mut [0; 64]))));
    let mut entries = [Entry::EMPTY; 8];
    let mut seen = ReplayWindow::new(any(&mut entries[..]));
    if let Some(window) = window() {
        seen.after_boot(now, window);
    }
    done(seen.capacity());
    for _ in 0..any(3) {
        done(judged(seen.claim(any(now), claim)));
    }
}
