//! Helm, as somebody who installs the chart runs it.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::{chart, objects, root};

/// The namespace of the release.
pub const NAMESPACE: &str = "plane";
/// Its name.
pub const RELEASE: &str = "bex";
/// The oldest cluster that the chart takes, and the one whose types the code is written for.
pub const CLUSTERS: [&str; 2] = ["1.30", "1.34"];

/// The values files of `charts/bex/ci`, each an installation of its own.
pub const VALUES: [&str; 3] = ["minimal", "tls", "full"];

/// The objects that an installation with these values has, hooks and tests too.
///
/// # Errors
/// Helm's words, when it refuses.
pub fn render(values: &str, more: &[&str]) -> anyhow::Result<Vec<Value>> {
    objects::parse(&template(values, more)?)
}

/// The same as text.
///
/// # Errors
/// Helm's words, when it refuses.
pub fn template(values: &str, more: &[&str]) -> anyhow::Result<String> {
    let mut args = vec!["template", RELEASE, "--namespace", NAMESPACE];
    args.extend(["--kube-version", CLUSTERS[1]]);
    run(&args, values, more)
}

/// What NOTES.txt tells somebody who has just installed.
///
/// # Errors
/// Helm's words, when it refuses.
pub fn notes(values: &str) -> anyhow::Result<String> {
    let args = [
        "install",
        RELEASE,
        "--namespace",
        NAMESPACE,
        "--dry-run=client",
    ];
    let shown = run(&args, values, &[])?;
    let (_, notes) = shown.split_once("\nNOTES:\n").context("no notes")?;
    Ok(notes.to_owned())
}

/// Lints the chart with these values; warnings count.
///
/// # Errors
/// Helm's words, when it finds something.
pub fn lint(values: &str) -> anyhow::Result<()> {
    run(&["lint", "--strict", "--quiet"], values, &[]).map(drop)
}

fn run(command: &[&str], values: &str, more: &[&str]) -> anyhow::Result<String> {
    let helm = variable("BEX_HELM")?;
    let mut process = Command::new(&helm);
    process.args(command).arg(chart()).args(more);
    if !values.is_empty() {
        process
            .arg("--values")
            .arg(chart().join("ci").join(format!("{values}.yaml")));
    }
    // no cluster, whatever this machine knows of one
    process.env("KUBECONFIG", "/dev/null");
    let done = process
        .output()
        .with_context(|| format!("cannot run {}", helm.display()))?;
    if !done.status.success() {
        bail!(
            "helm {command:?} with {values:?}: {}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(String::from_utf8(done.stdout)?)
}

/// Checks these objects against the schemas of a cluster of this version; unknown fields count.
///
/// # Errors
/// The validator's words.
pub fn validate(objects: &[Value], version: &str) -> anyhow::Result<()> {
    let program = variable("BEX_KUBERNETES_VALIDATE")?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("objects.json");
    // a list of documents in YAML, of which JSON is a part
    let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
    std::fs::write(&file, documents.join("\n---\n"))?;
    let done = Command::new(program)
        .args(["--kubernetes-version", version, "--strict"])
        .arg(&file)
        .output()?;
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{said}");
    let passed = said.matches(" passed ").count();
    ensure!(
        passed == objects.len(),
        "{passed} of {} were judged: {said}",
        objects.len()
    );
    Ok(())
}

/// Checks an object of an operator, of which no cluster has a schema of its own, against the one in `tests/chart/schemas`.
///
/// # Errors
/// When there is none for its kind, and the validator's words.
pub fn validate_foreign(object: &Value) -> anyhow::Result<()> {
    let kind = objects::at(object, "/kind").to_lowercase();
    let schema = root().join(format!("tests/chart/schemas/{kind}.json"));
    ensure!(schema.is_file(), "no schema for {}", objects::name(object));
    // the library that the other validator brought
    let python = variable("BEX_KUBERNETES_VALIDATE")?.with_file_name("python");
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("object.json");
    std::fs::write(&file, object.to_string())?;
    let done = Command::new(python)
        .args(["-W", "ignore", "-m", "jsonschema", "-i"])
        .args([&file, &schema])
        .output()?;
    let said =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}: {said}", objects::name(object));
    Ok(())
}

/// What `scripts/chart` says by a variable.
pub(crate) fn variable(name: &str) -> anyhow::Result<std::path::PathBuf> {
    let value: Option<OsString> = std::env::var_os(name);
    let value = value.with_context(|| format!("{name} is not set: run scripts/chart"))?;
    Ok(value.into())
}
