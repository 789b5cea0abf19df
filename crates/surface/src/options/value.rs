//! Formats of option values: periods, sizes, numbers, booleans. Parsing accepts what Galera accepts; printing gives the
//! form that Galera shows.

use std::time::Duration;

const SECOND: u128 = 1_000_000_000;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;
/// By definition of this format, not of the calendar.
const MONTH: u128 = 30 * DAY;
const YEAR: u128 = 12 * MONTH;

/// An ISO 8601 duration (`PT1M30.5S`; the `T` may be missing), or a plain decimal number of seconds.
///
/// `None` for anything else, a sign and weeks included, and for more than [`Duration`] can hold.
pub fn parse_period(text: &str) -> Option<Duration> {
    let nanos = match text.strip_prefix('P') {
        Some(rest) => parse_iso(rest)?,
        None => parse_decimal(text)?.checked_mul(SECOND / NANO)?,
    };
    let seconds = u64::try_from(nanos / SECOND).ok()?;
    Some(Duration::new(seconds, (nanos % SECOND) as u32))
}

/// Decimal fractions are handled in units of 10⁻⁹, so this is both the fraction's denominator and one second in nanoseconds.
const NANO: u128 = 1_000_000_000;

fn parse_iso(text: &str) -> Option<u128> {
    let mut total: u128 = 0;
    let mut rest = text;
    // Designators must come in this order, each at most once; `M` means month before `T` or an hour, minute after.
    let mut rank = 0;
    let mut in_time = false;
    let mut any = false;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('T') {
            if in_time {
                return None;
            }
            in_time = true;
            rank = rank.max(3);
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number = parse_decimal(&rest[..end])?;
        let (unit, this_rank) = match rest.as_bytes()[end] {
            b'Y' if !in_time => (YEAR, 1),
            b'M' if !in_time && rank < 2 => (MONTH, 2),
            b'D' if !in_time => (DAY, 3),
            b'H' => (HOUR, 4),
            b'M' => (MINUTE, 5),
            b'S' => (SECOND, 6),
            _ => return None,
        };
        if this_rank <= rank {
            return None;
        }
        // Only seconds may carry a fraction.
        if number % NANO != 0 && unit != SECOND {
            return None;
        }
        rank = this_rank;
        any = true;
        total = total.checked_add(number.checked_mul(unit / NANO)?)?;
        rest = &rest[end + 1..];
    }
    any.then_some(total)
}

/// A decimal number in units of 10⁻⁹; at most nine digits of fraction.
fn parse_decimal(text: &str) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() || whole.len() > 18 || fraction.len() > 9 {
        return None;
    }
    let digits = |s: &str| s.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: u128 = format!("{fraction:0<9}").parse().ok()?;
    Some(whole * NANO + fraction)
}

/// The normal form: `PT5S`, `PT1H23M20S`, `P1D`, `PT7.5S`. Zero is `PT0S`.
pub fn print_period(period: Duration) -> String {
    let mut rest = period.as_nanos();
    let mut take = |unit: u128| {
        let n = rest / unit;
        rest %= unit;
        n
    };
    let (years, months, days) = (take(YEAR), take(MONTH), take(DAY));
    let (hours, minutes, seconds) = (take(HOUR), take(MINUTE), take(SECOND));
    let mut out = String::from("P");
    for (n, unit) in [(years, 'Y'), (months, 'M'), (days, 'D')] {
        if n > 0 {
            out += &format!("{n}{unit}");
        }
    }
    if hours + minutes + seconds + rest == 0 {
        return if out == "P" { "PT0S".into() } else { out };
    }
    out.push('T');
    for (n, unit) in [(hours, 'H'), (minutes, 'M')] {
        if n > 0 {
            out += &format!("{n}{unit}");
        }
    }
    if seconds > 0 || rest > 0 {
        out += &seconds.to_string();
        if rest > 0 {
            out.push('.');
            out += format!("{rest:09}").trim_end_matches('0');
        }
        out.push('S');
    }
    out
}

/// An integer in the notation of C: `0x…` hexadecimal, a leading `0` octal, else decimal.
pub fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        (16, hex)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(if negative { -value } else { value }).ok()
}

const SUFFIXES: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// An integer with at most one suffix K, M, G or T of either case. Not negative.
pub fn parse_size(text: &str) -> Option<u64> {
    let last = text.chars().last()?.to_ascii_uppercase();
    let (number, shift) = match SUFFIXES.iter().find(|(c, _)| *c == last) {
        Some((_, shift)) => (&text[..text.len() - 1], *shift),
        None => (text, 0),
    };
    let number = u64::try_from(parse_int(number)?).ok()?;
    let value = number.checked_mul(1 << shift)?;
    (value <= i64::MAX as u64).then_some(value)
}

/// With the largest suffix that divides the value.
pub fn print_size(size: u64) -> String {
    for (suffix, shift) in SUFFIXES.iter().rev() {
        if size > 0 && size.trailing_zeros() >= *shift {
            return format!("{}{suffix}", size >> shift);
        }
    }
    size.to_string()
}

