//! Time per decision, of several subjects in turn.
//!
//! On a machine that does other things as well, two runs cannot be compared. So each round measures all
//! subjects one after the other, the ratio is taken within the round, and the median over the rounds is
//! shown.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Measures once: nanoseconds per decision.
pub type Measure<'a> = Box<dyn Fn() -> f64 + 'a>;

/// The medians over the rounds: nanoseconds per decision of each subject.
#[derive(Debug)]
pub struct Medians {
    /// In the order of the subjects.
    pub nanos: Vec<f64>,
    /// The time of each subject, as a multiple of the first one's.
    pub ratios: Vec<f64>,
}

/// Measures the subjects in turn, `rounds` times.
#[must_use]
pub fn interleave(rounds: usize, subjects: &[Measure<'_>]) -> Medians {
    // The first round warms up.
    let rounds: Vec<Vec<f64>> =
        (0..=rounds).map(|_| subjects.iter().map(|measure| measure()).collect()).skip(1).collect();
    let over_rounds = |value: &dyn Fn(&[f64], usize) -> f64| {
        let values = |i| rounds.iter().map(|round| value(round, i)).collect();
        (0..subjects.len()).map(|i| median(values(i))).collect()
    };
    Medians { nanos: over_rounds(&|round, i| round[i]), ratios: over_rounds(&|round, i| round[i] / round[0]) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Passes the requests of each thread to `admits`, on all threads at the same time, and returns the
/// nanoseconds per decision.
///
/// # Panics
///
/// If a request is denied: the benchmark measures admissions.
pub fn nanos_per_decision<K: Sync>(requests: &[Vec<K>], admits: impl Fn(&K) -> bool + Sync) -> f64 {
    let (start, end) = (Barrier::new(requests.len() + 1), Barrier::new(requests.len() + 1));
    thread::scope(|scope| {
        for keys in requests {
            let (start, end, admits) = (&start, &end, &admits);
            scope.spawn(move || {
                start.wait();
                let admitted = keys.iter().filter(|key| admits(black_box(key))).count();
                end.wait();
                assert_eq!(admitted, keys.len(), "every request is admitted");
            });
        }
        start.wait();
        let started = Instant::now();
        end.wait();
        let total: usize = requests.iter().map(Vec::len).sum();
        started.elapsed().as_nanos() as f64 / total as f64
    })
}
