// SPDX-License-Identifier: GPL-2.0-only
//! Tables with one unit a column: times of a column in ms, all with as many decimals as the finest of them has.

/// On which side the cells of a column begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Align {
    Left,
    Right,
}

/// A table that is made column by column.
#[derive(Debug, Default)]
pub struct Columns(Vec<(Vec<String>, Align)>);

impl Columns {
    /// One more column, with its head.
    pub fn add(&mut self, head: &str, cells: impl IntoIterator<Item = String>, align: Align) {
        let all = std::iter::once(head.to_owned()).chain(cells).collect();
        self.0.push((all, align));
    }

    /// The lines, each with an end.
    pub fn text(&self) -> String {
        let width =
            |cells: &Vec<String>| cells.iter().map(|c| c.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = self.0.iter().map(|(cells, _)| width(cells)).collect();
        let rows = self.0.iter().map(|(cells, _)| cells.len()).max().unwrap_or(0);
        let mut text = String::new();
        for row in 0..rows {
            let mut line = String::new();
            for ((cells, align), width) in self.0.iter().zip(&widths) {
                let cell = cells.get(row).map_or("", String::as_str);
                match align {
                    Align::Right => line += &format!("{cell:>width$}  "),
                    Align::Left => line += &format!("{cell:<width$}  "),
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Times of one column in ms; `none` where there is none.
pub fn ms(times: &[Option<u64>], none: &str) -> Vec<String> {
    let needed = |ns: &u64| (0..6).find(|d| ns.is_multiple_of(10u64.pow(6 - d))).unwrap_or(6);
    let decimals = times.iter().flatten().map(needed).max().unwrap_or(0) as usize;
    let one = |time: &Option<u64>| match time {
        None => none.to_owned(),
        Some(ns) => match decimals {
            0 => (ns / 1_000_000).to_string(),
            d => {
                let part = ns % 1_000_000 / 10u64.pow(6 - d as u32);
                format!("{}.{part:0d$}", ns / 1_000_000)
            }
        },
    };
    times.iter().map(one).collect()
}

/// Bounds of one column in ms, rounded up to whole µs; `none` where there is none.
pub fn bounds(times: &[Option<u64>], none: &str) -> Vec<String> {
    let up = |ns: u64| ns.div_ceil(1000).saturating_mul(1000);
    ms(&times.iter().map(|time| time.map(up)).collect::<Vec<_>>(), none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_one_unit_and_as_many_decimals_as_its_finest_time() {
        let times = [Some(7_501_656), Some(90_000_000), None, Some(0)];
        assert_eq!(ms(&times, "-"), ["7.501656", "90.000000", "-", "0.000000"]);
        assert_eq!(ms(&[Some(3_600_000_000_000), Some(500)], "-"), ["3600000.0000", "0.0005"]);
        assert_eq!(ms(&[Some(5_000_000)], "-"), ["5"]);
        assert_eq!(bounds(&[Some(324_093_916), None], "?"), ["324.094", "?"]);
        let mut table = Columns::default();
        table.add("task", ["a".into(), "long".into()], Align::Left);
        table.add("ms", ms(&[Some(12_500_000), Some(1_000_000)], ""), Align::Right);
        assert_eq!(table.text(), "task    ms\na     12.5\nlong   1.0\n");
    }
}
