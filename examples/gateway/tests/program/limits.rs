//! The rule files of the README, driven.
