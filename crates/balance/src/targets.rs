//! The settings that `libtrireme_connect.so` takes from its environment. The variables are those of GLB's library.

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
        // The command line first. The single variables go over it.
        let (mut bind, mut list, mut policy, mut top) = (None, Vec::new(), Policy::Round, false);
        if let Some(options) = given("GLB_OPTIONS") {
            let (glbd, unknown) = Glbd::of_library(&options).map_err(|e| format!("GLB_OPTIONS: {e}"))?;
            ignored.extend(glbd.without_effect_in_library());
            ignored.extend(unknown);
            policy = glbd.policy.unwrap_or(policy);
            (bind, list, top) = (glbd.listen, glbd.destinations, glbd.top);
        } else if given("GLB_BIND").is_none() {
            return Ok(None);
        }
        if let Some(targets) = given("GLB_TARGETS") {
            list = targets.split([' ', ',', ';']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        }
        if let Some(word) = given("GLB_POLICY") {
            match word.parse() {
                Ok(named) => policy = named,
                Err(_) => ignored.push(format!("GLB_POLICY={word}")),
            }
        }
        let bind = given("GLB_BIND").or(bind).ok_or("no address is named: set GLB_BIND")?;
        if list.is_empty() {
            return Err("no destination is named: set GLB_TARGETS".to_owned());
        }
        Targets::new(&bind, &list, policy, top).map(|targets| Some(Targets { ignored, ..targets }))
    }

    fn new(bind: &str, list: &[String], policy: Policy, top: bool) -> Result<Targets, String> {
        let Address::Tcp { host, port } = Address::listener(bind, "*")? else {
            return Err(format!("`{bind}`: write [IP:]PORT"));
        };
        let nodes = list.iter().map(|text| config::server(text, port)).collect::<Result<Vec<_>, _>>()?;
        // Nobody tells the library when a connection ends.
        let policy = match policy {
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
    fn the_single_variables_go_over_the_command_line() {
        let variables = [("GLB_OPTIONS", "--random -v"), ("GLB_BIND", "3306"), ("GLB_TARGETS", "a,b")];
        let targets = read(&variables).unwrap().unwrap();
        assert_eq!((targets.port, targets.nodes.len(), targets.policy), (3306, 2, Policy::Random));
        let variables =
            [("GLB_OPTIONS", "-r 1 a"), ("GLB_BIND", "2"), ("GLB_TARGETS", "b:3,c:3"), ("GLB_POLICY", "source")];
        let targets = read(&variables).unwrap().unwrap();
        assert_eq!((targets.port, targets.nodes.len(), targets.policy), (2, 2, Policy::Source));
        let targets = read(&[("GLB_OPTIONS", "--nonsense -Z -S 3306 a"), ("GLB_POLICY", "fast")]).unwrap().unwrap();
        assert_eq!((targets.policy, targets.top), (Policy::Single, true));
        assert_eq!(targets.ignored, ["--nonsense", "-Z", "GLB_POLICY=fast"]);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(read(&[("GLB_BIND", "3306")]).unwrap_err().contains("GLB_TARGETS"));
        assert!(read(&[("GLB_BIND", "x"), ("GLB_TARGETS", "a")]).is_err());
        assert!(read(&[("GLB_OPTIONS", "--nonsense")]).unwrap_err().contains("GLB_BIND"));
        assert!(read(&[("GLB_OPTIONS", "-t x 3306 a")]).is_err());
    }
}
