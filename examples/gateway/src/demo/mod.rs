//! stub
use crate::failure::Outcome;
pub(crate) fn run(_: &crate::cli::DemoArgs) -> Outcome {
    Ok(0)
}
