//! Columns of text, as kubectl prints them. Knows nothing of what stands in them.

/// What stands between two columns.
const GAP: &str = "   ";

/// The lines of a table: each column as wide as its widest cell, nothing behind the last one.
pub fn lines<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let all = || std::iter::once(&head).chain(rows);
    let mut widths = [0; N];
    for row in all() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in all() {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join(GAP).trim_end();
        text.push('\n');
    }
    text
}

/// One line of a text that may have several.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_also_where_letters_are_not_ascii() {
        let rows = [["├─ a".to_owned(), "x".to_owned()], ["b".to_owned(), String::new()]];
        assert_eq!(lines(["NAME", "Y"], &rows), "NAME   Y\n├─ a   x\nb\n");
    }
}
