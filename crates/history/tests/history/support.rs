//! Histories by hand. Times are in milliseconds.

use trireme_history::{
    Body, Element, Findings, Header, History, Isolation, Key, Micros, Operation, Outcome, Step, check,
};

pub struct Script(pub History);

pub fn append(key: u64, element: u64) -> Step {
    Step::Append(Key(key), Element(element))
}

pub fn read(key: u64, list: &[u64]) -> Step {
    Step::Read(Key(key), Some(list.iter().map(|n| Element(*n)).collect()))
}

pub fn script(isolation: Isolation) -> Script {
    Script(History { header: Header::new(isolation), operations: Vec::new() })
}

impl Script {
    pub fn causal(mut self) -> Script {
        self.0.header.causal = true;
        self
    }

    /// A transaction of `process`, on the node of that number.
    pub fn add(mut self, process: u32, time: std::ops::Range<u64>, outcome: Outcome, steps: Vec<Step>) -> Script {
        self.0.operations.push(Operation {
            process,
            node: process as u8,
            invoked: Micros(time.start * 1000),
            completed: (outcome != Outcome::Unknown).then_some(Micros(time.end * 1000)),
            outcome,
            error: None,
            last: false,
            body: Body::Transaction(steps),
        });
        self
    }

    pub fn ok(self, process: u32, time: std::ops::Range<u64>, steps: Vec<Step>) -> Script {
        self.add(process, time, Outcome::Ok, steps)
    }

    /// The last read of `node`.
    pub fn last(self, node: u32, steps: Vec<Step>) -> Script {
        let mut script = self.ok(100 + node, 100_000..100_001, steps);
        let operation = script.0.operations.last_mut().unwrap();
        operation.last = true;
        operation.node = node as u8;
        script
    }

    pub fn check(&self) -> Findings {
        check(&self.0)
    }
}
