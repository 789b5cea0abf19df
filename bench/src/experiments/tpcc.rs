//! A load in the manner of TPC-C: nine tables, five kinds of transactions in the standard's mix, without think times.
//!
//! No load of others is used: no package of Debian has one (sysbench's TPC-C is scripts to be fetched, HammerDB and BenchBase bring a runtime of
//! their own), and the command installs nothing by itself. Written after the standard's text (revision 5.11). It deviates: columns that no transaction uses are one filler column; there is no terminal,
//! so no keying and thinking; `--scale` makes fewer warehouses, and in the smaller presets fewer items and customers in each; random numbers are
//! skewed as the standard says but without its constant C, and last names as customers are.

use super::{Layout, value};
use crate::clients::{Done, Work, drive};
use crate::field::{Context, Field, count};
use crate::plan::{Experiment, Point, Settings};
use crate::record::Measured;
use crate::systems::System;
use std::fmt::Write;
use std::time::Instant;
use trireme_cluster::{Answer, Dice, Session, SqlError};

pub const LAYOUT: Layout = Layout {
    title: "In the manner of TPC-C",
    about: "New orders, payments, order status, deliveries and stock levels in the standard's mix, without think times; 12 connections per node, 20 to the server alone.",
    values: &[
        value("notpm", "new orders per minute", 0),
        value("rollback_percent", "rolled back, %", 1),
        value("mean_ms", "mean duration, ms", 1),
        value("p50_ms", "half within, ms", 1),
        value("p95_ms", "95 % within, ms", 1),
        value("p99_ms", "99 % within, ms", 1),
        value("load_s", "time to load the tables, s", 1),
        value("connections", "connections", 0),
        value("wsrep_local_cert_failures", "certification failures", 0),
    ],
    ratios: &[0, 1, 2, 3, 4, 5, 6],
    x: Some("nodes"),
    x_title: "nodes",
    published: "Published in 2009 (DBT2 with 60 warehouses on EC2):

| | connections | NOTPM | rollbacks % | duration s | load time min |
|---|---|---|---|---|---|
| plain 5.1.30 | 20 | 7220 | 1 | 2.27 | 26 |
| 1 node | 12 | 7420 | 1 | 2.17 | 30 |
| 2 nodes | 24 | 9630 | 3 | 1.63 | 36 |
| 3 nodes | 36 | 10555 | 4 | 1.41 | 38 |
| 4 nodes | 48 | 10753 | 5 | 1.32 | 38 |
",
    ..Layout::TABLE
};

const WAREHOUSES: f64 = 60.0;
const DISTRICTS: u64 = 10;
const CONNECTIONS_PER_NODE: u32 = 12;
const CONNECTIONS_ALONE: u32 = 20;
/// Rows of one INSERT while loading.
const BATCH: u64 = 500;

pub fn size(settings: &Settings) -> String {
    let Size { warehouses, items, customers } = Size::of(settings);
    format!(
        "{warehouses} warehouses, published 60, so connections share a warehouse more often and are in conflict more often; {items} items and {customers} customers in a district, by the standard 100,000 and 3,000. Measured for {} s.",
        settings.duration
    )
}

pub fn points(settings: &Settings) -> Vec<Point> {
    let usual: &[System] = settings.by_preset(
        &[System::Plain, System::TriremeDisk, System::GaleraDurable],
        &[System::Plain, System::TriremeDisk, System::GaleraFast],
        &[System::Plain, System::TriremeDisk, System::TriremeProcess, System::GaleraDurable, System::GaleraFast],
    );
    let nodes = settings.nodes_that_scale(&[1, 2, 3, 4]);
    let all = settings.deployments(&settings.systems_of(usual, &System::USUAL), &nodes);
    all.into_iter().map(|(system, nodes)| Point::new(Experiment::Tpcc, system.name(), nodes)).collect()
}

/// How many of everything.
#[derive(Clone, Copy, Debug)]
struct Size {
    warehouses: u64,
    items: u64,
    /// In each district.
    customers: u64,
}

