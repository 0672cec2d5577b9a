//! The board LM3S6965EVB, a Cortex-M3: the line is UART 0 at 115 200 baud, the output is its LED, the
//! sensor that of the chip's own temperature.

#![no_std]
#![no_main]

use core::convert::Infallible;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::peripheral::syst::SystClkSource;
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
const BUFFER: usize = 2048;
/// Streams of the line: the sessions', and the channel's.
const STREAMS: usize = SESSIONS + 1;

/// The processor's clock, and the line's speed.
const CLOCK: u32 = 50_000_000;
const BAUD: u32 = 115_200;

/// What came and was not looked at: all that may be on its way, as credit allows.
static RECEIVED: Ring<{ (2 * STREAMS * BUFFER).next_power_of_two() }> = Ring::new();
/// Milliseconds since boot.
static MILLIS: AtomicU32 = AtomicU32::new(0);

// SAFETY: addresses of the LM3S6965's data sheet.
#[allow(unsafe_code)]
mod registers {
    use super::Register;

    macro_rules! registers {
        ($($name:ident = $address:literal;)*) => {
            $(pub(crate) const $name: Register = unsafe { Register::at($address) };)*
        };
    }

    registers! {
        RIS = 0x400f_e050; // system control
        RCC = 0x400f_e060;
        RCGC0 = 0x400f_e100;
        RCGC1 = 0x400f_e104;
        RCGC2 = 0x400f_e108;
        GPIO_A_AFSEL = 0x4000_4420;
        GPIO_A_DEN = 0x4000_451c;
        UART_DR = 0x4000_c000;
        UART_FR = 0x4000_c018;
        UART_IBRD = 0x4000_c024;
        UART_FBRD = 0x4000_c028;
        UART_LCRH = 0x4000_c02c;
        UART_CTL = 0x4000_c030;
        UART_IM = 0x4000_c038;
        UART_ICR = 0x4000_c044;
        LED = 0x4002_5004; // the data of port F, bit 0 alone
        GPIO_F_DIR = 0x4002_5400;
        GPIO_F_DEN = 0x4002_551c;
        TIMER_CFG = 0x4003_0000;
        TIMER_MODE = 0x4003_0004;
        TIMER_CTL = 0x4003_000c;
        TIMER_LOAD = 0x4003_0028;
        ADC_ACTIVE = 0x4003_8000;
        ADC_EMUX = 0x4003_8014;
        ADC_CTL3 = 0x4003_80a4;
        ADC_FIFO3 = 0x4003_80a8;
        ADC_STATE3 = 0x4003_80ac;
    }
}
use registers::*;

const UART_INTERRUPT: u8 = 5;
/// Of UART_FR: nothing to read, no room to write.
const RXFE: u32 = 1 << 4;
const TXFF: u32 = 1 << 5;
/// Of ADC_STATE3: no sample.
const FIFO_EMPTY: u32 = 1 << 8;

/// UART 0: received by interrupt, sent by looking.
struct Uart;

impl Uart {
    fn start() -> Self {
        RCGC1.write(RCGC1.read() | 1);
        RCGC2.write(RCGC2.read() | 1);
        // The clocks take some cycles to reach them.
        cortex_m::asm::delay(16);
        GPIO_A_AFSEL.write(GPIO_A_AFSEL.read() | 0b11);
        GPIO_A_DEN.write(GPIO_A_DEN.read() | 0b11);
        UART_CTL.write(0);
        // In 64ths, rounded.
        let divisor = (CLOCK * 4 + BAUD / 2) / BAUD;
        UART_IBRD.write(divisor / 64);
        UART_FBRD.write(divisor % 64);
        UART_LCRH.write(0b11 << 5 | 1 << 4); // 8 bits, with the FIFOs
        UART_IM.write(1 << 4 | 1 << 6); // received, and received some time ago
        UART_CTL.write(1 << 9 | 1 << 8 | 1);
        // What a restart left in the FIFO would keep it from ever asking for attention again.
        Self::interrupt();
        cortex::unmask(UART_INTERRUPT);
        Self
    }

