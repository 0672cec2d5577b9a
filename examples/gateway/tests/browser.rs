//! The page in a real browser: headless Chromium, by its driver. `tests/run browser` installs both.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Gateway, triwire};
use tempfile::TempDir;
use thirtyfour::prelude::*;

const KEY: &str = "0123456789abcdef";
/// A name that is another site's for the browser, and leads to this machine.
const ELSEWHERE: &str = "elsewhere.test";
const CONNECTED: &str = "Connected: this page has the chair.";
/// How long a condition may take to hold, and how often it is looked at.
const BOUND: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_millis(20);

/// A gateway with a channel.
struct Served {
    gateway: Gateway,
    _folder: TempDir,
}

impl Served {
    fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("keys"), KEY).unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        let path = folder.path().join("triwire.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nkey_file = \"keys\"\n[sandboxes.local]\nroot = \"root\"\n\
             [channel]\nextensions_dir = \".\"\npatience_ms = 60000\n{more}"
        );
        fs::write(&path, text).unwrap();
        let gateway = Gateway::of(triwire().args(["serve", "--config"]).arg(&path));
        Self { gateway, _folder: folder }
    }

    fn url(&self) -> String {
        format!("{}/", self.gateway.url())
    }

    /// Asks the page, as a program with a key does, in a thread of its own.
    fn ask(&self, descriptor_id: &str, tool: &str, args: &Value, bounds: &Value) -> Asked {
        let body = json!({
            "descriptorId": descriptor_id, "tool": tool, "args": args, "boundsEcho": bounds,
        });
        self.post(body.to_string())
    }

    fn post(&self, body: String) -> Asked {
        let address = self.gateway.address.clone();
        Asked(std::thread::spawn(move || {
            let mut stream = TcpStream::connect(&address).unwrap();
            write!(
                stream,
                "POST /channel/calls HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
                 Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
        }))
    }

    fn notes(&self, tool: &str, args: &Value) -> Value {
        self.ask("notes", tool, args, &json!({"maxLength": 1000, "maxNotes": 100})).answer()
    }
}

/// A call on its way.
struct Asked(JoinHandle<Value>);

impl Asked {
    fn answer(self) -> Value {
        self.0.join().unwrap()
    }
}

/// Chromium and its driver.
struct Browser {
    driver: WebDriver,
    process: Child,
    _profile: TempDir,
}

impl Browser {
    async fn start() -> Self {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver; tests/run browser installs it");
        let said = BufReader::new(process.stdout.take().unwrap());
        let port = said
            .lines()
            .find_map(|line| {
                let line = line.unwrap();
                let (_, port) = line.split_once("started successfully on port ")?;
                Some(port.trim_end_matches('.').to_owned())
            })
            .expect("the driver's port");
        let profile = tempfile::tempdir().unwrap();
        let mut wanted = DesiredCapabilities::chrome();
        for flag in [
            "--headless=new".to_owned(),
            // Root may not use the sandbox, and a container may have no room for shared memory.
            "--no-sandbox".into(),
            "--disable-dev-shm-usage".into(),
            "--disable-gpu".into(),
            format!("--user-data-dir={}", profile.path().display()),
            format!("--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"),
        ] {
            wanted.add_arg(&flag).unwrap();
        }
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await.unwrap();
        Self { driver, process, _profile: profile }
    }

    async fn end(self) {
        self.driver.clone().quit().await.unwrap();
    }