impl Size {
    fn of(settings: &Settings) -> Size {
        let warehouses = (WAREHOUSES * settings.scale).ceil().max(1.0) as u64;
        let (items, customers) = settings.by_preset((200, 12), (10_000, 300), (100_000, 3000));
        Size { warehouses: warehouses.max(settings.by_preset(1, 4, 6)), items, customers }
    }
}

const SCHEMA: [&str; 9] = [
    "warehouse (w_id INT PRIMARY KEY, w_tax DECIMAL(4,4), w_ytd DECIMAL(14,2), w_rest CHAR(70))",
    "district (d_w_id INT, d_id INT, d_tax DECIMAL(4,4), d_ytd DECIMAL(14,2), d_next_o_id INT, d_rest CHAR(80), PRIMARY KEY (d_w_id, d_id))",
    "customer (c_w_id INT, c_d_id INT, c_id INT, c_last VARCHAR(16), c_credit CHAR(2), c_discount DECIMAL(4,4), c_balance DECIMAL(14,2), \
     c_ytd_payment DECIMAL(14,2), c_payment_cnt INT, c_delivery_cnt INT, c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id), \
     KEY (c_w_id, c_d_id, c_last))",
    "history (h_id BIGINT AUTO_INCREMENT PRIMARY KEY, h_c_id INT, h_c_d_id INT, h_c_w_id INT, h_d_id INT, h_w_id INT, h_date DATETIME, h_amount DECIMAL(6,2))",
    "new_order (no_w_id INT, no_d_id INT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id))",
    "orders (o_w_id INT, o_d_id INT, o_id INT, o_c_id INT, o_entry_d DATETIME, o_carrier_id INT, o_ol_cnt INT, PRIMARY KEY (o_w_id, o_d_id, o_id), \
     KEY (o_w_id, o_d_id, o_c_id, o_id))",
    "order_line (ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT, ol_supply_w_id INT, ol_delivery_d DATETIME, ol_quantity INT, \
     ol_amount DECIMAL(6,2), ol_dist_info CHAR(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))",
    "item (i_id INT PRIMARY KEY, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50))",
    "stock (s_w_id INT, s_i_id INT, s_quantity INT, s_ytd INT, s_order_cnt INT, s_remote_cnt INT, s_data CHAR(250), PRIMARY KEY (s_w_id, s_i_id))",
];

pub fn run(context: &Context, point: &Point, field: &mut Field) -> Result<Measured, String> {
    let size = Size::of(&context.settings);
    field.fresh_schema()?;
    let began = Instant::now();
    load(context, field, size, u64::from(point.repeat))?;
    field.settle()?;
    let load_s = began.elapsed().as_secs_f64();
    field.reset_status()?;
    let endpoints = field.writers(usize::MAX);
    let connections = match field.system() {
        System::Plain | System::PlainFast => CONNECTIONS_ALONE,
        _ => CONNECTIONS_PER_NODE * endpoints.len() as u32,
    };
    let tally = drive(context, field, &endpoints, connections, |n| Terminal {
        size,
        home: u64::from(n) % size.warehouses + 1,
        dice: Dice::new(u64::from(n) << 32 | u64::from(point.repeat)),
    })?;
    let mut measured = Measured::default();
    tally.note("transactions_per_s", &mut measured);
    let new_orders = tally.kinds.first().map_or(0, |(_, number, _)| *number);
    measured.set("notpm", tally.per_second(new_orders) * 60.0);
    let ended = tally.committed + tally.rolled_back + tally.aborted;
    measured.set("rollback_percent", 100.0 * (tally.rolled_back + tally.aborted) as f64 / ended.max(1) as f64);
    measured.set("mean_ms", f64::from(connections) * tally.elapsed.as_secs_f64() * 1e3 / ended.max(1) as f64);
    measured.set("load_s", load_s);
    measured.set("connections", f64::from(connections));
    measured.set("warehouses", size.warehouses as f64);
    for (kind, number, latency) in &tally.kinds {
        measured.set(format!("{kind}_per_s"), tally.per_second(*number));
        measured.set(format!("{kind}_p95_ms"), latency.quantile(0.95) as f64 / 1e6);
    }
    field.note_status(&mut measured);
    field.compare()?;
    check(field)?;
    Ok(measured)
}

