//! Names that stay inside.

use core::fmt;

/// What is wrong with a name or a link's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NameFault {
    /// It has no bytes.
    Empty,
    /// It begins with `/`.
    Absolute,
    /// It has a `..`, or of a symbolic link: more of them than there are folders to leave.
    Outside,
    /// It holds a zero byte, which ends a name in every system call.
    Nul,
}

impl NameFault {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Empty => "name_empty",
            Self::Absolute => "name_absolute",
            Self::Outside => "name_outside",
            Self::Nul => "name_nul",
        }
    }
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::Absolute => "is absolute; archive with names relative to the folder",
            Self::Outside => "leads outside with `..`; archive from within the folder",
            Self::Nul => "holds a zero byte",
        })
    }
}

impl core::error::Error for NameFault {}

/// Where a symbolic link's target is looked for.
///
/// ```
/// use triwire::tar::{NameFault, link_reach};
///
/// assert!(link_reach(b"lib/a", b"../other/b").is_ok());
/// assert_eq!(link_reach(b"a", b"../b"), Err(NameFault::Outside));
/// assert_eq!(link_reach(b"a", b"/etc/passwd"), Err(NameFault::Absolute));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Folders between the archive's own and the target, at the target's last step.
    pub depth: usize,
}

/// Judges the target of a symbolic link named `link` by its words alone.
///
/// # Errors
/// It is empty, absolute, holds a zero byte, or climbs out at any step.
///
/// # Cost
/// Linear in both.
pub fn link_reach(link: &[u8], target: &[u8]) -> Result<Reach, NameFault> {
    check_text(target)?;
    // The last component is the link itself.
    let mut depth = components(link)?.count().saturating_sub(1);
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => depth = depth.checked_sub(1).ok_or(NameFault::Outside)?,
            _ => depth = depth.saturating_add(1),
        }
    }
    Ok(Reach { depth })
}

/// Judges a name of the archive and splits it into its components, without `.` and empty ones; a
/// name of the folder itself has none.
///
/// ```
/// use triwire::tar::{NameFault, components};
///
/// let parts: Vec<_> = components(b"./a//b/")?.collect();
/// assert_eq!(parts, [b"a", b"b"]);
/// assert_eq!(components(b"a/../b").unwrap_err(), NameFault::Outside);
/// # Ok::<(), NameFault>(())
/// ```
///
/// # Errors
/// It is empty, absolute, has `..` or holds a zero byte.
pub fn components(name: &[u8]) -> Result<Components<'_>, NameFault> {
    check_text(name)?;
    if name.split(|byte| *byte == b'/').any(|component| component == b"..") {
        return Err(NameFault::Outside);
    }
    Ok(Components { rest: Some(name) })
}

fn check_text(name: &[u8]) -> Result<(), NameFault> {
    match name {
        [] => Err(NameFault::Empty),
        [b'/', ..] => Err(NameFault::Absolute),
        _ if name.contains(&0) => Err(NameFault::Nul),
        _ => Ok(()),
    }
}

/// The components of a clean name, from the outermost in.
#[derive(Clone, Copy, Debug)]
pub struct Components<'n> {
    rest: Option<&'n [u8]>,
}

impl<'n> Iterator for Components<'n> {
    type Item = &'n [u8];

    fn next(&mut self) -> Option<&'n [u8]> {
        loop {
            let rest = self.rest?;
            let slash = rest.iter().position(|byte| *byte == b'/');
            let component = match slash.and_then(|at| rest.split_at_checked(at)) {
                Some((component, rest)) => {
                    self.rest = rest.split_first().map(|(_, rest)| rest);
                    component
                }
                None => {
                    self.rest = None;
                    rest
                }
            };
            if !matches!(component, b"" | b".") {
                return Some(component);
            }
        }
    }
}
