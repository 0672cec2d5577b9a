//! stub
use crate::failure::Outcome;
pub(crate) fn run(_: &crate::cli::ServeArgs) -> Outcome {
    Ok(0)
}