/// The standard's conditions 1 to 4, as far as columns are there.
fn check(field: &Field) -> Result<(), String> {
    let mut session = field.cluster.session(field.id(1)?).map_err(|e| e.to_string())?;
    session.query("USE bench").map_err(|e| e.to_string())?;
    for (what, broken) in [
        (
            "a warehouse's takings are not those of its districts",
            "SELECT COUNT(*) FROM warehouse JOIN (SELECT d_w_id, SUM(d_ytd) s FROM district GROUP BY d_w_id) d ON d_w_id=w_id WHERE w_ytd<>s",
        ),
        (
            "a district's next order does not follow its last one",
            "SELECT COUNT(*) FROM district JOIN (SELECT o_w_id, o_d_id, MAX(o_id) m FROM orders GROUP BY o_w_id, o_d_id) o ON o_w_id=d_w_id AND o_d_id=d_id WHERE d_next_o_id-1<>m",
        ),
        (
            "new orders have gaps",
            "SELECT COUNT(*) FROM (SELECT MAX(no_o_id)-MIN(no_o_id)+1-COUNT(*) g FROM new_order GROUP BY no_w_id, no_d_id) x WHERE g<>0",
        ),
        (
            "an order has not as many lines as it says",
            "SELECT COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) n FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
             ON ol_w_id=o_w_id AND ol_d_id=o_d_id AND ol_o_id=o_id WHERE n IS NULL OR n<>o_ol_cnt",
        ),
    ] {
        match count(&mut session, broken)? {
            0 => {}
            n => return Err(format!("{what} ({n} times)")),
        }
    }
    Ok(())
}

