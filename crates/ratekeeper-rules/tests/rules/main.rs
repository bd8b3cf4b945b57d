//! A rule from a file is the same as one from code: the same requests, the same keys, the same quotas.

mod keys;
mod matching;
mod options;
mod settling;
mod support;
