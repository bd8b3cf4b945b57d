//! Where a rule takes its key from.

use std::any::Any;
use std::sync::Arc;

use http::Extensions;

use super::{Extracted, KeyExtractor, PeerIp};
use crate::RequestHead;

/// A [`KeyExtractor`]. The one that most rules have is known by name, so that asking it is no call through a
/// pointer, and the key need not be handed around.
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

    /// Whether it is the address of the peer, and nothing else.
    pub(crate) const fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_))
    }

    /// The key of a request with this head, which few keys look at.
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
