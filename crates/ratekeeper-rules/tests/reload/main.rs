//! Rules that change while a service runs, from each kind of source.

mod file;
mod postgres;
mod redis;
mod reloading;
mod size;
mod support;
mod told;
mod whole;
