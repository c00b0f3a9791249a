//! The make-believe file system of a pod: what paths inside mean outside, and what its volumes hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::objects::Key;
use crate::world::World;

/// What every container finds programs by.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Any address, where the pod's own must be meant on a machine that all pods share.
const ANY_ADDRESS: &str = "0.0.0.0:";

/// Where a container's processes run.
#[derive(Debug, Default)]
pub(crate) struct Setting {
    /// Places inside and outside, the longest inside first.
    pub(crate) places: Vec<(String, String)>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workdir: PathBuf,
    pub(crate) ip: String,
}

impl Setting {
    /// A text with all inside paths replaced.
    pub(crate) fn outside(&self, text: &str) -> String {
        let mut rest = text;
        let mut out = String::with_capacity(text.len());
        let is_path = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
        'text: while let Some(first) = rest.chars().next() {
            let follows_path = out
                .chars()
                .next_back()
                .is_some_and(|c| is_path(c) || c == '/');
            if !follows_path {
                for (inside, outside) in &self.places {
                    if let Some(after) = rest.strip_prefix(inside.as_str())
                        && !after.chars().next().is_some_and(is_path)
                    {
                        out.push_str(outside);
                        rest = after;
                        continue 'text;
                    }
                }
            }
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
        out.replace(ANY_ADDRESS, &format!("{}:", self.ip))
    }
}

/// Why a container cannot be made: reason and message.
pub(crate) struct Unmade(pub(crate) &'static str, pub(crate) String);

/// What a pod's containers are made from.
pub(crate) struct PodFiles<'a> {
    pub(crate) world: &'a World,
    pub(crate) key: &'a Key,
    pub(crate) pod: &'a Value,
    pub(crate) dir: &'a Path,
    pub(crate) ip: &'a str,
}

