//! Admissions: which extensions may be called, within which bounds, how often.
//!
//! [`Admissions`] is what a [`Door`](super::door::Door) asks. A [`Table`] is one; a server that looks
//! its extensions up elsewhere implements the trait.
//!
//! ```
//! use triwire::channel::admission::{Admission, Admissions, BudgetExhausted, Table};
//! use triwire::channel::bounds::Bounds;
//!
//! let bounds = Bounds::parse(r#"{"maxRequests":1}"#)?;
//! let tools = ["read", "add"].map(|tool| Admission::new("notes", tool, bounds));
//! let mut admissions = Table::new(tools);
//!
//! let found = admissions.find("notes".into(), "add".into()).expect("admitted");
//! assert_eq!(found.bounds.max_requests(), Some(1));
//! let tool = found.tool;
//! assert_eq!(admissions.charge(tool), Ok(()));
//! assert_eq!(admissions.charge(tool), Err(BudgetExhausted { used: 1, allowed: 1 }));
//! assert!(admissions.find("notes".into(), "drop".into()).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::marker::PhantomData;

use super::bounds::{Bounds, Mismatch};
use super::envelope::{Call, EnvelopeError};
use super::refusal::Refusal;
use crate::json::{Text, decimal};

/// One tool of an admitted extension, and its budget.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    descriptor_id: &'a str,
    tool: &'a str,
    bounds: Bounds<'a>,
    used: u32,
}

impl<'a> Admission<'a> {
    /// Admits a tool of an extension within the extension's bounds; none of its requests is used.
    #[must_use]
    pub const fn new(descriptor_id: &'a str, tool: &'a str, bounds: Bounds<'a>) -> Self {
        Self { descriptor_id, tool, bounds, used: 0 }
    }

    /// Returns how many of the tool's requests are used.
    #[must_use]
    pub const fn used(&self) -> u32 {
        self.used
    }
}

/// The place of a tool among [`Admissions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ToolIndex(pub usize);

/// A tool that was found among [`Admissions`].
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its place, for [`charge`](Admissions::charge).
    pub tool: ToolIndex,
    /// The bounds that calls to it must echo.
    pub bounds: Bounds<'a>,
}

/// Who may be called.
pub trait Admissions {
    /// Finds a tool of an extension.
    fn find(&self, descriptor_id: Text<'_>, tool: Text<'_>) -> Option<Found<'_>>;

    /// Takes one request off a tool's budget, before it is attempted. The door does so for each
    /// call that it lets run; an executor whose tools make several requests takes the others.
    ///
    /// # Errors
    /// As many were taken as the bounds allow; nothing changed.
    fn charge(&mut self, tool: ToolIndex) -> Result<(), BudgetExhausted>;
}

impl<A: Admissions + ?Sized> Admissions for &mut A {
    fn find(&self, descriptor_id: Text<'_>, tool: Text<'_>) -> Option<Found<'_>> {
        (**self).find(descriptor_id, tool)
    }

    fn charge(&mut self, tool: ToolIndex) -> Result<(), BudgetExhausted> {
        (**self).charge(tool)
    }
}

/// Admissions in the caller's memory: an array, a boxed slice, a vector.
///
/// # Cost
/// Looks at one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a, S> {
    admissions: S,
    texts: PhantomData<&'a str>,
}

