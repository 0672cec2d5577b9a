//! Reference models of the core's machines, written plainly: collect everything, then judge it.
//!
//! Each module holds a model and the comparison with the machine through its public API. The
//! tests of this package drive them with random scripts, and [`check`] takes raw bytes, for the
//! fuzz targets and the corpus that they keep.

pub mod body;
pub mod buffer;
pub mod channel;
pub mod check;
pub mod cuts;
pub mod frames;
pub mod heads;
pub mod json;
pub mod records;
