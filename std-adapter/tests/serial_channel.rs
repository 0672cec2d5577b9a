//! A device on a serial line as an executor of a channel, over a pty.
#![cfg(all(feature = "guest", feature = "server", target_os = "linux"))]

mod serial_common;

use std::future::Future;
use std::time::Duration;

use serial_common::{Device, Order, Pty, Seen};
use tokio::task::JoinHandle;
use triwire::channel::broker::Request;
use triwire::channel::envelope::Object;
use triwire::channel::refusal::Refusal;
use triwire_std::channel::{Ask, Chairs, Executor, Limits, Outcome};
use triwire_std::guest::{Guest, SerialGuest};
use triwire_std::record::ExecRequest;

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
}

fn mcu() -> Executor {
    Executor::named("mcu")
}

/// Chairs, of which the device at a pty is to hold one.
struct Desk {
    chairs: Chairs,
    guest: SerialGuest,
    serving: JoinHandle<()>,
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Desk {
    fn at(pty: &Pty) -> Self {
        let (chairs, guest) = (Chairs::new(Limits::default()), SerialGuest::new(&pty.path));
        let serving = tokio::spawn({
            let (chairs, guest) = (chairs.clone(), guest.clone());
            async move { guest.serve_channel(chairs, mcu()).await }
        });
        Self { chairs, guest, serving }
    }

    /// The same, once the device has its chair.
    async fn seated(pty: &Pty, device: &Device) -> Self {
        device.orders.send(Order::Executor(true)).unwrap();
        let desk = Self::at(pty);
        desk.wait(true).await;
        desk
    }

    /// Waits until the device has its chair, or has none.
    async fn wait(&self, seated: bool) {
        within(async {
            while self.chairs.seated().contains(&mcu()) != seated {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }

    fn ask(&self, tool: &str, args: &str) -> Ask {
        let args = Object::parse(args).unwrap();
        self.chairs.ask(&mcu(), Request::new("board", tool, args, Object::EMPTY))
    }
}

fn observed(outcome: Outcome) -> String {
    match outcome {
        Outcome::Observed(observed) => observed.as_str().to_owned(),
        Outcome::Refused { refused, why } => panic!("{refused}: {why}"),
    }
}

fn refused(outcome: Outcome) -> String {
    match outcome {
        Outcome::Observed(observed) => panic!("{}", observed.as_str()),
        Outcome::Refused { refused, .. } => refused,
    }
}

// rule: CHAN-117
#[tokio::test]
async fn a_device_answers_calls_beside_commands() {
    let pty = Pty::new();
    let device = Device::start(&pty, 4);
    let desk = Desk::seated(&pty, &device).await;
    let cmd = vec!["count".to_owned(), "4000000000".to_owned()];
    let running = desk.guest.start(ExecRequest { cmd, ..ExecRequest::default() });
    let running = within(running).await.unwrap();
    let asked: Vec<_> = (0..100).map(|n| desk.ask("echo", &format!(r#"{{"n":{n}}}"#))).collect();
    for (n, asked) in asked.into_iter().enumerate() {
        assert_eq!(observed(within(asked).await), format!(r#"{{"n":{n}}}"#));
    }
    // rule: CHAN-111
    let asked = desk.ask("echo", "{\n  \"a\": [1,\r\n2]\n}");
    assert_eq!(observed(within(asked).await), "{   \"a\": [1,\r 2] }");
    drop(running);
}

// rule: CHAN-118
#[tokio::test]
async fn a_device_that_restarts_or_hangs_closes_its_calls() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 4);
    let desk = Desk::seated(&pty, &device).await;
    for order in [Order::Reboot, Order::Hang] {
        let is_last = matches!(order, Order::Hang);
        let asked = [desk.ask("wait", "{}"), desk.ask("wait", "{}")];
        device.wait_for(|seen| matches!(seen, Seen::Message(_))).await;
        device.wait_for(|seen| matches!(seen, Seen::Message(_))).await;
        device.orders.send(order).unwrap();
        for asked in asked {
            assert_eq!(refused(within(asked).await), "machine-closed");
        }
        if !is_last {
            desk.wait(true).await;
            assert_eq!(observed(within(desk.ask("echo", "{}")).await), "{}");
        }
    }
    assert_eq!(refused(within(desk.ask("echo", "{}")).await), "machine-unreachable");
    // Another in its place is found.
    device.kill().await;
    let device = Device::start(&pty, 4);
    device.orders.send(Order::Executor(true)).unwrap();
    desk.wait(true).await;
    assert_eq!(observed(within(desk.ask("echo", "{}")).await), "{}");
}

// rule: CHAN-116
#[tokio::test]
async fn a_device_without_the_channel_runs_commands_and_is_asked_again() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 4);
    let desk = Desk::at(&pty);
    let cmd = vec!["cat".to_owned()];
    let running = desk.guest.start(ExecRequest { cmd, ..ExecRequest::default() });
    let _running = within(running).await.unwrap();
    device.wait_for(|seen| matches!(seen, Seen::Started(_))).await;
    assert_eq!(refused(within(desk.ask("echo", "{}")).await), "machine-unreachable");
    device.orders.send(Order::Executor(true)).unwrap();
    desk.wait(true).await;
    assert_eq!(observed(within(desk.ask("echo", "{}")).await), "{}");
}

// rule: CHAN-117
#[tokio::test]
async fn who_takes_the_chair_later_keeps_it() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 4);
    let desk = Desk::seated(&pty, &device).await;
    let asked = desk.ask("wait", "{}");
    device.wait_for(|seen| matches!(seen, Seen::Message(_))).await;
    let later = desk.chairs.sit(mcu()).unwrap();
    assert_eq!(refused(within(asked).await), "machine-closed");
    let told = device.wait_for(|seen| matches!(seen, Seen::Message(_))).await;
    let Seen::Message(told) = told else { panic!() };
    assert!(told.starts_with(r#"{"type":"refused","refused":"replaced","why":"#), "{told}");
    device.wait_for(|seen| *seen == Seen::Closed).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(later.end(), None);
    drop(later);
    desk.wait(true).await;
    assert_eq!(observed(within(desk.ask("echo", "{}")).await), "{}");
}

// rule: CHAN-59
#[tokio::test]
async fn a_device_that_takes_nothing_costs_bounded_room() {
    let pty = Pty::new();
    let mut device = Device::start(&pty, 4);
    let desk = Desk::seated(&pty, &device).await;
    let waiting = desk.ask("wait", "{}");
    device.wait_for(|seen| matches!(seen, Seen::Message(_))).await;
    device.orders.send(Order::Hang).unwrap();
    let limits = Limits::default();
    let asked: Vec<_> = (0..2 * limits.calls).map(|_| desk.ask("echo", "{}")).collect();
    assert_eq!(desk.chairs.in_flight(&mcu()), limits.calls);
    let mut words = Vec::new();
    for asked in asked {
        words.push(refused(within(asked).await));
    }
    let [closed, full] = ["machine-closed", Refusal::TooManyCalls.as_str()]
        .map(|word| words.iter().filter(|said| *said == word).count());
    assert_eq!((closed, full), (limits.calls - 1, limits.calls + 1));
    assert_eq!(refused(within(waiting).await), "machine-closed");
}
