//! What a server's spans and events say, and what they never do.
#![cfg(all(feature = "server", feature = "guest"))]

mod server_common;

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use server_common::*;
use tokio::io::AsyncWriteExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use triwire::exec::frame::Kind;

/// Keeps every event as a line: its spans, its fields.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Capture {
    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        true
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields(attributes.metadata().name().to_owned());
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Fields(String::new());
        for span in context.event_scope(event).into_iter().flatten() {
            let extensions = span.extensions();
            write!(line.0, "[{}] ", extensions.get::<Fields>().unwrap().0).unwrap();
        }
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

/// What stands in commands, in their environment, input and output, in keys and in targets.
const HIDDEN: &str = "hush";

// rule: EXEC-77
#[tokio::test]
async fn spans_name_session_and_sandbox_and_nothing_shows_what_was_run() {
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let (guest, _folder) = processes();
    let gateway = Gateway::start(guest).await;

    let script = r#"{"cmd":["sh","-c","cat; echo hush; echo hush >&2"],"env":{"V":"hush"}}"#;
    let request = gateway.one_shot(script);
    ask(&mut gateway.connect().await, &request).await;
    for (input, target) in [(Kind::Stdin, "/sandboxes/local/exec?stdin=1&x=hush"); 2] {
        let mut stream = gateway.connect().await;
        stream.write_all(&gateway.post(target, script)).await.unwrap();
        stream.write_all(&frame(input, HIDDEN.as_bytes())).await.unwrap();
        stream.write_all(&frame(Kind::StdinClose, b"")).await.unwrap();
        let answer = read_head(&mut stream).await;
        let told = frames_to_end(&mut stream, &answer.rest).await.unwrap();
        assert_eq!(told.stdout, b"hushhush\n");
    }
    // What is refused or goes wrong is told without its words as well.
    for script in [
        r#"{"cmd":["hush-program-that-is-not-there"]}"#,
        r#"{"cmd":["true"],"cwd":"/hush"}"#,
        r#"{"cmd":["hush"],"timeout_s":"hush"}"#,
    ] {
        let request = gateway.one_shot(script);
        ask(&mut gateway.connect().await, &request).await;
    }
    let head = format!("GET /hush HTTP/1.1\r\nHost: {}\r\n", gateway.address);
    for key in ["Authorization: Bearer hush\r\n", "Cookie: hush\r\n"] {
        let request = format!("{head}{key}\r\n");
        ask(&mut gateway.connect().await, request.as_bytes()).await;
    }
    let head = gateway.head("POST", "/sandboxes/hush/exec");
    ask(&mut gateway.connect().await, format!("{head}\r\n").as_bytes()).await;
    let mut stream = gateway.connect().await;
    stream.write_all(&gateway.hijack(r#"{"cmd":["cat"]}"#)).await.unwrap();
    stream.write_all(&frame(Kind::Stdout, HIDDEN.as_bytes())).await.unwrap();
    let answer = read_head(&mut stream).await;
    frames_to_end(&mut stream, &answer.rest).await.unwrap();
    within(gateway.stop()).await.unwrap().unwrap();

    let lines = capture.0.lock().unwrap();
    let ended: Vec<_> = lines.iter().filter(|line| line.contains("command ended")).collect();
    assert_eq!(ended.len(), 6, "{ended:#?}");
    for (at, line) in ended.iter().enumerate() {
        let transport = if matches!(at, 1 | 2 | 5) { "hijack" } else { "one-shot" };
        assert!(line.contains(" sandbox=\"local\""), "{line}");
        assert!(line.contains(&format!(" transport=\"{transport}\"")), "{line}");
    }
    // A request that was refused behind its head had a number too.
    for (line, number) in ended.iter().zip([1, 2, 3, 4, 5, 7]) {
        assert!(line.starts_with(&format!("[exec session={number} ")), "{line}");
    }
    assert!(lines.iter().any(|line| line.contains("refused status=401")), "{lines:#?}");
    for line in lines.iter() {
        assert!(!line.contains(HIDDEN) && !line.contains(KEY), "{line}");
    }
}
