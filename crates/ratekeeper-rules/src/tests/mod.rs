//! Tests that need to see the model: that all of it can be written, is read back, and matches the schema.

mod arbitrary;
mod round_trip;
mod schema;
mod write;