impl PodFiles<'_> {
    /// Makes a container's setting, with its volumes filled.
    pub(crate) fn setting(&self, container: &Value) -> Result<Setting, Unmade> {
        let image = self
            .world
            .image(container["image"].as_str().unwrap_or_default());
        let shown = |path: &Path| path.display().to_string();
        let mut places: Vec<_> = image
            .files
            .iter()
            .map(|(i, o)| (i.clone(), shown(o)))
            .collect();
        let unmade = |e: std::io::Error| Unmade("CreateContainerConfigError", e.to_string());
        let mut mounted = Vec::new();
        for mount in items(&container["volumeMounts"]) {
            let (name, inside) = (
                word(&mount["name"]),
                word(&mount["mountPath"]).trim_end_matches('/'),
            );
            let volume = self.dir.join("volumes").join(name);
            std::fs::create_dir_all(&volume).map_err(unmade)?;
            let outside = match mount["subPath"].as_str() {
                Some(part) => volume.join(part),
                None => volume.clone(),
            };
            places.push((inside.to_owned(), shown(&outside)));
            mounted.push((name.to_owned(), volume));
        }
        nest(&places).map_err(unmade)?;
        places.sort_by_key(|(inside, _)| std::cmp::Reverse(inside.len()));
        let workdir = container["workingDir"].as_str();
        let mut setting = Setting {
            places,
            env: BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]),
            workdir: self.dir.to_owned(),
            ip: self.ip.to_owned(),
        };
        if let Some(workdir) = workdir {
            let outside = PathBuf::from(setting.outside(workdir));
            if std::fs::create_dir_all(&outside).is_ok() {
                setting.workdir = outside;
            }
        }
        for (name, outside) in mounted {
            self.fill(&name, &outside, &setting)?;
        }
        for variable in items(&container["env"]) {
            let value = self.variable(variable)?;
            let value = setting.outside(&value);
            setting
                .env
                .insert(word(&variable["name"]).to_owned(), value);
        }
        Ok(setting)
    }

    fn fill(&self, name: &str, dir: &Path, setting: &Setting) -> Result<(), Unmade> {
        let volume = items(&self.pod["spec"]["volumes"])
            .iter()
            .find(|v| v["name"] == name);
        let Some(volume) = volume else {
            return Ok(());
        };
        let write = |path: &str, text: &str| {
            let path = dir.join(path);
            path.parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| std::fs::write(&path, setting.outside(text)))
                .map_err(|e| Unmade("CreateContainerConfigError", e.to_string()))
        };
        for item in items(&volume["downwardAPI"]["items"]) {
            let text = self.field(word(&item["fieldRef"]["fieldPath"]));
            write(word(&item["path"]), &text)?;
        }
        if let Some(secret) = volume["secret"]["secretName"].as_str() {
            let data = self.secret(secret)?;
            for (key, value) in data.as_object().into_iter().flatten() {
                write(key, word(value))?;
            }
        }
        Ok(())
    }

    fn variable(&self, variable: &Value) -> Result<String, Unmade> {
        let from = &variable["valueFrom"];
        if let Some(path) = from["fieldRef"]["fieldPath"].as_str() {
            return Ok(self.field(path));
        }
        let reference = &from["secretKeyRef"];
        if let Some(name) = reference["name"].as_str() {
            let (key, optional) = (word(&reference["key"]), reference["optional"] == true);
            return match self.secret(name) {
                Ok(data) if data[key].is_string() => Ok(word(&data[key]).to_owned()),
                _ if optional => Ok(String::new()),
                Ok(_) => {
                    let what = format!("couldn't find key {key} in Secret {}/{name}", self.key.0);
                    Err(Unmade("CreateContainerConfigError", what))
                }
                Err(unmade) => Err(unmade),
            };
        }
        Ok(word(&variable["value"]).to_owned())
    }

    fn secret(&self, name: &str) -> Result<Value, Unmade> {
        let key = (self.key.0.clone(), name.to_owned());
        let found = self.world.with(|state| state.secrets.get(&key).cloned());
        found.ok_or_else(|| {
            Unmade(
                "CreateContainerConfigError",
                format!("secret \"{name}\" not found"),
            )
        })
    }

    /// A downward API field.
    fn field(&self, path: &str) -> String {
        if path == "status.podIP" {
            return self.ip.to_owned();
        }
        if let Some((map, key)) = path.strip_suffix("']").and_then(|p| p.split_once("['")) {
            let map = &self.pod["metadata"][map.trim_start_matches("metadata.")];
            return word(&map[key]).to_owned();
        }
        let pointer = format!("/{}", path.replace('.', "/"));
        self.pod
            .pointer(&pointer)
            .map(word)
            .unwrap_or_default()
            .to_owned()
    }
}

/// What is mounted below another mount is seen there too.
fn nest(places: &[(String, String)]) -> std::io::Result<()> {
    for (inside, outside) in places {
        let below = |place: &&(String, String)| {
            let rest = inside.strip_prefix(&place.0);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let Some(parent) = places.iter().filter(below).max_by_key(|p| p.0.len()) else {
            continue;
        };
        let name = inside[parent.0.len()..].trim_start_matches('/');
        let link = Path::new(&parent.1).join(name);
        match std::os::unix::fs::symlink(outside, &link) {
            // of an earlier start of the container
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    Ok(())
}

pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_paths_are_replaced_where_they_stand_alone() {
        let setting = Setting {
            places: vec![
                ("/opt/bex/driver".into(), "/b/driver".into()),
                ("/opt".into(), "/o".into()),
            ],
            ip: "127.1.2.3".into(),
            ..Setting::default()
        };
        for (inside, outside) in [
            ("/opt/bex/driver", "/b/driver"),
            ("/opt/bex/driver2", "/o/bex/driver2"),
            (
                r#"{"dir":"/opt/x","listen":"0.0.0.0:8787"}"#,
                r#"{"dir":"/o/x","listen":"127.1.2.3:8787"}"#,
            ),
            ("/var/opt/x", "/var/opt/x"),
            ("--dir=/opt", "--dir=/o"),
            ("/optional", "/optional"),
        ] {
            assert_eq!(setting.outside(inside), outside, "{inside}");
        }
    }
}
