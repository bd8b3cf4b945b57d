//! What operators see: metrics, events, hints, and the dashboard that shows them.

mod decisions;
mod docs;
mod events;
mod hints;
mod prometheus;
mod redis;
mod support;
