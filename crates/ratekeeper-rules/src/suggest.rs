//! Suggestions for misspelled words.

/// The longest word that is compared with others: longer ones are not typos.
const MAX_LEN: usize = 64;

/// The most similar of these words, if it is similar enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_LEN {
        return None;
    }
    // Written with capitals, underscores or spaces it is still the same word to its writer.
    let normal = word.to_lowercase().replace(['_', ' '], "-");
    // A third of a word may be wrong, and one letter in any case.
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

/// `did you mean …?`, if there is a suggestion.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|known| format!("did you mean `{known}`?"))
}

/// Words as a readable list: `a`, `b` and `c`.
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
