//! Output for people.

use std::fmt::{self, Write};

use ratekeeper::{MissingKey, RequestHead, explain::Counted, explain::Why};

use super::Report;

pub(super) fn show(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a `String` does not fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> fmt::Result {
    let head = RequestHead::from(&report.request);
    write!(out, "{} {}", head.method(), Plain(head.path()))?;
    if let Some(host) = head.host() {
        write!(out, ", host {}", Plain(host))?;
    }
    writeln!(out, ", from {}\n", report.peer)?;
    if report.is_exempt {
        writeln!(
            out,
            "A CORS preflight, which is not limited, as the layer does not say `charge-preflights`.\n"
        )?;
    }
    for explained in &report.explained {
        write!(out, "{}: ", explained.rule)?;
        match &explained.why {
            Why::Counts(counted) => counts(out, counted)?,
            Why::Unlimited { tier } => {
                writeln!(out, "matches, but counts nothing")?;
                writeln!(out, "  the tier {} has no limit", tier.as_deref().unwrap_or("of this caller"))?;
            }
            Why::NoKey(missing) => {
                writeln!(out, "matches, but the request has not got its key")?;
                writeln!(
                    out,
                    "  such requests are {}",
                    if *missing == MissingKey::Deny { "denied" } else { "not counted" }
                )?;
            }
            Why::Unmatched(mismatches) => {
                writeln!(out, "does not match")?;
                mismatches
                    .iter()
                    .try_for_each(|mismatch| writeln!(out, "  {}", Plain(&mismatch.to_string())))?;
            }
            // There may be more variants some day.
            other => writeln!(out, "{other:?}")?,
        }
    }
    response(out, report)?;
    if !report.unknown.is_empty() {
        writeln!(out, "\nOnly the application knows these; `--help` tells what stands for them here:")?;
        for (rule, field) in &report.unknown {
            writeln!(out, "  `{field}` of {rule}")?;
        }
    }
    Ok(())
}

fn counts(out: &mut String, counted: &Counted) -> fmt::Result {
    writeln!(out, "{}", if counted.is_enforced { "counts" } else { "counts in shadow" })?;
    let shared =
        if counted.is_shared { " (the request has not got the key; all such share one)" } else { "" };
    writeln!(out, "  key    {}{shared}", Plain(&counted.key.to_string()))?;
    if let Some(tier) = &counted.tier {
        writeln!(out, "  tier   {}", Plain(tier))?;
    }
    writeln!(out, "  quota  {}", counted.quota)?;
    if let Some(candidate) = counted.candidate {
        writeln!(out, "  next   {candidate}, in shadow")?;
    }
    writeln!(out, "  cost   {}", counted.cost)
}

fn response(out: &mut String, report: &Report) -> fmt::Result {
    let status = report.response.status();
    let goes_on = if status.is_success() { ": the request goes on, and its response has" } else { "" };
    writeln!(out, "\n{status}{goes_on}")?;
    for (name, value) in report.response.headers() {
        writeln!(out, "  {name}: {}", Plain(&String::from_utf8_lossy(value.as_bytes())))?;
    }
    if report.response.headers().is_empty() {
        writeln!(out, "  no fields of the limiter")?;
    }
    if !report.response.body().is_empty() {
        writeln!(out, "\n{}", Plain(&String::from_utf8_lossy(report.response.body())))?;
    }
    Ok(())
}

/// Text from outside, without terminal control characters.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| f.write_char(if c.is_control() { '\u{fffd}' } else { c }))
    }
}
