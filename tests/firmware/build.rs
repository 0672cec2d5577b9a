//! Lays out the board's memory and makes tables of the streams in `fixtures/exec` and of the signed
//! requests in `fixtures/cases`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;

/// The board's flash has room for one stream of 64 KiB beside the code. A whole frame of that size
/// and one of input are made on the board instead.
const LEFT_OUT: [&str; 2] = ["exec_max_frame.bin", "stdin_chunked.bin"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::copy("memory.x", out.join("memory.x")).expect("memory.x stands beside this file");
    println!("cargo:rerun-if-changed=memory.x");
    println!("cargo:rustc-link-search={}", out.display());
    for argument in ["-Tlink.x", "-Tdefmt.x", "--nmagic"] {
        println!("cargo:rustc-link-arg-tests={argument}");
    }

    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    fs::write(out.join("streams.rs"), streams(&root.join("../../fixtures/exec")))
        .expect("cargo made the folder");
    fs::write(out.join("vectors.rs"), vectors(&root.join("../../fixtures/cases/signed.jsonl")))
        .expect("cargo made the folder");
}

fn streams(folder: &Path) -> String {
    println!("cargo:rerun-if-changed={}", folder.display());
    let manifest = fs::read(folder.join("manifest.json")).expect("fixtures/exec has a manifest");
    let manifest: Value = serde_json::from_slice(&manifest).expect("the manifest is JSON");
    let mut table = String::from("&[\n");
    for fixture in manifest["fixtures"].as_array().expect("a list of fixtures") {
        let file = fixture["file"].as_str().expect("a file's name");
        if LEFT_OUT.contains(&file) {
            continue;
        }
        let frames = fixture["frames"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of = |kind: &str| {
            let frames = frames.iter().filter(|frame| frame["type"] == kind);
            frames.map(|frame| frame["payload_len"].as_u64().expect("a length")).sum::<u64>()
        };
        let ending = match fixture["expect"].as_str() {
            Some(code) => format!("Err({code:?})"),
            None => format!("Ok(({}, {}, {}))", of("stdout"), of("stderr"), of("stdin")),
        };
        let exit_code = frames.iter().find_map(|frame| frame["exec_result"]["exit_code"].as_i64());
        writeln!(
            table,
            "Stream {{ name: {file:?}, bytes: include_bytes!({:?}), from_guest: {}, \
             ending: {ending}, exit_code: {exit_code:?} }},",
            folder.join(file).display().to_string(),
            fixture["direction"] == "guest_to_host",
        )
        .expect("a string takes all");
    }
    table.push(']');
    table
}

/// The cases of `signature.sign` that end with a header: the eight lines tell what was signed.
fn vectors(cases: &Path) -> String {
    println!("cargo:rerun-if-changed={}", cases.display());
    let text = fs::read_to_string(cases).expect("fixtures/cases has signed requests");
    let mut table = String::from("&[\n");
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("a case is JSON");
        let (input, output) = (&case["in"], &case["out"]);
        if case["op"] != "signature.sign" || !output["header"].is_string() {
            continue;
        }
        let text = |value: &Value| format!("{:?}", value.as_str().expect("a text"));
        let hex = input["hex"].as_str().expect("a body");
        let body: Vec<_> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex"))
            .collect();
        writeln!(
            table,
            "Vector {{ id: {}, key_id: {}, secret: {}, seconds: {}, nonce: {}, method: {}, \
             host: {}, path: {}, body: &{body:?}, header: {} }},",
            text(&case["id"]),
            text(&input["key_id"]),
            text(&input["secret"]),
            input["t"],
            text(&input["nonce"]),
            text(&output["lines"][4]),
            text(&output["lines"][5]),
            text(&output["lines"][6]),
            text(&output["header"]),
        )
        .expect("a string takes all");
    }
    table.push(']');
    table
}
