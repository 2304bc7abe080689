//! Scales an image down while its rows arrive: each pixel is the mean of those it represents.

use crate::contract::image::Pixels;

pub(super) struct Scaler {
    from: (u32, u32),
    to: (u32, u32),
    /// The next row that comes.
    y: u32,
    /// The row that is being made: sums of red, green and blue, each times its opacity, of opacity, and how many.
    sums: Vec<[u64; 5]>,
    /// The number of finished rows.
    made: u32,
    rgba: Vec<u8>,
}

impl Scaler {
    pub(super) fn new(from: (u32, u32), to: (u32, u32)) -> Scaler {
        let rgba = Vec::with_capacity(to.0 as usize * to.1 as usize * 4);
        Scaler { from, to, y: 0, sums: vec![[0; 5]; to.0 as usize], made: 0, rgba }
    }

    /// The size of the picture as it comes.
    pub(super) fn from(&self) -> (u32, u32) {
        self.from
    }

    /// The next row: grey, grey and opacity, red green blue, or those and opacity.
    pub(super) fn row(&mut self, row: &[u8], channels: usize) {
        if self.y >= self.from.1 {
            return;
        }
        let row_of = |y: u32| (u64::from(y) * u64::from(self.to.1) / u64::from(self.from.1)) as u32;
        if row_of(self.y) > self.made {
            self.end_row();
        }
        let (from, to) = (u64::from(self.from.0), u64::from(self.to.0));
        for (x, pixel) in row.chunks_exact(channels).take(self.from.0 as usize).enumerate() {
            let (red, green, blue, alpha) = match *pixel {
                [grey] => (grey, grey, grey, 255),
                [grey, alpha] => (grey, grey, grey, alpha),
                [red, green, blue] => (red, green, blue, 255),
                [red, green, blue, alpha, ..] => (red, green, blue, alpha),
                [] => continue,
            };
            let Some(sum) = self.sums.get_mut((x as u64 * to / from) as usize) else { continue };
            let opacity = u64::from(alpha);
            for (sum, colour) in sum.iter_mut().zip([red, green, blue]) {
                *sum += u64::from(colour) * opacity;
            }
            sum[3] += opacity;
            sum[4] += 1;
        }
        self.y += 1;
    }

    fn end_row(&mut self) {
        for [red, green, blue, opacity, count] in &mut self.sums {
            let mean = |sum: u64, of: u64| u8::try_from((sum + of / 2) / of.max(1)).unwrap_or(u8::MAX);
            let pixel =
                [mean(*red, *opacity), mean(*green, *opacity), mean(*blue, *opacity), mean(*opacity, *count)];
            self.rgba.extend(pixel);
            (*red, *green, *blue, *opacity, *count) = (0, 0, 0, 0, 0);
        }
        self.made += 1;
    }

    /// The picture. Rows that did not come are empty.
    pub(super) fn finish(mut self) -> Pixels {
        while self.made < self.to.1 {
            self.end_row();
        }
        Pixels { width: self.to.0, height: self.to.1, rgba: self.rgba }
    }
}