fn load(context: &Context, field: &Field, size: Size, seed: u64) -> Result<(), String> {
    for table in SCHEMA {
        field.sql(1, &format!("CREATE TABLE bench.{} ENGINE=InnoDB", table.replacen(" (", "(", 1)))?;
    }
    let endpoint = field.writers(1).remove(0);
    let mut session = endpoint.session_in(Some("bench")).map_err(|e| e.to_string())?;
    let mut dice = Dice::new(seed);
    let mut fill = |table: &str, number: u64, row: &mut dyn FnMut(u64, &mut Dice, &mut String)| -> Result<(), String> {
        let mut next = 0;
        while next < number {
            context.check_interrupted()?;
            let mut sql = format!("INSERT INTO {table} VALUES ");
            for n in next..(next + BATCH).min(number) {
                sql.push_str(if n > next { ",(" } else { "(" });
                row(n, &mut dice, &mut sql);
                sql.push(')');
            }
            session.query(&sql).map_err(|e| format!("loading {table}: {e}"))?;
            next += BATCH;
        }
        Ok(())
    };
    // Writing to a String cannot fail.
    fill("item", size.items, &mut |n, dice, out| {
        let _ = write!(out, "{},'item{n}',{}.{:02},REPEAT('d',40)", n + 1, 1 + dice.below(100), dice.below(100));
    })?;
    fill("warehouse", size.warehouses, &mut |n, dice, out| {
        let _ = write!(out, "{},0.{:04},300000.00,''", n + 1, dice.below(2001));
    })?;
    fill("district", size.warehouses * DISTRICTS, &mut |n, dice, out| {
        let _ = write!(
            out,
            "{},{},0.{:04},30000.00,{},''",
            n / DISTRICTS + 1,
            n % DISTRICTS + 1,
            dice.below(2001),
            size.customers + 1
        );
    })?;
    let per_warehouse = DISTRICTS * size.customers;
    let at = |n: u64| (n / per_warehouse + 1, n / size.customers % DISTRICTS + 1, n % size.customers + 1);
    fill("customer", size.warehouses * per_warehouse, &mut |n, dice, out| {
        let ((w, d, c), credit) = (at(n), if dice.one_in(10) { "BC" } else { "GC" });
        let _ = write!(
            out,
            "{w},{d},{c},'{}','{credit}',0.{:04},-10.00,10.00,1,0,REPEAT('c',300)",
            last_name(c % 1000),
            dice.below(5001)
        );
    })?;
    fill("stock", size.warehouses * size.items, &mut |n, dice, out| {
        let _ =
            write!(out, "{},{},{},0,0,0,REPEAT('s',200)", n / size.items + 1, n % size.items + 1, 10 + dice.below(91));
    })?;
    // One order of each customer; the last third is not delivered yet.
    let lines = 5;
    let is_new = |o: u64| o > size.customers * 2 / 3;
    fill("orders", size.warehouses * per_warehouse, &mut |n, dice, out| {
        let (w, d, o) = at(n);
        let carrier = if is_new(o) { "NULL".to_owned() } else { (1 + dice.below(10)).to_string() };
        let _ = write!(out, "{w},{d},{o},{o},NOW(),{carrier},{lines}");
    })?;
    fill("order_line", size.warehouses * per_warehouse * lines, &mut |n, dice, out| {
        let (w, d, o) = at(n / lines);
        let _ = write!(
            out,
            "{w},{d},{o},{},{},{w},NOW(),5,{}.{:02},'info'",
            n % lines + 1,
            1 + dice.below(size.items),
            dice.below(9999),
            dice.below(100)
        );
    })?;
    let (first, new) = (size.customers * 2 / 3 + 1, size.customers - size.customers * 2 / 3);
    fill("new_order", size.warehouses * DISTRICTS * new, &mut |n, _, out| {
        let _ = write!(out, "{},{},{}", n / (DISTRICTS * new) + 1, n / new % DISTRICTS + 1, first + n % new);
    })
}

/// The standard's syllables.
fn last_name(number: u64) -> String {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100 % 10, number / 10 % 10, number % 10].iter().map(|digit| SYLLABLES[*digit as usize]).collect()
}

struct Terminal {
    size: Size,
    home: u64,
    dice: Dice,
}

impl Work for Terminal {
    fn transaction(&mut self, session: &mut Session) -> Result<Done, SqlError> {
        session.query("BEGIN")?;
        let kind = match self.dice.below(100) {
            0..45 => 0,
            45..88 => 1,
            88..92 => 2,
            92..96 => 3,
            _ => 4,
        };
        let rolled_back = match kind {
            0 => self.new_order(session)?,
            1 => self.payment(session).map(|()| false)?,
            2 => self.order_status(session).map(|()| false)?,
            3 => self.delivery(session).map(|()| false)?,
            _ => self.stock_level(session).map(|()| false)?,
        };
        session.query(if rolled_back { "ROLLBACK" } else { "COMMIT" })?;
        Ok(Done { kind, rolled_back, ..Done::default() })
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["new_order", "payment", "order_status", "delivery", "stock_level"]
    }
}

