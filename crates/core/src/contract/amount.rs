//! Amounts for users, each written in one way: tokens, bytes, times, and things that are counted.

use std::fmt::Display;

/// Formats a number of tokens in a few columns: `870`, `3k`, `1.2M`.
pub fn short_number(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..10_000 => format!("{:.1}k", count as f64 / 1000.0).replace(".0k", "k"),
        10_000..999_500 => format!("{}k", (count + 500) / 1000),
        _ => format!("{:.1}M", count as f64 / 1_000_000.0).replace(".0M", "M"),
    }
}

/// Formats a number of bytes: `870 bytes`, `3 KiB`, `1.25 MiB`, `2.50 GiB`. Up to a mebibyte it is rounded up, above it down.
pub fn bytes_in_words(bytes: u64) -> String {
    let hundredths = |shift: u32| {
        let rest = bytes & ((1 << shift) - 1);
        format!("{}.{:02}", bytes >> shift, ((rest >> (shift - 10)) * 100) >> 10)
    };
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        1_048_576..1_073_741_824 => format!("{} MiB", hundredths(20)),
        _ => format!("{} GiB", hundredths(30)),
    }
}

/// Formats a time in its two largest units: `0.4 s`, `12 s`, `3 min 05 s`, `5 h 10 min`, `2 d 3 h`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Counts things whose plural ends in `s`: `1 file`, `3 files`.
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {one}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> =
            [0, 870, 1000, 3049, 9960, 41_499, 999_499, 999_500, 1_240_000].map(short_number).into();
        assert_eq!(shown, ["0", "870", "1k", "3k", "10k", "41k", "999k", "1M", "1.2M"]);
    }

    #[test]
    fn bytes_have_the_unit_that_fits() {
        let shown: Vec<String> =
            [0, 1023, 1024, 1025, (1 << 20) - 1, 1 << 20, 5 << 18, (1 << 30) - 1, 1 << 30, 5 << 29, u64::MAX]
                .map(bytes_in_words)
                .into();
        assert_eq!(
            shown,
            [
                "0 bytes",
                "1023 bytes",
                "1 KiB",
                "2 KiB",
                "1024 KiB",
                "1.00 MiB",
                "1.25 MiB",
                "1023.99 MiB",
                "1.00 GiB",
                "2.50 GiB",
                "17179869183.99 GiB"
            ]
        );
    }

    #[test]
    fn times_have_two_units() {
        let shown: Vec<String> =
            [0, 999, 9999, 10_000, 59_999, 185_000, 18_600_000, 86_399_999, 183_600_000].map(duration).into();
        assert_eq!(
            shown,
            ["0.0 s", "0.9 s", "9.9 s", "10 s", "59 s", "3 min 05 s", "5 h 10 min", "23 h 59 min", "2 d 3 h"]
        );
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(
            [counted(0_usize, "file"), counted(1_u64, "file"), counted(2_u32, "more file")],
            ["0 files", "1 file", "2 more files"]
        );
    }
}
