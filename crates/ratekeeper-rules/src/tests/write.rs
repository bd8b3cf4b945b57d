//! How the model is serialized and described: positions are left out of both.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use crate::read::{At, Field, Named};

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: Serialize> Serialize for Field<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (&name.value, value)))
    }
}

/// Describes a type by the schema of its contents.
macro_rules! described_as {
    ($Type:ident<T>: $Inner:ty) => {
        impl<T: JsonSchema> JsonSchema for $Type<T> {
            fn inline_schema() -> bool {
                <$Inner>::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                <$Inner>::schema_name()
            }

            fn schema_id() -> Cow<'static, str> {
                <$Inner>::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$Inner>::json_schema(generator)
            }
        }
    };
}

described_as!(At<T>: T);
described_as!(Field<T>: T);
described_as!(Named<T>: BTreeMap<String, T>);
