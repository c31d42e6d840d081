//! Medians and quantiles.

use std::time::Duration;

/// The middle one; of an even number, the mean of the middle two.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// The value that the given part of the values does not exceed, in microseconds.
pub fn quantile_micros(values: &mut [Duration], part: f64) -> f64 {
    values.sort_unstable();
    let rank = (part * values.len() as f64).ceil() as usize;
    values[rank.clamp(1, values.len()) - 1].as_secs_f64() * 1e6
}
