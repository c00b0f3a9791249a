//! Tables and headings of Markdown, as far as documents are compared with what they describe.

/// The cells of every table row whose first cell is code, without its head.
pub fn rows(markdown: &str) -> Vec<Vec<String>> {
    let rows = markdown.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
    .collect()
}

/// What stands in backticks.
pub fn code(cell: &str) -> Vec<String> {
    let odd = cell.split('`').skip(1).step_by(2);
    odd.map(str::to_owned).collect()
}

/// Headings of this level.
pub fn headings(markdown: &str, level: usize) -> Vec<String> {
    let mark = format!("{} ", "#".repeat(level));
    let found = markdown.lines().filter_map(|l| l.strip_prefix(&mark));
    found.map(|h| h.trim().to_owned()).collect()
}
