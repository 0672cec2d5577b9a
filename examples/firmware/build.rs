//! Hands the board's memory layout to the linker, as the `memory.x` that cortex-m-rt asks for.

use std::path::PathBuf;
use std::{env, fs};

const BOARDS: [(&str, &str); 2] =
    [("CARGO_FEATURE_LM3S6965EVB", "lm3s6965evb"), ("CARGO_FEATURE_MICROBIT", "microbit")];

fn main() {
    println!("cargo:rerun-if-changed=boards");
    let chosen: Vec<_> =
        BOARDS.iter().filter(|(feature, _)| env::var_os(feature).is_some()).collect();
    let [(_, board)] = chosen[..] else {
        assert!(chosen.is_empty(), "one board at a time: each has its own memory");
        return;
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::copy(format!("boards/{board}.x"), out.join("memory.x")).expect("each board has a layout");
    println!("cargo:rustc-link-search={}", out.display());
    println!("cargo:rustc-link-arg-bin={board}=-Tlink.x");
    println!("cargo:rustc-link-arg-bin={board}=--nmagic");
}