    fn interrupt() {
        UART_ICR.write(1 << 4 | 1 << 6);
        while UART_FR.read() & RXFE == 0 {
            // The upper bits tell of errors; the line's check finds what they mean.
            RECEIVED.push(UART_DR.read() as u8);
        }
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
        Ok(UART_FR.read() & TXFF == 0)
    }
}

impl Write for Uart {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let mut count = 0;
        for byte in bytes {
            if UART_FR.read() & TXFF != 0 {
                break;
            }
            UART_DR.write((*byte).into());
            count += 1;
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Sets up the LED, and the converter: its last sequencer takes one sample of the chip's own
/// temperature whenever timer 0 runs out.
fn start_board() {
    RCGC0.write(RCGC0.read() | 1 << 16); // the converter
    RCGC1.write(RCGC1.read() | 1 << 16); // timer 0
    RCGC2.write(RCGC2.read() | 1 << 5); // port F
    cortex_m::asm::delay(16);
    GPIO_F_DIR.write(GPIO_F_DIR.read() | 1);
    GPIO_F_DEN.write(GPIO_F_DEN.read() | 1);
    TIMER_CFG.write(0); // 32 bits
    TIMER_MODE.write(1); // once
    ADC_EMUX.write(5 << 12);
    ADC_CTL3.write(1 << 3 | 1 << 1); // the temperature, and no further sample
    ADC_ACTIVE.write(1 << 3);
}

fn set_led(on: bool) -> bool {
    LED.write(on.into());
    LED.read() & 1 != 0
}

/// Lets timer 0 run out in 1 ms.
fn start_sensor() {
    while ADC_STATE3.read() & FIFO_EMPTY == 0 {
        let _ = ADC_FIFO3.read();
    }
    TIMER_LOAD.write(CLOCK / 1_000);
    TIMER_CTL.write(1 << 5 | 1);
}

fn sensor() -> Option<i32> {
    if ADC_STATE3.read() & FIFO_EMPTY != 0 {
        return None;
    }
    // 147.5 °C less 225 °C for all of 1023.
    let sample = (ADC_FIFO3.read() & 0x3ff) as i32;
    Some(147_500 - sample * 225_000 / 1_023)
}

const BOARD: Board =
    Board { peak_stack: cortex::peak_stack, set_output: set_led, start_sensor, sensor };

/// Runs the processor at 50 MHz: the crystal of 8 MHz, the PLL, divided by 4.
fn start_clock() {
    const BYPASS: u32 = 1 << 11;
    const PLL_OFF: u32 = 1 << 13;
    RCC.write(RCC.read() | BYPASS);
    let crystal = RCC.read() & !(0xf << 6 | 0b11 << 4 | 1 | PLL_OFF) | 0xe << 6;
    RCC.write(crystal);
    let divided = crystal & !(0xf << 23) | 3 << 23 | 1 << 22;
    RCC.write(divided);
    while RIS.read() & 1 << 6 == 0 {}
    RCC.write(divided & !BYPASS);
}

#[entry]
fn main() -> ! {
    static mut DEVICE: Device<STREAMS, BUFFER> = Device::new(0, BOARD);
    static mut PLACES: [Session<BUFFER>; SESSIONS] = sessions();
    static mut CHANNEL: Channel<BUFFER> = Channel::new();
    start_clock();
    start_board();
    let mut uart = Uart::start();
    if let Some(mut core) = cortex_m::Peripherals::take() {
        core.SYST.set_clock_source(SystClkSource::Core);
        core.SYST.set_reload(CLOCK / 1_000 - 1);
        core.SYST.clear_current();
        core.SYST.enable_interrupt();
        core.SYST.enable_counter();
    }
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

#[exception]
fn SysTick() {
    MILLIS.store(MILLIS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

// SAFETY: it touches nothing but the UART and atomics.
#[allow(unsafe_code)]
#[exception]
unsafe fn DefaultHandler(number: i16) {
    if number == i16::from(UART_INTERRUPT) {
        Uart::interrupt();
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