impl<'a, S: AsRef<[Admission<'a>]> + AsMut<[Admission<'a>]>> Table<'a, S> {
    /// Makes a table of these.
    pub const fn new(admissions: S) -> Self {
        Self { admissions, texts: PhantomData }
    }

    /// Returns them, with what was used of their budgets.
    #[must_use]
    pub fn admissions(&self) -> &[Admission<'a>] {
        self.admissions.as_ref()
    }
}

impl<'a, S: AsRef<[Admission<'a>]> + AsMut<[Admission<'a>]>> Admissions for Table<'a, S> {
    fn find(&self, descriptor_id: Text<'_>, tool: Text<'_>) -> Option<Found<'_>> {
        let is_it = |admission: &Admission<'_>| {
            descriptor_id == admission.descriptor_id && tool == admission.tool
        };
        let admissions = self.admissions.as_ref();
        let place = admissions.iter().position(is_it)?;
        Some(Found { tool: ToolIndex(place), bounds: admissions.get(place)?.bounds })
    }

    // rule: CHAN-38
    fn charge(&mut self, tool: ToolIndex) -> Result<(), BudgetExhausted> {
        let Some(admission) = self.admissions.as_mut().get_mut(tool.0) else {
            return Err(BudgetExhausted { used: 0, allowed: 0 });
        };
        let used = admission.used;
        match admission.bounds.max_requests() {
            Some(allowed) if used >= allowed => Err(BudgetExhausted { used, allowed }),
            _ => {
                admission.used = used.saturating_add(1);
                Ok(())
            }
        }
    }
}

/// A tool's requests are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BudgetExhausted {
    /// Requests that were made.
    pub used: u32,
    /// Requests that the bounds allow.
    pub allowed: u32,
}

impl BudgetExhausted {
    /// Gives the `why` of the refusal, in pieces, to whoever writes it.
    pub(super) fn with_why<T>(self, write: impl FnOnce(&[&str]) -> T) -> T {
        let (mut used, mut allowed) = ([0; 20], [0; 20]);
        let used = digits(self.used, &mut used);
        let allowed = digits(self.allowed, &mut allowed);
        write(&["the tool's requests are used up: ", used, " used of ", allowed, " allowed"])
    }
}

fn digits(number: u32, room: &mut [u8; 20]) -> &str {
    core::str::from_utf8(decimal(u64::from(number), room)).unwrap_or_default()
}

impl fmt::Display for BudgetExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_why(|pieces| pieces.iter().try_for_each(|piece| f.write_str(piece)))
    }
}

impl core::error::Error for BudgetExhausted {}

/// Checks a whole call: its envelope, that its tool is admitted, and that it echoes the bounds.
/// Returns the tool's place, and charges nothing.
///
/// # Errors
/// The first check that fails, with its [word](CallError::refusal).
///
/// # Cost
/// Linear in the message, but for the look-up of the tool.
pub fn check<'i>(
    message: &'i [u8],
    id_size: usize,
    admissions: &(impl Admissions + ?Sized),
) -> Result<(Call<'i>, ToolIndex), CallError> {
    let call = Call::parse(message, id_size).map_err(CallError::Envelope)?;
    let tool = check_bounds(&call, admissions)?;
    Ok((call, tool))
}

pub(super) fn check_bounds(
    call: &Call<'_>,
    admissions: &(impl Admissions + ?Sized),
) -> Result<ToolIndex, CallError> {
    let found = admissions.find(call.descriptor_id, call.tool).ok_or(CallError::NotAdmitted)?;
    found.bounds.check(call.bounds_echo).map_err(CallError::Bounds)?;
    Ok(found.tool)
}

/// Why a call does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum CallError {
    /// The message is no call.
    Envelope(EnvelopeError),
    /// The extension, or the tool of it, is not admitted.
    NotAdmitted,
    /// The echoed bounds are not the admitted ones.
    Bounds(Mismatch),
}

impl CallError {
    /// Returns the contract's word for it.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        match self {
            Self::Envelope(error) => error.refusal,
            Self::NotAdmitted => Refusal::UnattributedCall,
            Self::Bounds(Mismatch::Differs { .. }) => Refusal::BoundsMismatch,
            Self::Bounds(Mismatch::ExponentTooLong { .. }) => Refusal::MalformedCall,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Envelope(error) => error.fmt(f),
            Self::NotAdmitted => self.refusal().fmt(f),
            Self::Bounds(mismatch) => write!(f, "{}: {mismatch}", self.refusal().as_str()),
        }
    }
}

impl core::error::Error for CallError {}
