//! The proxy between real sockets, with a manual clock, in front of a scripted model.

use std::future::Future;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http_body_util::BodyExt;
use ratekeeper::{Key, ManualClock, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;

use super::*;

/// Four bytes, which are estimated to be one token.
const PROMPT: &str = "why?";

/// Waits, but not forever.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("this should not take so long")
}

/// A client, the proxy and the model.
struct World {
    clock: ManualClock,
    limiter: Limiter,
    client: Client<HttpConnector, Body>,
    proxy: SocketAddr,
}

impl World {
    /// In front of a model at this address.
    async fn before(model: SocketAddr) -> Self {
        let clock = ManualClock::new(Timestamp::from_secs(20_000 * 86_400));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let proxy = listen(app(store.clone(), model).unwrap()).await;
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { clock, limiter: limiter(store).unwrap(), client, proxy }
    }

    async fn send(&self, key: &str, body: String) -> Answer {
        let request = Request::post(format!("http://{}{PATH}", self.proxy))
            .header("authorization", format!("Bearer {key}"))
            .body(Body::from(body))
            .unwrap();
        Answer(soon(self.client.request(request)).await.unwrap().map(Body::new))
    }

    async fn ask(&self, prompt: &str, max_tokens: impl Into<Option<u32>>) -> Answer {
        self.send("alice-key", json!({ "prompt": prompt, "max_tokens": max_tokens.into() }).to_string()).await
    }

    /// How many requests and tokens are left.
    async fn left(&self) -> (u32, u32) {
        let key = Key::from("alice-key".as_bytes()).into_secret();
        let decision = self.limiter.charge("requests", key).and("tokens", key).peek().await.unwrap();
        let [requests, tokens] =
            ["requests", "tokens"].map(|rule| decision.outcome(rule).unwrap().remaining());
        (requests, tokens)
    }
}

