//! A file's settings besides its rules: for the layer and for the limiter.

use ratekeeper::{IetfDraft, LimiterBuilder, RateLimitLayer};

use crate::model::{IetfWord, LayerTable, LimiterTable, RejectionWord};
use crate::read::At;
use crate::rejection::FileRejection;
use crate::scope::Scope;

/// A file's settings for the layer: which header fields are written, whether preflights are limited, and how
/// rejected requests are answered.
///
/// Settings that the file does not have are left as the application set them.
///
/// ```
/// use ratekeeper::RateLimitLayer;
/// use ratekeeper_rules::{Format, Registry, RuleFile};
///
/// let text = r#"
///     [layer]
///     x-ratelimit-headers = false
///     ietf-headers = "draft-11"
///
///     [[rules]]
///     name = "all"
///     quota = "10/s"
/// "#;
/// let file = RuleFile::parse("rules.toml", text, Format::Toml, &Registry::new())?;
/// let layer = file.layer().apply(RateLimitLayer::new(file.limiter().build()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerSettings {
    x_ratelimit_headers: Option<bool>,
    ietf_headers: Option<IetfDraft>,
    charge_preflights: Option<bool>,
    rejection: Option<RejectionWord>,
}

impl LayerSettings {
    pub(crate) fn new(table: &LayerTable) -> Self {
        Self {
            x_ratelimit_headers: table.x_ratelimit_headers.copied(),
            ietf_headers: table.ietf_headers.value().map(|IetfWord::Draft11| IetfDraft::Draft11),
            charge_preflights: table.charge_preflights.copied(),
            rejection: table.rejection.copied(),
        }
    }

    /// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are written; `None` if the file does not say.
    #[must_use]
    pub const fn x_ratelimit_headers(&self) -> Option<bool> {
        self.x_ratelimit_headers
    }

    /// The draft by which `RateLimit` and `RateLimit-Policy` are written; `None` if the file does not say.
    #[must_use]
    pub const fn ietf_headers(&self) -> Option<IetfDraft> {
        self.ietf_headers
    }

    /// Whether CORS preflights are limited; `None` if the file does not say.
    #[must_use]
    pub const fn charge_preflights(&self) -> Option<bool> {
        self.charge_preflights
    }

    /// How rejected requests are answered: as the file says, or by `own` if it does not say.
    pub fn rejection<R>(&self, own: R) -> FileRejection<R> {
        match self.rejection {
            None => FileRejection::Own(own),
            Some(RejectionWord::Json) => FileRejection::Json,
            Some(RejectionWord::Problem) => FileRejection::Problem,
        }
    }

    /// Applies the settings to the layer.
    pub fn apply<R>(&self, mut layer: RateLimitLayer<R>) -> RateLimitLayer<FileRejection<R>> {
        if let Some(on) = self.x_ratelimit_headers {
            layer = layer.x_ratelimit_headers(on);
        }
        if let Some(draft) = self.ietf_headers {
            layer = layer.ietf_headers(draft);
        }
        if let Some(on) = self.charge_preflights {
            layer = layer.charge_preflights(on);
        }
        layer.map_rejection(|own| self.rejection(own))
    }
}

/// A file's bounds for the limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimiterSettings {
    max_waiting: Option<usize>,
    max_local_keys: Option<usize>,
}

impl LimiterSettings {
    pub(crate) fn new(table: &At<LimiterTable>, scope: &Scope<'_>) -> Self {
        let LimiterTable { max_waiting, max_local_keys } = &table.value;
        if let Some(zero) = max_local_keys.get().filter(|keys| keys.value == 0) {
            let message = "of no keys at all nothing can be counted; the least is 1";
            scope.field("limiter").field("max-local-keys").problem(zero.span.clone(), message);
        }
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            max_waiting: max_waiting.copied().map(count),
            max_local_keys: max_local_keys.copied().map(count),
        }
    }

    pub(crate) fn apply(&self, mut builder: LimiterBuilder) -> LimiterBuilder {
        if let Some(max) = self.max_waiting {
            builder = builder.max_waiting(max);
        }
        if let Some(max) = self.max_local_keys {
            builder = builder.max_local_keys(max);
        }
        builder
    }
}

/// The fields that differ. The layer and the limiter took their values from the first when they were built.
#[cfg(feature = "reload")]
pub(crate) fn changed(
    before: (LayerSettings, LimiterSettings),
    after: (LayerSettings, LimiterSettings),
) -> Vec<&'static str> {
    // All fields are listed by name, so that a new one cannot be forgotten here.
    let (LayerSettings { x_ratelimit_headers, ietf_headers, charge_preflights, rejection }, limiter) = before;
    let LimiterSettings { max_waiting, max_local_keys } = limiter;
    let (layer, limiter) = after;
    let changed = [
        ("layer.x-ratelimit-headers", x_ratelimit_headers != layer.x_ratelimit_headers),
        ("layer.ietf-headers", ietf_headers != layer.ietf_headers),
        ("layer.charge-preflights", charge_preflights != layer.charge_preflights),
        ("layer.rejection", rejection != layer.rejection),
        ("limiter.max-waiting", max_waiting != limiter.max_waiting),
        ("limiter.max-local-keys", max_local_keys != limiter.max_local_keys),
    ];
    changed.into_iter().filter_map(|(field, changed)| changed.then_some(field)).collect()
}
