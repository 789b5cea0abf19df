//! Where a statement may go. The text is not parsed but cut into words: a statement is a read only if each of its words is known to do no
//! harm, and whatever is not understood stays with the writer for good.
//!
//! **Invariant:** a wrong guess errs to the writer. The server's own flags (a transaction is open, autocommit is off) count besides, and more.

/// Longer statements are not looked at.
const TEXT_MAX: usize = 1 << 20;
/// Longer ones are no reads: to look at each of their words would cost more than is gained.
const READ_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads, and leaves nothing behind in the session.
    Read,
    /// About the statement before it (`SHOW WARNINGS`): for the server that ran that one.
    About,
    /// For the writer, and done by itself. With `retry` it may be sent again when the server says that it did not happen.
    Write { retry: bool },
    /// A setting of the session, which every server that serves it must get.
    Setting,
    /// Anything else. It may leave something behind in the session that only its server knows.
    Pins,
}

/// The verdict on one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    pub class: Class,
    /// It asks for what an earlier statement left behind on its server, such as `LAST_INSERT_ID()`.
    pub looks_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// `name` or "name": an identifier, or a text.
    Quoted,
    /// 'text'
    Text,
    Number,
    /// `@name`
    UserVariable,
    /// `@@name`
    Setting(&'a str),
    Sign(u8),
}

/// Why a text cannot be cut into words with certainty.
struct Unclear;

/// Keywords that stand before a parenthesis without calling anything.
const NO_CALLS: &[&str] = &[
    "select",
    "from",
    "where",
    "and",
    "or",
    "not",
    "on",
    "in",
    "as",
    "having",
    "limit",
    "join",
    "union",
    "all",
    "distinct",
    "distinctrow",
    "exists",
    "any",
    "some",
    "using",
    "case",
    "when",
    "then",
    "else",
    "between",
    "like",
    "is",
    "xor",
    "div",
    "mod",
    "interval",
    "over",
    "partition",
    "by",
    "index",
    "key",
    "except",
    "intersect",
    "rlike",
    "regexp",
    "offset",
    "separator",
    // Types of CAST.
    "char",
    "decimal",
    "varchar",
    "nchar",
    "binary",
    "datetime",
    "time",
    "double",
    "float",
];

/// Functions that read nothing but their arguments and the clock, and change nothing.
const CALLS: &[&str] = &[
    "abs",
    "acos",
    "adddate",
    "addtime",
    "ascii",
    "asin",
    "atan",
    "atan2",
    "avg",
    "bin",
    "bit_and",
    "bit_count",
    "bit_length",
    "bit_or",
    "bit_xor",
    "cast",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "conv",
    "convert",
    "cos",
    "cot",
    "count",
    "crc32",
    "cume_dist",
    "curdate",
    "current_date",
    "current_time",
    "current_timestamp",
    "curtime",
    "date",
    "date_add",
    "date_format",
    "date_sub",
    "datediff",
    "day",
    "dayname",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "degrees",
    "dense_rank",
    "elt",
    "exp",
    "extract",
    "field",
    "find_in_set",
    "first_value",
    "floor",
    "format",
    "from_base64",
    "from_days",
    "from_unixtime",
    "greatest",
    "group_concat",
    "hex",
    "hour",
    "if",
    "ifnull",
    "instr",
    "isnull",
    "json_array",
    "json_arrayagg",
    "json_compact",
    "json_contains",
    "json_contains_path",
    "json_depth",
    "json_exists",
    "json_extract",
    "json_insert",
    "json_keys",
    "json_length",
    "json_merge_patch",
    "json_merge_preserve",
    "json_object",
    "json_objectagg",
    "json_query",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_search",
    "json_set",
    "json_type",
    "json_unquote",
    "json_valid",
    "json_value",
    "lag",
    "last_day",
    "last_value",
    "lcase",
    "lead",
    "least",
    "left",
    "length",
    "ln",
    "localtime",
    "localtimestamp",
    "locate",
    "log",
    "log10",
    "log2",
    "lower",
    "lpad",
    "ltrim",
    "makedate",
    "maketime",
    "max",
    "md5",
    "median",
    "microsecond",
    "mid",
    "min",
    "minute",
    "mod",
    "month",
    "monthname",
    "now",
    "nth_value",
    "ntile",
    "nullif",
    "oct",
    "octet_length",
    "ord",
    "percent_rank",
    "percentile_cont",
    "percentile_disc",
    "period_add",
    "period_diff",
    "pi",
    "position",
    "pow",
    "power",
    "quarter",
    "quote",
    "radians",
    "rank",
    "regexp_instr",
    "regexp_replace",
    "regexp_substr",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "row_number",
    "rpad",
    "rtrim",
    "sec_to_time",
    "second",
    "sha",
    "sha1",
    "sha2",
    "sign",
    "sin",
    "soundex",
    "space",
    "sqrt",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "str_to_date",
    "strcmp",
    "subdate",
    "substr",
    "substring",
    "substring_index",
    "subtime",
    "sum",
    "sysdate",
    "tan",
    "time_format",
    "time_to_sec",
    "timediff",
    "timestamp",
    "timestampadd",
    "timestampdiff",
    "to_base64",
    "to_days",
    "to_seconds",
    "trim",
    "truncate",
    "ucase",
    "unhex",
    "unix_timestamp",
    "upper",
    "utc_date",
    "utc_time",
    "utc_timestamp",
    "value",
    "values",
    "var_pop",
    "var_samp",
    "variance",
    "week",
    "weekday",
    "weekofyear",
    "year",
    "yearweek",
];

