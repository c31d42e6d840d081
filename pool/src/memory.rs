//! What an allocation really costs.

/// The bytes that jemalloc, Redis's usual allocator, sets aside for an allocation of `size` bytes.
///
/// Its size classes are multiples of 16 up to 128 (with 8 below), then four to each doubling. glibc's malloc differs from this
/// by less than a class.
pub(crate) const fn allocated(size: usize) -> usize {
    match size {
        0 => 0,
        1..=8 => 8,
        9..=128 => size.next_multiple_of(16),
        _ => {
            let step = (size - 1).ilog2() - 2;
            size.next_multiple_of(1 << step)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::allocated;

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
            assert_eq!(allocated(size), class, "size {size}");
        }
    }
}
