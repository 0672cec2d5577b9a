//! The first micro:bit, a Cortex-M0 (nRF51822): the line is the UART of its USB port at 115 200
//! baud, the output is its first LED, the sensor that of the chip's own temperature.

#![no_std]
#![no_main]

use core::convert::Infallible;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m_rt::{ExceptionFrame, entry, exception};
use embedded_io::{ErrorType, Read, ReadReady, Write, WriteReady};
use triwire_firmware::channel::Channel;
use triwire_firmware::cortex::{self, Register};
use triwire_firmware::device::{Device, Turn, sessions};
use triwire_firmware::ring::Ring;
use triwire_firmware::session::Session;
use triwire_firmware::ticks::Ticks;
use triwire_firmware::tools::Board;

/// Sessions at once, and bytes of each of their three buffers; the channel has one such buffer.
const SESSIONS: usize = 2;
const BUFFER: usize = 512;
/// Streams of the line: the sessions', and the channel's.
const STREAMS: usize = SESSIONS + 1;

/// What came and was not looked at: all that may be on its way, as credit allows.
static RECEIVED: Ring<{ (2 * STREAMS * BUFFER).next_power_of_two() }> = Ring::new();
/// Milliseconds since boot.
static MILLIS: AtomicU32 = AtomicU32::new(0);

// SAFETY: addresses of the nRF51's reference manual.
#[allow(unsafe_code)]
mod registers {
    use super::Register;

    macro_rules! registers {
        ($($name:ident = $address:literal;)*) => {
            $(pub(crate) const $name: Register = unsafe { Register::at($address) };)*
        };
    }

    registers! {
        CLOCK_HFCLKSTART = 0x4000_0000;
        CLOCK_HFCLKSTARTED = 0x4000_0100;
        UART_STARTRX = 0x4000_2000;
        UART_STARTTX = 0x4000_2008;
        UART_RXDRDY = 0x4000_2108;
        UART_TXDRDY = 0x4000_211c;
        UART_INTENSET = 0x4000_2304;
        UART_ENABLE = 0x4000_2500;
        UART_PSELTXD = 0x4000_250c;
        UART_PSELRXD = 0x4000_2514;
        UART_RXD = 0x4000_2518;
        UART_TXD = 0x4000_251c;
        UART_BAUDRATE = 0x4000_2524;
        TIMER_START = 0x4000_8000;
        TIMER_COMPARE = 0x4000_8140;
        TIMER_SHORTS = 0x4000_8200;
        TIMER_INTENSET = 0x4000_8304;
        TIMER_BITMODE = 0x4000_8508;
        TIMER_PRESCALER = 0x4000_8510;
        TIMER_CC = 0x4000_8540;
        TEMP_START = 0x4000_c000;
        TEMP_READY = 0x4000_c100;
        TEMP = 0x4000_c508;
        GPIO_OUT = 0x5000_0504;
        PIN_COLUMN = 0x5000_0710; // the configuration of pin 4
        PIN_ROW = 0x5000_0734; // of pin 13
        PIN_TXD = 0x5000_0760; // of pin 24
    }
}
use registers::*;

const UART_INTERRUPT: u8 = 2;
const TIMER_INTERRUPT: u8 = 8;
/// Where the board has its USB port.
const TXD_PIN: u32 = 24;
const RXD_PIN: u32 = 25;

/// The UART: received by interrupt, sent by looking.
struct Uart {
    /// Whether a byte was given to it whose end has not been seen.
    sending: bool,
}

impl Uart {
    fn start() -> Self {
        PIN_TXD.write(0b11); // an output
        UART_PSELTXD.write(TXD_PIN);
        UART_PSELRXD.write(RXD_PIN);
        UART_BAUDRATE.write(0x01d7_e000); // 115 200
        UART_ENABLE.write(4);
        UART_INTENSET.write(1 << 2); // received
        UART_STARTTX.write(1);
        UART_STARTRX.write(1);
        cortex::unmask(UART_INTERRUPT);
        Self { sending: false }
    }

