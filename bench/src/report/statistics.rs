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
        let rest = self.set.iter().filter(|(name, value)| wanted(name) && !matches!(value.as_str(), "rows" | "clear"));
        words.extend(rest.map(|(name, value)| format!("{name} {value}")));
        words.join(", ")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(|_| true))
    }
}

/// The numbers of one point: repeat, and what was measured in it.
type Numbers = Vec<(u32, f64)>;

/// One value of all points of an experiment, in the order in which the points were planned.
#[derive(Clone, Debug, Default)]
pub struct Cells(Vec<(Key, Summary, Numbers)>);

impl Cells {
    pub fn of(records: &[&Record], value: &str) -> Cells {
        let mut all: Vec<(Key, Numbers)> = Vec::new();
        let mut records: Vec<&&Record> = records.iter().collect();
        records.sort_by_key(|record| (record.point.repeat, record.began));
        for record in records {
            let Some(number) = record.value(value) else { continue };
            let point = &record.point;
            let key = Key { system: point.system.clone(), nodes: point.nodes, set: point.set.clone() };
            match all.iter_mut().find(|(known, _)| *known == key) {
                Some((_, numbers)) => numbers.push((point.repeat, number)),
                None => all.push((key, vec![(point.repeat, number)])),
            }
        }
        Cells::made_of(all)
    }

    fn made_of(all: Vec<(Key, Numbers)>) -> Cells {
        let summary = |numbers: &Numbers| Summary::of(&numbers.iter().map(|(_, number)| *number).collect::<Vec<_>>());
        Cells(all.into_iter().filter_map(|(key, numbers)| Some((key, summary(&numbers)?, numbers))).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Summary)> {
        self.0.iter().map(|(key, summary, _)| (key, summary))
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().map(|(key, ..)| key)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, key: &Key) -> Option<&Summary> {
        self.iter().find(|(known, _)| *known == key).map(|(_, summary)| summary)
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

    /// Each as a multiple of another one, repeat by repeat: in one repeat both had the same machine. Those that have no other, and the others
    /// themselves, are left out.
    pub fn in_units_of(&self, base: impl Fn(&Key) -> Key) -> Cells {
        let ratio = |(key, _, numbers): &(Key, Summary, Numbers)| {
            let base = base(key);
            if base == *key {
                return None;
            }
            let (.., units) = self.0.iter().find(|(known, ..)| *known == base)?;
            let paired = numbers.iter().filter_map(|(repeat, number)| {
                let (_, unit) = units.iter().find(|(known, _)| known == repeat)?;
                (*unit > 0.0).then(|| (*repeat, number / unit))
            });
            Some((key.clone(), paired.collect()))
        };
        Cells::made_of(self.0.iter().filter_map(ratio).collect())
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

    #[test]
    fn ratios_are_those_of_each_repeat() {
        let key = |system: &str| Key { system: system.to_owned(), nodes: 1, set: BTreeMap::new() };
        // A machine that was half as fast in the second repeat changes no ratio.
        let cells = Cells::made_of(vec![
            (key("plain"), vec![(1, 1000.0), (2, 500.0)]),
            (key("ours"), vec![(1, 2000.0), (2, 1000.0), (3, 7.0)]),
        ]);
        let ratio = cells.in_units_of(|_| key("plain"));
        assert_eq!(ratio.get(&key("ours")), Some(&Summary { median: 2.0, least: 2.0, most: 2.0, count: 2 }));
        assert_eq!(ratio.get(&key("plain")), None);
    }
}
