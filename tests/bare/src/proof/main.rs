//! The link proof: a program without std that calls every verb of the core with bytes that the
//! compiler cannot know, and whose panic handler calls a function that exists nowhere. Where a
//! panic can be reached, the linker misses that function; where it links, none can.

#![no_std]
#![no_main]

mod channel;
mod exec;
mod files;
mod head;
mod json;
mod line;
mod memory;
mod signed;
mod socket;

use core::fmt::{self, Display, Write};
use core::hint::black_box;
use core::panic::PanicInfo;

// SAFETY: defined nowhere, so never called: a program in which the call is left does not link.
#[allow(unsafe_code)]
unsafe extern "C" {
    safe fn triwire_a_panic_is_reachable() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    triwire_a_panic_is_reachable()
}

// SAFETY: the only symbol of this name; the program is linked and never started.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    loop {
        memory::run();
        json::run();
        exec::run();
        head::run();
        line::run();
        signed::run();
        socket::run();
        channel::run();
        files::run();
        planted();
    }
}

/// Any value at all, as far as the compiler can tell.
fn any<T>(value: T) -> T {
    black_box(value)
}

/// Bytes of any number and value.
fn bytes() -> &'static [u8] {
    black_box(&[])
}

/// Text of any length and content.
fn text() -> &'static str {
    black_box("")
}

/// Uses a value, so that what made it stays.
fn done<T>(value: T) {
    black_box(value);
}

/// Uses a value as people see it.
fn shown(value: impl Display) {
    // The sink takes everything.
    let _ = write!(Sink, "{value}");
}

/// Uses a result, and its error as people see it.
fn judged<T, E: Display>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| shown(error)).ok()
}

struct Sink;

impl Write for Sink {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        done(text);
        Ok(())
    }
}

/// The panics that show that the proof can fail.
fn planted() {
    #[cfg(feature = "planted-index")]
    done(bytes()[any(0_usize)]);
    #[cfg(feature = "planted-unwrap")]
    done(bytes().first().unwrap());
}