/// Functions about the session or the server. Only the writer's answer is right, and they leave nothing behind.
const CALLS_AT_WRITER: &[&str] = &[
    "last_insert_id",
    "connection_id",
    "current_user",
    "user",
    "session_user",
    "system_user",
    "current_role",
    "database",
    "schema",
    "version",
    "uuid",
    "uuid_short",
    "rand",
    "sleep",
    "benchmark",
];

/// Functions and settings about the statement before.
const ABOUT: &[&str] = &["found_rows", "row_count", "warning_count", "error_count"];

/// Settings that tell which server runs a statement. With any answer but that of the server that reads, nobody could see where reads go.
const NAMES_OF_SERVER: &[&str] = &["hostname", "port", "server_id", "wsrep_node_address", "wsrep_node_name"];

/// Words that make a `SELECT` more than a read, or name what differs between servers.
const NO_READ: &[&str] = &[
    "into",
    "for",
    "lock",
    "procedure",
    "next",
    "previous",
    "nextval",
    "lastval",
    "setval",
    "update",
    "delete",
    "insert",
    "set",
    "call",
    "do",
    "handler",
    "sql_calc_found_rows",
    "information_schema",
    "performance_schema",
    "mysql",
    "sys",
];

const LOOK_BACK: &[&str] = &["last_insert_id", "row_count", "found_rows", "lastval", "identity", "insert_id"];

/// Settings that hold for the next statement or transaction only, or change what is replicated.
const NO_SETTING: &[&str] = &[
    "timestamp",
    "insert_id",
    "last_insert_id",
    "identity",
    "rand_seed1",
    "rand_seed2",
    "wsrep_on",
    "sql_log_bin",
    "gtid_domain_id",
    "gtid_seq_no",
    "server_id",
    "pseudo_thread_id",
    "pseudo_slave_mode",
    "wsrep_trx_fragment_size",
    "wsrep_trx_fragment_unit",
    "skip_replication",
    "debug_sync",
    "password",
    "role",
    "default",
    "statement",
    "transaction",
    "global",
    "persist",
    "resource",
];

impl Statement {
    /// Whether `sql`, of which it is the verdict, chooses the default schema.
    pub fn is_use(&self, sql: &[u8]) -> bool {
        let word = sql.trim_ascii_start().get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"use"));
        self.class == Class::Setting && word
    }
}