    async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap();
    }

    /// Opens the page, and waits until it has the chair: its own judgement comes back.
    async fn page(&self, served: &Served, url: &str) {
        self.open(url).await;
        self.says("#status", CONNECTED).await;
        let probe = || served.ask("no such", "probe", &json!({}), &json!({})).answer();
        while probe()["refused"] != "unattributed-call" {}
    }

    async fn press_button(&self, label: &str) {
        let button = By::XPath(format!("//button[text()='{label}']"));
        let button = self.driver.query(button).wait(BOUND, EVERY).first().await.unwrap();
        button.click().await.unwrap();
    }

    async fn find(&self, css: &str) -> WebElement {
        self.driver.query(By::Css(css)).wait(BOUND, EVERY).first().await.unwrap()
    }

    /// Waits until an element's text holds a word.
    async fn says(&self, css: &str, word: &str) {
        let mut said = String::new();
        let begun = std::time::Instant::now();
        while begun.elapsed() < BOUND {
            // Looked up each time: the page may have made another.
            let script = "return document.querySelector(arguments[0])?.textContent ?? ''";
            said = self.run(script, vec![json!(css)]).await.as_str().unwrap().to_owned();
            if said.contains(word) {
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
        panic!("{css}: expected {word:?}; it says {said:?}");
    }

    async fn press(&self, css: &str) {
        self.find(css).await.click().await.unwrap();
    }

    async fn run(&self, script: &str, args: Vec<Value>) -> Value {
        self.driver.execute(script, args).await.unwrap().json().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked so, the driver ends its browser, too.
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

/// Serves an empty document to whoever asks, as another site: its address.
fn another_site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\
                  Connection: close\r\n\r\n\n",
            );
        }
    });
    format!("http://{ELSEWHERE}:{port}/")
}

