use proptest::prelude::*;

use super::*;

/// Red on the left, blue on the right, the lower half transparent.
fn sample(width: u32, height: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let colour = if x < width / 2 { [255, 0, 0] } else { [0, 0, 255] };
            data.extend(colour);
            data.push(if y < height / 2 { 255 } else { 0 });
        }
    }
    encoder.write_header().unwrap().write_image_data(&data).unwrap();
    out
}

/// 2×1: black and white, not compressed.
const GIF: &[u8] = b"GIF89a\x02\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x02\0\x01\0\0\x02\x02\x44\x0a\0;";

#[test]
fn an_image_is_reduced_and_keeps_its_colours() {
    let small = decode(&sample(400, 200), (40, 40)).unwrap();
    assert_eq!((small.width, small.height), (40, 20));
    let at = |x: usize, y: usize| small.rgba[(y * 40 + x) * 4..][..4].to_vec();
    assert_eq!(at(0, 0), [255, 0, 0, 255]);
    assert_eq!(at(39, 9), [0, 0, 255, 255]);
    assert_eq!(at(0, 19)[3], 0);
    let whole = decode(&sample(4, 2), (40, 40)).unwrap();
    assert_eq!((whole.width, whole.height), (4, 2));
    let gif = decode(GIF, (40, 40)).unwrap();
    assert_eq!(gif.rgba, [0, 0, 0, 255, 255, 255, 255, 255]);
}

#[test]
fn images_fit_and_keep_their_aspect_ratio() {
    assert_eq!(fitting((400, 200), (40, 40)), (40, 20));
    assert_eq!(fitting((1, 8000), (40, 40)), (1, 40));
    assert_eq!(fitting((10, 10), (40, 40)), (10, 10));
    assert_eq!(fitting((30, 60), (40, 24)), (12, 24));
}

#[test]
fn a_broken_image_is_reported() {
    let whole = sample(400, 200);
    let why = decode(&whole[..60], (40, 40)).unwrap_err().to_string();
    assert!(why.starts_with("it cannot be decoded: "), "{why}");
    // A header of 7000×7000 pixels with no data after it.
    let mut bomb = whole.clone();
    bomb[16..24].copy_from_slice(&[0, 0, 0x1b, 0x58, 0, 0, 0x1b, 0x58]);
    assert!(decode(&bomb, (40, 40)).is_err());
    assert_eq!(decode(b"hello", (40, 40)).unwrap_err().to_string(), "not a PNG, JPEG, GIF or WebP image");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_never_panic(at in 8usize..400, bytes in prop::collection::vec(any::<u8>(), 1..40), kind in 0..4) {
        let mut all = match kind {
            0 => sample(40, 20),
            1 => GIF.to_vec(),
            2 => b"\xff\xd8\xff\xc0\0\x11\x08\0\x10\0\x10\x03\x01\x22\0\x02\x11\x01\x03\x11\x01".to_vec(),
            _ => b"RIFF\x40\0\0\0WEBPVP8L\x20\0\0\0\x2f\x0f\xc0\x01\0".to_vec(),
        };
        if kind > 1 {
            all.extend(&bytes);
        }
        let at = at % all.len();
        for (place, byte) in all[at..].iter_mut().zip(&bytes) {
            *place = *byte;
        }
        let _ = decode(&all, (16, 16));
    }
}
