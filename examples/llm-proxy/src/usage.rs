//! Measures what an answer costs as it is streamed.

use axum::body::Bytes;
use ratekeeper::meter::Measure;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Counts the tokens of an event stream (`text/event-stream`), and trusts the usage that it reports at the
/// end.
pub(crate) struct Usage {
    /// The line received so far. Pieces of a body end anywhere.
    line: Vec<u8>,
    /// Tokens to be counted with the next piece.
    due: u32,
    /// What the stream reports as the total cost.
    total: Option<u32>,
}

/// The parts of an event that matter here.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<IgnoredAny>,
    usage: Option<Total>,
}

#[derive(Deserialize)]
struct Total {
    total_tokens: u32,
}

impl Usage {
    /// For the answer to a prompt with this many tokens.
    pub(crate) fn new(prompt: u32) -> Self {
        Self { line: Vec::new(), due: prompt, total: None }
    }

    fn read_line(&mut self) {
        let data = self.line.strip_prefix(b"data:").unwrap_or_default();
        // What cannot be parsed, such as the `[DONE]` at the end, is ignored.
        if let Ok(Event { choices, usage }) = serde_json::from_slice(data) {
            self.total = usage.map(|usage| usage.total_tokens).or(self.total);
            // There is an event for each token, or for a few; the client may disconnect before the total is
            // reported.
            self.due = self.due.saturating_add(choices.len().try_into().unwrap_or(u32::MAX));
        }
        self.line.clear();
    }
}

impl Measure<Bytes> for Usage {
    fn measure(&mut self, piece: &Bytes) -> u32 {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.read_line();
            }
        }
        std::mem::take(&mut self.due)
    }

    fn total(&mut self, sum: u32) -> u32 {
        self.total.unwrap_or(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"text\":\"one \"}]}\n\n: still here\n\n\
        data: {\"choices\":[{\"text\":\"two\"}],\"usage\":null}\r\n\r\n";

    #[test]
    fn counts_wherever_the_stream_is_cut() {
        for cut in 0..=STREAM.len() {
            let (one, other) = STREAM.split_at(cut);
            let mut usage = Usage::new(4);
            let sum: u32 = [one, other].map(|piece| usage.measure(&Bytes::from(piece))).iter().sum();
            assert_eq!((sum, usage.total(sum)), (6, 6), "{one:?} {other:?}");
        }
    }

    #[test]
    fn believes_what_the_stream_says_in_the_end() {
        for total in [0, 5, 5_000] {
            let end = format!(
                "data: {{\"choices\":[],\"usage\":{{\"total_tokens\":{total}}}}}\n\ndata: [DONE]\n\n"
            );
            let mut usage = Usage::new(4);
            let sum = usage.measure(&Bytes::from(format!("{STREAM}{end}")));
            assert_eq!((sum, usage.total(sum)), (6, total));
        }
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        for text in ["data: {\n", "data\n", "\n\n\n", "data: {\"usage\":{}}\n", "event: x\n", "\u{0}\u{1}"] {
            let mut usage = Usage::new(0);
            assert_eq!((usage.measure(&Bytes::from(text)), usage.total(0)), (0, 0), "{text:?}");
        }
    }
}
