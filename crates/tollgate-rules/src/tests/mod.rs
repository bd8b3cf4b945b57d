//! What needs to see the model: that all of it can be written, is read again, and is what the schema says.

mod arbitrary;
mod round_trip;
mod schema;
mod write;
