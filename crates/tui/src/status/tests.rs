use super::*;

#[test]
fn paths_and_durations_are_short() {
    let home = Path::new("/home/me");
    assert_eq!(short_path(Path::new("/home/me/x"), Some(home)), "~/x");
    assert_eq!(short_path(home, Some(home)), "~");
    assert_eq!(short_path(Path::new("/home/metoo"), Some(home)), "/home/metoo");
    assert_eq!(short_path(Path::new("/x"), Some(Path::new("/"))), "/x");
    let spans = [0, 420, 9_990, 61_000, 3_660_000].map(duration);
    assert_eq!(spans, ["0.0 s", "0.4 s", "9.9 s", "1 min 01 s", "1 h 01 min"]);
}

mod line;
