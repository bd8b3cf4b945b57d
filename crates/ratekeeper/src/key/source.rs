//! Where a rule takes its key from.

use std::any::Any;
use std::sync::Arc;

use http::Extensions;

use super::{Extracted, KeyExtractor, PeerIp};
use crate::request::RequestHead;

/// A [`KeyExtractor`]. The one that most rules use has its own variant, so that extracting its key needs no
/// call through a pointer and the key need not be passed around.
#[derive(Clone)]
pub(crate) enum KeySource {
    Peer(PeerIp),
    Other(Arc<dyn KeyExtractor>),
}

impl KeySource {
    pub(crate) fn new(key: impl KeyExtractor) -> Self {
        match (&key as &dyn Any).downcast_ref() {
            Some(peer) => Self::Peer(*peer),
            None => Self::Other(Arc::new(key)),
        }
    }

    /// Whether it is just the address of the peer.
    pub(crate) const fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_))
    }

    /// The names of the path parameters that it takes.
    pub(crate) fn path_params(&self) -> Vec<&str> {
        let mut names = Vec::new();
        if let Self::Other(key) = self {
            key.path_params(&mut names);
        }
        names
    }

    /// The key of a request. The head is made lazily, because few keys look at it.
    #[inline(always)]
    pub(crate) fn extract<'a>(
        &self,
        extensions: &Extensions,
        head: impl FnOnce() -> RequestHead<'a>,
    ) -> Extracted {
        match self {
            Self::Peer(peer) => peer.of(extensions),
            Self::Other(key) => key.extract(&head()),
        }
    }
}
