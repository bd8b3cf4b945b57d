//! What somebody may have meant.

/// The longest word that is compared with others: longer ones are no slip of the fingers.
const MAX_LEN: usize = 64;

/// The word of these that is written most alike, if one is alike enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_LEN {
        return None;
    }
    // Spelled with capitals or underscores it is the same word to whoever wrote it.
    let normal = word.to_lowercase().replace(['_', ' '], "-");
    // A third of a word may be wrong, but one letter always: who writes `get` for `GET` has it all wrong.
    let most = (normal.chars().count() / 3).max(1);
    let distance = |known: &str| strsim::damerau_levenshtein(&normal, &known.to_lowercase());
    known
        .into_iter()
        .filter(|known| *known != word)
        .map(|known| (distance(known), known))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// `did you mean …?`, if there is something that may have been meant.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|known| format!("did you mean `{known}`?"))
}

/// Words as a list to be read: `a`, `b` and `c`.
pub(crate) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_seen_and_another_word_is_not() {
        let known = ["token-bucket", "fixed-window", "sliding-window", "sliding-log"];
        assert_eq!(nearest("tokn-bucket", known), Some("token-bucket"));
        assert_eq!(nearest("Sliding_Log", known), Some("sliding-log"));
        assert_eq!(nearest("sliding-windwo", known), Some("sliding-window"));
        assert_eq!(nearest("gcra", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"sliding-log".repeat(100), known), None);
        assert_eq!(nearest("PSOT", ["GET", "POST", "PUT"]), Some("POST"));
    }

    #[test]
    fn a_list_reads_like_one() {
        assert_eq!(list([]), "nothing");
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
