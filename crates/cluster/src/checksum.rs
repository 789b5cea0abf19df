//! Whether nodes hold the same data: checksums of every table of every user schema.

use crate::cluster::Endpoint;
use crate::error::{Error, Result};
use crate::sql::{Session, SqlError};
use crate::wait::{Cancel, until};
use std::collections::BTreeMap;
use std::time::Duration;

/// Checksum by `schema.table`; `NULL` for a broken table.
pub type TableSums = BTreeMap<String, String>;

/// Sums of every base table outside the server's own schemas. Reads as of now: wait for the writers first. Sequences are
/// left out: each server reserves its own range of values, so their rows differ rightly.
pub fn table_checksums(session: &mut Session) -> std::result::Result<TableSums, SqlError> {
    let tables = session.query(
        "SELECT CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`') \
         FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
         AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1",
    )?;
    let mut sums = TableSums::new();
    for table in tables.texts().into_iter().flatten() {
        let sum = session.query(&format!("CHECKSUM TABLE {table}"))?;
        let sum = sum.texts().first().and_then(|row| row.get(1).cloned()).unwrap_or_default();
        sums.insert(table, sum);
    }
    Ok(sums)
}

/// Waits until all endpoints show the same sums and returns them.
///
/// **Errors** with the tables that differ when that does not happen within `limit`.
pub fn wait_equal(endpoints: &[Endpoint], limit: Duration) -> Result<TableSums> {
    let what = "all nodes hold the same data";
    until(what, limit, &Cancel::default(), || {
        let mut first: Option<(&Endpoint, TableSums)> = None;
        for endpoint in endpoints {
            let mut session = endpoint.session()?;
            let sums = match table_checksums(&mut session) {
                Ok(sums) => sums,
                // A table dropped between listing and summing: look again.
                Err(SqlError::Server { code: 1146, .. }) => return Ok(Err("tables come and go".to_owned())),
                Err(error) => return Err(Error::Sql { node: endpoint.node, error }),
            };
            match &first {
                None => first = Some((endpoint, sums)),
                Some((reference, expected)) if *expected != sums => {
                    let differing: Vec<String> = expected
                        .keys()
                        .chain(sums.keys())
                        .filter(|table| expected.get(*table) != sums.get(*table))
                        .cloned()
                        .collect::<std::collections::BTreeSet<_>>()
                        .into_iter()
                        .collect();
                    return Ok(Err(format!(
                        "{} and {} differ in {}",
                        reference.node,
                        endpoint.node,
                        differing.join(", ")
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(Ok(first.map(|(_, sums)| sums).unwrap_or_default()))
    })
}
