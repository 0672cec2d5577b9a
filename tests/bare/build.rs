//! Lays out the programs that QEMU runs; the link proof is laid out by the linker alone.

use std::{env, fs, path::PathBuf};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::copy("memory.x", out.join("memory.x")).expect("memory.x stands beside this file");
    println!("cargo:rerun-if-changed=memory.x");
    println!("cargo:rustc-link-search={}", out.display());
    let programs = [
        "empty",
        "frames",
        "session",
        "guest",
        "guest-words",
        "guest-keys",
        "client",
        "together",
        "line",
        "verify",
        "call",
        "door",
        "channel",
    ];
    for program in programs {
        println!("cargo:rustc-link-arg-bin=size-{program}=-Tlink.x");
        println!("cargo:rustc-link-arg-bin=size-{program}=--nmagic");
    }
}
