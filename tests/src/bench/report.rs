//! Each figure beside its floor, in one table.

/// One line of the report.
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// What was measured.
    pub value: String,
    /// What it was measured beside, in the same run.
    pub beside: String,
    /// The floor, in words.
    pub floor: &'static str,
    /// Whether it does.
    pub holds: bool,
}

/// The middle of an odd number of runs.
pub fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Prints the table, headed by the machine and a note; true when every floor holds.
#[expect(clippy::print_stdout, reason = "the report is what a bench is run for")]
pub fn print(figures: &[Figure], note: &str) -> bool {
    println!("\n{}; {note}", machine());
    println!("| figure | measured | beside | floor | holds |\n|---|---|---|---|---|");
    for f in figures {
        println!(
            "| {} | {} | {} | {} | {} |",
            f.name,
            f.value,
            f.beside,
            f.floor,
            if f.holds { "yes" } else { "NO" }
        );
    }
    figures.iter().all(|f| f.holds)
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let field = |text: &str, name: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(name))
            .map(|v| v.trim_matches([':', ' ', '\t']).to_owned())
            .unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "machine: {cores} cores, {}, {} memory",
        field(&cpu, "model name"),
        field(&memory, "MemTotal")
    )
}