pub fn classify(sql: &[u8]) -> Statement {
    let pins = Statement { class: Class::Pins, looks_back: true };
    let (Ok(text), true) = (std::str::from_utf8(sql), sql.len() <= TEXT_MAX) else { return pins };
    // A backslash ends a text or not, as `sql_mode` has it; in some character sets it is half a character, and so is a backtick.
    let ambiguous = text.contains('\\') || (!text.is_ascii() && text.contains('`'));
    if ambiguous && text.contains(['@', ';']) {
        return pins;
    }
    let Ok(mut tokens) = cut(text) else { return pins };
    while tokens.last() == Some(&Token::Sign(b';')) {
        tokens.pop();
    }
    // Several statements, or the body of a routine.
    if tokens.contains(&Token::Sign(b';')) || tokens.contains(&Token::UserVariable) {
        return pins;
    }
    let is = |token: &Token<'_>, words: &[&str]| matches!(token, Token::Word(word) if has(words, word));
    let looks_back = tokens.iter().any(|token| match token {
        Token::Word(word) | Token::Setting(word) => has(LOOK_BACK, word),
        _ => false,
    });
    let first = match tokens.first() {
        None => "",
        Some(Token::Word(word)) => word,
        Some(Token::Sign(b'(')) => "(",
        Some(_) => return pins,
    };
    let class = match first.to_ascii_lowercase().as_str() {
        "" => Class::Write { retry: false },
        "select" | "with" | "(" => select(&tokens, ambiguous || text.len() > READ_MAX),
        "insert" | "update" | "delete" | "replace" => Class::Write { retry: true },
        "begin" if tokens.len() == 1 || is(&tokens[1], &["work"]) => Class::Write { retry: false },
        "start" if tokens.len() > 1 && is(&tokens[1], &["transaction"]) => Class::Write { retry: false },
        "commit" | "rollback" | "savepoint" | "release" => Class::Write { retry: false },
        "show" if tokens.iter().any(|token| is(token, &["warnings", "errors"])) => Class::About,
        "show" | "desc" | "describe" | "explain" | "kill" | "grant" | "revoke" => Class::Write { retry: false },
        "create" | "alter" | "drop" | "truncate" | "rename" => {
            match tokens.iter().any(|token| is(token, &["temporary"])) {
                true => Class::Pins,
                false => Class::Write { retry: false },
            }
        }
        "use" if tokens.len() == 2 => Class::Setting,
        "set" if !ambiguous => set(&tokens),
        _ => Class::Pins,
    };
    Statement { class, looks_back }
}

