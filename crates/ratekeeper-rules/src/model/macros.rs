//! Macros that declare a type of the model once: its fields, how it is read, and in tests how it is written
//! and its schema.

/// A table with these fields and no others.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $Type:ident {
            required { $( $(#[$required_meta:meta])* $required_name:literal $required:ident: $Required:ty, )* }
            optional { $( $(#[$optional_meta:meta])* $optional_name:literal $optional:ident: $Optional:ty, )* }
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema), serde(deny_unknown_fields))]
        pub(crate) struct $Type {
            $(
                $(#[$required_meta])*
                #[cfg_attr(test, serde(rename = $required_name))]
                pub(crate) $required: $crate::read::Field<$Required>,
            )*
            $(
                $(#[$optional_meta])*
                #[cfg_attr(test, serde(
                    rename = $optional_name, default, skip_serializing_if = "crate::read::Field::is_unsaid"
                ))]
                pub(crate) $optional: $crate::read::Field<$Optional>,
            )*
        }

        impl $crate::read::Read for $Type {
            fn read(node: &$crate::tree::Node, scope: &$crate::scope::Scope<'_>) -> Option<Self> {
                let mut fields = $crate::model::Fields::new(node, scope)?;
                let read = Self {
                    $( $required: fields.required($required_name), )*
                    $( $optional: fields.optional($optional_name), )*
                };
                fields.finish();
                Some(read)
            }
        }
    };
}

/// One of these words.
macro_rules! words {
    ($(#[$meta:meta])* $Type:ident { $( $(#[$word_meta:meta])* $word:literal $Word:ident, )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema))]
        pub(crate) enum $Type {
            $( $(#[$word_meta])* #[cfg_attr(test, serde(rename = $word))] $Word, )*
        }

        impl $Type {
            pub(crate) const ALL: &[(&str, Self)] = &[$( ($word, Self::$Word), )*];
        }

        impl $crate::read::Read for $Type {
            fn read(node: &$crate::tree::Node, scope: &$crate::scope::Scope<'_>) -> Option<Self> {
                $crate::model::word(Self::ALL, node, scope)
            }
        }
    };
}

/// A text or a table with the same meaning; the table has names for the parts.
macro_rules! text_or_table {
    ($(#[$meta:meta])* $Type:ident { text: $Text:ty, table: $Table:ty }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        #[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema), serde(untagged))]
        // There are few of them, and they are dropped once the rules are built.
        #[allow(clippy::large_enum_variant)]
        pub(crate) enum $Type {
            Text($Text),
            Table($Table),
        }

        impl $crate::read::Read for $Type {
            fn read(node: &$crate::tree::Node, scope: &$crate::scope::Scope<'_>) -> Option<Self> {
                match node.value {
                    $crate::tree::Value::Text(_) => $crate::read::Read::read(node, scope).map(Self::Text),
                    $crate::tree::Value::Table(_) => $crate::read::Read::read(node, scope).map(Self::Table),
                    _ => $crate::read::expected("a text or a table", node, scope),
                }
            }
        }
    };
}
