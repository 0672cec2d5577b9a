//! Signed requests on a Cortex-M3: the vectors of the hosts, and a device that is told the time by
//! its line.

#![no_std]
#![no_main]

use cortex_m_rt as _;
use triwire::line::{Event, Line, Packet, Role, Slot};
use triwire::signed::Target;
use triwire::time::{Instant, UnixMillis};
use triwire_embedded::clock::Clock;
use triwire_firmware_tests as _;

const SECRET: &[u8] = b"a secret of at least 32 bytes, kept apart";
const BODY: &[u8] = b"{\"relay\":1}";

fn target() -> Target<'static> {
    defmt::unwrap!(Target::new("POST", "mcu.local:8080", "/tools?v=1").ok())
}

/// A clock that the reset packet of a gateway has set to `seconds`.
fn told(now: Instant, seconds: u64) -> Clock {
    let mut clock = Clock::new();
    let mut gateway = Line::new(Role::Gateway, 0, 64, [Slot::EMPTY; 1]);
    let mut device = Line::new(Role::Device, 3, 64, [Slot::EMPTY; 1]);
    let (mut out, mut packet) = ([0; 20], Packet::new());
    let wall = UnixMillis::new(seconds * 1_000);
    let reset = defmt::unwrap!(defmt::unwrap!(gateway.write_due(now, wall, &mut out).ok()));
    let event = device.feed(now, &mut &reset[..], &mut packet);
    let Some(Event::Reset { wall, .. }) = event else { defmt::panic!("no reset arrived") };
    let _ = clock.offer(now, wall);
    clock
}

#[defmt_test::tests]
mod tests {
    use core::time::Duration;

    use triwire::signed::{
        Claimed, Entry, Key, KeyId, MAX_HEADER_LENGTH, Nonce, Presented, Refusal, ReplayWindow,
        Target, Window, sign,
    };
    use triwire::time::{Instant, UnixMillis};
    use triwire_embedded::clock::Clock;
    use triwire_embedded::signed::{Receiver, Refused, SignError, Signer};
    use triwire_firmware_tests::signed::VECTORS;

    use super::{BODY, SECRET, target, told};

    // rule: SIGN-2
    #[test]
    fn the_hosts_vectors_are_signed_and_verified() {
        defmt::assert!(VECTORS.len() > 20, "{}", VECTORS.len());
        for vector in VECTORS {
            let now = UnixMillis::new(vector.seconds.saturating_mul(1_000));
            let id = defmt::unwrap!(KeyId::parse(vector.key_id).ok());
            let key = defmt::unwrap!(Key::new(vector.secret.as_bytes()).ok());
            let target = Target::new(vector.method, vector.host, vector.path);
            let target = defmt::unwrap!(target.ok());
            let nonce = defmt::unwrap!(Nonce::parse(vector.nonce).ok());
            let mut out = [0; MAX_HEADER_LENGTH];
            let header = sign(now, id, &key, target, nonce, vector.body, &mut out);
            defmt::assert!(header == Ok(vector.header), "{}", vector.id);

            let present = || {
                let header = [vector.header.as_bytes()];
                let timely = Presented::parse(header)?.check(now, Window::default())?;
                Ok::<_, Refusal>(timely.with(target, &key))
            };
            let mut verification = defmt::unwrap!(present());
            for piece in vector.body.chunks(7) {
                verification.feed(piece);
            }
            let genuine = defmt::unwrap!(verification.finish(now), "{}", vector.id);
            let mut seen = ReplayWindow::new([Entry::EMPTY; 2]);
            defmt::assert!(seen.claim(now, genuine.claim()) == Ok(Claimed::Fresh));
            defmt::assert!(seen.claim(now, genuine.claim()) == Ok(Claimed::Replayed));

            let mut forged = defmt::unwrap!(present());
            forged.feed(vector.body);
            forged.feed(b" ");
            defmt::assert!(forged.finish(now).err() == Some(Refusal::WrongSignature));
        }
    }

    // rule: SIGN-25
    #[test]
    fn a_device_signs_once_its_line_told_the_time() {
        let now = Instant::from_millis(20);
        let id = defmt::unwrap!(KeyId::parse("mcu.1").ok());
        let mut signer = Signer::new(id, defmt::unwrap!(Key::new(SECRET).ok()), 3);
        let mut out = [0; MAX_HEADER_LENGTH];
        let unset = signer.sign(&Clock::new(), now, target(), BODY, &mut out);
        defmt::assert!(unset == Err(SignError::ClockUnset));

        let clock = told(now, 1_800_000_000);
        let mut other = [0; MAX_HEADER_LENGTH];
        let first = defmt::unwrap!(signer.sign(&clock, now, target(), BODY, &mut out));
        let second = defmt::unwrap!(signer.sign(&clock, now, target(), BODY, &mut other));
        defmt::assert!(first.starts_with("v1 k=mcu.1,t=1800000000,n="));
        defmt::assert!(first != second);
    }

    // rule: SIGN-24
    #[test]
    fn a_device_verifies_once_its_line_told_the_time() {
        let boot = Instant::from_millis(20);
        let key = defmt::unwrap!(Key::new(SECRET).ok());
        let id = defmt::unwrap!(KeyId::parse("gateway.1").ok());
        let mut receiver = Receiver::new([Entry::EMPTY; 8], Window::default());
        // What is signed within the first window of a receiver that remembers nothing is refused.
        let clock = told(boot, 1_800_000_000);
        let now = boot.saturating_add(Duration::from_secs(301));
        let at = |seconds: u64, out| {
            let nonce = defmt::unwrap!(Nonce::parse("n-1").ok());
            let now = UnixMillis::new(seconds * 1_000);
            defmt::unwrap!(sign(now, id, &key, target(), nonce, BODY, out).ok())
        };
        let mut out = [0; MAX_HEADER_LENGTH];
        let header = at(1_800_000_301, &mut out);
        let present = [header.as_bytes()];
        defmt::assert!(
            receiver.present(&Clock::new(), now, present).err() == Some(Refused::ClockUnset)
        );
        for expected in [None, Some(Refused::Request(Refusal::Replayed))] {
            let timely = defmt::unwrap!(receiver.present(&clock, now, present));
            defmt::assert!(timely.key_id() == id);
            let mut verification = timely.with(target(), &key);
            verification.feed(BODY);
            defmt::assert!(receiver.accept(&clock, now, verification).err() == expected);
        }
        let mut out = [0; MAX_HEADER_LENGTH];
        let header = at(1_800_000_300, &mut out);
        let timely = defmt::unwrap!(receiver.present(&clock, now, [header.as_bytes()]));
        let mut verification = timely.with(target(), &key);
        verification.feed(BODY);
        let refused = receiver.accept(&clock, now, verification).err();
        defmt::assert!(refused == Some(Refused::Request(Refusal::NoncesUnavailable)));
    }
}