// rule: CHAN-97
#[tokio::test]
#[ignore = "needs Chromium: tests/run browser"]
async fn the_page_answers_by_itself_or_after_its_person_did() {
    let served = Served::start("");
    let browser = Browser::start().await;
    browser.page(&served, &served.url()).await;
    let answer = served.notes("write_note", &json!({"text": "one"}));
    assert_eq!((&answer["ok"], &answer["observed"]), (&json!(true), &json!({"count": 1})));
    // The notes are the browser's: they outlive the page.
    browser.page(&served, &served.url()).await;
    let answer = served.notes("read_notes", &json!({}));
    assert_eq!(answer["observed"], json!({"notes": ["one"]}));
    browser.says("#notes", "one").await;
    let answer = served.notes("write_note", &json!({"text": ""}));
    assert_eq!(answer["refused"], "bad-arguments");
    browser.says("#calls article p", "Refused: bad-arguments").await;

    browser.press("#by-person").await;
    for (label, member, expected) in [
        ("Allow", "observed", json!({"notes": ["one"]})),
        ("Refuse", "refused", json!("refused-by-person")),
    ] {
        let asked = served.ask(
            "notes",
            "read_notes",
            &json!({}),
            &json!({"maxNotes": 1e2, "maxLength": 1000}),
        );
        browser.press_button(label).await;
        assert_eq!(asked.answer()[member], expected);
    }

    let asked = served.ask("person", "ask", &json!({"question": "Ship it?"}), &json!({}));
    browser.says("#calls article pre", "Ship it?").await;
    let answer = browser.find("#calls textarea").await;
    answer.clear().await.unwrap();
    answer.send_keys("[1]").await.unwrap();
    browser.press_button("Answer").await;
    browser.says("#calls [role=alert]", "Expected an object").await;
    answer.clear().await.unwrap();
    answer.send_keys(r#"{"answer":"yes"}"#).await.unwrap();
    browser.press_button("Answer").await;
    assert_eq!(asked.answer()["observed"], json!({"answer": "yes"}));
    browser.end().await;
}

// rule: CHAN-95
#[tokio::test]
#[ignore = "needs Chromium: tests/run browser"]
async fn the_page_admits_its_own_tools_and_bounds_alone() {
    let served = Served::start("");
    let browser = Browser::start().await;
    browser.page(&served, &served.url()).await;
    let own = json!({"maxNotes": 100, "maxLength": 1000});
    let cases = [
        ("notes", "read_notes", json!({"maxNotes": 101, "maxLength": 1000}), "bounds-mismatch"),
        ("notes", "read_notes", json!({"maxNotes": 100}), "bounds-mismatch"),
        ("notes", "remove_notes", own.clone(), "unattributed-call"),
        ("notes", "toString", own.clone(), "unattributed-call"),
        ("toString", "read_notes", own.clone(), "unattributed-call"),
        ("__proto__", "toString", json!({}), "unattributed-call"),
    ];
    for (descriptor_id, tool, bounds, refused) in cases {
        let answer = served.ask(descriptor_id, tool, &json!({}), &bounds).answer();
        assert_eq!(answer["refused"], refused, "{descriptor_id} {tool} {bounds}: {answer}");
    }
    // Numbers by their exact value, members each once.
    for (bounds, refused) in [
        (r#"{"maxLength":1e3,"maxNotes":100.0}"#, Value::Null),
        (r#"{"maxLength":1000,"maxNotes":100.00000000000000000001}"#, json!("bounds-mismatch")),
        (r#"{"maxLength":1000,"maxNotes":"100"}"#, json!("bounds-mismatch")),
        (r#"{"maxLength":1000,"maxNotes":100,"maxNotes":100}"#, json!("bounds-mismatch")),
    ] {
        let body = r#"{"descriptorId":"notes","tool":"read_notes","args":{},"boundsEcho":"#;
        let answer = served.post(format!("{body}{bounds}}}")).answer();
        assert_eq!(answer["refused"], refused, "{bounds}: {answer}");
    }
    browser.end().await;
}

// rule: CHAN-24
#[tokio::test]
#[ignore = "needs Chromium: tests/run browser"]
async fn a_page_that_is_closed_closes_its_calls() {
    let served = Served::start("");
    let browser = Browser::start().await;
    browser.page(&served, &served.url()).await;
    let first = browser.driver.window().await.unwrap();
    let other = browser.driver.new_tab().await.unwrap();
    let asked: Vec<_> =
        (0..3).map(|_| served.ask("person", "ask", &json!({}), &json!({}))).collect();
    browser.driver.switch_to_window(first).await.unwrap();
    browser.find("#calls article:nth-child(3) textarea").await;
    browser.driver.close_window().await.unwrap();
    for asked in asked {
        assert_eq!(asked.answer()["refused"], "page-closed");
    }
    let answer = served.ask("person", "ask", &json!({}), &json!({})).answer();
    assert_eq!(answer["refused"], "no-page");
    browser.driver.switch_to_window(other).await.unwrap();
    browser.end().await;
}

// rule: CHAN-96
#[tokio::test]
#[ignore = "needs Chromium: tests/run browser"]
async fn a_page_that_was_replaced_stays_away_until_its_button_is_pressed() {
    let served = Served::start("");
    let browser = Browser::start().await;
    browser.page(&served, &served.url()).await;
    let first = browser.driver.window().await.unwrap();
    let second = browser.driver.new_tab().await.unwrap();
    browser.driver.switch_to_window(second.clone()).await.unwrap();
    browser.page(&served, &served.url()).await;
    browser.driver.switch_to_window(first).await.unwrap();
    browser.says("#status", "Told to leave: replaced.").await;
    browser.press("#chair").await;
    browser.says("#status", CONNECTED).await;
    browser.driver.switch_to_window(second).await.unwrap();
    browser.says("#status", "Told to leave: replaced.").await;
    browser.end().await;
}

// rule: CHAN-42, CHAN-52, CHAN-53
#[tokio::test]
#[ignore = "needs Chromium: tests/run browser"]
async fn another_site_gets_neither_the_chair_nor_an_answer() {
    let served = Served::start("");
    let browser = Browser::start().await;
    browser.open(&another_site()).await;
    let script = r#"
        const [address, done] = arguments;
        const heard = [];
        const link = new WebSocket(`ws://${address}/channel`);
        link.onopen = () => link.send('{"v":1,"callId":"a","ok":true,"observed":{}}');
        link.onmessage = ({ data }) => heard.push(JSON.parse(data).refused);
        link.onclose = async ({ code, reason }) => {
            const post = (type) => fetch(`http://${address}/channel/calls`, {
                method: "POST",
                headers: { "content-type": type },
                body: '{"tool":"ask","descriptorId":"person","args":{},"boundsEcho":{}}',
            }).then((answer) => answer.status, () => "failed");
            heard.push(code, reason, await post("application/json"), await post("text/plain"));
            done(heard);
        };
    "#;
    let address = json!(served.gateway.address);
    let heard = browser.driver.execute_async(script, vec![address]).await.unwrap();
    let refused = "executor-unauthenticated";
    assert_eq!(heard.json(), &json!([refused, 1008, refused, "failed", "failed"]));
    let answer = served.ask("person", "ask", &json!({}), &json!({})).answer();
    assert_eq!(answer["refused"], "no-page");

    // A name that was made to lead here is none of ours.
    let (_, port) = served.gateway.address.split_once(':').unwrap();
    browser.open(&format!("http://{ELSEWHERE}:{port}/")).await;
    browser.says("body", "host-refused").await;
    browser.end().await;
}

// rule: CHAN-43, CHAN-93
#[tokio::test]
#[ignore = "needs Chromium: tests/run browser"]
async fn with_sessions_the_printed_address_lets_a_browser_in() {
    let served = Served::start("loopback_auth = true\nhello_bound_ms = 500\n");
    let browser = Browser::start().await;
    browser.open(&served.url()).await;
    browser.says("body", "loopback-unauthenticated").await;
    let said = &served.gateway.said;
    let address = said.lines().map(str::trim).find(|line| line.contains("/?bootstrap=")).unwrap();
    browser.page(&served, address).await;
    // The ticket is not left in the address.
    assert_eq!(browser.driver.current_url().await.unwrap().as_str(), served.url());
    let answer = served.notes("read_notes", &json!({}));
    assert_eq!(answer["observed"], json!({"notes": []}));

    browser.driver.delete_all_cookies().await.unwrap();
    browser.press("#chair").await;
    browser.says("#status", "Left the chair.").await;
    browser.press("#chair").await;
    browser.says("#status", "Told to leave: executor-unauthenticated.").await;
    browser.open(address).await;
    browser.says("body", "bootstrap-ticket-refused").await;
    browser.end().await;
}

// rule: CHAN-92
#[tokio::test]
#[ignore = "needs Chromium: tests/run browser"]
async fn markup_in_a_call_is_text() {
    let served = Served::start("");
    let browser = Browser::start().await;
    browser.page(&served, &served.url()).await;
    let markup = "<img src=x onerror=\"document.title='broken'\"><b>bold</b><script>1</script>";
    let asked = served.ask("person", "ask", &json!({"question": markup}), &json!({}));
    browser.says("#calls article pre", "<b>bold</b>").await;
    let answer = served.notes("write_note", &json!({"text": markup}));
    assert_eq!(answer["observed"], json!({"count": 1}));
    browser.says("#notes li", markup).await;
    let answer = served.ask(markup, markup, &json!({}), &json!({})).answer();
    assert_eq!(answer["refused"], "unattributed-call");
    browser.says("#calls article h3", markup).await;
    let made = "return document.querySelectorAll('main img, main b, main script').length";
    assert_eq!(browser.run(made, vec![]).await, json!(0));
    // The policy lets the page's own style in, and nobody's markup.
    let style = "return getComputedStyle(document.querySelector('main')).maxWidth";
    assert_eq!(browser.run(style, vec![]).await, json!("768px"));
    let inject = "try { document.body.innerHTML = '<b>x</b>'; return 'taken' } \
                  catch (error) { return error.name }";
    assert_eq!(browser.run(inject, vec![]).await, json!("TypeError"));
    assert_eq!(browser.driver.title().await.unwrap(), "Executor · triwire");
    browser.press_button("Refuse").await;
    assert_eq!(asked.answer()["refused"], "refused-by-person");
    browser.end().await;
}
