//! A check for tests: are tags closed in order, attributes quoted, and `<`, `>` and `&` escaped?

/// Fails at the first fault.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        check_text(&rest[..at])?;
        let end = rest[at..].find('>').ok_or_else(|| format!("no end: {:.40}", &rest[at..]))?;
        let tag = &rest[at + 1..at + end];
        rest = &rest[at + end + 1..];
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if tag.matches('"').count() % 2 == 1 || tag.contains('<') {
            return Err(format!("broken tag <{tag}>"));
        }
        let name = tag.trim_matches('/').split_whitespace().next().unwrap_or("");
        if let Some(closed) = tag.strip_prefix('/') {
            if open.pop() != Some(closed) {
                return Err(format!("</{closed}> closes nothing"));
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    check_text(rest)?;
    if open.is_empty() { Ok(()) } else { Err(format!("left open: {open:?}")) }
}

fn check_text(text: &str) -> Result<(), String> {
    let fault = text.contains('>')
        || text.split('&').skip(1).any(|after| {
            let end = after.find(';').unwrap_or(usize::MAX);
            end > 8 || !after[..end].chars().all(|c| c.is_alphanumeric() || c == '#')
        });
    if fault { Err(format!("not escaped: {text}")) } else { Ok(()) }
}

#[test]
fn faults_are_found() {
    check("<a b=\"c\"><d/>x &amp; y</a>").expect("well-formed");
    for text in ["<a>", "<a></b>", "a & b", "<a b=\"c></a>", "</a>", "<a", "a > b"] {
        assert!(check(text).is_err(), "{text}");
    }
}
