//! The tools that this firmware answers calls to. To add one: its line in [`ADMITTED`], what its
//! arguments are and what it does in [`run`].
//!
//! | extension, tool | `args` | `observed` |
//! | --- | --- | --- |
//! | `board`, `read_registers` | `{"first":0,"count":4}` | `{"first":0,"values":[12,1648,0,0]}`: seconds since boot, bytes of stack ever in use, faults of the port, packets that were broken |
//! | `board`, `read_sensor` | `{}` | `{"millidegrees":34000}`: the chip's temperature, in thousandths of 1 °C |
//! | `relay`, `set_output` | `{"output":0,"on":true}` | `{"output":0,"on":true}`: what the pin shows then |
//!
//! A tool refuses arguments that it cannot read as `malformed-args`, and those beyond its bounds as
//! `out-of-bounds`. A sensor that gives nothing is a failure, `exec-threw`.

use core::fmt;

use triwire::channel::admission::{Admission, Table};
use triwire::channel::bounds::{Bounds, BoundsError};
use triwire::channel::envelope::{Call, Object, Outcome};
use triwire::json::{Error, Reader, Seen, Text};
use triwire_embedded::channel::{Ran, observed};

use crate::command::Host;

/// How many registers there are.
pub const REGISTERS: usize = 4;
/// How many outputs there are.
pub const OUTPUTS: usize = 1;

/// The bounds of the extension `board`; `maxRequests` is each tool's budget from boot to boot.
pub const BOARD: &str = r#"{"registers":4,"maxRequests":100000}"#;
/// The bounds of the extension `relay`: a contact wears.
pub const RELAY: &str = r#"{"outputs":1,"maxRequests":32}"#;

/// What is admitted: extension, tool, bounds.
pub const ADMITTED: [(&str, &str, &str); 3] = [
    ("board", "read_registers", BOARD),
    ("board", "read_sensor", BOARD),
    ("relay", "set_output", RELAY),
];

/// The admissions of [`ADMITTED`].
pub(crate) type Admitted = Table<'static, [Admission<'static>; ADMITTED.len()]>;

/// What a board does for its commands and tools.
#[derive(Clone, Copy)]
pub struct Board {
    /// Answers how many bytes of stack were ever in use.
    pub peak_stack: fn() -> usize,
    /// Switches the output on or off, and answers what its pin shows.
    pub set_output: fn(bool) -> bool,
    /// Begins to measure the temperature.
    pub start_sensor: fn(),
    /// Answers the temperature in thousandths of 1 °C, once it is measured.
    pub sensor: fn() -> Option<i32>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

/// Reads the bounds of [`ADMITTED`].
// Of its own, as all that is marked so here: what it needs of the stack is not held by its callers.
#[inline(never)]
pub(crate) fn bounds() -> Result<[Bounds<'static>; ADMITTED.len()], BoundsError> {
    let [registers, sensor, output] = ADMITTED.map(|(_, _, bounds)| Bounds::parse(bounds));
    Ok([registers?, sensor?, output?])
}

/// Admits the tools within these bounds, with none of their budgets used.
pub(crate) fn admitted(bounds: &[Bounds<'static>; ADMITTED.len()]) -> Admitted {
    let admit = |at| {
        let (extension, tool, _): (_, _, &str) = ADMITTED[at];
        Admission::new(extension, tool, bounds[at])
    };
    Table::new([admit(0), admit(1), admit(2)])
}

/// What became of a call for now.
pub(crate) enum Step<'s> {
    /// The tool is done.
    Done(Ran<'s>),
    /// It is answered by the temperature, once there is one.
    Measures,
}

/// Runs an admitted tool; `scratch` is for what it observes.
#[inline(never)]
pub(crate) fn run<'s>(call: &Call<'_>, host: &Host, scratch: &'s mut [u8]) -> Step<'s> {
    Step::Done(match call.tool.index_in(&ADMITTED.map(|(_, tool, _)| tool)) {
        Some(0) => read_registers(call.args, host, scratch),
        Some(1) if members(call.args, [], |_, _| Ok(())) => return Step::Measures,
        Some(1) => refuse("malformed-args", "expected no arguments"),
        Some(_) => set_output(call.args, host, scratch),
        None => Err("admitted, and not built in"),
    })
}

fn read_registers<'s>(args: Object<'_>, host: &Host, scratch: &'s mut [u8]) -> Ran<'s> {
    let mut numbers = [None; 2];
    let read = members(args, ["first", "count"], |at, reader| {
        let number = reader.number()?.as_u64();
        numbers.iter_mut().skip(at).take(1).for_each(|to| *to = number);
        Ok(())
    });
    let (true, [Some(first), Some(count)]) = (read, numbers) else {
        return refuse("malformed-args", "expected first and count, whole numbers");
    };
    let end = first.saturating_add(count);
    if count == 0 || end > REGISTERS as u64 {
        return refuse("out-of-bounds", "there are registers 0 to 3");
    }
    observed(scratch, |object| {
        object.name("first");
        object.unsigned(first);
        object.name("values");
        object.begin_array();
        for register in first..end {
            object.unsigned(host.register(register));
        }
        object.end_array();
    })
}

fn set_output<'s>(args: Object<'_>, host: &Host, scratch: &'s mut [u8]) -> Ran<'s> {
    let (mut output, mut on) = (None, false);
    let read = members(args, ["output", "on"], |at, reader| {
        match at {
            0 => output = reader.number()?.as_u64(),
            _ => on = reader.boolean()?,
        }
        Ok(())
    });
    let Some(output) = output.filter(|_| read) else {
        return refuse("malformed-args", "expected output, a whole number, and on, true or false");
    };
    if output >= OUTPUTS as u64 {
        return refuse("out-of-bounds", "there is output 0 only");
    }
    let shows = (host.board.set_output)(on);
    observed(scratch, |object| {
        object.name("output");
        object.unsigned(output);
        object.name("on");
        object.boolean(shows);
    })
}

/// Tells a temperature, or that there is none.
pub(crate) fn temperature(measured: Option<i32>, scratch: &mut [u8]) -> Ran<'_> {
    let millidegrees = measured.ok_or("the sensor gave no value in time")?;
    observed(scratch, |object| {
        object.name("millidegrees");
        object.signed(millidegrees.into());
    })
}

fn refuse(refused: &'static str, why: &'static str) -> Ran<'static> {
    Ok(Outcome::Refused { refused: Text::plain(refused), why: Text::plain(why) })
}

/// Reads an object that has just these members, each once; `take` reads the value of one.
fn members<'i, const N: usize>(
    args: Object<'i>,
    names: [&str; N],
    mut take: impl FnMut(usize, &mut Reader<'i>) -> Result<(), Error>,
) -> bool {
    let mut reader = args.reader();
    let mut seen = Seen::default();
    let mut read = || {
        reader.begin_object()?;
        while let Some(name) = reader.name()? {
            match name.index_in(&names) {
                Some(at) if seen.mark(at) => take(at, &mut reader)?,
                _ => return Ok(false),
            }
        }
        Ok::<_, Error>((0..N).all(|at| seen.has(at)))
    };
    read() == Ok(true)
}
