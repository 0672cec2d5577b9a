//! What every measured program has, the empty one too, so that the difference is the capability.

use core::hint::black_box;
use core::panic::PanicInfo;

use cortex_m::register::msp;
use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use cortex_m_semihosting::hio;

/// A hijacked request as it comes over the wire, and the client's frames behind it.
const REQUEST: &[u8] = b"POST /exec?stdin=1 HTTP/1.1\r\nHost: mcu:80\r\n\
Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n\
Accept: application/octet-stream, application/json\r\nContent-Type: application/json\r\n\
Content-Length: 71\r\n\r\n\
{\"cmd\":[\"sha256\",\"-\"],\"env\":{\"LANG\":\"C\"},\"cwd\":\"/data\",\"timeout_s\":1e1}\
\x04\0\0\0\0\0\0\x05hello\x05\0\0\0\0\0\0\0";

/// What a guest answers.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n\
\x01\0\0\0\0\0\0\x05hello\x02\0\0\0\0\0\0\x04oops\x03\0\0\0\0\0\0\x3c\
{\"exit_code\":-1,\"duration_ms\":20,\"error\":\"sha256: no stdin\"}";

/// The request's record alone.
const RECORD: &[u8] =
    b"{\"cmd\":[\"sha256\",\"-\"],\"env\":{\"LANG\":\"C\"},\"cwd\":\"/data\",\"timeout_s\":1e1}";

/// The client's frames alone.
const FRAMES: &[u8] = b"\x04\0\0\0\0\0\0\x05hello\x05\0\0\0\0\0\0\0";

/// A gateway's reset, its stream 0, five bytes on it, their total, and the close.
const LINE: &[u8] = b"\
\x01\x01\x02\x01\x01\x01\x01\x02\x01\x01\x06\x01\xa3\x18\x5cP\x03\xc0*\0\
\x02\x01\x01\x02\x01\x03\x88l\0\
\x02\x02\x01\x08hello}\xfa\0\
\x02\x04\x01\x01\x01\x02\x05\x01\x02\x01\x03\x5cj\0\
\x02\x03\x03H\x5c\0";

/// What arrives, unknown to the compiler.
#[allow(dead_code, reason = "each program reads its own")]
pub(crate) struct Wire {
    pub(crate) request: &'static [u8],
    pub(crate) answer: &'static [u8],
    pub(crate) record: &'static [u8],
    pub(crate) frames: &'static [u8],
    pub(crate) line: &'static [u8],
}

/// Fills a link's window, as an adapter would.
#[allow(dead_code, reason = "the empty program has no window")]
pub(crate) fn receive<'w>(wire: &[u8], window: &'w mut [u8]) -> &'w [u8] {
    for (to, from) in window.iter_mut().zip(wire) {
        *to = *from;
    }
    window.get(..wire.len()).unwrap_or_default()
}

/// Runs a capability, then writes how deep the stack went and how many bytes of buffers the
/// caller gave: `stack N buffers N`.
pub(crate) fn measure(buffers: usize, run: impl FnOnce(&Wire) -> bool) -> ! {
    let wire = black_box(Wire {
        request: REQUEST,
        answer: ANSWER,
        record: RECORD,
        frames: FRAMES,
        line: LINE,
    });
    let top = msp::read() as usize;
    let passed = outlined(run, &wire);
    let stack = top.saturating_sub(deepest());
    if let Ok(mut host) = hio::hstdout() {
        let mut write = |name: &[u8], number| {
            let mut digits = [b' '; 11];
            decimal(number, &mut digits);
            // A host that does not listen is no reason to stop.
            let _ = host.write_all(name);
            let _ = host.write_all(&digits);
        };
        write(b"stack", stack);
        write(b" buffers", buffers);
        write(b" end", 0);
    }
    debug::exit(if passed { EXIT_SUCCESS } else { EXIT_FAILURE });
    loop {}
}

/// Keeps the capability's stack apart from ours.
#[inline(never)]
fn outlined(run: impl FnOnce(&Wire) -> bool, wire: &Wire) -> bool {
    run(wire)
}

fn decimal(mut number: usize, digits: &mut [u8]) {
    for digit in digits.iter_mut().skip(1).rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The lowest address of the stack that no longer holds the paint of the start-up code.
fn deepest() -> usize {
    // SAFETY: cortex-m-rt's linker script defines it; only its address is used.
    #[allow(unsafe_code)]
    unsafe extern "C" {
        static _stack_end: u32;
    }
    const PAINT: u32 = 0xcccc_cccc;
    let mut word = &raw const _stack_end;
    // SAFETY: begins at the end of the stack that the linker script names and stops below the
    // frame of this function, which is not paint.
    #[allow(unsafe_code)]
    while unsafe { word.read_volatile() } == PAINT {
        word = word.wrapping_add(1);
    }
    word as usize
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    debug::exit(EXIT_FAILURE);
    loop {}
}
