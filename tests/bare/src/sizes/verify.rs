//! A receiver of signed requests: verification, a key that is made once, and eight nonces.

#![no_std]
#![no_main]

mod board;

use core::hint::black_box;

use cortex_m_rt::entry;
use triwire::signed::{Claimed, Entry, Key, Presented, Refusal, ReplayWindow, Target, Window};
use triwire::time::UnixMillis;

/// A request, and the header that other implementations make of it too.
const SECRET: &[u8] = b"a test secret of at least 32 bytes";
const BODY: &[u8] = b"{\"query\":\"base 25\"}";
const HEADER: &[u8] = b"v1 k=shop.1,t=1800000000,n=AAECAwQFBgcICQoLDA0ODw,\
s=SkH0iEF1rAAxVK0rxqfaG1ICWZ2V58wzVlfIChFYI1Q";

#[entry]
fn main() -> ! {
    static mut ENTRIES: [Entry; 8] = [Entry::EMPTY; 8];
    board::measure(size_of::<[Entry; 8]>(), |_| {
        let mut seen = ReplayWindow::new(&mut ENTRIES[..]);
        let now = black_box(UnixMillis::new(1_800_000_000_000));
        let mut received = || -> Result<bool, Refusal> {
            let timely = Presented::parse([black_box(HEADER)])?.check(now, Window::default())?;
            if black_box(timely.key_id()).as_str().is_empty() {
                return Err(Refusal::UnknownKey);
            }
            let target = Target::new("POST", black_box("shop.example"), "/assistant/tools");
            let (Ok(key), Ok(target)) = (Key::new(black_box(SECRET)), target) else {
                return Ok(false);
            };
            let mut verification = timely.with(target, &key);
            for piece in black_box(BODY).chunks(7) {
                verification.feed(piece);
            }
            let genuine = verification.finish(now)?;
            let claimed = seen.claim(now, genuine.claim())?;
            Ok(claimed == Claimed::Fresh && black_box(genuine.accept(claimed)).is_ok())
        };
        received() == Ok(true)
    })
}
