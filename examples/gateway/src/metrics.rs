//! `GET /metrics`: the server's figures in the text format of Prometheus.
//!
//! | metric | labels |
//! | --- | --- |
//! | `triwire_connections_total`, `triwire_connections_open` | |
//! | `triwire_sessions_total`, `triwire_sessions_running` | `sandbox`, `transport` |
//! | `triwire_sessions_ended_total` | `sandbox`, `transport`, `end` |
//! | `triwire_frames_total`, `triwire_frame_payload_bytes_total` | `sandbox`, `transport`, `direction`, `kind` |
//! | `triwire_refusals_total` | `status`, `code` |
//! | `triwire_chairs_taken`, `triwire_calls_in_flight` | `executor` |
//! | `triwire_calls_total` | `executor`, `end` |

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use triwire::channel::refusal::Peer;
use triwire::exec::frame::{Direction, Kind};
use triwire_std::channel::{CallEnd, CallMetrics};
use triwire_std::server::{End, Metrics, SessionMetrics};

/// The media type of what [`render`] writes.
pub(crate) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// Writes the figures.
pub(crate) fn render(metrics: &Metrics) -> String {
    let mut registry = Registry::with_prefix("triwire");
    registry.register_collector(Box::new(Figures(metrics.clone())));
    let mut text = String::new();
    // A String takes everything.
    let _ = encode(&mut text, &registry);
    text
}

/// Figures that were read already.
#[derive(Debug)]
struct Figures(Metrics);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(metrics) = self;
        let mut connections =
            counter(&mut encoder, "connections", "Connections that were accepted", None)?;
        count(&mut connections, &[], metrics.connections_accepted)?;
        let mut open = gauge(&mut encoder, "connections_open", "Connections that are open")?;
        level(&mut open, &[], metrics.connections_open)?;

        let help = "Sessions that began: a sandbox was asked to run a command";
        let mut family = counter(&mut encoder, "sessions", help, None)?;
        for of in &metrics.sessions {
            count(&mut family, &labels(of), of.begun)?;
        }
        let mut family = gauge(&mut encoder, "sessions_running", "Sessions that run")?;
        for of in &metrics.sessions {
            level(&mut family, &labels(of), of.running)?;
        }
        let help = "Sessions that ended, by how";
        let mut family = counter(&mut encoder, "sessions_ended", help, None)?;
        for of in &metrics.sessions {
            for end in End::ALL {
                let [sandbox, transport] = labels(of);
                count(&mut family, &[sandbox, transport, ("end", end.as_str())], of.ends(end))?;
            }
        }

        let help = "Frames that came or were made, by kind";
        let mut family = counter(&mut encoder, "frames", help, None)?;
        for (of, kind) in with_kinds(&metrics.sessions) {
            count(&mut family, &kind_labels(of, kind), of.frames(kind))?;
        }
        let help = "Payload of those frames";
        let mut family = counter(&mut encoder, "frame_payload", help, Some(&Unit::Bytes))?;
        for (of, kind) in with_kinds(&metrics.sessions) {
            count(&mut family, &kind_labels(of, kind), of.bytes(kind))?;
        }

        let help = "Requests refused, by HTTP status or WebSocket close code, and the word for it";
        let mut family = counter(&mut encoder, "refusals", help, None)?;
        for refusal in &metrics.refusals {
            let status = refusal.status.to_string();
            let labels = [("status", status.as_str()), ("code", refusal.code)];
            count(&mut family, &labels, refusal.count)?;
        }
        if metrics.channel.is_empty() { Ok(()) } else { channel(&mut encoder, &metrics.channel) }
    }
}

fn channel(encoder: &mut DescriptorEncoder<'_>, all: &[CallMetrics]) -> fmt::Result {
    let executor = |of: &CallMetrics| match of.peer {
        Peer::Page => ("executor", "page"),
        Peer::Machine => ("executor", "machine"),
    };
    let mut family = gauge(encoder, "chairs_taken", "Executors that are connected")?;
    for of in all {
        level(&mut family, &[executor(of)], of.seated)?;
    }
    let mut family = gauge(encoder, "calls_in_flight", "Calls that wait for their answers")?;
    for of in all {
        level(&mut family, &[executor(of)], of.in_flight)?;
    }
    let mut family = counter(encoder, "calls", "Calls that are over, by how", None)?;
    for of in all {
        for end in CallEnd::ALL {
            count(&mut family, &[executor(of), ("end", end.as_str())], of.ends(end))?;
        }
    }
    Ok(())
}

fn with_kinds(all: &[SessionMetrics]) -> impl Iterator<Item = (&SessionMetrics, Kind)> {
    all.iter().flat_map(|of| Kind::ALL.map(|kind| (of, kind)))
}

fn labels(of: &SessionMetrics) -> [(&str, &str); 2] {
    [("sandbox", &of.sandbox), ("transport", of.transport.as_str())]
}

fn kind_labels(of: &SessionMetrics, kind: Kind) -> [(&str, &str); 4] {
    let direction = match kind.direction() {
        Direction::HostToGuest => "in",
        Direction::GuestToHost => "out",
    };
    let [sandbox, transport] = labels(of);
    [sandbox, transport, ("direction", direction), ("kind", kind.as_str())]
}

fn counter<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
    unit: Option<&'e Unit>,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, unit, MetricType::Counter)
}

fn gauge<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

fn count(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    if labels.is_empty() {
        return family.encode_counter::<NoLabelSet, _, u64>(&value, None);
    }
    ConstCounter::new(value).encode(family.encode_family(&labels)?)
}

fn level(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    if labels.is_empty() {
        return family.encode_gauge(&value);
    }
    ConstGauge::new(value).encode(family.encode_family(&labels)?)
}

#[cfg(test)]
mod tests {
    use triwire_std::guest::ProcessGuest;
    use triwire_std::server::Server;

    use super::*;

    #[test]
    fn every_sandbox_transport_kind_and_end_has_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let guest = || std::sync::Arc::new(ProcessGuest::new(folder.path()).unwrap());
        let server = Server::builder().sandbox("a", guest()).sandbox("b-2", guest());
        let text = render(&server.build().unwrap().metrics());
        let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        let pairs = 2 * 3;
        for (name, lines) in [
            ("triwire_connections_total 0", 1),
            ("triwire_connections_open 0", 1),
            ("triwire_sessions_total{", pairs),
            ("triwire_sessions_running{", pairs),
            ("triwire_sessions_ended_total{", pairs * End::ALL.len()),
            ("triwire_frames_total{", pairs * Kind::ALL.len()),
            ("triwire_frame_payload_bytes_total{", pairs * Kind::ALL.len()),
            ("triwire_refusals_total{", 0),
        ] {
            assert_eq!(count(name), lines, "{name}\n{text}");
        }
        let input = "triwire_frames_total{sandbox=\"b-2\",transport=\"websocket\",\
                     direction=\"in\",kind=\"stdin\"} 0";
        assert_eq!(count(input), 1, "{text}");
    }
}
