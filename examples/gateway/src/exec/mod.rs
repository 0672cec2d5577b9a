//! stub
use crate::failure::Outcome;
pub(crate) fn run(_: &crate::cli::ExecArgs) -> Outcome {
    Ok(0)
}
