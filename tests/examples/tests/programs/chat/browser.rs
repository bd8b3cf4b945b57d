//! The page, in a browser.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thirtyfour::{By, Key, WebDriver, WebElement};

use super::client::Client;
use super::driver::Driver;
use crate::support::Program;

/// How long the page may take for what is expected of it. Far more than it needs, since the machine may be
/// busy.
const PATIENCE: Duration = Duration::from_secs(60);

struct Page(WebDriver);

impl Page {
    async fn element(&self, selector: &str) -> WebElement {
        self.0.find(By::Css(selector)).await.unwrap()
    }

    async fn text(&self, selector: &str) -> String {
        self.element(selector).await.text().await.unwrap()
    }

    /// The messages, each with its speaker.
    async fn log(&self) -> Vec<String> {
        let lines = self.0.find_all(By::Css("#log li")).await.unwrap();
        let mut log = Vec::new();
        for line in lines {
            log.push(line.text().await.unwrap());
        }
        log
    }

    /// Types lines into the focused element, all at once, as a fast typist without a mouse would.
    async fn type_lines(&self, lines: &[&str]) {
        let focused = self.0.active_element().await.unwrap();
        let keys: String = lines.iter().map(|line| format!("{line}{}", Key::Enter.value())).collect();
        focused.send_keys(keys).await.unwrap();
    }

    async fn join(&self, program: &Program, name: &str) {
        self.0.goto(format!("http://{}/", program.address())).await.unwrap();
        self.type_lines(&[name]).await;
    }

    /// Has the page record its appearance whenever it reports something, as a busy machine may look too late.
    async fn watch(&self) {
        let script = r##"
            const text = (selector) => document.querySelector(selector).innerText;
            window.seen = [];
            new MutationObserver(() => window.seen.push({
                status: text("#status"),
                connection: text("#per-connection"),
                text: document.querySelector("#text").value,
                send: text("#send"),
                disabled: document.querySelector("#send").getAttribute("aria-disabled"),
            })).observe(document.querySelector("#status"), { childList: true });
        "##;
        self.0.execute(script, Vec::new()).await.unwrap();
    }

    /// The page's appearance when it last reported something with this beginning, if it did.
    async fn seen(&self, beginning: &str) -> Option<Value> {
        let seen = self.0.execute("return window.seen", Vec::new()).await.unwrap();
        let seen: Vec<Value> = seen.convert().unwrap();
        seen.into_iter().rfind(|seen| seen["status"].as_str().unwrap().starts_with(beginning))
    }

    /// Keeps a picture of the page, to show what the test saw.
    async fn picture(&self, name: &str) {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        self.0.screenshot(&path).await.unwrap();
    }
}

/// Polls until it is true.
async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true().await {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium and chromedriver, which ./scripts/test installs"]
async fn the_page_tells_what_is_left_and_when_one_may_speak_again() {
    let program = Program::start(env!("CARGO_BIN_EXE_example-chat"), &[]);
    let driver = Driver::start();
    let page = Page(driver.open().await);

    page.join(&program, "alice").await;
    until("a whole budget", async || page.text("#budgets").await.contains("5 of 5 left")).await;
    assert!(page.text("#per-connection").await.contains("3 of 3 left"));
    assert!(page.text("#per-user").await.starts_with("You, on all connections"));

    page.watch().await;
    // All at once and short, so that nothing is refilled meanwhile.
    page.type_lines(&["1", "2", "3", "4"]).await;
    until("a message too many", async || page.seen("Not sent").await.is_some()).await;
    page.picture("chat-wait.png").await;
    let seen = page.seen("Not sent").await.unwrap();
    let status = seen["status"].as_str().unwrap();
    assert!(
        status.starts_with("Not sent: this connection has said too much at once. You may speak"),
        "{status}"
    );
    assert_eq!((&seen["disabled"], &seen["text"]), (&json!("true"), &json!("4")), "{seen}");
    assert!(seen["send"].as_str().unwrap().starts_with("Send in "), "{seen}");
    assert!(seen["connection"].as_str().unwrap().contains("0 of 3 left"), "{seen}");
    assert_eq!(page.log().await, ["alice 1", "alice 2", "alice 3"]);

    // The message stays where it was typed, and is sent at the press of a key once it may be.
    until("the wait to be over", async || page.seen("You may speak again.").await.is_some()).await;
    assert_eq!(page.text("#send").await, "Send");
    page.type_lines(&[""]).await;
    until("the message to be said", async || page.log().await.len() == 4).await;
    assert_eq!(page.log().await[3], "alice 4");

    let mut bob = Client::join(program.address(), "bob").await;
    assert_eq!(bob.ask("<b>hello</b> alice").await["event"], "sent");
    until("what bob said", async || page.log().await.len() == 5).await;
    assert_eq!(page.log().await[4], "bob <b>hello</b> alice");
    page.picture("chat.png").await;

    drop(program);
    until("the end", async || page.text("#status").await == "The connection was closed.").await;
    page.0.quit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium and chromedriver, which ./scripts/test installs"]
async fn the_page_tells_when_one_may_join_again() {
    let program = Program::start(env!("CARGO_BIN_EXE_example-chat"), &[]);
    let driver = Driver::start();
    let page = Page(driver.open().await);
    // The browser may take so long to join that there is budget again. Then it is too slow once more, or not.
    let deadline = Instant::now() + PATIENCE;
    loop {
        while Client::try_join(program.address(), "bob").await.is_ok() {}
        page.join(&program, "alice").await;
        until("an answer", async || !["", "Joining…"].contains(&&*page.text("#status").await)).await;
        let status = page.text("#status").await;
        if status.starts_with("You have joined too often. Try again in ") {
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
    }
    assert!(page.element("#name").await.is_displayed().await.unwrap());
    page.0.quit().await.unwrap();
}