async fn listen(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

struct Answer(Response);

impl Answer {
    fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// The next piece of the body, as text.
    async fn piece(&mut self) -> Option<String> {
        let frame = soon(self.0.body_mut().frame()).await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    async fn text(mut self) -> String {
        let mut text = String::new();
        while let Some(piece) = self.piece().await {
            text += &piece;
        }
        text
    }

    async fn must_be_denied_by(self, rule: &str, retry_after: &str) {
        assert_eq!(self.status(), 429);
        assert_eq!(self.0.headers()["retry-after"], retry_after);
        let text = self.text().await;
        assert!(text.contains(&format!(r#""rule":"{rule}""#)), "{text}");
    }
}

/// The model's side of its conversations.
struct Model(mpsc::UnboundedReceiver<Talk>);

/// The model's side of one conversation, which ends when this is dropped.
struct Talk(mpsc::UnboundedSender<Result<Bytes, &'static str>>);

impl Model {
    async fn start() -> (Self, SocketAddr) {
        let (talks, begun) = mpsc::unbounded_channel();
        let answer = move || {
            let (sender, receiver) = mpsc::unbounded_channel();
            talks.send(Talk(sender)).unwrap();
            let pieces =
                stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
            std::future::ready(Body::from_stream(pieces))
        };
        (Self(begun), listen(Router::new().route(PATH, post(answer))).await)
    }

    async fn talk(&mut self) -> Talk {
        soon(self.0.recv()).await.unwrap()
    }
}

impl Talk {
    fn say(&self, text: &str) {
        let event = json!({ "choices": [{ "text": text }] });
        self.0.send(Ok(format!("data: {event}\n\n").into())).unwrap();
    }

    fn end(self, total_tokens: u32) {
        let event = json!({ "choices": [], "usage": { "total_tokens": total_tokens } });
        self.0.send(Ok(format!("data: {event}\n\ndata: [DONE]\n\n").into())).unwrap();
    }

    fn break_off(self) {
        self.0.send(Err("lost the thread")).unwrap();
    }

    /// Waits until nobody listens any more.
    async fn is_left(&self) {
        soon(self.0.closed()).await;
    }
}

/// A world with a scripted model.
async fn world() -> (World, Model) {
    let (model, address) = Model::start().await;
    (World::before(address).await, model)
}

#[tokio::test]
async fn what_was_reserved_is_settled_when_the_answer_has_ended() {
    // More than it costs, less, and more than is available: then it is owed.
    for (total, left, later) in [(7, 1_993, 2_000), (101, 1_899, 2_000), (1_500, 500, 1_500), (2_500, 0, 500)]
    {
        let (world, mut model) = world().await;
        let answer = world.ask(PROMPT, 100).await;
        let talk = model.talk().await;
        assert_eq!(world.left().await, (9, 1_899));
        talk.say("so");
        talk.end(total);
        assert!(answer.text().await.ends_with("data: [DONE]\n\n"));
        assert_eq!(world.left().await, (9, left), "{total}");
        world.clock.advance(Duration::from_secs(30));
        assert_eq!(world.left().await, (10, later), "{total}");
    }
}

#[tokio::test]
async fn what_is_said_is_passed_on_before_the_next_is_thought_of() {
    let (world, mut model) = world().await;
    let mut answer = world.ask(PROMPT, 100).await;
    assert_eq!(
        (answer.status(), &answer.0.headers()["content-type"]),
        (200, &"text/event-stream".parse().unwrap())
    );
    let talk = model.talk().await;
    for word in ["that", "is", "why"] {
        talk.say(word);
        assert_eq!(
            answer.piece().await.unwrap(),
            format!("data: {}\n\n", json!({ "choices": [{ "text": word }] }))
        );
        assert_eq!(world.left().await, (9, 1_899));
    }
    talk.end(4);
    assert!(answer.text().await.contains(r#""total_tokens":4"#));
    assert_eq!(world.left().await, (9, 1_996));
}

#[tokio::test]
async fn who_leaves_has_paid_what_was_reserved_or_what_was_said_if_that_is_more() {
    // 1 for the prompt, and 1 for each word.
    for (max_tokens, words, left) in [(100, 3, 1_899), (5, 12, 1_987)] {
        let (world, mut model) = world().await;
        let mut answer = world.ask(PROMPT, max_tokens).await;
        let talk = model.talk().await;
        let mut heard = String::new();
        for word in 0..words {
            talk.say(&word.to_string());
        }
        while heard.matches("data:").count() < words {
            heard += &answer.piece().await.unwrap();
        }
        drop(answer);
        // The model notices, and need not continue.
        talk.is_left().await;
        assert_eq!(world.left().await, (9, left), "{max_tokens}");
    }
}

#[tokio::test]
async fn who_is_denied_tokens_has_spent_no_request_and_the_other_way_round() {
    let (world, mut model) = world().await;
    let (_one, _talk) = (world.ask(PROMPT, 999).await, model.talk().await);
    let (_other, _talk) = (world.ask(PROMPT, 979).await, model.talk().await);
    assert_eq!(world.left().await, (8, 20));
    // 81 more, at 33⅓ a second.
    world.ask(PROMPT, 100).await.must_be_denied_by("tokens", "3").await;
    assert_eq!(world.left().await, (8, 20));

    let mut answers = Vec::new();
    for left in (0..8).rev() {
        answers.push((world.ask(PROMPT, 1).await, model.talk().await));
        assert_eq!(world.left().await.0, left);
    }
    assert_eq!(world.left().await, (0, 4));
    world.ask(PROMPT, 1).await.must_be_denied_by("requests", "6").await;
    assert_eq!(world.left().await, (0, 4));
    let bob = world.send("bob-key", json!({ "prompt": PROMPT }).to_string()).await;
    assert_eq!(bob.status(), 200);
}

#[tokio::test]
async fn ten_at_once_do_not_spend_what_is_there_once() {
    let (world, mut model) = world().await;
    // 300 each, of 2,000.
    let (answers, denied): (Vec<_>, Vec<_>) = join_all((0..10).map(|_| world.ask(PROMPT, 299)))
        .await
        .into_iter()
        .partition(|answer| answer.status() == 200);
    assert_eq!((answers.len(), denied.len()), (6, 4));
    assert!(denied.iter().all(|answer| answer.status() == 429));
    assert_eq!(world.left().await, (4, 200));
    for _ in 0..6 {
        model.talk().await.end(10);
    }
    join_all(answers.into_iter().map(Answer::text)).await;
    assert_eq!(world.left().await, (4, 1_940));
    assert!(model.0.try_recv().is_err(), "nobody else came through");
}

#[tokio::test]
async fn an_answer_that_does_not_tell_its_cost_costs_what_was_said() {
    let (world, mut model) = world().await;
    let answer = world.ask(PROMPT, 100).await;
    let talk = model.talk().await;
    talk.say("so");
    drop(talk);
    answer.text().await;
    assert_eq!(world.left().await, (9, 1_998));
}

#[tokio::test]
async fn an_answer_that_breaks_off_costs_what_was_reserved() {
    let (world, mut model) = world().await;
    let mut answer = world.ask(PROMPT, 100).await;
    let talk = model.talk().await;
    talk.say("so");
    answer.piece().await.unwrap();
    talk.break_off();
    assert!(soon(answer.0.body_mut().frame()).await.unwrap().is_err(), "the client learns of it");
    assert_eq!(world.left().await, (9, 1_899));
}

#[tokio::test]
async fn a_model_that_does_not_answer_costs_no_tokens() {
    let refusing =
        listen(Router::new().route(PATH, post(|| async { StatusCode::INTERNAL_SERVER_ERROR }))).await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (address, why) in [(refusing, "refuses: 500"), (nobody, "does not answer")] {
        let world = World::before(address).await;
        let answer = world.ask(PROMPT, 100).await;
        assert_eq!(answer.status(), 502);
        let text = answer.text().await;
        assert!(text.contains(why), "{text}");
        assert_eq!(world.left().await, (9, 2_000));
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_and_not_counted() {
    let (world, mut model) = world().await;
    let body =
        |prompt: &str, max_tokens: u32| json!({ "prompt": prompt, "max_tokens": max_tokens }).to_string();
    for (key, body, status) in [
        ("alice-key", "nonsense".to_owned(), 400),
        ("alice-key", json!({ "max_tokens": 3 }).to_string(), 400),
        ("alice-key", body(PROMPT, ask::MAX_TOKENS + 1), 400),
        ("alice-key", body(&"a".repeat(ask::MAX_LENGTH), 1), 413),
        ("mallory-key", body(PROMPT, 1), 401),
    ] {
        assert_eq!(world.send(key, body).await.status(), status);
    }
    assert_eq!(world.left().await, (10, 2_000));
    assert!(model.0.try_recv().is_err());
    // The most that can be requested is admitted.
    let prompt = "a".repeat(ask::MAX_LENGTH - body("", ask::MAX_TOKENS).len());
    assert_eq!(world.ask(&prompt, ask::MAX_TOKENS).await.status(), 200);
}

#[tokio::test]
async fn the_model_that_comes_with_it_tells_what_it_has_said() {
    let world = World::before(listen(model::app(Duration::ZERO)).await).await;
    let text = world.ask("to be or not to be", 4).await.text().await;
    let words: Vec<_> =
        text.split(r#""text":""#).skip(1).map(|word| word.split('"').next().unwrap()).collect();
    assert_eq!(words, ["to ", "be ", "or ", "not "]);
    assert_eq!(world.left().await, (9, 1_990));
    // The request has no length, so a hundred are reserved; but the prompt has 300 words, and so would the
    // answer.
    world.ask(&"a ".repeat(300), None).await.text().await;
    // Without a length the answer is cut short: 300 were asked, and 100 answered.
    assert_eq!(world.left().await, (8, 1_590));
}

#[tokio::test]
async fn whoever_sends_two_keys_has_no_second_budget() {
    let world = World::before(listen(model::app(Duration::ZERO)).await).await;
    for second in ["Bearer bob-key", "Bearer alice-key", "Bearer x", ""] {
        let request = Request::post(format!("http://{}{PATH}", world.proxy))
            .header("authorization", "Bearer alice-key")
            .header("authorization", second)
            .body(Body::from(r#"{"prompt":"why?","max_tokens":1}"#))
            .unwrap();
        assert_eq!(soon(world.client.request(request)).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(world.left().await, (10, 2_000));
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_costs_nothing() {
    let world = World::before(listen(model::app(Duration::ZERO)).await).await;
    for body in [r#"["why?", 5]"#, "[]", "null", "5", "{}", r#"{"prompt":5}"#, ""] {
        assert_eq!(world.send("alice-key", body.to_owned()).await.status(), 400, "{body}");
    }
    assert_eq!(world.left().await, (10, 2_000));
}
