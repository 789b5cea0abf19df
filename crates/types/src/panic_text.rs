use std::any::Any;

/// The text of a panic, from its payload.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let said = payload.downcast_ref::<&str>().copied();
    said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_whether_it_was_written_or_made() {
        let seven = 7;
        let said = |body: fn(i32)| std::panic::catch_unwind(|| body(seven)).unwrap_err();
        assert_eq!(panic_text(&*said(|_| panic!("written"))), "written");
        assert_eq!(panic_text(&*said(|n| panic!("made of {n}"))), "made of 7");
        assert_eq!(panic_text(&*said(|n| std::panic::panic_any(n))), "(no text)");
    }
}
