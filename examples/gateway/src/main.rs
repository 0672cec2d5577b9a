//! The triwire appliance.
fn main() {}