fn has(words: &[&str], word: &str) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn select(tokens: &[Token<'_>], unclear: bool) -> Class {
    let mut class = if unclear { Class::Write { retry: false } } else { Class::Read };
    let mut about = false;
    for (i, token) in tokens.iter().enumerate() {
        let called = tokens.get(i + 1) == Some(&Token::Sign(b'('));
        let qualified = i > 0 && tokens[i - 1] == Token::Sign(b'.');
        match token {
            // A routine in a schema, which may have the name of a function that we know.
            Token::Word(_) if called && qualified => return Class::Pins,
            Token::Word(word) if called && has(ABOUT, word) => about = true,
            Token::Setting(name) if has(ABOUT, name) => about = true,
            Token::Setting(scope) if has(&["session", "local"], scope) && names_about(&tokens[i + 1..]) => about = true,
            Token::Word(word) if called && has(CALLS_AT_WRITER, word) => class = Class::Write { retry: false },
            Token::Word(word) if called && !has(CALLS, word) && !has(NO_CALLS, word) => {
                // Perhaps the columns of a `WITH`, an `IN` of ours that we do not know, or a routine that changes something.
                return Class::Pins;
            }
            Token::Word(word) if has(NO_READ, word) || has(CALLS_AT_WRITER, word) => {
                class = Class::Write { retry: false }
            }
            Token::Quoted if called => return Class::Pins,
            Token::Setting(name) if has(NAMES_OF_SERVER, name) => {}
            Token::Setting(_) => class = Class::Write { retry: false },
            Token::Word(_) | Token::Quoted | Token::Text | Token::Number | Token::UserVariable | Token::Sign(_) => {}
        }
    }
    match class {
        Class::Read if about => Class::About,
        class => class,
    }
}

/// The rest of a setting's name behind its scope.
fn names_about(rest: &[Token<'_>]) -> bool {
    matches!(rest, [Token::Sign(b'.'), Token::Word(name), ..] if has(ABOUT, name))
}

/// `SET NAMES …`, and constants for variables of the session.
fn set(tokens: &[Token<'_>]) -> Class {
    let word = |i: usize| match tokens.get(i) {
        Some(Token::Word(word)) => word.to_ascii_lowercase(),
        Some(_) | None => String::new(),
    };
    let plain = |token: &Token<'_>| match token {
        Token::Word(word) => !has(&["select", "default"], word),
        Token::Quoted | Token::Text | Token::Number => true,
        Token::UserVariable | Token::Setting(_) | Token::Sign(_) => false,
    };
    if word(1) == "names" {
        let rest = &tokens[2..];
        return if !rest.is_empty() && rest.len() <= 3 && rest.iter().all(plain) {
            Class::Setting
        } else {
            Class::Pins
        };
    }
    for one in tokens[1..].split(|token| *token == Token::Sign(b',')) {
        let (name, rest) = match one {
            [Token::Word(scope), Token::Word(name), rest @ ..] if has(&["session", "local"], scope) => (*name, rest),
            [Token::Setting(scope), Token::Sign(b'.'), Token::Word(name), rest @ ..]
                if has(&["session", "local"], scope) =>
            {
                (*name, rest)
            }
            [Token::Word(name) | Token::Setting(name), rest @ ..] => (*name, rest),
            _ => return Class::Pins,
        };
        let value = match rest {
            [Token::Sign(b'='), value @ ..] | [Token::Sign(b':'), Token::Sign(b'='), value @ ..] => value,
            _ => return Class::Pins,
        };
        let constant = match value {
            [one] => plain(one),
            [Token::Sign(b'-' | b'+'), Token::Number] => true,
            _ => false,
        };
        if !constant || has(NO_SETTING, name) {
            return Class::Pins;
        }
    }
    Class::Setting
}

/// Comments are left out, but for those that the server executes: they are unclear.
fn cut(text: &str) -> Result<Vec<Token<'_>>, Unclear> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut i = 0;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
    let word_end = |from: usize| bytes[from..].iter().position(|b| !is_word(*b)).map_or(bytes.len(), |n| from + n);
    while let Some(&byte) = bytes.get(i) {
        let next = bytes.get(i + 1).copied();
        match byte {
            // Other control characters are no blanks everywhere.
            b' ' | b'\t' | b'\n' | b'\r' => i += 1,
            b'#' => i = line_end(bytes, i),
            b'-' if next == Some(b'-') => match bytes.get(i + 2) {
                None | Some(b' ' | b'\t' | b'\n' | b'\r') => i = line_end(bytes, i),
                Some(_) => {
                    tokens.push(Token::Sign(b'-'));
                    i += 1;
                }
            },
            b'/' if next == Some(b'*') => {
                if matches!(bytes.get(i + 2), Some(b'!' | b'M' | b'm' | b'+')) {
                    return Err(Unclear);
                }
                let end = text[i + 2..].find("*/").ok_or(Unclear)?;
                i += 2 + end + 2;
            }
            b'\'' | b'"' | b'`' => {
                i = quoted_end(bytes, i).ok_or(Unclear)?;
                tokens.push(if byte == b'\'' { Token::Text } else { Token::Quoted });
            }
            b'@' if next == Some(b'@') => {
                let end = word_end(i + 2);
                tokens.push(Token::Setting(&text[i + 2..end]));
                i = end;
            }
            b'@' => return Ok(vec![Token::UserVariable]),
            b'0'..=b'9' => {
                let end = word_end(i);
                // A name may begin with a digit.
                let number = bytes[i..end].iter().all(u8::is_ascii_digit);
                tokens.push(if number { Token::Number } else { Token::Word(&text[i..end]) });
                i = end;
            }
            _ if is_word(byte) => {
                let end = word_end(i);
                tokens.push(Token::Word(&text[i..end]));
                i = end;
            }
            0..=0x1f | 0x7f => return Err(Unclear),
            sign => {
                tokens.push(Token::Sign(sign));
                i += 1;
            }
        }
    }
    Ok(tokens)
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| from + n + 1)
}

