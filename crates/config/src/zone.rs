//! The time zone of this machine.

use jiff::tz::TimeZone;

/// Where the machine's zone is, on every Unix.
const LOCALTIME: &str = "/etc/localtime";

/// The zone that times are shown in: that of `TZ` when it `is_told`, else the machine's.
///
/// jiff's own way to it looks through the whole database of zones first, to learn this one's name: at each start, some
/// 40 folders that nobody needs.
pub fn local_zone(is_told: bool) -> TimeZone {
    let own = (!is_told).then(|| std::fs::read(LOCALTIME).ok()).flatten();
    own.and_then(|data| TimeZone::tzif("Local", &data).ok()).unwrap_or_else(TimeZone::system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_zone_of_the_system() {
        let now = jiff::Timestamp::now();
        assert_eq!(local_zone(false).to_offset(now), TimeZone::system().to_offset(now));
    }
}
