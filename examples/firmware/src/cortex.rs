//! What all boards with a Cortex-M have in common.

use core::ptr::{read_volatile, write_volatile};

use cortex_m::peripheral::{NVIC, SCB};

/// A register of a peripheral, by its address.
#[derive(Clone, Copy, Debug)]
pub struct Register(usize);

impl Register {
    /// Names the register at `address`.
    ///
    /// # Safety
    /// It must be the address of a register of 32 bits, aligned, of this chip, whose reads and
    /// writes change no memory that Rust knows of.
    #[allow(unsafe_code, reason = "who names an address answers for it")]
    #[must_use]
    pub const unsafe fn at(address: usize) -> Self {
        Self(address)
    }

    /// Reads it.
    #[must_use]
    pub fn read(self) -> u32 {
        // SAFETY: a register, as promised when it was named.
        #[allow(unsafe_code)]
        unsafe {
            read_volatile(self.0 as *const u32)
        }
    }

    /// Writes it.
    pub fn write(self, value: u32) {
        // SAFETY: a register, as promised when it was named.
        #[allow(unsafe_code)]
        unsafe {
            write_volatile(self.0 as *mut u32, value);
        }
    }
}

/// Lets an interrupt of the chip through; its handler is `DefaultHandler`, which is given
/// `number`.
pub fn unmask(number: u8) {
    // SAFETY: the set-enable registers of every Cortex-M; writing 1 enables one interrupt, whose
    // handler shares nothing with the loop but atomics.
    #[allow(unsafe_code)]
    let iser = unsafe { &(*NVIC::PTR).iser };
    if let Some(register) = iser.get(usize::from(number / 32)) {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            register.write(1 << (number % 32));
        }
    }
}

/// Sleeps until the next interrupt, unless `is_work` says that there is some.
///
/// Between that look and the sleep no interrupt is taken, and one that is pending ends the sleep.
pub fn sleep_unless(is_work: impl FnOnce() -> bool) {
    cortex_m::interrupt::free(|_| {
        if !is_work() {
            cortex_m::asm::wfi();
        }
    });
}

/// Starts the chip anew: what a broken invariant comes to, since the other end of the line then
/// learns that its sessions have ended.
pub fn restart() -> ! {
    SCB::sys_reset()
}

/// Returns how many bytes of stack were ever in use since the boot, interrupts included.
#[must_use]
pub fn peak_stack() -> usize {
    // SAFETY: cortex-m-rt's linker script defines both; only their addresses are used.
    #[allow(unsafe_code)]
    unsafe extern "C" {
        static _stack_start: u32;
        static _stack_end: u32;
    }
    const PAINT: u32 = 0xcccc_cccc;
    let top = &raw const _stack_start;
    let mut word = &raw const _stack_end;
    // SAFETY: begins where the linker script ends the stack, and stops at this function's own
    // frame, which is not paint.
    #[allow(unsafe_code)]
    while word < top && unsafe { word.read_volatile() } == PAINT {
        word = word.wrapping_add(1);
    }
    (top as usize).saturating_sub(word as usize)
}
