//! The examples, run as a person would.

mod chat;
mod environment;
mod grpc;
mod llm_proxy;
mod login;
mod quickstart;
mod redis_fleet;
mod support;
mod url_shortener;
