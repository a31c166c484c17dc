/// Returns a server's text as it may stand in an error message: short, and without control characters,
/// which could change a terminal or forge lines of a log.
pub(super) fn shorten(mut text: String) -> String {
    const LONGEST: usize = 200;
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push_str("..");
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_short_and_has_no_control_characters() {
        assert_eq!(shorten("as it is".into()), "as it is");
        assert_eq!(shorten("a\r\n\x1b[31mb".into()), "a   [31mb");
        assert_eq!(shorten("ü".repeat(201)), "ü".repeat(200) + "..");
    }
}
