//! The settings that `libtrireme_connect.so` takes from its environment. The variables are those of GLB's library.

use clap::Parser;

use crate::address::Address;
use crate::config;
use crate::glbd::Glbd;
use crate::policy::Policy;

/// Which connections are led elsewhere, and where to.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// `None`: any address of the loopback interface.
    pub host: Option<String>,
    pub port: u16,
    pub nodes: Vec<(Address, f64)>,
    pub policy: Policy,
    pub top: bool,
    /// Variables and options that were given and have no effect.
    pub ignored: Vec<String>,
}

impl Targets {
    /// `None`: nothing is asked for. `get`: the value of an environment variable.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Targets>, String> {
        let given = |name: &str| get(name).filter(|value| !value.trim().is_empty());
        let mut ignored: Vec<String> = ["GLB_WATCHDOG", "GLB_CONTROL"]
            .into_iter()
            .filter(|name| given(name).is_some())
            .map(str::to_owned)
            .collect();
        let targets = if let Some(options) = given("GLB_OPTIONS") {
            let words = std::iter::once("glbd").chain(options.split_whitespace());
            let glbd = Glbd::try_parse_from(words).map_err(|e| format!("GLB_OPTIONS: {e}"))?;
            ignored.extend(glbd.without_effect_in_library());
            let policy = glbd.policy()?.unwrap_or("round");
            Targets::new(&glbd.listen, &glbd.destinations, policy, glbd.top)?
        } else {
            let Some(bind) = given("GLB_BIND") else { return Ok(None) };
            let list = given("GLB_TARGETS").ok_or("GLB_BIND is set, and GLB_TARGETS is not")?;
            let list: Vec<String> =
                list.split([' ', ',', ';']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
            Targets::new(&bind, &list, &given("GLB_POLICY").unwrap_or_else(|| "round".to_owned()), false)?
        };
        Ok(Some(Targets { ignored, ..targets }))
    }

    fn new(bind: &str, list: &[String], policy: &str, top: bool) -> Result<Targets, String> {
        let Address::Tcp { host, port } = Address::listener(bind, "*")? else {
            return Err(format!("`{bind}`: write [IP:]PORT"));
        };
        let nodes = list.iter().map(|text| config::server(text, port)).collect::<Result<Vec<_>, _>>()?;
        if nodes.is_empty() {
            return Err("no destination is named".to_owned());
        }
        // Nobody tells the library when a connection ends.
        let policy = match policy.parse()? {
            Policy::Least => Policy::Round,
            other => other,
        };
        let host = (host != "*").then_some(host);
        Ok(Targets { host, port, nodes, policy, top, ignored: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Targets>, String> {
        Targets::from_variables(|name| {
            pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_asked_for() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("GLB_TARGETS", "a")]), Ok(None));
    }

    #[test]
    fn single_variables() {
        let targets = read(&[
            ("GLB_BIND", "127.0.0.1:3306"),
            ("GLB_TARGETS", "10.0.0.1,10.0.0.2:3307:2"),
            ("GLB_POLICY", "single"),
            ("GLB_WATCHDOG", "exec:x"),
        ]);
        let targets = targets.unwrap().unwrap();
        assert_eq!((targets.host.as_deref(), targets.port), (Some("127.0.0.1"), 3306));
        assert_eq!(targets.nodes[1], (Address::server("10.0.0.2:3307", 1).unwrap(), 2.0));
        assert_eq!((targets.policy, targets.ignored), (Policy::Single, vec!["GLB_WATCHDOG".to_owned()]));
    }

    #[test]
    fn a_command_line_instead() {
        let targets = read(&[("GLB_OPTIONS", "--random -T -c 4444 3306 10.0.0.1")]).unwrap().unwrap();
        assert_eq!((targets.host, targets.policy, targets.top), (None, Policy::Random, true));
        assert_eq!(targets.ignored, ["--control"]);
        let targets = read(&[("GLB_OPTIONS", "3306 10.0.0.1")]).unwrap().unwrap();
        assert_eq!(targets.policy, Policy::Round);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(read(&[("GLB_BIND", "3306")]).unwrap_err().contains("GLB_TARGETS"));
        assert!(read(&[("GLB_BIND", "x"), ("GLB_TARGETS", "a")]).is_err());
        assert!(read(&[("GLB_BIND", "1"), ("GLB_TARGETS", "a"), ("GLB_POLICY", "fast")]).is_err());
        assert!(read(&[("GLB_OPTIONS", "--nonsense")]).is_err());
    }
}
