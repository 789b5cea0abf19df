//! Repeats of a point as one number with its spread.

use crate::record::Record;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub count: usize,
}

impl Summary {
    /// `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Summary { median, least, most, count: sorted.len() })
    }

    pub fn shown(&self, decimals: usize) -> String {
        let number = |value| super::number(value, decimals);
        match self.count {
            1 => number(self.median),
            _ => format!("{} ({}–{})", number(self.median), number(self.least), number(self.most)),
        }
    }
}

/// A point without its repeat.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub system: String,
    pub nodes: u8,
    pub set: BTreeMap<String, String>,
}

impl Key {
    pub fn coordinate(&self, name: &str) -> String {
        match name {
            "system" => self.system.clone(),
            "nodes" => self.nodes.to_string(),
            other => self.set.get(other).cloned().unwrap_or_default(),
        }
    }

    /// The coordinates that are wanted, in words.
    pub fn words(&self, wanted: impl Fn(&str) -> bool) -> String {
        let mut words = Vec::new();
        if wanted("system") {
            words.push(self.system.clone());
        }
        if wanted("nodes") {
            words.push(format!("nodes {}", self.nodes));
        }
        // A setting that is the same everywhere goes without saying.
        let rest = self.set.iter().filter(|(name, value)| wanted(name) && value.as_str() != "rows");
        words.extend(rest.map(|(name, value)| format!("{name} {value}")));
        words.join(", ")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(|_| true))
    }
}

/// One value of all points of an experiment, in the order in which the points were planned.
#[derive(Clone, Debug, Default)]
pub struct Cells(Vec<(Key, Summary)>);

impl Cells {
    pub fn of(records: &[&Record], value: &str) -> Cells {
        let mut all: Vec<(Key, Vec<f64>)> = Vec::new();
        let mut records: Vec<&&Record> = records.iter().collect();
        records.sort_by_key(|record| (record.point.repeat, record.began));
        for record in records {
            let Some(number) = record.value(value) else { continue };
            let point = &record.point;
            let key = Key { system: point.system.clone(), nodes: point.nodes, set: point.set.clone() };
            match all.iter_mut().find(|(known, _)| *known == key) {
                Some((_, numbers)) => numbers.push(number),
                None => all.push((key, vec![number])),
            }
        }
        Cells(all.into_iter().filter_map(|(key, numbers)| Some((key, Summary::of(&numbers)?))).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Summary)> {
        self.0.iter().map(|(key, summary)| (key, summary))
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().map(|(key, _)| key)
    }

    pub fn get(&self, key: &Key) -> Option<&Summary> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, summary)| summary)
    }

    /// The different values of these coordinates together: numbers by size, the rest as they come.
    pub fn values_of(&self, names: &[&str]) -> Vec<String> {
        let mut all: Vec<Vec<String>> = Vec::new();
        for key in self.keys() {
            let value: Vec<String> = names.iter().map(|name| key.coordinate(name)).collect();
            if !all.contains(&value) {
                all.push(value);
            }
        }
        let order = |text: &String| text.split('/').next().and_then(|part| part.parse::<f64>().ok());
        let firsts: Vec<Vec<String>> = all.clone();
        // Words keep the place where they came first, numbers go by size.
        all.sort_by(|a, b| {
            for (n, (x, y)) in a.iter().zip(b).enumerate() {
                let by = match (order(x), order(y)) {
                    (Some(x), Some(y)) => x.total_cmp(&y),
                    _ => {
                        let place = |value: &String| firsts.iter().position(|known| known[n] == *value);
                        place(x).cmp(&place(y))
                    }
                };
                if by.is_ne() {
                    return by;
                }
            }
            std::cmp::Ordering::Equal
        });
        all.into_iter().map(|value| value.join(" / ")).collect()
    }

    /// Each as a multiple of another one's median; without those that have none, and the ones themselves.
    pub fn in_units_of(&self, base: impl Fn(&Key) -> Key) -> Cells {
        let ratio = |(key, summary): &(Key, Summary)| {
            let base = base(key);
            if base == *key {
                return None;
            }
            let unit = self.get(&base)?.median;
            let of = |value: f64| value / unit;
            let Summary { median, least, most, count } = *summary;
            (unit > 0.0).then(|| {
                (key.clone(), Summary { median: of(median), least: of(least), most: of(most), count: count.min(1) })
            })
        };
        Cells(self.0.iter().filter_map(ratio).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[5.0, 1.0, 3.0]), Some(Summary { median: 3.0, least: 1.0, most: 5.0, count: 3 }));
        assert_eq!(Summary::of(&[4.0, 2.0]).unwrap().median, 3.0);
    }
}
