//! Lookup by method.

use http::Method;

use super::map::Map;

/// Up to this many methods are searched linearly, which is faster than hashing. There are no more standard
/// methods.
const FEW: usize = 9;

/// Values for single methods, or for all.
#[derive(Clone, Debug)]
pub(super) struct ByMethod<T> {
    any: Vec<T>,
    methods: Methods<T>,
}

#[derive(Clone, Debug)]
enum Methods<T> {
    Few(Vec<(Method, Vec<T>)>),
    Many(Map<Method, Vec<T>>),
}

impl<T> Default for ByMethod<T> {
    fn default() -> Self {
        Self { any: Vec::new(), methods: Methods::Few(Vec::new()) }
    }
}

impl<T> ByMethod<T> {
    /// Adds a value for a method, or for all.
    pub(super) fn add(&mut self, method: Option<&Method>, thing: T) {
        match method {
            None => self.any.push(thing),
            Some(method) => self.methods.entry(method).push(thing),
        }
    }

    /// Calls `f` with every value for this method.
    #[inline]
    pub(super) fn each<'a>(&'a self, method: &Method, mut f: impl FnMut(&'a T)) {
        self.any.iter().for_each(&mut f);
        // Usually there is nothing more.
        if self.methods.is_empty() {
            return;
        }
        self.methods.get(method).iter().for_each(&mut f);
        // Servers serve HEAD with the handler of GET.
        if *method == Method::HEAD {
            self.methods.get(&Method::GET).iter().for_each(&mut f);
        }
    }
}

impl<T> Methods<T> {
    #[inline]
    fn is_empty(&self) -> bool {
        matches!(self, Self::Few(few) if few.is_empty())
    }

    fn get(&self, method: &Method) -> &[T] {
        let things = match self {
            Self::Few(few) => few.iter().find(|(known, _)| known == method).map(|(_, things)| things),
            Self::Many(many) => many.get(method),
        };
        things.map_or(&[], Vec::as_slice)
    }

    /// The values for this method, to be added to.
    fn entry(&mut self, method: &Method) -> &mut Vec<T> {
        if let Self::Few(few) = self
            && few.len() == FEW
            && !few.iter().any(|(known, _)| known == method)
        {
            *self = Self::Many(few.drain(..).collect());
        }
        match self {
            Self::Few(few) => {
                let at = few.iter().position(|(known, _)| known == method).unwrap_or_else(|| {
                    few.push((method.clone(), Vec::new()));
                    few.len() - 1
                });
                &mut few[at].1
            }
            Self::Many(many) => many.entry(method.clone()).or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(things: &ByMethod<usize>, method: &Method) -> Vec<usize> {
        let mut found = Vec::new();
        things.each(method, |thing| found.push(*thing));
        found
    }

    #[test]
    fn few_methods_and_many_are_told_apart_alike() {
        let method = |number: usize| Method::from_bytes(format!("M{number}").as_bytes()).unwrap();
        for count in [1, FEW - 1, FEW, FEW + 1, 100] {
            let mut things = ByMethod::default();
            things.add(None, 1_000);
            for number in 0..count {
                things.add(Some(&method(number)), number);
            }
            things.add(Some(&method(0)), 2_000);
            assert_eq!(of(&things, &method(0)), [1_000, 0, 2_000], "{count}");
            assert_eq!(of(&things, &method(count)), [1_000], "{count}");
            for number in 1..count {
                assert_eq!(of(&things, &method(number)), [1_000, number], "{count}");
            }
        }
    }

    #[test]
    fn head_is_where_get_is_among_few_and_among_many() {
        let mut things = ByMethod::default();
        things.add(Some(&Method::GET), 0);
        things.add(Some(&Method::HEAD), 1);
        assert_eq!((of(&things, &Method::GET), of(&things, &Method::HEAD)), (vec![0], vec![1, 0]));
        for number in 2..20 {
            things.add(Some(&Method::from_bytes(format!("M{number}").as_bytes()).unwrap()), number);
        }
        assert_eq!((of(&things, &Method::GET), of(&things, &Method::HEAD)), (vec![0], vec![1, 0]));
    }
}