/// Behind the closing quote. Two of them are one, and a backslash keeps the next character from closing; where it does not, the text is
/// ambiguous, which the caller knows.
fn quoted_end(bytes: &[u8], from: usize) -> Option<usize> {
    let quote = bytes[from];
    let mut i = from + 1;
    loop {
        match *bytes.get(i)? {
            b'\\' if quote != b'`' => i += 2,
            byte if byte == quote && bytes.get(i + 1) == Some(&quote) => i += 2,
            byte if byte == quote => return Some(i + 1),
            _ => i += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(sql: &str) -> Class {
        classify(sql.as_bytes()).class
    }

    #[test]
    fn reads() {
        for sql in [
            "SELECT 1",
            "select a, COUNT(*) from t where b in (1, 2) group by a having count(*) > 1 order by 2 limit 5;",
            "SELECT `a`.`b` FROM `a` -- a comment\n",
            "(SELECT a FROM t) UNION ALL (SELECT b FROM u)",
            "/* app:1 */ SELECT 'it''s; @not' FROM t # the end",
            "WITH c AS (SELECT 1 AS n) SELECT n FROM c",
            "SELECT CAST(a AS CHAR(10)), a - -1, a--1 FROM t",
            "SELECT größe FROM t WHERE name = 'ä'",
            "SELECT @@hostname, @@WSREP_NODE_NAME, count(*) FROM t",
        ] {
            assert_eq!(class(sql), Class::Read, "{sql}");
        }
    }

    #[test]
    fn selects_that_only_the_writer_answers_rightly() {
        for sql in [
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM t LOCK IN SHARE MODE",
            "SELECT a INTO OUTFILE '/tmp/x' FROM t",
            "SELECT NEXT VALUE FOR s",
            "SELECT LAST_INSERT_ID()",
            "SELECT CONNECTION_ID(), DATABASE()",
            "SELECT @@version_comment LIMIT 1",
            "SELECT @@hostname, @@read_only",
            "SELECT SQL_CALC_FOUND_ROWS a FROM t",
            "SELECT variable_value FROM information_schema.global_status",
            "SELECT 'a\\'b' FROM t",
        ] {
            assert_eq!(class(sql), Class::Write { retry: false }, "{sql}");
        }
        assert!(classify(b"SELECT Last_Insert_Id()").looks_back && !classify(b"SELECT 1").looks_back);
        assert!(classify(b"INSERT INTO t VALUES (LAST_INSERT_ID())").looks_back);
    }

    #[test]
    fn writes() {
        for sql in
            ["INSERT INTO t (a) VALUES ('x@y.z; \"')", " update t set a = 1;", "DELETE FROM t", "REPLACE t VALUES (1)"]
        {
            assert_eq!(class(sql), Class::Write { retry: true }, "{sql}");
        }
        for sql in ["BEGIN", "START TRANSACTION READ ONLY", "COMMIT", "CREATE TABLE t (a INT)", "SHOW TABLES", ""] {
            assert_eq!(class(sql), Class::Write { retry: false }, "{sql}");
        }
    }

    #[test]
    fn questions_about_the_statement_before() {
        for sql in [
            "SHOW WARNINGS",
            "show count(*) errors",
            "SELECT FOUND_ROWS()",
            "select row_count() as n",
            "SELECT @@warning_count, @@session.error_count",
        ] {
            assert_eq!(class(sql), Class::About, "{sql}");
        }
        // The other half is the writer's.
        assert_eq!(class("SELECT FOUND_ROWS(), LAST_INSERT_ID()"), Class::Write { retry: false });
        assert_eq!(class("SELECT @@global.warning_count"), Class::Write { retry: false });
        assert_eq!(class("SELECT found_rows FROM t"), Class::Read, "a column");
    }

    #[test]
    fn settings() {
        for sql in [
            "SET NAMES utf8mb4",
            "set names 'utf8mb4' collate utf8mb4_bin",
            "SET autocommit=1, SESSION sql_mode = 'ANSI', @@session.wsrep_sync_wait := 3",
            "SET net_write_timeout=-1",
            "USE shop",
            "use `shop`",
        ] {
            assert_eq!(class(sql), Class::Setting, "{sql}");
        }
    }

    #[test]
    fn state_pins() {
        for sql in [
            "SET @a = 1",
            "SELECT @a",
            "SELECT a FROM t WHERE b = @b",
            "SET GLOBAL max_connections = 5",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET STATEMENT max_statement_time=1 FOR SELECT 1",
            "SET timestamp = 5",
            "SET sql_mode = (SELECT 1)",
            "SET a = DEFAULT",
            "SET PASSWORD = 'x'",
            "CREATE TEMPORARY TABLE t (a INT)",
            "LOCK TABLES t WRITE",
            "PREPARE s FROM 'SELECT 1'",
            "CALL p()",
            "SELECT my_function(1)",
            "SELECT `f`(1)",
            "SELECT shop.log('x')",
            "SELECT `shop`.LOG('x')",
            "SELECT shop . found_rows ()",
            "SELECT GET_LOCK('a', 1)",
            "SELECT 1; SELECT 2",
            "/*!50000 SET @a = 1 */",
            "SELECT /*!50000 my_function */ (1)",
            "SELECT 'unfinished",
            "SELECT 1 /* unfinished",
            "INSERT INTO t VALUES ('\\'); SET @a = 1; --')",
            "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
            "XA START 'a'",
            "HANDLER t OPEN",
            "FLUSH TABLES WITH READ LOCK",
        ] {
            assert_eq!(class(sql), Class::Pins, "{sql}");
        }
        assert_eq!(classify(b"SELECT '\xff'").class, Class::Pins);
        assert_eq!(classify(&vec![b' '; TEXT_MAX + 1]).class, Class::Pins);
    }
}
