//! The gateway in TLS: from its config file to a client that trusts a CA.

mod support;

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use support::{Gateway, OURS, stderr, stdout, triwire};

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Writes a CA, a server's certificate and its key, and a gateway's key.
fn files(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    fs::write(folder.join("keys"), KEY).unwrap();
}

const CONFIG: &str = "key_file = \"keys\"\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n\
                      [sandboxes.local]\nroot = \".\"\n";

fn serve(folder: &Path, config: &str, flags: &[&str]) -> std::process::Command {
    let path = folder.join("triwire.toml");
    fs::write(&path, config).unwrap();
    let mut command = triwire();
    command.args(["serve", "--state"]).arg(folder.join("state"));
    command.arg("--config").arg(path).args(flags);
    command
}

#[test]
fn commands_run_in_tls_for_who_trusts_the_ca() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let gateway = Gateway::of(&mut serve(folder.path(), CONFIG, &["--listen", "127.0.0.1:0"]));
    assert!(gateway.said.contains("--url https://127.0.0.1:"), "{}", gateway.said);
    let url = format!("https://{}", gateway.address);
    let exec = |url: &str, ca: Option<&str>, transport: &str| {
        let mut command = triwire();
        command.args(["exec", "--url", url, "--transport", transport]);
        command.arg("--key-file").arg(folder.path().join("keys"));
        if let Some(ca) = ca {
            command.arg("--ca").arg(folder.path().join(ca));
        }
        command.args(["local", "--", "sh", "-c", "echo secure; exit 4"]).output().unwrap()
    };
    for transport in support::TRANSPORTS {
        let output = exec(&url, Some("ca.pem"), transport);
        assert_eq!(
            (output.status.code(), &*stdout(&output)),
            (Some(4), "secure\n"),
            "{}",
            stderr(&output)
        );
    }
    let output = exec(&url, Some("key.pem"), "ws");
    assert_eq!(output.status.code(), OURS);
    assert!(stderr(&output).contains("--ca: ") && stderr(&output).contains("no certificate"));
    // The system knows nothing of this CA; where it knows none at all, that is said.
    let output = exec(&url, None, "one-shot");
    assert_eq!(output.status.code(), OURS);
    let why = stderr(&output);
    let asks = why.contains("give the CA") && why.contains("--ca FILE");
    assert!(asks || why.contains("name a CA"), "{why}");
    let output = exec(&url.replace("https", "http"), Some("ca.pem"), "hijack");
    assert!(stderr(&output).contains("--ca is not used"), "{}", stderr(&output));
    let output = exec(&url.replace("https", "http"), None, "hijack");
    assert_eq!(output.status.code(), OURS);
    assert!(stderr(&output).contains("https://"), "{}", stderr(&output));
}

#[test]
fn an_address_beyond_this_machine_wants_tls_or_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let plain = CONFIG.replace("[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n", "");
    let everywhere = ["--listen", "0.0.0.0:0"];
    let output = serve(folder.path(), &plain, &everywhere).output().unwrap();
    assert_eq!(output.status.code(), OURS);
    for word in ["in clear", "[tls]", "--behind-proxy"] {
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
    // It is refused before anything is said or made.
    assert_eq!(stdout(&output), "");
    assert!(!folder.path().join("state").exists());

    // Nor is it enough to name a proxy, or a config that says nothing.
    let mut bare = triwire();
    let output = bare.args(["serve", "--behind-proxy"]).args(everywhere).output().unwrap();
    assert!(stderr(&output).contains("[tls], or behind_proxy"), "{}", stderr(&output));

    for (config, flags) in [
        (CONFIG.to_owned(), everywhere.to_vec()),
        (plain.clone(), [&everywhere[..], &["--behind-proxy"]].concat()),
        (format!("behind_proxy = true\n{plain}"), everywhere.to_vec()),
    ] {
        let gateway = Gateway::of(&mut serve(folder.path(), &config, &flags));
        // What it says to try is an address that a client can name.
        assert!(gateway.said.contains("://127.0.0.1:"), "{}", gateway.said);
        assert_eq!(gateway.stop("-TERM"), Some(0), "{config}");
    }
    for (value, is_on) in [("1", true), ("yes", true), ("0", false), ("false", false)] {
        let mut command = serve(folder.path(), &plain, &["--listen", "127.0.0.1:0"]);
        command.env("TRIWIRE_BEHIND_PROXY", value);
        let path = folder.path().join("triwire.toml");
        let mut shown = triwire();
        shown.args(["config", "show", "--config"]).arg(path).env("TRIWIRE_BEHIND_PROXY", value);
        let shown = stdout(&shown.output().unwrap());
        let row = shown.lines().find(|line| line.contains("behind_proxy")).unwrap_or_default();
        assert!(row.contains(&is_on.to_string()), "{value}: {shown}");
        Gateway::of(&mut command);
    }
}

#[test]
fn files_that_cannot_be_used_stop_it_by_name() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let listen = ["--listen", "127.0.0.1:0"];
    for (from, to, words) in [
        ("cert = \"cert.pem\"", "cert = \"none.pem\"", ["none.pem", "cannot be read"]),
        ("cert = \"cert.pem\"", "cert = \"key.pem\"", ["key.pem", "no certificate"]),
        ("key = \"key.pem\"", "key = \"ca.pem\"", ["ca.pem", "no private key"]),
        ("key = \"key.pem\"", "", ["triwire.toml:2:1", "missing field `key`"]),
    ] {
        let output = serve(folder.path(), &CONFIG.replace(from, to), &listen).output().unwrap();
        assert_eq!(output.status.code(), OURS, "{to}");
        for word in words {
            assert!(stderr(&output).contains(word), "{to}: {}", stderr(&output));
        }
    }
    let mut show = triwire();
    let config = folder.path().join("triwire.toml");
    fs::write(&config, CONFIG).unwrap();
    let shown = show.args(["config", "show", "--config"]).arg(config).output().unwrap();
    assert!(stdout(&shown).contains("serve.tls.cert") && stdout(&shown).contains("exec.ca"));
}
