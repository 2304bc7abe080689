//! The time zone of this machine.

use jiff::tz::TimeZone;

/// The file of the machine's time zone, on every Unix.
const LOCALTIME: &str = "/etc/localtime";

/// Returns the time zone for displayed times: that of `TZ` if it `is_told`, else the machine's.
///
/// jiff's own lookup first scans the whole zone database to find this zone's name: at each start, some 40
/// folders that nothing needs.
pub fn local_zone(is_set: bool) -> TimeZone {
    let own = (!is_set).then(|| std::fs::read(LOCALTIME).ok()).flatten();
    own.and_then(|data| TimeZone::tzif("Local", &data).ok()).unwrap_or_else(TimeZone::system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_time_zone_is_used() {
        let now = jiff::Timestamp::now();
        assert_eq!(local_zone(false).to_offset(now), TimeZone::system().to_offset(now));
    }
}
