//! Encoding protobuf messages as bytes, and bytes for a header field.

/// A message whose fields are written one after the other. Empty ones are left out, as protobuf specifies.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

/// Wire type of a number in seven bits per byte.
const VARINT: u8 = 0;
/// Wire type of bytes preceded by their length.
const DELIMITED: u8 = 2;

impl Message {
    pub(super) fn number(mut self, field: u8, number: u64) -> Self {
        if number > 0 {
            self.tag(field, VARINT);
            self.varint(number);
        }
        self
    }

    pub(super) fn text(self, field: u8, text: &str) -> Self {
        if text.is_empty() { self } else { self.delimited(field, text.as_bytes()) }
    }

    /// A nested message, which is written even if it is empty.
    pub(super) fn message(self, field: u8, message: &Self) -> Self {
        self.delimited(field, &message.0)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn delimited(mut self, field: u8, bytes: &[u8]) -> Self {
        self.tag(field, DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// All field numbers used here are below 16, so a tag takes one byte.
    fn tag(&mut self, field: u8, kind: u8) {
        self.0.push(field << 3 | kind);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

/// Base64 (RFC 4648) without padding, the form that gRPC prefers for binary fields.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        // One more digit than there are bytes.
        for digit in 0..=chunk.len() {
            text.push(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize].into());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc_without_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe, 0xfb, 0xf0]), "/++++/A");
    }

    #[test]
    fn fields_are_written_as_protobuf_has_them() {
        // The examples from protobuf's documentation.
        assert_eq!(Message::default().number(1, 150).as_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing");
        assert_eq!(text.as_bytes(), [&[0x12, 0x07][..], b"testing"].concat());
        let inner = Message::default().number(1, 150);
        assert_eq!(Message::default().message(3, &inner).as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let largest = Message::default().number(1, u64::MAX);
        assert_eq!(largest.as_bytes(), [&[0x08][..], &[0xff; 9], &[0x01]].concat());
    }

    #[test]
    fn what_is_empty_is_left_out_unless_it_is_a_message() {
        let message = Message::default().number(1, 0).text(2, "").message(3, &Message::default());
        assert_eq!(message.as_bytes(), [0x1a, 0x00]);
    }
}