fn number(answer: &Answer) -> u64 {
    answer.text().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Terminal {
    fn district(&mut self) -> u64 {
        1 + self.dice.below(DISTRICTS)
    }

    /// The standard's non-uniform choice from 1 to `most`.
    fn skewed(&mut self, a: u64, most: u64) -> u64 {
        ((self.dice.below(a + 1) | (1 + self.dice.below(most))) % most) + 1
    }

    fn customer(&mut self) -> u64 {
        self.skewed(1023, self.size.customers)
    }

    fn another_warehouse(&mut self) -> u64 {
        if self.size.warehouses == 1 {
            return self.home;
        }
        let other = 1 + self.dice.below(self.size.warehouses - 1);
        if other >= self.home { other + 1 } else { other }
    }

    /// Whether it is one of those that have to be rolled back.
    fn new_order(&mut self, session: &mut Session) -> Result<bool, SqlError> {
        let (w, d, c) = (self.home, self.district(), self.customer());
        let lines = 5 + self.dice.below(11);
        let wrong = self.dice.one_in(100);
        session.query(&format!("SELECT w_tax FROM warehouse WHERE w_id={w}"))?;
        session.query(&format!(
            "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id={w} AND c_d_id={d} AND c_id={c}"
        ))?;
        let o = number(
            &session
                .query(&format!("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id={w} AND d_id={d} FOR UPDATE"))?,
        );
        session.query(&format!("UPDATE district SET d_next_o_id=d_next_o_id+1 WHERE d_w_id={w} AND d_id={d}"))?;
        session.query(&format!("INSERT INTO orders VALUES ({w},{d},{o},{c},NOW(),NULL,{lines})"))?;
        session.query(&format!("INSERT INTO new_order VALUES ({w},{d},{o})"))?;
        // In one order everywhere, as else two orders could wait for each other.
        let mut items: Vec<u64> = (0..lines).map(|_| self.skewed(8191, self.size.items)).collect();
        items.sort_unstable();
        for (line, item) in items.into_iter().enumerate() {
            let supplier = if self.dice.one_in(100) { self.another_warehouse() } else { w };
            let quantity = 1 + self.dice.below(10);
            let item = if wrong && line as u64 + 1 == lines { self.size.items + 1 } else { item };
            let price = session.query(&format!("SELECT i_price FROM item WHERE i_id={item}"))?;
            let Some(price) = price.text().and_then(|price| price.parse::<f64>().ok()) else { return Ok(true) };
            session.query(&format!(
                "SELECT s_quantity, s_data FROM stock WHERE s_w_id={supplier} AND s_i_id={item} FOR UPDATE"
            ))?;
            session.query(&format!(
                "UPDATE stock SET s_quantity=IF(s_quantity>={quantity}+10, s_quantity-{quantity}, s_quantity-{quantity}+91), s_ytd=s_ytd+{quantity}, \
                 s_order_cnt=s_order_cnt+1, s_remote_cnt=s_remote_cnt+{} WHERE s_w_id={supplier} AND s_i_id={item}",
                u8::from(supplier != w)
            ))?;
            session.query(&format!(
                "INSERT INTO order_line VALUES ({w},{d},{o},{},{item},{supplier},NULL,{quantity},{:.2},'info')",
                line + 1,
                price * quantity as f64
            ))?;
        }
        Ok(false)
    }

    /// By number, or in six of ten cases by the last name: the one in the middle of those who have it.
    fn find_customer(&mut self, session: &mut Session, w: u64, d: u64) -> Result<u64, SqlError> {
        let c = self.customer();
        if self.dice.below(100) >= 60 {
            return Ok(c);
        }
        let name = last_name(c % 1000);
        let found = session.query(&format!(
            "SELECT c_id FROM customer WHERE c_w_id={w} AND c_d_id={d} AND c_last='{name}' ORDER BY c_id"
        ))?;
        let all = found.texts();
        Ok(all.get(all.len() / 2).and_then(|row| row.first()?.parse().ok()).unwrap_or(c))
    }

    fn payment(&mut self, session: &mut Session) -> Result<(), SqlError> {
        let (w, d) = (self.home, self.district());
        let (cw, cd) = if self.dice.below(100) < 15 { (self.another_warehouse(), self.district()) } else { (w, d) };
        let amount = format!("{}.{:02}", 1 + self.dice.below(4999), self.dice.below(100));
        session.query(&format!("UPDATE warehouse SET w_ytd=w_ytd+{amount} WHERE w_id={w}"))?;
        session.query(&format!("UPDATE district SET d_ytd=d_ytd+{amount} WHERE d_w_id={w} AND d_id={d}"))?;
        let c = self.find_customer(session, cw, cd)?;
        session.query(&format!(
            "UPDATE customer SET c_balance=c_balance-{amount}, c_ytd_payment=c_ytd_payment+{amount}, c_payment_cnt=c_payment_cnt+1, \
             c_data=IF(c_credit='BC', LEFT(CONCAT('{c} {cd} {cw} {d} {w} {amount} ', c_data), 500), c_data) WHERE c_w_id={cw} AND c_d_id={cd} AND c_id={c}"
        ))?;
        session.query(&format!("INSERT INTO history VALUES (NULL,{c},{cd},{cw},{d},{w},NOW(),{amount})")).map(drop)
    }

    fn order_status(&mut self, session: &mut Session) -> Result<(), SqlError> {
        let (w, d) = (self.home, self.district());
        let c = self.find_customer(session, w, d)?;
        session
            .query(&format!("SELECT c_balance, c_last FROM customer WHERE c_w_id={w} AND c_d_id={d} AND c_id={c}"))?;
        let last = session.query(&format!(
            "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id={w} AND o_d_id={d} AND o_c_id={c} ORDER BY o_id DESC LIMIT 1"
        ))?;
        let lines = format!(
            "SELECT ol_i_id, ol_amount FROM order_line WHERE ol_w_id={w} AND ol_d_id={d} AND ol_o_id={}",
            number(&last)
        );
        session.query(&lines).map(drop)
    }

    fn delivery(&mut self, session: &mut Session) -> Result<(), SqlError> {
        let (w, carrier) = (self.home, 1 + self.dice.below(10));
        for d in 1..=DISTRICTS {
            let oldest = session.query(&format!(
                "SELECT no_o_id FROM new_order WHERE no_w_id={w} AND no_d_id={d} ORDER BY no_o_id LIMIT 1 FOR UPDATE"
            ))?;
            if oldest.rows.is_empty() {
                continue;
            }
            let o = number(&oldest);
            session.query(&format!("DELETE FROM new_order WHERE no_w_id={w} AND no_d_id={d} AND no_o_id={o}"))?;
            let c = number(
                &session.query(&format!("SELECT o_c_id FROM orders WHERE o_w_id={w} AND o_d_id={d} AND o_id={o}"))?,
            );
            session.query(&format!(
                "UPDATE orders SET o_carrier_id={carrier} WHERE o_w_id={w} AND o_d_id={d} AND o_id={o}"
            ))?;
            session.query(&format!(
                "UPDATE order_line SET ol_delivery_d=NOW() WHERE ol_w_id={w} AND ol_d_id={d} AND ol_o_id={o}"
            ))?;
            session.query(&format!(
                "UPDATE customer SET c_balance=c_balance+(SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id={w} AND ol_d_id={d} AND ol_o_id={o}), \
                 c_delivery_cnt=c_delivery_cnt+1 WHERE c_w_id={w} AND c_d_id={d} AND c_id={c}"
            ))?;
        }
        Ok(())
    }

    fn stock_level(&mut self, session: &mut Session) -> Result<(), SqlError> {
        let (w, d, threshold) = (self.home, self.district(), 10 + self.dice.below(11));
        let next = number(&session.query(&format!("SELECT d_next_o_id FROM district WHERE d_w_id={w} AND d_id={d}"))?);
        let sql = format!(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id=ol_w_id AND s_i_id=ol_i_id WHERE ol_w_id={w} AND ol_d_id={d} AND \
             ol_o_id BETWEEN {} AND {} AND s_quantity<{threshold}",
            next.saturating_sub(20),
            next.saturating_sub(1)
        );
        session.query(&sql).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_standards() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
    }

    #[test]
    fn another_warehouse_is_another_one() {
        let size = Size { warehouses: 3, items: 10, customers: 10 };
        let mut terminal = Terminal { size, home: 2, dice: Dice::new(1) };
        assert!((0..100).all(|_| matches!(terminal.another_warehouse(), 1 | 3)));
        assert!((0..100).all(|_| (1..=10).contains(&terminal.skewed(1023, 10))));
    }
}
