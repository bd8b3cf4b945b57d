//! The code in the project's pages, as doc-tests: what does not compile there fails here.

#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(doctest, doc = include_str!("../ARCHITECTURE.md"))]
