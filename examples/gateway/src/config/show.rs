//! `triwire config show`: every setting, its value and where it comes from.

use std::io::{self, Write as _};

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde_json::json;
use triwire_std::guest::{DEFAULT_PATH, DEFAULT_SPEED};

use super::channel::ChannelSettings;
use super::sandbox::Place;
use super::{Origin, ServeSettings};
use crate::cli::{DEFAULT_LISTEN, ShowArgs, TransportName};
use crate::failure::{Failure, Outcome};
use crate::keys;
use crate::terminal::{OneLine, columns};

/// Prints the settings that `serve` and `exec` would run with.
pub(crate) fn run(args: &ShowArgs, matches: &ArgMatches) -> Outcome {
    let rows = rows(args, matches)?;
    let text = if args.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|[name, value, origin]| json!({ "setting": name, "value": value, "origin": origin }))
            .collect();
        format!("{:#}\n", json!(rows))
    } else {
        let head = ["setting", "value", "origin"].map(str::to_owned);
        columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) => Failure::output(&error),
        Ok(()) => Ok(0),
    }
}

fn rows(args: &ShowArgs, matches: &ArgMatches) -> Result<Vec<[String; 3]>, Failure> {
    let matches = matches
        .subcommand_matches("config")
        .and_then(|matches| matches.subcommand_matches("show"))
        .unwrap_or(matches);
    let given = |id: &str| match matches.value_source(id) {
        Some(ValueSource::CommandLine) => format!("--{}", id.replace('_', "-")),
        Some(ValueSource::EnvVariable) => format!("TRIWIRE_{}", id.to_uppercase()),
        _ => "default".to_owned(),
    };
    let origin = |id: &str, origin: &Origin| match origin {
        Origin::Given => given(id),
        other => other.to_string(),
    };
    let settings = ServeSettings::resolve(&args.serve)?;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String, origin: String| {
        rows.push([name.to_owned(), OneLine(&value).to_string(), origin]);
    };
    let config = settings.config.as_ref().map_or("none".into(), |path| path.display().to_string());
    row("serve.config", config, given("config"));
    row(
        "serve.listen",
        settings.listen.value.to_string(),
        origin("listen", &settings.listen.origin),
    );
    let hosts = match settings.hosts.value.as_slice() {
        [] => "this machine's own names".to_owned(),
        hosts => hosts.join(", "),
    };
    row("serve.hosts", hosts, settings.hosts.origin.to_string());
    for file in &settings.key_files {
        row("serve.key_file", file.value.display().to_string(), file.origin.to_string());
    }
    if let Some(tls) = &settings.tls {
        row("serve.tls.cert", tls.value.cert.display().to_string(), tls.origin.to_string());
        row("serve.tls.key", tls.value.key.display().to_string(), tls.origin.to_string());
    } else {
        row("serve.tls", "none".into(), Origin::Default.to_string());
    }
    row(
        "serve.behind_proxy",
        settings.behind_proxy.value.to_string(),
        origin("behind_proxy", &settings.behind_proxy.origin),
    );
    let metrics = &settings.metrics;
    row("serve.metrics", metrics.value.as_str().into(), metrics.origin.to_string());
    if let Some(channel) = &settings.channel {
        let ChannelSettings { page, loopback_auth, patience, hello_bound, extensions_dir } =
            channel;
        row("serve.channel.page", page.value.to_string(), page.origin.to_string());
        let auth = loopback_auth;
        row("serve.channel.loopback_auth", auth.value.to_string(), auth.origin.to_string());
        let millis = patience.value.as_millis().to_string();
        row("serve.channel.patience_ms", millis, patience.origin.to_string());
        let bound = hello_bound.value.get().as_millis().to_string();
        row("serve.channel.hello_bound_ms", bound, hello_bound.origin.to_string());
        row(
            "serve.channel.extensions_dir",
            extensions_dir.value.display().to_string(),
            origin("state", &extensions_dir.origin),
        );
    } else {
        row("serve.channel", "off".into(), Origin::Default.to_string());
    }
    for sandbox in &settings.sandboxes {
        let from = sandbox.origin.to_string();
        let name = format!("serve.sandboxes.{}", sandbox.value.name);
        let place = &sandbox.value.place;
        row(&format!("{name}.kind"), place.kind().as_str().into(), from.clone());
        let mut field = |field: &str, value: String| {
            row(&format!("{name}.{field}"), value, from.clone());
        };
        match place {
            Place::Process { root, inherit_env } => {
                field("root", root.display().to_string());
                field("inherit_env", inherit_env.to_string());
            }
            Place::Tcp { address, .. } => field("address", address.clone()),
            Place::Unix { socket, .. } => field("socket", socket.display().to_string()),
            Place::Serial { device, speed, flow_control, executor, .. } => {
                field("device", device.display().to_string());
                field("speed", speed.unwrap_or(DEFAULT_SPEED).to_string());
                field("flow_control", flow_control.to_string());
                field("executor", executor.as_deref().unwrap_or("none").to_owned());
            }
        }
        if let Some(link) = place.link() {
            field("path", link.path.as_deref().unwrap_or(DEFAULT_PATH).to_owned());
            let key = link.key_file.as_ref().map_or("none".into(), |f| f.display().to_string());
            field("key_file", key);
        }
    }
    row(
        "state",
        settings.state.value.display().to_string(),
        origin("state", &settings.state.origin),
    );

    let client = &args.client;
    let url = client.url.clone().unwrap_or_else(|| format!("http://{DEFAULT_LISTEN}"));
    row("exec.url", url, given("url"));
    // Only where the key comes from; never the key.
    let (key, from) = match &client.key_file {
        Some(path) => (path.display().to_string(), given("key_file")),
        None if std::env::var_os("TRIWIRE_KEY").is_some() => ("set".into(), "TRIWIRE_KEY".into()),
        None => {
            let path = keys::default_file(&settings.state.value);
            (path.display().to_string(), "default, for this machine only".into())
        }
    };
    row("exec.key", key, from);
    let ca = client.ca.as_ref().map_or("the system's".into(), |path| path.display().to_string());
    row("exec.ca", ca, given("ca"));
    let transport = match client.transport {
        Some(TransportName::Ws) => "ws",
        Some(TransportName::Hijack) => "hijack",
        Some(TransportName::OneShot) => "one-shot",
        None => "one-shot, with -i ws",
    };
    row("exec.transport", transport.into(), given("transport"));
    let timeout = client.timeout.unwrap_or(0);
    row(
        "exec.timeout",
        if timeout == 0 { "none".into() } else { format!("{timeout} s") },
        given("timeout"),
    );
    Ok(rows)
}
