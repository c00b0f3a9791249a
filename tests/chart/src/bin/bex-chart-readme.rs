//! Writes the chart's README from its values.

fn main() -> anyhow::Result<()> {
    let values = bex_testchart::text("charts/bex/values.yaml")?;
    let readme = bex_testchart::readme::generate(&values)?;
    std::fs::write(bex_testchart::chart().join("README.md"), readme)?;
    Ok(())
}