    fn interrupt() {
        while UART_RXDRDY.read() != 0 {
            UART_RXDRDY.write(0);
            RECEIVED.push(UART_RXD.read() as u8);
        }
    }

    fn is_free(&self) -> bool {
        !self.sending || UART_TXDRDY.read() != 0
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl ReadReady for Uart {
    fn read_ready(&mut self) -> Result<bool, Infallible> {
        Ok(!RECEIVED.is_empty())
    }
}

impl Read for Uart {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Infallible> {
        Ok(RECEIVED.pop(bytes))
    }
}

impl WriteReady for Uart {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.is_free())
    }
}

impl Write for Uart {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let mut count = 0;
        for byte in bytes {
            if !self.is_free() {
                break;
            }
            UART_TXDRDY.write(0);
            UART_TXD.write((*byte).into());
            self.sending = true;
            count += 1;
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Starts the crystal, which the UART's speed needs, and a tick each ms. This chip has no SysTick.
fn start_clock() {
    CLOCK_HFCLKSTART.write(1);
    while CLOCK_HFCLKSTARTED.read() == 0 {}
    TIMER_BITMODE.write(0); // 16 bits
    TIMER_PRESCALER.write(4); // 16 MHz by 2 to the 4th: µs
    TIMER_CC.write(1_000);
    TIMER_SHORTS.write(1); // begins anew at this count
    TIMER_INTENSET.write(1 << 16);
    TIMER_START.write(1);
    cortex::unmask(TIMER_INTERRUPT);
}

/// Where the first LED is: lit while the row is high and the column low.
const ROW: u32 = 1 << 13;
const COLUMN: u32 = 1 << 4;

fn start_board() {
    PIN_COLUMN.write(0b11); // outputs
    PIN_ROW.write(0b11);
}

fn set_led(on: bool) -> bool {
    let others = GPIO_OUT.read() & !(ROW | COLUMN);
    GPIO_OUT.write(others | if on { ROW } else { COLUMN });
    GPIO_OUT.read() & (ROW | COLUMN) == ROW
}

fn start_sensor() {
    TEMP_READY.write(0);
    TEMP_START.write(1);
}

fn sensor() -> Option<i32> {
    // In quarters of 1 °C.
    (TEMP_READY.read() != 0).then(|| TEMP.read() as i32 * 250)
}

const BOARD: Board =
    Board { peak_stack: cortex::peak_stack, set_output: set_led, start_sensor, sensor };

#[entry]
fn main() -> ! {
    static mut DEVICE: Device<STREAMS, BUFFER> = Device::new(0, BOARD);
    static mut PLACES: [Session<BUFFER>; SESSIONS] = sessions();
    static mut CHANNEL: Channel<BUFFER> = Channel::new();
    start_clock();
    start_board();
    let mut uart = Uart::start();
    let mut ticks = Ticks::new();
    loop {
        let now = ticks.at(MILLIS.load(Ordering::Relaxed));
        // A watchdog is fed here: a pass is bounded. The tick wakes us each ms, so what is due at
        // some time needs no timer of its own.
        if let Turn::Idle { .. } = DEVICE.turn(now, PLACES, CHANNEL, &mut uart) {
            cortex::sleep_unless(|| !RECEIVED.is_empty());
        }
    }
}

// SAFETY: it touches nothing but the UART, the timer and atomics.
#[allow(unsafe_code)]
#[exception]
unsafe fn DefaultHandler(number: i16) {
    if number == i16::from(UART_INTERRUPT) {
        Uart::interrupt();
    } else if number == i16::from(TIMER_INTERRUPT) {
        TIMER_COMPARE.write(0);
        MILLIS.store(MILLIS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

// SAFETY: it leaves everything as it is and starts anew.
#[allow(unsafe_code)]
#[exception]
unsafe fn HardFault(_: &ExceptionFrame) -> ! {
    cortex::restart()
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    cortex::restart()
}
