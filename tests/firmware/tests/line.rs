//! The serial line's two ends against each other, on a Cortex-M3, and the clock that it sets.

#![no_std]
#![no_main]

use cortex_m_rt as _;
use triwire_firmware_tests as _;

#[defmt_test::tests]
mod tests {
    use core::time::Duration;

    use triwire::line::{Event, Line, Packet, Role, Slot};
    use triwire::time::{ClockUnset, Instant, UnixMillis};
    use triwire_embedded::clock::{Clock, Offer};
    use triwire_firmware_tests::line::run;

    #[test]
    fn a_slot_takes_what_is_promised_here() {
        defmt::assert!(size_of::<Slot>() <= 64);
    }

    #[test]
    fn a_stream_arrives_and_closes() {
        let ran = run(usize::MAX);
        defmt::assert!(ran.lost.is_none() && ran.streams == 1, "{}", ran.streams);
        defmt::assert!(ran.packets > 10 && ran.packets < 40, "{}", ran.packets);
    }

    // rule: LINE-7
    #[test]
    fn one_packet_lost_heals_or_ends_its_stream_by_name() {
        let (mut healed, mut ended) = (0, 0);
        for lost in 0..run(usize::MAX).packets {
            let ran = run(lost);
            if ran.lost.is_some() {
                defmt::assert!(ran.streams == 2, "packet {}: {} streams", lost, ran.streams);
                ended += 1;
            } else {
                defmt::assert!(ran.streams == 1, "packet {}: {} streams", lost, ran.streams);
                healed += 1;
            }
        }
        // Data that is lost is never sent again; totals and resets are.
        defmt::assert!(healed > 2 && ended > 2, "{} healed, {} ended", healed, ended);
    }

    #[test]
    fn the_line_sets_the_clock() {
        let mut clock = Clock::new();
        let mut gateway = Line::new(Role::Gateway, 0, 64, [Slot::EMPTY; 1]);
        let mut device = Line::new(Role::Device, 3, 64, [Slot::EMPTY; 1]);
        let (boot, mut out, mut packet) = (Instant::from_millis(20), [0; 20], Packet::new());
        defmt::assert!(clock.unix(boot) == Err(ClockUnset));

        let unix = UnixMillis::new(1_800_000_000_000);
        let reset = gateway.write_due(boot, unix, &mut out).unwrap().unwrap();
        let Some(Event::Reset { wall, .. }) = device.feed(boot, &mut &reset[..], &mut packet)
        else {
            defmt::panic!("the reset did not arrive");
        };
        defmt::assert!(clock.offer(boot, wall) == Offer::Taken);
        let later = boot.saturating_add(Duration::from_micros(2_500_900));
        defmt::assert!(clock.unix(later) == Ok(UnixMillis::new(1_800_000_002_500)));
        defmt::assert!(clock.offer(later, unix) == Offer::Kept { apart_ms: 2_500 });
    }
}