/// The many words for yes and no, in any case.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "on" | "true" | "yep" | "yeah" | "sure" => Some(true),
        "0" | "n" | "no" | "off" | "false" | "none" | "nope" => Some(false),
        _ => None,
    }
}

/// A decimal number; not infinite, not NaN.
pub fn parse_real(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'-' | b'+' | b'e' | b'E'));
    text.parse::<f64>().ok().filter(|v| plain && v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_read_and_printed_in_normal_form() {
        for (given, shown) in [
            ("5", "PT5S"),
            ("5000", "PT1H23M20S"),
            ("PT24H", "P1D"),
            ("PT0.5S", "PT0.5S"),
            ("0.5", "PT0.5S"),
            (".25", "PT0.25S"),
            ("PT7.5S", "PT7.5S"),
            ("PT90S", "PT1M30S"),
            ("P1Y", "P1Y"),
            ("P12M", "P1Y"),
            ("P1Y2M3DT4H5M6.000000007S", "P1Y2M3DT4H5M6.000000007S"),
            ("P5S", "PT5S"),
            ("P1H5M", "PT1H5M"),
            ("P1D5S", "P1DT5S"),
            ("0", "PT0S"),
            ("PT0S", "PT0S"),
            ("P1DT0S", "P1D"),
            ("P2D", "P2D"),
            ("P1M", "P1M"),
            ("PT1M", "PT1M"),
        ] {
            let period = parse_period(given).unwrap_or_else(|| panic!("{given} refused"));
            assert_eq!(print_period(period), shown, "{given}");
            assert_eq!(parse_period(shown), Some(period), "{shown} round trip");
        }
    }

    #[test]
    fn what_is_no_period_is_refused() {
        for bad in [
            "",
            "P",
            "PT",
            "-5",
            "+5",
            "5s",
            "P1W",
            "PT-1S",
            "P1",
            "PT1H1H",
            "PT1S1M",
            "PTT1S",
            "PT1D",
            "P1.5D",
            "PT0.1234567890S",
            "five",
            "PT5S ",
            "1.2.3",
            "pt5s",
            "99999999999999999999",
        ] {
            assert_eq!(parse_period(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_follow_c_notation_with_one_suffix() {
        for (given, value) in [
            ("0", 0),
            ("16", 16),
            ("0x10", 16),
            ("010", 8),
            ("1K", 1024),
            ("1k", 1024),
            ("128M", 134_217_728),
            ("4g", 4 << 30),
            ("2T", 2 << 40),
            ("9223372036854775807", i64::MAX as u64),
            ("0x1M", 1 << 20),
        ] {
            assert_eq!(parse_size(given), Some(value), "{given}");
        }
        for bad in ["", "K", "1KB", "1 K", "-1", "1.5M", "9223372036854775808", "9999999T", "1MM", "08", "0x"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_print_with_the_largest_suffix_that_divides() {
        for (value, shown) in [
            (0, "0"),
            (1, "1"),
            (1024, "1K"),
            (64500, "64500"),
            (1 << 20, "1M"),
            (134_217_728, "128M"),
            (1 << 30, "1G"),
            (3 << 29, "1536M"),
            (1 << 40, "1T"),
            (i64::MAX as u64, "9223372036854775807"),
        ] {
            assert_eq!(print_size(value), shown);
            assert_eq!(parse_size(shown), Some(value));
        }
    }

    #[test]
    fn integers_take_a_sign_but_no_suffix() {
        for (given, value) in
            [("-1", -1), ("+7", 7), ("0x7f", 127), ("0", 0), ("-0x10", -16), ("9223372036854775807", i64::MAX)]
        {
            assert_eq!(parse_int(given), Some(value), "{given}");
        }
        for bad in ["", "-", "1K", "4G", "1.0", " 1", "--1", "0x", "é"] {
            assert_eq!(parse_int(bad), None, "{bad}");
        }
    }

    #[test]
    fn booleans_know_many_words() {
        for yes in ["1", "y", "Y", "yes", "ON", "True", "yep", "sure", "yeah"] {
            assert_eq!(parse_bool(yes), Some(true), "{yes}");
        }
        for no in ["0", "n", "NO", "off", "False", "none", "nope"] {
            assert_eq!(parse_bool(no), Some(false), "{no}");
        }
        for bad in ["", "2", "tru", "si", "yes "] {
            assert_eq!(parse_bool(bad), None, "{bad}");
        }
    }

    #[test]
    fn reals_are_finite_decimals() {
        assert_eq!(parse_real("0.25"), Some(0.25));
        assert_eq!(parse_real("1"), Some(1.0));
        for bad in ["", "inf", "nan", "1e999", "0x1", "1,5"] {
            assert_eq!(parse_real(bad), None, "{bad}");
        }
    }
}
