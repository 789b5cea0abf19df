//! The stages of a commit as tables.

use super::perf::Calls;
use super::stages::{CALLS, Stages};
use super::threads::Memory;

/// All rounds of one provider with one writer.
pub struct Column {
    label: String,
    /// One for each node.
    pub nodes: Vec<Stages>,
    /// System calls of each node in a run of their own and the write sets that passed in it, or why there are none.
    pub syscalls: Result<Vec<(Calls, u64)>, String>,
}

impl Column {
    pub fn new(label: &str, nodes: usize) -> Column {
        Column {
            label: label.to_owned(),
            nodes: vec![Stages::default(); nodes],
            syscalls: Err(String::from("not counted")),
        }
    }

    fn syscalls(&self, node: usize, thread: Option<&str>) -> Option<f64> {
        let (calls, passed) = self.syscalls.as_ref().ok()?.get(node)?;
        let count = match thread {
            Some(name) => calls.get(name).copied().unwrap_or(0),
            None => calls.values().sum(),
        };
        Some(per(count, *passed))
    }
}

fn per(count: u64, commits: u64) -> f64 {
    count as f64 / commits.max(1) as f64
}

pub fn print_memory(label: &str, nodes: &[Memory]) {
    let mib = |kib: i64| kib as f64 / 1024.0;
    let each: Vec<String> =
        nodes.iter().map(|m| format!("{:.1} ({:.1} anonymous)", mib(m.resident_kib), mib(m.anonymous_kib))).collect();
    println!("{label:<16} idle memory of each node, MiB: {}", each.join(", "));
}

pub fn print(writer: usize, columns: &[Column]) {
    println!("\nclient on node {writer}{}\n", if writer == 0 { ", which bootstrapped" } else { "" });
    print!("{:<20}", "us, p50 and p99");
    columns.iter().for_each(|c| print!("  {:>20}", c.label));
    println!();
    for (number, call) in CALLS.iter().enumerate() {
        print!("{call:<20}");
        for column in columns {
            let micros = |q| column.nodes[writer].calls[number].quantile(q) as f64 / 1000.0;
            print!("  {:>10.1}{:>10.1}", micros(0.5), micros(0.99));
        }
        println!();
    }
    println!(
        "\n{:<16} {:<5} {:<16} {:>9} {:>10} {:>9} {:>9}",
        "per commit", "node", "thread", "wake-ups", "preempted", "CPU us", "syscalls"
    );
    for column in columns {
        print_threads(column);
    }
}

/// Threads that did next to nothing are only in the sum.
const SHOWN: f64 = 0.005;

fn print_threads(column: &Column) {
    for (number, node) in column.nodes.iter().enumerate() {
        let line = |name: &str, wakeups, preempted, cpu: u64, syscalls: Option<f64>| {
            let syscalls = syscalls.map_or(String::from("-"), |s| format!("{s:.2}"));
            println!(
                "{:<16} {number:<5} {name:<16} {:>9.2} {:>10.2} {:>9.1} {syscalls:>9}",
                column.label,
                per(wakeups, node.passed),
                per(preempted, node.passed),
                per(cpu, node.passed) / 1000.0,
            );
        };
        let mut sum = (0, 0, 0);
        for (name, w) in &node.threads {
            let syscalls = column.syscalls(number, Some(name));
            sum = (sum.0 + w.wakeups, sum.1 + w.preempted, sum.2 + w.cpu_nanos);
            if per(w.wakeups, node.passed) >= SHOWN || syscalls.is_some_and(|s| s >= SHOWN) {
                line(name, w.wakeups, w.preempted, w.cpu_nanos, syscalls);
            }
        }
        line("all", sum.0, sum.1, sum.2, column.syscalls(number, None));
        if node.errors > 0 {
            println!("{:<16} {number:<5} {} ERRORS", column.label, node.errors);
        }
    }
    if let Err(e) = &column.syscalls {
        println!("{:<16} no system calls: {e}", column.label);
    }
}
