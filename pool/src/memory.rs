//! What an allocation really costs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether the process allocates by glibc's malloc. Redis is mostly built with jemalloc.
static IS_GLIBC: AtomicBool = AtomicBool::new(false);

/// Sets which allocator the estimates of [`crate::Pool::memory_bytes`] are for, by how many bytes
/// it really sets aside for one: 24 for glibc's malloc, 8 for jemalloc. Until then, and for all
/// others, they are jemalloc's. Holds for the whole process.
pub fn calibrate(bytes_for_one: usize) {
    IS_GLIBC.store(bytes_for_one == glibc(1), Relaxed);
}

/// The bytes that are set aside for an allocation of `size` bytes.
pub(crate) fn allocated(size: usize) -> usize {
    if size == 0 {
        0
    } else if IS_GLIBC.load(Relaxed) {
        glibc(size)
    } else {
        jemalloc(size)
    }
}

/// jemalloc's size classes are multiples of 16 up to 128 (with 8 below), then four to each
/// doubling.
const fn jemalloc(size: usize) -> usize {
    match size {
        0..=8 => 8,
        9..=128 => size.next_multiple_of(16),
        _ => {
            let step = (size - 1).ilog2() - 2;
            size.next_multiple_of(1 << step)
        }
    }
}

/// glibc's chunks are multiples of 16, of which 8 bytes are its own, and at least 32.
const fn glibc(size: usize) -> usize {
    let chunk = (size + 8).next_multiple_of(16);
    if chunk < 32 { 24 } else { chunk - 8 }
}

#[cfg(test)]
mod tests {
    use super::{glibc, jemalloc};

    #[test]
    fn sizes_round_up_to_jemallocs_classes() {
        let classes = [
            (1, 8),
            (9, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (186, 192),
            (193, 224),
            (256, 256),
            (257, 320),
            (12_288, 12_288),
            (12_289, 14_336),
        ];
        for (size, class) in classes {
            assert_eq!(jemalloc(size), class, "size {size}");
        }
    }

    #[test]
    fn sizes_round_up_to_glibcs_chunks() {
        for (size, usable) in [(1, 24), (24, 24), (25, 40), (40, 40), (41, 56), (186, 200)] {
            assert_eq!(glibc(size), usable, "size {size}");
        }
    }
}
