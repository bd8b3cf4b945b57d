//! Exact counts of instructions.

use std::env;
use std::process::Command;

/// Runs this binary under callgrind with `argument`, and counts the instructions inside functions whose name
/// matches `function`.
///
/// Only those, because starting a clock takes a number of instructions that differs from run to run.
///
/// # Panics
///
/// If valgrind is not installed, or the run fails.
pub fn instructions(argument: &str, function: &str) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*{function}*"))
        .arg(env::current_exe().expect("the path of this binary"))
        .arg(argument)
        .output()
        .expect("valgrind is installed");
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.unwrap_or_else(|| panic!("no count in {report}"));
    count.trim().parse().expect("a number")
}
